package integration

import (
	"fmt"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// healthGate is a readiness gate that a scenario opens and shuts as a probe would.
const healthGate = "example.test/healthy"

func gated(set *kruisev1alpha1.CloneSet) {
	set.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: healthGate}}
}

// TurnHealthy opens or shuts the pods' gates.
func (s *scenario) TurnHealthy(status corev1.ConditionStatus, pods ...*corev1.Pod) {
	s.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, healthGate, status)
	for _, pod := range pods {
		s.must(s.k8s.Status().Patch(s.Context(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch))))
	}
}

// turnsUnready: a pod whose probes fail is taken out and put back with them. Where most of the service's pods fail at once,
// the rest of them is kept, until enough are back.
func turnsUnready(s *scenario) {
	s.Create(replicas(3), gated)
	s.TurnHealthy(corev1.ConditionTrue, s.AwaitPods(3)...)
	s.ExpectSteady()
	pods := s.Pods()

	s.TurnHealthy(corev1.ConditionFalse, pods[0])
	s.ExpectServing(pods[1], pods[2])
	s.TurnHealthy(corev1.ConditionFalse, pods[1])
	s.ExpectEvent(pods[1], corev1.EventTypeWarning, "PanicThreshold", "2 of the 3 pods", s.ns, "50%")
	s.ExpectMetric(`rollcall_waiting_pods{hook="",reason="PanicThreshold"} .*`)
	s.ExpectServing(pods[1], pods[2])

	s.TurnHealthy(corev1.ConditionTrue, pods[0])
	s.ExpectServing(pods[0], pods[2])
	s.ExpectEvent(pods[1], corev1.EventTypeNormal, "Resolved", "PanicThreshold")
	s.TurnHealthy(corev1.ConditionTrue, pods[1])
	s.ExpectSteady()

	// The last pod of a service is always kept.
	s.ScaleTo(1)
	last := s.Pods()[0]
	s.TurnHealthy(corev1.ConditionFalse, last)
	s.ExpectEvent(last, corev1.EventTypeWarning, "PanicThreshold", "1 of the 1 pods")
	s.ExpectServing(last)
}
