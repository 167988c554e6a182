package controller

import (
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
)

func TestPodWithAProblem(t *testing.T) {
	t.Parallel()
	problems := map[string]func(w *world, pod *corev1.Pod){
		"InvalidPod": func(w *world, pod *corev1.Pod) { w.changePod(pod, annotated(service.AnnotationWeight, "heavy")) },
		"ServiceClaimed": func(w *world, pod *corev1.Pod) {
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

func TestHookIsAssertedBeforeThePodLeaves(t *testing.T) {
	t.Parallel()
	for _, state := range []appspub.LifecycleStateType{appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingNormal} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			w, pod := serving(t)
			w.withRegistry("new")
			w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
			repair := w.registry.Fail(anyCall(), errors.New("down"))
			w.kruiseMoves(pod, state, func(p *corev1.Pod) {
				delete(p.Labels, preNormalLabel)
				if state == appspub.LifecycleStateUpdated {
					delete(p.Labels, inPlaceLabel)
				}
			})
			w.reconciles(pod, "it has nothing to do with the old one any more", "new: "+registers, writes, deregisters+failed)
			w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
			w.expectEvents("it is shown all the same", "Warning RegistryUnavailable ")
			w.expectWaits("no hook waits", Wait{Reason: "RegistryUnavailable", Since: w.clock.Now()})

			t.Log("The next manager knows from the record what there is to leave.")
			w.restart()
			repair()
			w.kruiseMoves(pod, appspub.LifecycleStateNormal)
			w.reconciles(pod, "", "new: "+registers, deregisters, writes)
			w.expectWaits("")
			w.restart()
			w.reconciles(pod, "what it has left stands in the record no more", "new: "+registers)
		})
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

// TestPodThatIsKeptIsArmed: a pod that stays in service although it is not ready must not be updated or deleted unasked either.
func TestPodThatIsKeptIsArmed(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, keepsUnready)
	w.changePod(pod, unready, func(p *corev1.Pod) {
		p.Finalizers = nil
		delete(p.Labels, inPlaceLabel)
	})
	w.reconciles(pod, "its hooks were added after it had turned unready, say", writes)
	w.expectInService(pod)
	w.expectHooks("Kruise asks from now on", pod, "preNormal inPlaceUpdate preDelete")
}
