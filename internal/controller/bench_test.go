package controller

import (
	"context"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// onePod is a cache with one pod, and one with its CloneSet, which it copies where the real one does.
type onePod struct{ *lifecycle.Pod }

func (c onePod) Get(context.Context, types.NamespacedName) (*lifecycle.Pod, error) { return c.Pod, nil }

func (c onePod) List(context.Context, clusterstate.Which) ([]*lifecycle.Pod, error) {
	return []*lifecycle.Pod{c.Pod}, nil
}

func (c onePod) Each(_ context.Context, _ clusterstate.Which, do func(*lifecycle.Pod) bool) error {
	do(c.Pod)
	return nil
}

type oneCloneSet struct {
	client.Client

	workload *kruisev1alpha1.CloneSet
}

func (c oneCloneSet) Get(_ context.Context, _ client.ObjectKey, into client.Object, options ...client.GetOption) error {
	chosen := (&client.GetOptions{}).ApplyOptions(options)
	shared := chosen.UnsafeDisableDeepCopy != nil && *chosen.UnsafeDisableDeepCopy
	if into, is := into.(*kruisev1alpha1.CloneSet); is {
		if *into = *c.workload; !shared {
			c.workload.DeepCopyInto(into)
		}
	}
	return nil
}

// steady is a reconciler with a pod that is where it belongs, as most are at most events.
func steady(tb testing.TB) (*PodReconciler, lifecycle.PodID) {
	tb.Helper()
	w := newWorld(tb)
	web := w.cloneSet("web")
	pod := lifecycle.PodOf(w.current(w.servingPod(web, "web-1")))
	w.rebuilt(func(o *Options) { o.Client, o.Pods = oneCloneSet{o.Client, web}, onePod{pod} })
	return w.r, lifecycle.PodIDOf(pod)
}

func expectSteady(tb testing.TB, r *PodReconciler, id lifecycle.PodID) {
	tb.Helper()
	if result, err := r.Reconcile(tb.Context(), id); err != nil || result.RequeueAfter != 0 {
		tb.Fatalf("the pod is not steady: %v, %v", result, err)
	}
}

// BenchmarkReconcile is for the reconcile that finds nothing to do, such as the one after the manager's own write.
func BenchmarkReconcile(b *testing.B) {
	r, id := steady(b)
	expectSteady(b, r, id)
	b.ReportAllocs()
	for b.Loop() {
		expectSteady(b, r, id)
	}
}
