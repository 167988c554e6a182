package controller

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
)

// TestPodWithAProblem: what is wrong is taken out and what is missing is armed, in whichever state (lifecycle, checkBlocked).
func TestPodWithAProblem(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.changePod(pod, annotated(service.AnnotationMetadata, "weight=heavy"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal, func(p *corev1.Pod) {
		p.Finalizers = nil
		delete(p.Labels, preNormalLabel)
		delete(p.Labels, inPlaceLabel)
		p.Status.PodIP = "10.0.0.9"
	})
	w.reconciles(pod, "it has left its address, and could be deleted unasked", writes, deregisters)
	w.expectHooks("Kruise asks from now on", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", "Warning InvalidPod ")
	w.expectWaits("it is shown", Wait{Hook: "preNormal", Reason: "InvalidPod", Since: w.clock.Now()})
	w.reconciles(pod, "once")
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectAbsent(pod)
}

// withoutRegistry drops a registry from the configuration, and returns what there was.
func (w *world) withoutRegistry(name string) map[string]Registry {
	w.Helper()
	before := w.settings.Registries
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{}
		for other, reg := range before {
			if other != name {
				s.Registries[other] = reg
			}
		}
	})
	return before
}

func TestRegistryThatThePodHasLeftMayBeDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
	w.reconciles(pod, "", "new: "+registers, deregisters, writes)

	both := w.withoutRegistry("default")
	w.expectResult("", w.reconcile(pod), 0)
	w.expectJournal("")
	w.expectEvents("it was acknowledged that the pod has left")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "", "new: "+deregisters, writes)
	w.expectHooks("no other registry has it", pod, "inPlaceUpdate")

	t.Log("Nobody has looked after a registry that comes back.")
	w.apply(func(s *choices) { s.Registries = both })
	w.reconciles(pod, "", deregisters)
}
