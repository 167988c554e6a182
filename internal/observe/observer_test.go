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
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
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
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterstate.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.set.Namespace}}, s.node}
	if s.pod != nil {
		objects = append(objects, s.pod)
	}
	if s.set.UID != "" {
		objects = append(objects, s.set)
	}
	api := clusterstate.CacheThrough(interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(),
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
	reg := registryclient.New(fakeregistry.New(fakeregistry.Memory(t.Context())), registryclient.Options{Name: "default", Timeout: time.Second, MaxInFlight: 1})
	name, err := service.ParseNameTemplate("{label:app}")
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{
		Cluster: "prod", Registries: registryclient.Registries{"default": reg}, DefaultRegistries: []string{"default"}, Drain: drain.Fixed(15 * time.Second),
		Rules: clusterstate.Rules{
			Ownership: lifecycle.Ownership{Owned: []string{"example.com/*"}}, Services: service.Rules{Name: name},
		},
	}
	return o.Look(t.Context(), id, settings.Completed())
}

var errDown = errors.New("connection refused")

// TestLook: what a visit rests on, by what can be read of the pod.
func TestLook(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		change  func(*scene)
		targets string
		drain   time.Duration
		problem reason.Reason
		zone    string
		forget  bool
		again   bool
		fails   string
	}{
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			if f.Input.Blocked != (tc.problem != "") {
				t.Errorf("%s: kept out of service: %t", tc.reason, f.Input.Blocked)
			}
		})
	}
}

func annotated(key, value string) func(*scene) {
	return func(s *scene) { s.pod.Annotations[key] = value }
}
