package integration

import (
	"fmt"
	"slices"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const skipKey = "rollcall.dev/skip"

// AwaitNoSkip returns once the annotation is off the pod, or the pod is gone.
func (s *scenario) AwaitNoSkip(pod *corev1.Pod) {
	s.Helper()
	s.untilPod(pod, "to lose the annotation", func(now *corev1.Pod) bool { return now == nil || now.Annotations[skipKey] == "" })
}

// expectAlwaysBut is ExpectAlways for a scenario in which hooks are released without an acknowledgement: that they are is
// the point.
func (s *scenario) expectAlwaysBut() {
	s.Helper()
	s.expectAllowedWrites()
	s.expectInvariants("unasked")
}

// TestProceeds: the registry is away for longer than the policy waits. Pods are updated and deleted all the same, and once
// the registry is back it holds what is there.
func TestProceeds(t *testing.T) {
	t.Parallel()
	s := alone(t, "proceeds", labels, func(c configuration) {
		c["onRegistryFailure"] = map[string]any{"preDelete": "Proceed", "inPlaceUpdate": "Proceed", "after": "3s"}
	})
	before := s.Begin(inPlace, replicas(2))

	repair := s.Fail(fakeregistry.OpFailOver, "out of order")
	s.UpdateImage("nginx:2")
	for _, pod := range before {
		s.ExpectEvent(pod, corev1.EventTypeWarning, "Proceeded", "hook inPlaceUpdate was released", "Proceed after 3s", "out of order")
	}
	s.ExpectMetric(`rollcall_unacknowledged_releases_total{by="failurePolicy",hook="inPlaceUpdate"} 2`)
	repair()
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)

	repair = s.Fail(fakeregistry.OpDeregister, "out of order")
	s.Scale(1)
	s.AwaitPods(1)
	s.ExpectMetric(`rollcall_unacknowledged_releases_total{by="failurePolicy",hook="preDelete"} 1`)
	s.Expect(len(s.registry.Entries(t, s.ns)) == 2, "the registry was told although it was out of order")
	repair()
	s.ExpectSteady()
	s.ExpectNothingLeft()
	s.expectAlwaysBut()
}

// TestSkip: a person frees one pod that is stuck, and no more than that one.
func TestSkip(t *testing.T) {
	t.Parallel()
	s := alone(t, "skip", labels, nil)
	s.Begin(inPlace, replicas(2), func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.MaxUnavailable = nil })
	repair := s.Fail(fakeregistry.OpDeregister, "out of order")
	pod := s.Pods()[0]
	s.DeleteByLabel(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook preDelete waits")

	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"preNormal"}}}`, skipKey))
	s.ExpectEvent(pod, corev1.EventTypeWarning, "SkipRefused", "write preDelete, inPlaceUpdate or both", "preNormal can't be skipped")
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"preDelete"}}}`, skipKey))
	s.AwaitGone(pod)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "Skipped", "hook preDelete was released", `"preDelete"`, "not waited for", s.ns)
	s.ExpectMetric(`rollcall_unacknowledged_releases_total{by="skip",hook="preDelete"} 1`)
	repair()
	s.ExpectSteady()

	// A template that has it has no effect but a Warning.
	s.Edit(func(set *kruisev1alpha1.CloneSet) {
		annotated(skipKey, "preDelete")(set)
		updateType(kruisev1alpha1.RecreateCloneSetUpdateStrategyType)(set)
	})
	s.ExpectSteady()
	for _, pod := range s.Pods() {
		s.ExpectEvent(pod, corev1.EventTypeWarning, "SkipRefused", "the workload's template")
		s.AwaitNoSkip(pod)
	}
	s.ExpectNothingLeft()
	s.expectAlwaysBut()
}

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
	s := alone(t, "guard", labels, func(c configuration) { c["guard"] = "Always" })
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
