package integration

import (
	"errors"
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
	s.await("the annotation to be taken off", func() error {
		if now := s.Now(pod.UID); now != nil && now.Annotations[skipKey] != "" {
			return errors.New("it is there")
		}
		return nil
	})
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
	r := startRegistry(t, onlyRegistry, registryOptions{})
	config := defaultConfiguration(r.URL(), "proceeds")
	config["onRegistryFailure"] = map[string]any{"preDelete": "Proceed", "inPlaceUpdate": "Proceed", "after": "3s"}
	s := newScenario(t, startManager(t, "proceeds", config), r, labels, "proceeds")
	s.troubled = true
	before := s.Begin(inPlace, replicas(2))

	repair := r.Fail(fakeregistry.Match{Namespace: s.ns, Op: fakeregistry.OpFailOver}, errors.New("out of order"))
	s.UpdateImage("nginx:2")
	for _, pod := range before {
		s.ExpectEvent(pod, corev1.EventTypeWarning, "Proceeded", "hook inPlaceUpdate was released", "Proceed after 3s", "out of order")
	}
	s.ExpectMetric(`rollcall_unacknowledged_releases_total{by="failurePolicy",hook="inPlaceUpdate"} 2`)
	repair()
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)

	repair = r.Fail(fakeregistry.Match{Namespace: s.ns, Op: fakeregistry.OpDeregister}, errors.New("out of order"))
	s.Scale(1)
	s.await("one pod to be gone", func() error {
		if len(s.Pods()) != 1 {
			return errors.New("it is there")
		}
		return nil
	})
	s.ExpectMetric(`rollcall_unacknowledged_releases_total{by="failurePolicy",hook="preDelete"} 1`)
	s.Expect(len(r.Entries(t, s.ns)) == 2, "the registry was told although it was out of order")
	repair()
	s.ExpectSteady()
	s.ExpectNothingLeft()
	s.expectAlwaysBut()
}

// TestSkip: a person frees one pod that is stuck, and no more than that one.
func TestSkip(t *testing.T) {
	t.Parallel()
	r := startRegistry(t, onlyRegistry, registryOptions{})
	s := newScenario(t, startManager(t, "skip", defaultConfiguration(r.URL(), "skip")), r, labels, "skip")
	s.troubled = true
	s.Begin(inPlace, replicas(2), func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.MaxUnavailable = nil })
	repair := r.Fail(fakeregistry.Match{Namespace: s.ns, Op: fakeregistry.OpDeregister}, errors.New("out of order"))
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
	r := startRegistry(t, onlyRegistry, registryOptions{})
	config := defaultConfiguration(r.URL(), "guard")
	config["guard"] = "Always"
	m := startManager(t, "guard", config)
	s := newScenario(t, m, r, labels, "guard")
	s.Begin(inPlace, replicas(2))
	s.expectGuarded(true)
	s.UpdateInPlace("nginx:2", nil)
	s.ScaleTo(1)
	s.troubled = true

	pod := s.Pods()[0]
	m.Kill()
	s.DeletePod(pod)
	s.await("the pod's containers to be stopped", func() error {
		now := s.Now(pod.UID)
		if now == nil {
			return errors.New("the pod is gone, and no call took it out")
		}
		if now.DeletionTimestamp == nil {
			return errors.New("it is not being deleted")
		}
		return nil
	})
	s.Expect(r.gives(t, s.ns, pod), "the pod was taken out without a call")
	restart(t, m)
	s.AwaitGone(pod)
	s.ExpectSteady()

	config["guard"] = "Never"
	s.must(m.Configure(config))
	s.expectGuarded(false)
	s.ExpectNothingLeft()
	s.ExpectAlways()
}
