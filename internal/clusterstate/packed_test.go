package clusterstate

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestInformerUnpacksPods: a reader and an event handler of the cache are given pods, not what the cache keeps.
func TestInformerUnpacksPods(t *testing.T) {
	t.Parallel()
	want := strip(t, NewSharer(), decoded(t, 1))
	watcher := watch.NewRaceFreeFake()
	informer := NewInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.Pod{*decoded(t, 1)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watcher, nil },
	}, noWatchList{}), &corev1.Pod{}, 0, toolscache.Indexers{"address": func(object any) ([]string, error) {
		return addressBucket(object.(client.Object)), nil
	}})
	expect.NoError(t, informer.SetTransform(NewSharer().StripPod))
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
			if diff := cmp.Diff(any(want), got); diff != "" {
				t.Errorf("a handler was given (-want +got)\n%s", diff)
			}
		case <-time.After(time.Minute):
			t.Fatal("the handler saw nothing")
		}
	}
	expectSeen()
	one := func(objects []any, err error) any {
		if err != nil || len(objects) != 1 {
			t.Fatalf("there are %d pods: %v", len(objects), err)
		}
		return objects[0]
	}
	byKey, _, err := informer.GetIndexer().GetByKey("prod/web-1")
	expect.NoError(t, err)
	same, _, err := informer.GetStore().Get(want)
	expect.NoError(t, err)
	for how, got := range map[string]any{
		"GetByKey": byKey, "Get": same,
		"List":    one(informer.GetStore().List(), nil),
		"ByIndex": one(informer.GetIndexer().ByIndex("address", bucketOf(want.Status.PodIP))),
		"Index":   one(informer.GetIndexer().Index("address", want)),
	} {
		if diff := cmp.Diff(any(want), got); diff != "" {
			t.Errorf("%s found (-want +got)\n%s", how, diff)
		}
	}
	watcher.Modify(decoded(t, 1))
	expectSeen()
	expectSeen()
	watcher.Delete(decoded(t, 1))
	expectSeen()
	lost := toolscache.DeletedFinalStateUnknown{Key: "prod/web-1", Obj: &packed{ObjectMeta: want.ObjectMeta, common: &common{}}}
	unpackingHandler{handler}.OnDelete(lost)
	if got, is := (<-seen).(toolscache.DeletedFinalStateUnknown); !is || got.Obj.(*corev1.Pod).UID != want.UID {
		t.Errorf("a deletion that the watch missed has %v", got)
	}
}

type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }
