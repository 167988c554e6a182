package observe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const preDelete = "example.com/pre-delete"

// scene is a pod web-1 of CloneSet web, in one registry, and what can be read of them.
type scene struct {
	pod  *corev1.Pod
	set  *kruisev1alpha1.CloneSet
	node *corev1.Node
	// fails is the answer of reads of objects of this kind.
	fails map[string]error
	// asks for a pod of another UID.
	uid types.UID
	// written is the resource version of this process's last write.
	written string
	// plain is a driver that can't steer applications' entries.
	plain bool
	// settings differ from the usual.
	settings func(*Settings)
}

func newScene(change func(*scene)) *scene {
	const namespace = "shop"
	labels := map[string]string{"app": "web", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{
			Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
		}}},
	}
	set := &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "set"},
		Spec: kruisev1alpha1.CloneSetSpec{
			Lifecycle: &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{preDelete}}}, Template: template,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
		},
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web-1", UID: "1", Labels: labels, Annotations: map[string]string{}, ResourceVersion: "7",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, kruisev1alpha1.SchemeGroupVersion.WithKind("CloneSet"))},
		},
		Spec: template.Spec,
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "east"}}}
	s := &scene{pod: pod, set: set, node: node, fails: map[string]error{}, uid: pod.UID}
	if change != nil {
		change(s)
	}
	return s
}

// look has a process look at the pod that has just begun to lead.
func (s *scene) look(t *testing.T) (Look, error) {
	t.Helper()
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.set.Namespace}}, s.node}
	if s.pod != nil {
		objects = append(objects, s.pod)
	}
	if s.set.UID != "" {
		objects = append(objects, s.set)
	}
	api := clusterstate.CacheThrough(interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objects...).Build(),
		interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, to client.Object, o ...client.GetOption) error {
			for kind, err := range s.fails {
				if strings.HasPrefix(key.Name, kind) {
					return err
				}
			}
			return c.Get(ctx, key, to, o...)
		}}))
	id := lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: s.set.Namespace, Name: "web-1"}, UID: s.uid}
	pods := clusterstate.PodsThrough(api)
	o := &Observer{
		Client: api, Pods: pods, APIReader: api, Tracker: tracker.New(), State: clusterstate.New(api, pods, nil), Memory: memory.New(),
		Identity: clusterstate.NewIdentity(api, logr.Discard()), Clock: clocktesting.NewFakePassiveClock(time.Unix(1_000_000, 0)),
	}
	o.Memory.Of(id).Written = s.written
	var driver registry.Registry = fakeregistry.New(fakeregistry.Memory(t.Context()))
	if s.plain {
		driver = struct{ registry.Registry }{driver}
	}
	reg := registryclient.New(driver, registryclient.Options{Name: "default", Timeout: time.Second, MaxInFlight: 1})
	name, err := service.ParseNameTemplate("{label:app}")
	expect.NoError(t, err)
	settings := Settings{
		Cluster: "prod", Registries: registryclient.Registries{"default": reg}, DefaultRegistries: []string{"default"}, Drain: drain.Fixed(15 * time.Second),
		Rules: clusterstate.Rules{
			Ownership: lifecycle.Ownership{Owned: []string{"example.com/*"}}, Services: service.Rules{Name: name},
		},
	}
	if s.settings != nil {
		s.settings(&settings)
	}
	return o.Look(t.Context(), id, settings.Completed())
}

var errDown = errors.New("connection refused")

// TestLook: what a visit rests on, by what can be read of the pod.
func TestLook(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		change  func(*scene)
		targets string
		drain   time.Duration
		problem reason.Reason
		zone    string
		forget  bool
		again   bool
		fails   string
	}
	expect.Each(t, map[string]row{
		"a pod in service": {
			reason: "it belongs where its workload and the configuration say", targets: "web at 10.0.0.1:8080", drain: 15 * time.Second, zone: "east",
		},
		"its node is not known yet": {
			reason: "its zone comes later", change: func(s *scene) { s.node.Name = "node-2" }, targets: "web at 10.0.0.1:8080", drain: 15 * time.Second,
		},
		"a drain of its own": {
			reason: "the annotation counts", change: annotated(service.AnnotationDrain, "1m"), targets: "web at 10.0.0.1:8080", drain: time.Minute, zone: "east",
		},
		"a drain that is none": {
			reason: "the pod keeps its place, and the usual drain", change: annotated(service.AnnotationDrain, "soon"),
			targets: "web at 10.0.0.1:8080", drain: 15 * time.Second, problem: reason.InvalidPod, zone: "east",
		},
		"no address yet": {
			reason: "there is nothing to register", change: func(s *scene) { s.pod.Status.PodIP, s.pod.Status.PodIPs = "", nil },
			drain: 15 * time.Second, problem: reason.NoAddress,
		},
		"a registry that is none": {
			reason: "it may be in any registry, and either writer's", change: annotated(service.AnnotationRegistries, "other"),
			targets: "web at 10.0.0.1:8080 web at 10.0.0.1:8080", drain: 15 * time.Second, problem: reason.InvalidPod,
		},
		"a registry that is none, and a plain driver": {
			reason: "an application's entry could not be asked for", change: func(s *scene) {
				annotated(service.AnnotationRegistries, "other")(s)
				s.plain = true
			},
			targets: "web at 10.0.0.1:8080", drain: 15 * time.Second, problem: reason.InvalidPod, zone: "east",
		},
		"its application registers at the node's address": {
			reason: "clients outside the cluster are given that", change: func(s *scene) {
				annotated(service.AnnotationAddress, "HostIP")(s)
				annotated(service.AnnotationRegistries, "default=app")(s)
				s.pod.Status.HostIP, s.pod.Spec.Containers[0].Ports[0].HostPort = "192.0.2.1", 31080
			},
			targets: "web at 192.0.2.1:31080", drain: 15 * time.Second,
		},
		"without hooks or a trace": {
			reason: "it is not Rollcall's", change: func(s *scene) { s.set.Spec.Lifecycle = nil }, forget: true,
		},
		"another pod of its name": {
			reason: "of the former one the events tell, unless this process never had it", change: func(s *scene) { s.uid = "0" },
		},
		"the cache lacks this process's write": {
			reason: "a decision would repeat it", change: func(s *scene) { s.written = "9" }, again: true,
		},
		"its workload can't be read": {
			reason: "its hooks are not known", change: func(s *scene) { s.fails["web"] = errDown }, fails: "reading the pod",
		},
		"its node can't be read": {
			reason: "whether the pod ends is not known", change: func(s *scene) { s.fails["node-1"] = errDown }, fails: "node",
		},
	}, func(t *testing.T, tc row) {
		look, err := newScene(tc.change).look(t)
		if tc.fails != "" {
			if err == nil || !strings.Contains(err.Error(), tc.fails) || look.Facts == nil || look.Facts.Input.Pod.Name != "web-1" {
				t.Fatalf("%s: got %+v and error %v, want one about %q, and whose pod it is", tc.reason, look, err, tc.fails)
			}
			return
		}
		if err != nil || look.Forget != tc.forget || (look.Again > 0) != tc.again {
			t.Fatalf("%s: got %+v and error %v; want it forgotten: %t, again: %t", tc.reason, look, err, tc.forget, tc.again)
		}
		if look.Facts == nil {
			if tc.drain > 0 {
				t.Fatalf("%s: got no facts", tc.reason)
			}
			return
		}
		f := look.Facts
		targets, zone := "", ""
		for _, at := range f.Targets {
			targets, zone = targets+" "+at.Instance.Service+" at "+at.Instance.Endpoint(), at.Instance.Zone
		}
		targets = strings.TrimSpace(targets)
		if targets != tc.targets || f.Drain.Max != tc.drain || f.Problem.Reason != tc.problem || zone != tc.zone {
			t.Errorf("%s: got targets %q, drain %s, problem %q, zone %q; want %q, %s, %q, %q", tc.reason,
				targets, f.Drain.Max, f.Problem.Reason, zone, tc.targets, tc.drain, tc.problem, tc.zone)
		}
		expect.Equal(t, tc.problem != "", f.Input.Blocked, "%s: kept out of service", tc.reason)
	})
}

// TestLook_Sources: where the annotation does not parse, the lists of all registries have to show that the pod is in none, whatever is recorded.
func TestLook_Sources(t *testing.T) {
	t.Parallel()
	look, err := newScene(func(s *scene) {
		annotated(service.AnnotationRegistries, "other")(s)
		annotated(lifecycle.AnnotationRecord, `{"stamp":{"uid":"1","state":"Normal"},"want":"OutOfService",`+
			`"instances":[{"registry":"default","service":"web","address":"10.0.0.1","port":8080}]}`)(s)
	}).look(t)
	expect.NoError(t, err)
	expect.Equal(t, []lifecycle.Source{{Registry: "default"}, {Registry: "default", Writer: lifecycle.Application}}, look.Facts.Sources,
		"it was taken out of one, and nothing tells which others it is in")
}

// TestLook_WhatAPersonShouldCheck: the pod stays where it belongs, and the first of these shows.
func TestLook_WhatAPersonShouldCheck(t *testing.T) {
	t.Parallel()
	const nodes, pods = "10.96.0.9", "192.0.2.1"
	behind := func(gates ...corev1.PodConditionType) func(*scene) {
		return func(s *scene) {
			for _, gate := range gates {
				s.pod.Spec.ReadinessGates = append(s.pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
			}
		}
	}
	injected := func(s *scene) {
		proxy := corev1.Container{Name: "proxy", Ports: []corev1.ContainerPort{{ContainerPort: 15090}}}
		s.pod.Spec.Containers = append([]corev1.Container{proxy}, s.pod.Spec.Containers...)
	}
	onNode := func(address service.Address, host, shows string) func(*scene) {
		return func(s *scene) {
			s.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: host}, {Type: corev1.NodeInternalIP, Address: nodes}}
			s.pod.Spec.Containers = []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 31080}}}}
			s.pod.Status.HostIP = shows
			s.settings = func(of *Settings) { of.Services.Address = address }
		}
	}
	const virtual, target = "node-1.nodes.vcluster.com", "target-health.elbv2.k8s.aws/web"
	type row struct {
		reason string
		change func(*scene)
		why    reason.Reason
		says   string
	}
	expect.Each(t, map[string]row{
		"nothing": {reason: "all is well"},
		"an end of its node that can't be read": {
			"a handler or a person writes it", func(s *scene) { s.node.Annotations = map[string]string{lifecycle.AnnotationEndsAt: "in 2 minutes"} },
			reason.InvalidPod, "of node node-1 is",
		},
		"an end that can't be read": {
			"an eviction would be let through from under it", annotated(lifecycle.AnnotationEndsAt, "in 2 minutes"), reason.InvalidPod, "of the pod is",
		},
		"an annotation that is misspelled": {
			"it has no effect", annotated("rollcall.dev/drian", "60s"), reason.InvalidPod, "did you mean rollcall.dev/drain?",
		},
		"a hold that can't be read": {
			"it has no effect", annotated(lifecycle.AnnotationHold, "for an hour"), reason.InvalidPod, "begins with no time",
		},
		"two of these": {
			"the first is corrected first", func(s *scene) {
				annotated(lifecycle.AnnotationHold, "for an hour")(s)
				annotated(lifecycle.AnnotationEndsAt, "in 2 minutes")(s)
			}, reason.InvalidPod, "of the pod is",
		},
		"a balancer that keeps it": {
			"an update in place loses requests", behind(lifecycle.ConditionInRotation, target), reason.InvalidPod, "readiness gate " + target,
		},
		"a balancer that waits for it":  {"it takes the pod out while it is not ready", behind(target), "", ""},
		"a container before its own":    {"clients can't reach the application", injected, reason.InvalidPod, "of container proxy"},
		"the address of a virtual node": {"no hostPort is there", onNode("HostIP", virtual, nodes), reason.InvalidPod, "address " + nodes},
		"the address of the real node":  {"clients are given the pod's, on it", onNode("HostIP", virtual, pods), "", ""},
		"the address of a usual node":   {"its hostPorts are there", onNode("HostIP", "node-1", nodes), "", ""},
		"its own, on a virtual node":    {"clients are given that", onNode("PodIP", virtual, nodes), "", ""},
	}, func(t *testing.T, tc row) {
		look, err := newScene(tc.change).look(t)
		if err != nil || look.Facts == nil {
			t.Fatalf("%s: got %+v and error %v", tc.reason, look, err)
		}
		f := look.Facts
		if f.Warning.Reason != tc.why || !strings.Contains(f.Warning.Message, tc.says) {
			t.Errorf("%s: it shows %q, %q, want %q, %q", tc.reason, f.Warning.Reason, f.Warning.Message, tc.why, tc.says)
		}
		if len(f.Targets) != 1 || f.Input.Blocked || f.Input.Ending != "" {
			t.Errorf("%s: it does not stay in rotation: %+v", tc.reason, f.Input.Circumstances)
		}
	})
}

// TestLook_Ending: why a pod must be out although it is ready, or stays although it is not, and when that changes without an event.
func TestLook_Ending(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	at := func(after time.Duration) string { return now.Add(after).UTC().Format(time.RFC3339) }
	held := annotated(lifecycle.AnnotationHold, at(time.Hour)+" heap dump")
	nodeEnds := func(after time.Duration) func(*scene) {
		return func(s *scene) { s.node.Annotations = map[string]string{lifecycle.AnnotationEndsAt: at(after)} }
	}
	unready := func(ago, patience time.Duration) func(*scene) {
		return func(s *scene) {
			s.pod.Status.Conditions[0] = corev1.PodCondition{
				Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
			}
			s.settings = func(of *Settings) { of.PanicThreshold, of.UnreadyAfter = 100, patience }
		}
	}
	type row struct {
		reason  string
		change  []func(*scene)
		ending  string
		kept    bool
		changes time.Duration
	}
	expect.Each(t, map[string]row{
		"held":                       {"a person looks into it", []func(*scene){held}, "held out of rotation", true, time.Hour},
		"held, and the hold is over": {"it is back", []func(*scene){annotated(lifecycle.AnnotationHold, at(-time.Second))}, "", true, 0},
		"its node ends":              {"15 s to drain, 20 s to stop, and 5 s for the registry", []func(*scene){nodeEnds(40 * time.Second)}, "its node ends", true, 5*time.Minute + 20*time.Second},
		"its node ends later":        {"it serves until then", []func(*scene){nodeEnds(100 * time.Second)}, "", true, time.Minute},
		"held, and its node ends":    {"a hold would end sooner", []func(*scene){held, nodeEnds(40 * time.Second)}, "its node ends", true, 5*time.Minute + 20*time.Second},
		"held, and ends later":       {"the first change counts", []func(*scene){held, nodeEnds(100 * time.Second)}, "held out of rotation", true, time.Minute},
		"not ready for a moment":     {"a missed probe is soon over", []func(*scene){unready(time.Second, 5*time.Second)}, "", true, 4 * time.Second},
		"not ready for longer":       {"it does not serve", []func(*scene){unready(5*time.Second, 5*time.Second)}, "", false, 0},
	}, func(t *testing.T, tc row) {
		look, err := newScene(func(s *scene) {
			for _, change := range tc.change {
				change(s)
			}
		}).look(t)
		if err != nil || look.Facts == nil {
			t.Fatalf("%s: got %+v and error %v", tc.reason, look, err)
		}
		f := look.Facts
		if !strings.Contains(f.Input.Ending, tc.ending) || (f.Input.Ending == "") != (tc.ending == "") {
			t.Errorf("%s: it ends: %q, want %q", tc.reason, f.Input.Ending, tc.ending)
		}
		if f.Input.KeepUnready != tc.kept || f.Changes != tc.changes {
			t.Errorf("%s: kept %t, changes in %s; want %t, %s", tc.reason, f.Input.KeepUnready, f.Changes, tc.kept, tc.changes)
		}
	})
}

func annotated(key, value string) func(*scene) {
	return func(s *scene) { s.pod.Annotations[key] = value }
}
