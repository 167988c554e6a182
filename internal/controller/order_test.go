package controller

import (
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func TestPodWithAProblem(t *testing.T) {
	t.Parallel()
	problems := map[string]func(w *world, pod *corev1.Pod){
		"InvalidPod": func(w *world, pod *corev1.Pod) {
			w.changePod(pod, annotated(service.AnnotationMetadata, "weight=heavy"))
		},
		"ServiceNotAllowed": func(w *world, pod *corev1.Pod) {
			w.namespace("older", func(n *corev1.Namespace) { n.CreationTimestamp.Time = testEpoch().Add(-time.Hour) })
			w.cloneSet("web", inNamespace("older"), called("taken=8080"))
			w.changePod(pod, annotated(service.AnnotationServices, "taken=8080"))
		},
	}
	states := map[appspub.LifecycleStateType]string{ // and the hook that waits
		appspub.LifecycleStateNormal: "", appspub.LifecycleStatePreparingNormal: "preNormal", appspub.LifecycleStateUpdated: "inPlaceUpdate",
	}
	for reason, afflict := range problems {
		for state, hook := range states {
			t.Run(reason+" in "+string(state), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				web := w.cloneSet("web")
				pod := w.servingPod(web, "web-1")
				afflict(w, pod)
				w.kruiseMoves(pod, state, func(p *corev1.Pod) {
					p.Finalizers = nil
					delete(p.Labels, preNormalLabel)
					delete(p.Labels, inPlaceLabel)
					p.Status.PodIP = "10.0.0.9"
				})
				w.reconciles(pod, "what is wrong is taken out, and what is missing is armed", writes, deregisters)
				armed := "inPlaceUpdate preDelete"
				if state == appspub.LifecycleStateUpdated {
					armed = "preDelete" // inPlaceUpdate says there that the pod is back
				}
				w.expectHooks("Kruise asks from now on", pod, armed)
				w.expectEvents("", "Warning "+reason+" ")
				since := w.clock.Now()
				w.expectWaits("it is shown", Wait{Hook: hook, Reason: reason, Since: since})

				w.reconciles(pod, "once")
				w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
				w.expectAbsent(pod)
			})
		}
	}
}

// TestMoveOfAPodThatIsKept: what is not ready and serves all the same leaves no place while the next one is not known to have it.
func TestMoveOfAPodThatIsKept(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, keepsUnready)
	w.withRegistry("new")
	w.changePod(pod, unready)
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
	w.reconciles(pod, "it is not known to be in service in the new registry")
	w.expectInService(pod)

	w.changePod(pod, ready)
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconciles(pod, "it joins first, and then leaves", "new: "+registers, deregisters+failed, writes)
	w.changePod(pod, unready)
	w.reconciles(pod, "clients find it in the new registry", deregisters)
}

// TestPodThatIsKeptLeavesNothingBeforeTheNextRegistryGivesItToClients: that it is registered there is not enough.
func TestPodThatIsKeptLeavesNothingBeforeTheNextRegistryGivesItToClients(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		goes   bool
		want   []string
	}{
		"the probe agrees":         {"clients find it in the new registry", false, []string{deregisters}},
		"the pod goes before that": {"a probe holds no pod that goes out", true, []string{deregisters, "new: " + deregisters, writes}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			why := errors.New("the check has not passed")
			w := newWorld(t, keepsUnready)
			w.withRegistry("new")
			w.apply(func(s *choices) {
				s.Registries["new"] = Registry{Calls: s.Registries["new"].Calls, Prober: probes(func() error { return why })}
			})
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
			w.reconciles(pod, "it joins", "new: "+registers)
			w.changePod(pod, unready)
			w.reconciles(pod, "clients would find it nowhere")
			w.expectWaits("no hook waits", Wait{Reason: "NotEffective", Since: w.clock.Now()})

			if tc.goes {
				w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			} else {
				why = nil
			}
			w.reconciles(pod, tc.reason, tc.want...)
			w.expectNotInService(pod)
		})
	}
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

// TestPodThatIsOutIsHeldByNoRegistryThatItDepartsFrom: it has acknowledged that the pod is out, and is asked for nothing more until the
// pod is back or ends.
func TestPodThatIsOutIsHeldByNoRegistryThatItDepartsFrom(t *testing.T) {
	t.Parallel()
	dropped := func(w *world, _ *fakeregistry.Registry) func() {
		both := w.withoutRegistry("new")
		w.apply(func(s *choices) { s.DefaultRegistries = []string{"default"} })
		return func() { w.apply(func(s *choices) { s.Registries = both }) }
	}
	down := func(w *world, other *fakeregistry.Registry) func() {
		w.apply(func(s *choices) { s.DefaultRegistries = []string{"default"} })
		return other.Fail(anyCall(), errors.New("down"))
	}
	for name, tc := range map[string]struct {
		reason string
		breaks func(*world, *fakeregistry.Registry) (repair func())
		ends   func(*world, *corev1.Pod)
	}{
		"dropped, and put back": {"its last word is known", dropped, func(w *world, pod *corev1.Pod) {
			w.reconciles(pod, "nobody has looked after it meanwhile", "new: "+deregisters, writes)
		}},
		"down, and the pod comes back": {"its last word is known", down, func(w *world, pod *corev1.Pod) {
			w.reconcileIn(pod, appspub.LifecycleStateUpdating)
			w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
			w.reconciles(pod, "it leaves for good once it is back", registers, writes, "new: "+deregisters, writes)
		}},
		"down, and the pod goes": {"its last word is known", down, func(w *world, pod *corev1.Pod) {
			w.removePod(pod)
			w.reconciles(pod, "nothing is left behind", deregisters, "new: "+deregisters)
			w.expectNoPages("all is undone")
		}},
		"down, and another manager undoes it": {"its last word is known", down, func(w *world, pod *corev1.Pod) {
			w.restart()
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
			w.reconciles(pod, "the record names it", "new: "+deregisters, deregisters, writes)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, draining15s)
			other := w.withRegistry("new")
			w.apply(func(s *choices) { s.DefaultRegistries = []string{"default", "new"} })
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
			w.reconciles(pod, "", failsOver, "new: "+failsOver, writes)
			repair := tc.breaks(w, other)
			w.expectResult("the drain goes on", w.reconcile(pod), 15*time.Second)
			w.expectJournal(tc.reason)
			w.sleep(15 * time.Second)
			w.reconciles(pod, tc.reason, writes)
			w.expectHooks(tc.reason, pod, "preDelete")

			repair()
			tc.ends(w, pod)
			if entries, err := other.Truth(t.Context(), testCluster); err != nil || len(entries) > 0 {
				t.Errorf("left behind: %v, %v", entries, err)
			}
		})
	}
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
