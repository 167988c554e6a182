package clusterstate

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

func TestDeletesSpecified(t *testing.T) {
	t.Parallel()
	parallel := func(change func(*kruisev1beta1.StatefulSet)) *kruisev1beta1.StatefulSet {
		set := &kruisev1beta1.StatefulSet{Spec: kruisev1beta1.StatefulSetSpec{
			PodManagementPolicy: "Parallel", UpdateStrategy: kruisev1beta1.StatefulSetUpdateStrategy{
				Type: "RollingUpdate", RollingUpdate: &kruisev1beta1.RollingUpdateStatefulSetStrategy{},
			},
		}}
		change(set)
		return set
	}
	type row struct {
		reason string
		set    client.Object
		want   bool
	}
	expect.Each(t, map[string]row{
		"a CloneSet":    {"the label is its own", &kruisev1alpha1.CloneSet{}, true},
		"a DaemonSet":   {"its pods are not to leave their node", &kruisev1alpha1.DaemonSet{}, false},
		"a StatefulSet": {"it replaces one under the same name", parallel(func(*kruisev1beta1.StatefulSet) {}), true},
		"in order": {
			"one at a hook stops it", parallel(func(set *kruisev1beta1.StatefulSet) { set.Spec.PodManagementPolicy = "OrderedReady" }), false,
		},
		"by people": {
			"they delete pods", parallel(func(set *kruisev1beta1.StatefulSet) { set.Spec.UpdateStrategy.Type = "OnDelete" }), false,
		},
		"paused": {
			"it does nothing", parallel(func(set *kruisev1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Paused = true }), false,
		},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, AsWorkload(tc.set).DeletesSpecified(), "%s", tc.reason)
	})
}

// cacheOf is a cache with copies of the objects, for the fake client writes to what it is given, and the two namespaces.
func cacheOf(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	builder := fake.NewClientBuilder().WithScheme(kube.Scheme())
	for _, object := range objects {
		builder.WithObjects(object.DeepCopyObject().(client.Object))
	}
	for age, name := range []string{second, first} {
		created := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5-age, 0, time.UTC))
		builder.WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: created}})
	}
	return CacheThrough(builder.Build())
}

func cloneSet(namespace, services string) *kruisev1alpha1.CloneSet {
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	set.Spec.Lifecycle = &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"example.com/pre-delete"}}}
	set.Spec.Template.Annotations = map[string]string{service.AnnotationServices: services}
	return set
}

// TestNameRefused asks for the names of a workload whose namespace is younger than the other.
func TestNameRefused(t *testing.T) {
	t.Parallel()
	hookless := cloneSet(first, "web=80")
	hookless.Spec.Lifecycle = nil
	type row struct {
		reason string
		other  *kruisev1alpha1.CloneSet
		asks   string
		want   string
	}
	expect.Each(t, map[string]row{
		"used by the older":  {"its pods would wait", cloneSet(first, "web=80"), "api=80,web=80", "ServiceNotAllowed"},
		"another name":       {"none has it", cloneSet(first, "web=80"), "api=80", ""},
		"used without hooks": {"such a workload registers nothing", hookless, "web=80", ""},
		"badly described":    {"its pods get the warning", cloneSet(first, "web=many"), "web=80", ""},
	}, func(t *testing.T, tc row) {
		set := cloneSet(second, tc.asks)
		asks := &kruisev1beta1.StatefulSet{ObjectMeta: set.ObjectMeta}
		asks.Spec.Lifecycle, asks.Spec.Template = set.Spec.Lifecycle, set.Spec.Template
		refused, err := newState(cacheOf(t, tc.other, asks)).NameRefused(
			t.Context(), owning(), registries(), in(registries()), AsWorkload(asks), time.Now())
		expect.NoError(t, err)
		got := ""
		if refused != nil {
			got = string(refused.Reason)
		}
		expect.Equal(t, tc.want, got, "refused for: %s", tc.reason)
	})
	_, err := newState(cacheOf(t)).NameRefused(t.Context(), &Rules{}, nil, in(registries()), AsWorkload(cloneSet(second, "web=many")), time.Now())
	expect.Error(t, "the names are not known", err, "reading the services")
}

// in are sources whatever the workload.
func in(sources []lifecycle.Source) func(service.Subject) ([]lifecycle.Source, error) {
	return func(service.Subject) ([]lifecycle.Source, error) { return sources, nil }
}

func TestRecordsAreReadWhereARegistryIsYetToList(t *testing.T) {
	t.Parallel()
	pod := recordedPod(first, lifecycle.InService, web(first))
	type row struct {
		reason string
		listed []string
		pods   int
	}
	expect.Each(t, map[string]row{
		"none has listed": {"the records are all there is", nil, 1},
		"one has listed":  {"the records of the other's count", []string{"other"}, 1},
		"all have listed": {"the lists said who is registered", []string{"default", "other"}, 0},
	}, func(t *testing.T, tc row) {
		s, now := newState(cacheOf(t, pod)), time.Now()
		for _, registry := range tc.listed {
			s.Claims.Listed(List{Registry: registry, AsOf: now}, now)
		}
		for range 2 {
			expect.NoError(t, s.Workloads.Refresh(t.Context(), &Rules{}, sources("default", "other"), now))
			if pods, _ := s.Claims.Size(); pods != tc.pods {
				t.Errorf("%d pods have a name, want %d: %s", pods, tc.pods, tc.reason)
			}
			s.Claims.Forget(pod.UID, now)
			tc.pods, tc.reason = 0, "the records are read once"
		}
	})
}

// TestRefreshReadsTheCacheAnew has the first namespace get a workload that uses web, after a pod with a record was seen.
func TestRefreshReadsTheCacheAnew(t *testing.T) {
	t.Parallel()
	same, other := func(before *Rules) *Rules { return before }, func(*Rules) *Rules { return owning() }
	type row struct {
		reason     string
		changed    bool
		rules      func(before *Rules) *Rules
		registries []string
		sees       bool
		pods       int
	}
	expect.Each(t, map[string]row{
		"nothing changed":    {"it would be read for each pod", false, same, []string{"default"}, false, 1},
		"a workload changed": {"its names are others", true, same, []string{"default"}, true, 1},
		"the rules changed":  {"the names count by those", false, other, []string{"default"}, true, 1},
		"a registry left":    {"no list will tell what it has", false, other, []string{"other"}, true, 0},
	}, func(t *testing.T, tc row) {
		cache, now := cacheOf(t, recordedPod(second, lifecycle.InService, at("default", "api", second))), time.Now()
		s, rules := newState(cache), owning()
		expect.NoError(t, s.Workloads.Refresh(t.Context(), rules, sources("default"), now))
		expect.NoError(t, cache.Create(t.Context(), cloneSet(first, "web=80")))
		if tc.changed {
			s.Workloads.Changed()
		}
		expect.NoError(t, s.Workloads.Refresh(t.Context(), tc.rules(rules), sources(tc.registries...), now))
		refused, _ := s.Claims.Ask(Use{Rules: rules, Pod: podOf(second), Service: "web", Now: now})
		if pods, _ := s.Claims.Size(); (refused != nil) != tc.sees || pods != tc.pods {
			t.Errorf("refuses %+v with %d pods, want %t with %d: %s", refused, pods, tc.sees, tc.pods, tc.reason)
		}
	})
}

func owning() *Rules { return &Rules{Ownership: lifecycle.Ownership{Owned: []string{"example.com/*"}}} }

// TestWorkloadOfARestoredServer: after a restore from a backup, a generation is counted a second time.
func TestWorkloadOfARestoredServer(t *testing.T) {
	t.Parallel()
	at := func(version string, l *appspub.Lifecycle) *kruisev1alpha1.CloneSet {
		return &kruisev1alpha1.CloneSet{
			ObjectMeta: metav1.ObjectMeta{UID: "web", Generation: 5, ResourceVersion: version}, Spec: kruisev1alpha1.CloneSetSpec{Lifecycle: l},
		}
	}
	lost, hooked := at("200", nil), &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"example.com/f"}}}
	if SameWorkload(lost, at("150", hooked)) {
		t.Error("the hooks are new, and the workload is taken for the same because of its generation")
	}
	if !SameWorkload(lost, at("150", nil)) || !SameWorkload(lost, at("201", hooked)) {
		t.Error("the workload is taken for another, want the same: what Rollcall reads has not changed")
	}
}

func newState(cache client.Client) *State { return New(cache, PodsThrough(cache), nil) }
