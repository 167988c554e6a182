package integration

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func guarded(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, "rollcall.dev/guard") }

// expectGuarded waits until all pods carry the guard, or none does.
func (s *scenario) expectGuarded(want bool) {
	s.Helper()
	s.await(fmt.Sprintf("pods with the guard: %t", want), func() error {
		for _, pod := range s.Pods() {
			if guarded(pod) != want {
				return fmt.Errorf("pod %s has the finalizers %v", pod.Name, pod.Finalizers)
			}
		}
		return nil
	})
}

// TestGuard: a pod that is deleted past the hooks while no manager runs can't vanish before it was taken out.
func TestGuard(t *testing.T) {
	t.Parallel()
	s := alone(t, "guard", func(c configuration) { c["guard"] = "Always" })
	m := s.manager
	s.troubled = false
	s.Begin(inPlace, replicas(2))
	s.expectGuarded(true)
	s.UpdateInPlace("nginx:2", nil)
	s.ScaleTo(1)
	s.troubled = true

	pod := s.Pods()[0]
	m.Kill()
	s.DeletePod(pod)
	s.untilPod(pod, "to be stopped", func(now *corev1.Pod) bool { return now == nil || now.DeletionTimestamp != nil })
	s.Expect(s.Now(pod.UID) != nil, "the pod is gone, and no call took it out")
	s.Expect(s.registry.gives(t, s.ns, pod), "the pod was taken out without a call")
	restart(t, m)
	s.AwaitGone(pod)
	s.ExpectSteady()

	m.config["guard"] = "Never"
	s.must(m.Configure(m.config))
	s.expectGuarded(false)
	s.ExpectNothingLeft()
	s.ExpectAlways()
}
