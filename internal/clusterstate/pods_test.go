package clusterstate

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPodCache: its reader and the handlers of its events are given what is read of a pod, by each of its indexes.
func TestPodCache(t *testing.T) {
	t.Parallel()
	want := strip(t, NewSharer(), decoded(t, 1))
	pods := NewPodCache(nil)
	if _, err := pods.Get(t.Context(), types.NamespacedName{}); err == nil {
		t.Error("a cache that watches nothing says that there is no pod")
	}
	watcher := watch.NewRaceFreeFake()
	informer := pods.NewInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*decoded(t, 1)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watcher, nil },
	}, noWatchList{}), &corev1.Pod{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	expect.NoError(t, informer.SetTransform(pods.Strip))
	over, stop := context.WithCancel(t.Context())
	stop()
	if _, err := pods.List(over, Which{}); err == nil {
		t.Error("a cache that has not listed the pods says that there are none")
	}
	seen := make(chan any, 10)
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { seen <- object },
		UpdateFunc: func(old, now any) { seen <- old; seen <- now },
		DeleteFunc: func(object any) { seen <- object },
	}
	_, err := informer.AddEventHandler(handler)
	expect.NoError(t, err)
	go informer.RunWithContext(t.Context())
	expectSeen := func() {
		t.Helper()
		select {
		case got := <-seen:
			expect.Equal(t, any(want), got, "a handler was given")
		case <-time.After(time.Minute):
			t.Fatal("the handler saw nothing")
		}
	}
	expectSeen()
	got, err := pods.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "web-1"})
	expect.NoError(t, err)
	expect.Equal(t, want, got, "Get")
	if _, err := pods.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "web-2"}); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v of a pod that is not there", err)
	}
	for how, which := range map[string][2]Which{ // one that has it, and one that has not
		"all": {{}, near("10.0.0.2")}, "InNamespace": {InNamespace("prod"), InNamespace("test")}, "OnNode": {OnNode("node-1"), OnNode("node-2")},
		"OwnedBy": {OwnedBy("owner"), OwnedBy("other")}, "near": {near("10.0.0.1"), near("192.0.2.1")},
		"Labelled":               {Which{}.Labelled(labelled(t, "app=web")), Which{}.Labelled(labelled(t, "app!=web"))},
		"Labelled, in namespace": {InNamespace("prod").Labelled(labelled(t, "app")), InNamespace("prod").Labelled(labelled(t, "!app"))},
	} {
		got, err := pods.List(t.Context(), which[0])
		expect.NoError(t, err)
		expect.Equal(t, []*lifecycle.Pod{want}, got, "%s", how)
		if got, err = pods.List(t.Context(), which[1]); err != nil || len(got) > 0 {
			t.Errorf("%s: got %d pods that are not there, and error %v", how, len(got), err)
		}
		expectEach(t, pods, which[0], want)
		expectEach(t, pods, which[1])
	}
	watcher.Modify(decoded(t, 1))
	expectSeen()
	expectSeen()
	watcher.Delete(decoded(t, 1))
	expectSeen()
	lost := toolscache.DeletedFinalStateUnknown{Key: "prod/web-1", Obj: &packed{ObjectMeta: want.ObjectMeta, common: &common{}}}
	unpackingHandler{handler}.OnDelete(lost)
	if got, is := (<-seen).(toolscache.DeletedFinalStateUnknown); !is || got.Obj.(*lifecycle.Pod).UID != want.UID {
		t.Errorf("a deletion that the watch missed has %v", got)
	}
}

func expectEach(t *testing.T, pods Pods, which Which, want ...*lifecycle.Pod) {
	t.Helper()
	var got []*lifecycle.Pod
	expect.NoError(t, pods.Each(t.Context(), which, func(pod *lifecycle.Pod) bool {
		got = append(got, pod)
		return false
	}))
	expect.Equal(t, want, got, "Each of %v", which)
}

func labelled(t *testing.T, text string) labels.Selector {
	t.Helper()
	selector, err := labels.Parse(text)
	expect.NoError(t, err)
	return selector
}

type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// TestPodCache_Scope: pods outside are kept, so that a label takes them in, and nobody reads them.
func TestPodCache_Scope(t *testing.T) {
	t.Parallel()
	scope := NewScope(service.Namespaces{Selector: labelled(t, "team=shop")}, nil)
	pods := NewPodCache(scope)
	lists := func(list runtime.Object) toolscache.ListerWatcher {
		return toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
				return watch.NewRaceFreeFake(), nil
			},
		}, noWatchList{})
	}
	namespaces := pods.NewInformer(lists(&metav1.PartialObjectMetadataList{}), NamespaceMetadata(), 0, toolscache.Indexers{})
	informer := pods.NewInformer(lists(&corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*decoded(t, 1)}}),
		&corev1.Pod{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	expect.NoError(t, informer.SetTransform(pods.Strip))
	go informer.RunWithContext(t.Context())
	expectRead := func(reason string, get, list bool) {
		t.Helper()
		_, err := pods.Get(t.Context(), types.NamespacedName{Namespace: "prod", Name: "web-1"})
		if (err == nil) != get || err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("Get fails with %v: %s", err, reason)
		}
		listed, err := pods.List(t.Context(), InNamespace("prod"))
		if expect.NoError(t, err); (len(listed) == 1) != list {
			t.Errorf("List has %d pods: %s", len(listed), reason)
		}
	}
	expectRead("nothing is known of the namespace, which may have gone before its pods", true, false)
	prod := NamespaceMetadata()
	prod.Name, prod.Labels = "prod", map[string]string{"team": "pay"}
	expect.NoError(t, namespaces.GetIndexer().Add(prod))
	expectRead("it is another's", false, false)
	prod = prod.DeepCopy()
	prod.Labels["team"] = "shop"
	expect.NoError(t, namespaces.GetIndexer().Update(prod))
	expectRead("it is taken in", true, true)
}
