//go:build !race

package evictions

import (
	"context"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAllocations: what an answer takes does not grow with the pods of the namespace, or of the budget. See
// internal/lifecycle/allocations_test.go.
func TestAllocations(t *testing.T) { //nolint:paralleltest // other tests' allocations would count
	for name, alike := range map[string]bool{"pods of other budgets": false, "pods of the budget": true} {
		few, many := testing.AllocsPerRun(10, staying(t, 10, alike)), testing.AllocsPerRun(10, staying(t, 1000, alike))
		if many > few+10 { // a list of pointers that grows
			t.Errorf("%s: %v allocations in a namespace of 10, and %v in one of 1,000", name, few, many)
		}
	}
}

func BenchmarkStaying(b *testing.B) {
	for name, alike := range map[string]bool{"others": false, "alike": true} {
		b.Run(name, func(b *testing.B) {
			do := staying(b, 10_000, alike)
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
	}
}

// staying counts the pods of a budget in a namespace with n, which are all the budget's or none.
func staying(tb testing.TB, n int, alike bool) func() {
	tb.Helper()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for i := range n {
		pod := podThat(owned, called("web-"+strconv.Itoa(i)))
		for _, key := range []string{"pod-template-hash", "team", "tier", "version"} {
			pod.Labels[key] = strconv.Itoa(i % 7)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, "example.com/"+key, "some text that is longer than most others are")
		}
		if !alike {
			pod.Labels["app"] = "other"
		}
		list.Items = append(list.Items, *pod)
	}
	pods := clusterstate.NewPodCache(nil)
	informer := pods.NewInformer(toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}, noWatchList{}), &corev1.Pod{}, 0, toolscache.Indexers{toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc})
	expect.NoError(tb, informer.SetTransform(pods.Strip))
	go informer.RunWithContext(tb.Context())
	_, err := pods.Get(tb.Context(), types.NamespacedName{Namespace: "shop", Name: "web-1"})
	expect.NoError(tb, err)
	w, budget := New(Options{Pods: pods, Limit: time.Minute}), budgetOf(1)
	budget.Status.DesiredHealthy = int32(n) - 1
	one := lifecycle.PodOf(podThat(owned, called("web-0")))
	if !alike {
		budget.Status.DesiredHealthy = 0
	}
	return func() {
		if got, err := w.staying(tb.Context(), budget, one, leaves); err != nil || alike != (got == int32(n)-1) {
			tb.Errorf("%d of %d pods stay, and error %v", got, n, err)
		}
	}
}

type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }
