package smoke

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// history is every version of a pod since it was asked for.
type history struct {
	mu   sync.Mutex
	pods []*corev1.Pod
}

// record follows a pod until the test ends.
func (h *harness) record(t *testing.T, pod *corev1.Pod) *history {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	watcher, err := h.k8s.Watch(ctx, &corev1.PodList{}, &client.ListOptions{
		Namespace: pod.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", pod.Name),
	})
	if err != nil {
		cancel()
		t.Fatalf("watching pod %s: %v", pod.Name, err)
	}
	seen := &history{}
	var reading sync.WaitGroup
	reading.Go(func() { seen.read(watcher) })
	t.Cleanup(func() {
		cancel()
		watcher.Stop()
		reading.Wait()
	})
	return seen
}

func (s *history) read(watcher watch.Interface) {
	for event := range watcher.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok {
			s.mu.Lock()
			s.pods = append(s.pods, pod)
			s.mu.Unlock()
		}
	}
}

func (s *history) any(check func(*corev1.Pod) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.pods, check)
}

func (s *history) expectSeen(t *testing.T, what string, check func(*corev1.Pod) bool) {
	t.Helper()
	if !s.any(check) {
		t.Errorf("the pod never had %s", what)
	}
}

func (s *history) expectNever(t *testing.T, what string, check func(*corev1.Pod) bool) {
	t.Helper()
	if s.any(check) {
		t.Errorf("the pod was %s", what)
	}
}
