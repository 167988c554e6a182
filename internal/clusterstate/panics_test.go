package clusterstate

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

func TestPeersOfOtherNamespacesAndServices(t *testing.T) {
	t.Parallel()
	s := &Rules{PanicThreshold: 50}
	sharing := func(namespaces ...service.NamespacePattern) *Rules {
		policy := service.Policy{
			{Namespaces: namespaces, Names: []service.NamePattern{"admin"}, Shared: true},
			{Namespaces: []service.NamespacePattern{"*"}, Names: []service.NamePattern{"*"}},
		}
		return &Rules{PanicThreshold: 50, Services: service.Rules{Allowed: policy}}
	}
	p := newPanics(claimsOf("shop", "mall"), &Records{})
	pod := func(namespace, name string, isReady bool, services ...string) *corev1.Pod {
		pod := peerPod(namespace, name, isReady, services...)
		p.Arrived(lifecycle.PodOf(pod), s)
		return pod
	}
	first := pod("shop", "a", false, "web", "admin")
	pod("shop", "b", true, "WEB")
	pod("mall", "c", true, "admin")
	expect := func(reason string, want lifecycle.Service, pod *corev1.Pod, s *Rules) {
		t.Helper()
		if got := p.Of(pod.Namespace, lifecycle.RecordOf(lifecycle.PodOf(pod)), s).Service; got != want {
			t.Errorf("service %q is in panic, want %q: %s", got, want, reason)
		}
	}
	expect("in one of its services it is alone; names that differ in case are one", "admin", first, s)
	expect("both share it", "", first, sharing("shop", "mall"))
	expect("the other may use the name, and not share it", "admin", first, sharing("shop"))
	expect("this one may use the name, and not share it", "admin", first, sharing("mall"))
	pod("gone", "d", true, "admin")
	expect("what is not known of a namespace shares nothing", "admin", first, sharing("shop", "gone"))

	t.Log("A shared panic ends in one of the namespaces: the unready pods of both are looked at again.")
	both := sharing("shop", "mall")
	p.TakeCalmed()
	second := pod("mall", "e", false, "admin")
	pod("mall", "f", false, "admin")
	ready := peerPod("mall", "f", true, "admin")
	ready.ResourceVersion = "8"
	p.Arrived(lifecycle.PodOf(ready), both)
	if got := p.TakeCalmed(); len(got) != 2 {
		t.Errorf("calmed %v, want %s and %s", got, first.Name, second.Name)
	}
	for _, name := range []string{"gone/d", "mall/e", "mall/f"} {
		p.Forget(metaOf(name).UID, s)
	}

	p.Forget(first.UID, s)
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(first), Record: lifecycle.RecordOf(lifecycle.PodOf(first))}, s)
	if got := len(p.pods); got != 2 {
		t.Errorf("%d pods are counted, want 2: one that is gone stays gone", got)
	}
	older := peerPod("shop", "b", false, "web")
	older.ResourceVersion = "1"
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(older), Record: lifecycle.RecordOf(lifecycle.PodOf(older))}, s)
	expect("an older version counts for nothing", "", older, s)
	for _, name := range []string{"shop/b", "mall/c"} {
		p.Forget(metaOf(name).UID, s)
	}
	if len(p.pods)+len(p.services) != 0 {
		t.Errorf("all pods are gone, and %v %v is left", p.pods, p.services)
	}
}

// TestPeersThatEndOrAreLost: their nodes tell, and events of the pods do not.
func TestPeersThatEndOrAreLost(t *testing.T) {
	t.Parallel()
	s := &Rules{PanicThreshold: 50}
	p := newPanics(newClaims(), &Records{})
	var pods []*corev1.Pod
	for _, name := range []string{"a", "b", "c", "d"} {
		pods = append(pods, peerPod("shop", name, name > "b", "web"))
		p.Arrived(lifecycle.PodOf(pods[len(pods)-1]), s)
	}
	expect := func(reason string, all, unready int) {
		t.Helper()
		if got, want := p.of(serviceKey{"web", "web", "shop"}, s), (lifecycle.Peers{All: all, Unready: unready}); got != want {
			t.Errorf("got %+v, want %+v: %s", got, want, reason)
		}
	}
	expect("as the pods tell", 4, 2)
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(pods[0]), Record: lifecycle.RecordOf(lifecycle.PodOf(pods[0])), Circumstances: lifecycle.Circumstances{Ending: "its node is shutting down"}}, s)
	expect("it is out on purpose, as one that is being deleted", 3, 1)
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(pods[1]), Record: lifecycle.RecordOf(lifecycle.PodOf(pods[1])), Circumstances: lifecycle.Circumstances{Ending: "its node is shutting down"}}, s)
	expect("no fault is left", 2, 0)

	gated := peerPod("shop", "c", false, "web")
	gated.ResourceVersion = "8"
	gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}}
	gated.Status.Conditions[0].Reason = "ReadinessGatesNotReady"
	gated.Status.Conditions = append(gated.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
	p.Arrived(lifecycle.PodOf(gated), s)
	expect("it waits for nothing but to be in rotation", 2, 0)
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(gated), Record: lifecycle.RecordOf(lifecycle.PodOf(gated)), Circumstances: lifecycle.Circumstances{NodeLost: true}}, s)
	expect("its node is lost", 2, 1)
	gated.ResourceVersion = "9"
	p.Arrived(lifecycle.PodOf(gated), s)
	expect("an event of the pod does not bring the node back", 2, 1)
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(gated), Record: lifecycle.RecordOf(lifecycle.PodOf(gated))}, s)
	p.Refresh(lifecycle.Input{Pod: lifecycle.PodOf(pods[0]), Record: lifecycle.RecordOf(lifecycle.PodOf(pods[0]))}, s)
	expect("the nodes are back", 3, 1)
}

// claimsOf knows the namespaces.
func claimsOf(namespaces ...string) *Claims {
	claims, facts := newClaims(), map[string]namespaceFacts{}
	for _, name := range namespaces {
		facts[name] = namespaceFacts{}
	}
	claims.observed(facts, nil, time.Now())
	return claims
}

func peerPod(namespace, name string, isReady bool, services ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metaOf(namespace + "/" + name)}
	pod.Labels = map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)}
	record := lifecycle.Record{Stamp: lifecycle.StampOf(lifecycle.PodOf(pod)), Want: lifecycle.InService}
	for _, s := range services {
		record.Instances = append(record.Instances, lifecycle.Key{Registry: "default", Service: lifecycle.Service(s), Address: "10.0.0.1", Port: 80})
	}
	text, err := json.Marshal(record)
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{lifecycle.AnnotationRecord: string(text)}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if !isReady {
		pod.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	return pod
}

// metaOf names a pod by namespace/name, which is its UID too.
func metaOf(name string) metav1.ObjectMeta {
	namespace, pod, _ := strings.Cut(name, "/")
	return metav1.ObjectMeta{Namespace: namespace, Name: pod, UID: types.UID(name), ResourceVersion: "7"}
}
