package evictions

import (
	"context"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestEvictionOfAPodThatHasChanged: what was decided is of the pod as it was read. It may have lost its hook since, and OpenKruise would delete
// it without waiting.
func TestEvictionOfAPodThatHasChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned))
	w.Leader = interceptor.NewClient(w.api, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			pod := w.Pod("web-1")
			delete(pod.Labels, hookKey)
			expect.NoError(t, c.Update(ctx, pod))
			return c.Patch(ctx, o, p, opts...)
		},
	})
	w.ExpectHeld(w.Evict("web-1"), "try again")
	if leaves(lifecycle.PodOf(w.Pod("web-1"))) {
		t.Error("the pod is labelled for its deletion, and no hook holds it")
	}
}
