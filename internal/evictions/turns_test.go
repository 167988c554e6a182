package evictions

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestEvictionWaitsForTheOneBefore: until that is written, its place in the budget looks free.
func TestEvictionWaitsForTheOneBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, write := newWorld(t, budgetOf(1), podThat(owned), podThat(owned, called("web-2")), podThat(owned, called("web-3")),
			podThat(owned, called("web-4"))), make(chan struct{})
		w.patching = func(attempt func() error) error {
			<-write
			return attempt()
		}
		answers := []chan admission.Response{make(chan admission.Response, 1), make(chan admission.Response, 1)}
		for i, name := range []string{"web-1", "web-2"} {
			go func() { answers[i] <- w.Evict(name) }()
			synctest.Wait()
		}
		close(write)
		w.ExpectHeld(<-answers[0], "is not evicted directly")
		w.ExpectHeld(<-answers[1], "disruption budget web")
	})
}

// TestEvictionWhoseManagerIsDeposed: the write was refused for that, and not by a policy that would refuse each.
func TestEvictionWhoseManagerIsDeposed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned))
	w.patching = func(func() error) error {
		w.other = true
		return apierrors.NewForbidden(corev1.Resource("pods"), "web-1", nil)
	}
	w.ExpectHeld(w.Evict("web-1"), "only the manager that leads")
	w.ExpectNoEvent()
}

// TestEvictionOfAPodThatHasChanged: what was decided is of the pod as it was read. It may have lost its hook since, and OpenKruise would delete
// it without waiting.
func TestEvictionOfAPodThatHasChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned))
	w.patching = func(attempt func() error) error {
		pod := w.Pod("web-1")
		delete(pod.Labels, hookKey)
		expect.NoError(t, w.api.Update(t.Context(), pod))
		return attempt()
	}
	w.ExpectHeld(w.Evict("web-1"), "try again")
	if leaves(lifecycle.PodOf(w.Pod("web-1"))) {
		t.Error("the pod is labelled for its deletion, and no hook holds it")
	}
}

func TestMostDrain(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Minute
	for name, tc := range map[string]struct {
		reason                  string
		drain, configured, want time.Duration
	}{
		"shorter than both":        {"the pod needs no more", 30 * time.Second, time.Minute, 30 * time.Second},
		"a pod's, longer":          {"it must not hold up a node for days", 48 * time.Hour, time.Minute, limit},
		"the configuration's":      {"who configures it knows the nodes", time.Hour, time.Hour, time.Hour},
		"longer than what is more": {"a tenant gets as much as everybody", 48 * time.Hour, time.Hour, time.Hour},
	} {
		expect.Equal(t, tc.want, MostDrain(tc.drain, tc.configured, limit), "%s: %s", name, tc.reason)
	}
}
