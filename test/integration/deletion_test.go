package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// directDelete: no PreparingDelete comes first.
func directDelete(s *scenario) {
	pod := s.Begin(replicas(2))[0]

	s.DeletePod(pod)
	s.AwaitGone(pod)
	s.ExpectSteady()
	s.ExpectNeverSeen(pod, appspub.LifecycleStatePreparingDelete)
	s.Expect(s.counted(pod, fakeregistry.OpDeregister) == 1, "the pod was not taken out once")
}

func deletedInForeground(s *scenario) {
	pods := s.Begin()
	s.DeleteCloneSet(metav1.DeletePropagationForeground)
	s.ExpectNothingLeft()
	for _, pod := range pods {
		s.Expect(s.counted(pod, fakeregistry.OpDeregister) == 1, "pod %s was not taken out once", pod.Name)
	}
}

// deletedWithOrphans: the pods stay in service, and no handler or finalizer of Rollcall stays on them that no workload names.
func deletedWithOrphans(s *scenario) {
	pods := s.Begin()

	s.DeleteCloneSet(metav1.DeletePropagationOrphan)
	s.await("our handlers to be freed", func() error {
		if s.history.Set(s.key) != nil {
			return errors.New("the CloneSet is there")
		}
		return s.free()
	})
	s.ExpectServing(pods...)
	for _, pod := range pods {
		s.DeletePod(pod)
	}
	s.ExpectNothingLeft()
}

// A CloneSet selects by this label in [detachedByLabel], which is not that of the service's name.
const (
	tier         = "tier"
	tierDetached = "debug"
)

// detachedByLabel: a person takes a pod from its CloneSet, which makes another one.
func detachedByLabel(s *scenario) {
	pods := s.Begin(replicas(2), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Selector.MatchLabels[tier], set.Spec.Template.Labels[tier] = "front", "front"
	})
	detached := pods[0]
	s.forget()
	s.must(s.k8s.Patch(s.Context(), detached.DeepCopy(), kube.Merge(`{"metadata":{"labels":{%q:%q}}}`, tier, tierDetached)))
	s.await("the Event", func() error { return s.hasEvent(detached, corev1.EventTypeWarning, "Orphaned", "CloneSet "+s.key.Name) })
	s.await("another pod in its place", func() error {
		others := slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.UID == detached.UID })
		if len(others) != len(pods) {
			return fmt.Errorf("there are %d others, want %d", len(others), len(pods))
		}
		return compareEntries(s.entriesOf(others), s.registry.serving(s.T, s.ns))
	})
	s.DeletePod(detached)
	s.AwaitGone(detached)
	s.ExpectNothingLeft()
}

// lifecycleEditedAway: the same while the CloneSet lives on, and updates its pods unasked.
func lifecycleEditedAway(s *scenario) {
	before := s.Begin(inPlace)

	s.forget()
	s.Edit(func(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle = nil })
	s.await("our handlers to be freed", s.free)
	s.ExpectServing(before...)
	s.UpdateInPlace("nginx:2", before)
	s.await("our handlers to stay freed", s.free)
}

// free reports a handler that Rollcall owns and that is set on a pod, and its finalizer even where no hook ever named it.
func (s *scenario) free() error {
	for _, pod := range s.Pods() {
		for _, h := range checker.HandlersOf(s.hooks) {
			if ours(h) && setOn(h, pod) {
				return fmt.Errorf("pod %s still has %s", pod.Name, h)
			}
		}
	}
	return nil
}

// foreignFinalizer: what another process adds to the list while our patch is on its way is never dropped.
func foreignFinalizer(s *scenario) {
	pod := s.Begin(inPlace, replicas(1))[0]

	// Nothing else stands in the list when ours is to be added, in the one style.
	s.addFinalizerBetween(pod, "nginx:2", appspub.LifecycleStateUpdated, "other.example.org/busy-0")
	s.addFinalizerBetween(pod, "nginx:3", appspub.LifecycleStatePreparingUpdate, "other.example.org/busy-1")
	now := s.Now(pod.UID)
	for i := range 2 {
		name := fmt.Sprintf("other.example.org/busy-%d", i)
		s.Expect(slices.Contains(now.Finalizers, name), "finalizer %s was dropped", name)
	}
	s.editFinalizers(pod, func(all []string) []string {
		return slices.DeleteFunc(all, func(f string) bool { return strings.HasPrefix(f, "other.example.org/") })
	})
}

// addFinalizerBetween updates the pod, and adds a finalizer after the manager has decided on its patch in a state, and
// before the patch arrives.
func (s *scenario) addFinalizerBetween(pod *corev1.Pod, image string, state appspub.LifecycleStateType, name string) {
	s.Helper()
	gate := s.manager.proxy.HoldPodWritesIn(s.ns, state)
	s.UpdateImage(image)
	s.AwaitState(pod, state)
	s.AwaitHeld(gate, 1)
	s.editFinalizers(pod, func(all []string) []string { return append(all, name) })
	gate.Release()
	s.ExpectSteady()
}

func (s *scenario) editFinalizers(pod *corev1.Pod, edit func([]string) []string) {
	s.Helper()
	s.await("another process to edit the finalizers", func() error {
		now := s.Now(pod.UID).DeepCopy()
		now.Finalizers = edit(now.Finalizers)
		return s.k8s.Update(s.Context(), now)
	})
}
