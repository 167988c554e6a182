package integration

import (
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// TestPodCondition: a pod that has InRotation as a readiness gate is Ready only while it is in rotation, and the condition costs
// a write for each time that it comes in or goes out.
func TestPodCondition(t *testing.T) {
	t.Parallel()
	install(t, "pod-condition", "pod-condition")
	s := alone(t, "pod-condition", func(c configuration) { c["podCondition"] = true })
	s.style, s.troubled, s.conditioned = finalizer, false, true
	before := s.Begin(inPlace, replicas(2), func(set *kruisev1alpha1.CloneSet) {
		gates := &set.Spec.Template.Spec.ReadinessGates
		*gates = append(*gates, corev1.PodReadinessGate{ConditionType: lifecycle.ConditionInRotation})
	})
	s.UpdateInPlace("nginx:2", before)
	for _, pod := range s.Pods() {
		var said []bool
		var ready bool
		for _, v := range s.history.Of(pod.UID) {
			in := lifecycle.InRotation(lifecycle.PodOf(v.pod))
			if len(said) == 0 && in || len(said) > 0 && in != said[len(said)-1] {
				said = append(said, in)
			}
			now := lifecycle.IsTrue(lifecycle.PodOf(v.pod), corev1.PodReady)
			s.Expect(in || !now || ready, "pod %s became Ready while it was not in rotation", pod.Name)
			ready = now
		}
		s.Expect(len(said) == 3 && said[0] && !said[1] && said[2], "pod %s was in rotation %v, not in, out and in", pod.Name, said)
	}
	written := map[string]int{}
	for _, w := range s.writes() {
		if w.Resource == "pods/status" {
			written[w.Name]++
		}
	}
	for _, pod := range s.Pods() {
		s.Expect(written[pod.Name] == 3, "the condition of pod %s cost %d writes, not one for each time that it came in or went out", pod.Name, written[pod.Name])
	}
	s.ExpectAlways()
}
