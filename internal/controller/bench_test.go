package controller

import (
	"context"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// onePod is a cache with one pod and its CloneSet, which it copies where the real one does.
type onePod struct {
	client.Client

	pod      *corev1.Pod
	workload *kruisev1alpha1.CloneSet
}

func (c onePod) Get(_ context.Context, _ client.ObjectKey, into client.Object, options ...client.GetOption) error {
	chosen := (&client.GetOptions{}).ApplyOptions(options)
	shared := chosen.UnsafeDisableDeepCopy != nil && *chosen.UnsafeDisableDeepCopy
	switch into := into.(type) {
	case *corev1.Pod:
		if *into = *c.pod; !shared {
			c.pod.DeepCopyInto(into)
		}
	case *kruisev1alpha1.CloneSet:
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
	pod := w.current(w.servingPod(web, "web-1"))
	w.rebuilt(func(o *Options) { o.Client = onePod{o.Client, pod, web} })
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
