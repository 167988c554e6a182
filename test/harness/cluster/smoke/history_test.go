package smoke

import (
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/history"
)

// seen is every version of a pod since it was asked for.
type seen struct {
	mu   sync.Mutex
	pods []*corev1.Pod
}

// record follows a pod until the test ends.
func (h *harness) record(t *testing.T, pod *corev1.Pod) *seen {
	t.Helper()
	seen := &seen{}
	_, err := history.Follow(t.Context(), h.k8s, &corev1.PodList{}, seen.add,
		client.InNamespace(pod.Namespace), client.MatchingFields{"metadata.name": pod.Name})
	if err != nil {
		t.Fatalf("watching pod %s: %v", pod.Name, err)
	}
	return seen
}

func (s *seen) add(v history.Version[*corev1.Pod]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = append(s.pods, v.Object)
}

func (s *seen) any(check func(*corev1.Pod) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.pods, check)
}

func (s *seen) expectSeen(t *testing.T, what string, check func(*corev1.Pod) bool) {
	t.Helper()
	if !s.any(check) {
		t.Errorf("the pod never had %s", what)
	}
}

func (s *seen) expectNever(t *testing.T, what string, check func(*corev1.Pod) bool) {
	t.Helper()
	if s.any(check) {
		t.Errorf("the pod was %s", what)
	}
}
