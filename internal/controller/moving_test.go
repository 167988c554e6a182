package controller

import (
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
)

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

	t.Log("A registry that comes back may be another one.")
	w.apply(func(s *choices) { s.Registries = both; s.identify("default", "others") })
	w.reconciles(pod, "", deregisters)
}

func TestUnknownRegistryLetsNoPodGoUnasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.withRegistry("new")
	pod := w.bornPod(w.cloneSet("web", inRegistries("default,new")), "web-1")
	other.Fail(anyCall(), errors.New("down"))
	w.reconciles(pod, "", registers, "new: "+registers+failed)

	t.Log("The registry that is down is dropped, and the manager restarted.")
	w.restart()
	w.withoutRegistry("new")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "which it was in can't be told", deregisters, writes)
	w.expectAbsent(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestHeartbeatsKeepWhatTheRecordNames(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.changePod(pod, annotated(service.AnnotationWeight, "heavy"))
	w.restart()
	w.reconciles(pod, "")
	w.expectHeld("what is wrong with its description takes no pod out", pod)
	if other := w.r.Tracker.Kept("new"); len(other) > 0 {
		t.Errorf("of a registry that the pod was never in, %v is held", other)
	}
	w.sleep(time.Second)
	w.lose(pod)
	w.reconcile(pod)
	w.expectHeld("the record has lied")
	w.expectJournal("nothing is known, and nothing is said")
}

func TestNoPodLeavesARegistryBeforeTheNextGivesItToClients(t *testing.T) {
	t.Parallel()
	asked, why := 0, errors.New("the check has not passed")
	probe := probes(func() error {
		asked++
		return why
	})
	w := newWorld(t)
	w.withRegistry("new")
	w.apply(func(s *choices) {
		s.Registries["new"] = Registry{Calls: s.Registries["new"].Calls, Prober: probe}
	})
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
	w.expectResult("with a back-off", w.reconcile(pod), backoffBase)
	w.expectJournal("clients would find it nowhere", "new: "+registers)
	why = nil
	w.reconciles(pod, "", deregisters, writes)
	asked = 0
	w.reconcile(pod)
	if asked > 0 {
		t.Errorf("asked %d times where nothing hangs on it", asked)
	}
}

func TestDrainOfAPodWhoseRegistriesDoNotParse(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)
	w.changePod(pod, annotated(service.AnnotationRegistries, "?"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("", w.reconcile(pod), 15*time.Second)
	w.restart()
	w.sleep(5 * time.Second)
	w.expectResult("the record names all that was taken out", w.reconcile(pod), 10*time.Second)
}

func TestPodThatLosesItsAddress(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "" })
	w.reconciles(pod, "nothing is removed because of what is not known")
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectNotInService(pod)
	w.expectHooks("nor does that hold an update up", pod, "preDelete")
}
