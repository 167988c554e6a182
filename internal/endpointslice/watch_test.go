package endpointslice

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const yes, no = corev1.ConditionTrue, corev1.ConditionFalse

// in puts a slice into a namespace, with the pod of a name.
func in(namespace string, slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	slice.Namespace, slice.Name = namespace, slice.Labels[discoveryv1.LabelServiceName]
	for i := range slice.Endpoints {
		slice.Endpoints[i].TargetRef.Namespace, slice.Endpoints[i].TargetRef.Name = namespace, "web-"+string(slice.Endpoints[i].TargetRef.UID)
	}
	return slice
}

// watching is a Watch whose caches have the pod, unless it is nil, and the slices.
func watching(t *testing.T, pod *corev1.Pod, all ...*discoveryv1.EndpointSlice) *Watch {
	t.Helper()
	since := metav1.NewTime(time.Now().Add(-time.Hour))
	for i := range conditionsOf(pod) {
		pod.Status.Conditions[i].LastTransitionTime = since
	}
	scheme := runtime.NewScheme()
	expect.NoError(t, discoveryv1.AddToScheme(scheme))
	build := clientfake.NewClientBuilder().WithScheme(scheme).WithIndex(&discoveryv1.EndpointSlice{}, uidIndex, uidsOf)
	for _, slice := range all {
		kept, err := Strip(slice)
		expect.NoError(t, err)
		build = build.WithObjects(kept.(*discoveryv1.EndpointSlice))
	}
	w := NewWatch()
	w.synced.Store(&now)
	w.Cluster = Cluster{Cache: build.Build(), Failure: func(time.Time) error { return nil }}
	w.Pod = func(_ context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
		if pod == nil {
			return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
		}
		return lifecycle.PodOf(pod), nil
	}
	return w
}

func conditionsOf(pod *corev1.Pod) []corev1.PodCondition {
	if pod == nil {
		return nil
	}
	return pod.Status.Conditions
}

func driverOf(t *testing.T, w *Watch) registry.Registry {
	t.Helper()
	d, err := w.New(t.Context(), registry.Config{})
	expect.NoError(t, err)
	return d
}

var instance = registry.Instance{Service: "web", Namespace: "shop", Pod: "web-1", UID: "1", Address: "10.0.0.1", Port: 80}

// TestOnlyThePodsOwnSlicesCount: whoever may write EndpointSlices in another namespace holds no pod of this one, and puts none into rotation.
func TestOnlyThePodsOwnSlicesCount(t *testing.T) {
	t.Parallel()
	on, off := new(true), new(false)
	type row struct {
		reason string
		slices []*discoveryv1.EndpointSlice
		pod    *corev1.Pod
		// joins and leaves are what Register and FailOver miss; empty if nothing.
		joins, leaves string
	}
	noPod := of("web", on, on)
	for i := range noPod.Endpoints {
		noPod.Endpoints[i].TargetRef.Kind = "Node"
	}
	another := shown(no, no, time.Hour, time.Hour)
	another.UID = "2"
	expect.Each(t, map[string]row{
		"in": {"its Service has it", []*discoveryv1.EndpointSlice{in("shop", of("web", on, on))}, shown(yes, yes, time.Hour, time.Hour), "", "not False yet"},
		"out": {"its Service has it no more", []*discoveryv1.EndpointSlice{in("shop", of("web", off, off))}, shown(no, no, time.Hour, time.Hour),
			"not True yet", ""},
		"another namespace's, ready": {"its clients find the pod in no Service", []*discoveryv1.EndpointSlice{in("evil", of("web", on, on))},
			shown(yes, yes, time.Hour, time.Hour), "no EndpointSlice in namespace shop lists the pod", "not False yet"},
		"another namespace's, while it is out": {"it would hold its rollout", []*discoveryv1.EndpointSlice{in("evil", of("web", on, on))},
			shown(no, no, time.Hour, time.Hour), "not True yet", ""},
		"another namespace's, not ready": {"it would hold its rollout", []*discoveryv1.EndpointSlice{
			in("shop", of("web", on, on)), in("evil", of("web", off, off)),
		}, shown(yes, yes, time.Hour, time.Hour), "", "not False yet"},
		"no pod": {"a Node has the same UID in none", []*discoveryv1.EndpointSlice{in("shop", noPod)}, shown(no, no, time.Hour, time.Hour), "not True yet", ""},
		"the next pod of its name": {"the pod itself is gone, and its Service still has it", []*discoveryv1.EndpointSlice{in("shop", of("web", on, on))},
			another, "not in the cache", "Service web"},
		"gone": {"its Service still has it", []*discoveryv1.EndpointSlice{in("shop", of("web", on, on))}, nil, "not in the cache", "Service web"},
	}, func(t *testing.T, tc row) {
		d := driverOf(t, watching(t, tc.pod, tc.slices...))
		expect.Error(t, "Register: "+tc.reason, d.Register(t.Context(), instance), tc.joins)
		expect.Error(t, "FailOver: "+tc.reason, d.FailOver(t.Context(), instance), tc.leaves)
	})
}

// TestPodLeavesTheRegistry: a pod that stays in service needs nothing, and one that goes has to be out first, hook or not.
func TestPodLeavesTheRegistry(t *testing.T) {
	t.Parallel()
	on, off := new(true), new(false)
	at := func(state appspub.LifecycleStateType, pod *corev1.Pod) *corev1.Pod {
		pod.Labels = map[string]string{appspub.LifecycleStateKey: string(state)}
		return pod
	}
	failed := shown(no, no, time.Hour, time.Hour)
	failed.Status.Phase = corev1.PodFailed
	type row struct {
		reason string
		pod    *corev1.Pod
		given  *bool
		want   string
	}
	expect.Each(t, map[string]row{
		"stays":                     {"another registry has it now", at(appspub.LifecycleStateNormal, shown(yes, yes, time.Hour, time.Hour)), on, ""},
		"is to be deleted":          {"its clients are given it", at(appspub.LifecycleStatePreparingDelete, shown(yes, yes, time.Hour, time.Hour)), on, "not False yet"},
		"is to be deleted, lags":    {"its clients are given it", at(appspub.LifecycleStatePreparingDelete, shown(no, no, time.Hour, time.Hour)), on, "Service web"},
		"is to be updated":          {"its clients are given it", at(appspub.LifecycleStatePreparingUpdate, shown(no, no, time.Hour, time.Hour)), on, "Service web"},
		"is to be deleted, out":     {"nobody is given it", at(appspub.LifecycleStatePreparingDelete, shown(no, no, time.Hour, time.Hour)), off, ""},
		"is being deleted":          {"its clients are given it", ending(at(appspub.LifecycleStateNormal, shown(no, no, time.Hour, time.Hour))), on, "Service web"},
		"its containers have ended": {"its clients are given it", at(appspub.LifecycleStateNormal, failed), on, "Service web"},
		"is gone":                   {"its clients are given it", nil, on, "Service web"},
	}, func(t *testing.T, tc row) {
		d := driverOf(t, watching(t, tc.pod, in("shop", of("web", tc.given, tc.given))))
		expect.Error(t, tc.reason, d.Deregister(t.Context(), instance), tc.want)
	})
}

// TestCachesThatFail: what can't be read is not out.
func TestCachesThatFail(t *testing.T) {
	t.Parallel()
	away := errors.New("the cache has ended")
	pods, lists := watching(t, nil), watching(t, nil)
	pods.Pod = func(context.Context, types.NamespacedName) (*lifecycle.Pod, error) { return nil, away }
	lists.Cache = clientfake.NewClientBuilder().WithScheme(runtime.NewScheme()).Build()
	for what, w := range map[string]*Watch{"the pod": pods, "the slices": lists} {
		d := driverOf(t, w)
		for _, call := range []func(context.Context, registry.Instance) error{d.Register, d.FailOver, d.Deregister} {
			if err := call(t.Context(), instance); err == nil || registry.CodeOf(err) == registry.CodeNotYet || registry.CodeOf(err) == registry.CodeTerminal {
				t.Errorf("%s can't be read: got %v, want an error that is tried again", what, err)
			}
		}
	}
}

// TestPodsAreWoken: the pods whose endpoints differ, and no others, however a change arrives.
func TestPodsAreWoken(t *testing.T) {
	t.Parallel()
	on, off := new(true), new(false)
	gone := toolscache.DeletedFinalStateUnknown{Key: "shop/web", Obj: in("shop", of("web", on, on))}
	none := in("shop", of("web", on, on))
	none.Endpoints = nil
	forged, renamed := in("evil", of("web", on, on)), in("shop", of("web", on, on))
	for i := range forged.Endpoints {
		forged.Endpoints[i].TargetRef.Namespace, renamed.Endpoints[i].TargetRef.Name = "shop", "web-other"
	}
	type row struct {
		reason   string
		old, now any
		want     []string
	}
	expect.Each(t, map[string]row{
		"a new slice":        {"it may be what they wait for", nil, in("shop", of("web", on, on)), []string{"web-1", "web-another"}},
		"the same":           {"nothing is new", in("shop", of("web", on, on)), in("shop", of("web", on, on)), nil},
		"ready":              {"its hook may be released", in("shop", of("web", off, off)), in("shop", of("web", on, on)), []string{"web-1"}},
		"not ready":          {"the drain begins", in("shop", of("web", on, on)), in("shop", of("web", off, off)), []string{"web-1"}},
		"serves no more":     {"clients are not given it", in("shop", of("web", on, on)), in("shop", of("web", on, off)), []string{"web-1"}},
		"taken off":          {"the drain begins", in("shop", of("web", on, on)), none, []string{"web-1", "web-another"}},
		"deleted":            {"the drain begins", in("shop", of("web", on, on)), nil, []string{"web-1", "web-another"}},
		"deleted while away": {"the watch was broken", gone, nil, []string{"web-1", "web-another"}},
		"another namespace":  {"whoever writes it may name any pod", nil, forged, nil},
		"another name":       {"to visit the pod of a UID under it would make the pod look gone", nil, renamed, nil},
	}, func(t *testing.T, tc row) {
		var woken []string
		w := NewWatch()
		w.Wake = func(id lifecycle.PodID) { woken = append(woken, id.Name) }
		w.Pod = func(_ context.Context, key types.NamespacedName) (*lifecycle.Pod, error) {
			if key.Namespace != "shop" {
				return nil, apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
			}
			return &lifecycle.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strings.TrimPrefix(key.Name, "web-"))}}, nil
		}
		w.changed(t.Context(), tc.old, tc.now)
		slices.Sort(woken)
		expect.Equal(t, tc.want, woken, "the pods that are woken: %s", tc.reason)
	})
}

// TestNothingIsKnownBeforeTheFirstList: an EndpointSlice that was not listed yet may give the pod to clients.
func TestNothingIsKnownBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	source, listed := fcache.NewFakeControllerSource(), make(chan struct{})
	slice := in("shop", of("web", new(true), new(true)))
	source.Add(slice)
	informer := toolscache.NewSharedIndexInformer(&held{source, listed}, &discoveryv1.EndpointSlice{}, 0, toolscache.Indexers{})
	pod := shown(no, no, time.Hour, time.Hour)
	w, again, woken := watching(t, pod), make(chan struct{}, 9), make(chan string, 9)
	w.synced.Store(nil)
	w.Again, w.Wake = func() { again <- struct{}{} }, func(id lifecycle.PodID) { woken <- id.Name }
	w.Informers = &informers{informer: informer}
	since := make(chan time.Time, 9)
	w.Failure = func(at time.Time) error { since <- at; return nil }
	ctx, cancel := context.WithCancel(t.Context())
	ran, ended := make(chan struct{}), make(chan error, 1)
	go func() { informer.RunWithContext(ctx); close(ran) }()
	d := driverOf(t, w)
	go func() { ended <- w.Start(ctx) }()

	expect.Error(t, "before", d.FailOver(t.Context(), instance), "have not been listed yet")
	if at := <-since; !at.IsZero() {
		t.Errorf("failures count since %s, and every one is of the first list", at)
	}
	select {
	case <-again:
		t.Error("the pods were reconciled before there was anything to know")
	default:
	}
	close(listed)
	expect.Becomes(t, "the pods to be reconciled", func() bool { return len(again) > 0 })
	expect.NoError(t, <-ended)
	if err := d.FailOver(t.Context(), instance); err != nil && strings.Contains(err.Error(), "listed") {
		t.Errorf("after the list: %v", err)
	}
	if at := <-since; at.IsZero() {
		t.Error("after the list, a failure from before it counts")
	}
	source.Modify(in("shop", of("web", new(false), new(false))))
	expect.Becomes(t, "the pod to be woken", func() bool { return len(woken) > 0 })
	expect.Equal(t, "web-1", <-woken, "the pod that is woken")
	cancel()
	<-ran
}

// held is a source whose list waits.
type held struct {
	*fcache.FakeControllerSource

	until <-chan struct{}
}

func (h *held) List(options metav1.ListOptions) (runtime.Object, error) {
	<-h.until
	return h.FakeControllerSource.List(options)
}

// informers has the one of EndpointSlices.
type informers struct {
	cache.Informers

	informer toolscache.SharedIndexInformer
}

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return i.informer, nil
}

func (i *informers) IndexField(_ context.Context, _ client.Object, field string, of client.IndexerFunc) error {
	return i.informer.AddIndexers(toolscache.Indexers{field: func(object any) ([]string, error) { return of(object.(client.Object)), nil }})
}
