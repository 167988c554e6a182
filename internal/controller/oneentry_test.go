package controller

import (
	"context"
	"maps"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// another adds a second name for the same server, or a second section of a driver that calls pods.
func another(s *choices) {
	s.Registries = maps.Clone(s.Registries)
	s.Registries["another"] = s.Registries["default"]
	s.RegisteredByApp = map[string]bool{"default": true, "another": true}
}

// anotherCalls adds a section of a driver that calls pods, next to the registry that has their entries.
func anotherCalls(s *choices) {
	another(s)
	reg := s.Registries["another"]
	reg.CallsPods = true
	s.Registries["another"] = reg
}

// keyMove is a change by which one entry of a pod's application gets another key.
type keyMove struct {
	reason string
	config []func(*choices)
	move   func(*corev1.Pod)
}

func keyMoves() map[string]keyMove {
	return map[string]keyMove{
		"a called application's service is renamed": {"the pod has one application, whatever its service is called",
			[]func(*choices){callingPods}, annotated(service.AnnotationServices, "shop=8080")},
		"a called application's port changes": {"it is called at another port",
			[]func(*choices){callingPods}, annotated(service.AnnotationServices, "web=9090")},
		"pods move to another section of the driver": {"it is the same application that is called",
			[]func(*choices){callingPods, another}, annotated(service.AnnotationRegistries, "another=app")},
		"pods move to a section that calls them": {"what the registry has is what the application writes",
			[]func(*choices){anotherCalls}, annotated(service.AnnotationRegistries, "another=app")},
		"one server has two names": {"no ownership tag tells under which name an application's entry was steered last",
			[]func(*choices){another}, annotated(service.AnnotationRegistries, "another=app")},
		"one server has two names, and case does not count": {"Consul and Eureka take both names of the service for one",
			[]func(*choices){another, caseless}, func(p *corev1.Pod) {
				annotated(service.AnnotationRegistries, "another=app")(p)
				annotated(service.AnnotationServices, "WEB=8080")(p)
			}},
	}
}

func caseless(s *choices) { s.Registries["default"].Steerer.(*fakeregistry.Registry).IgnoreCase() }

// glances asks for all applications' entries, as resync does, and visits the pod if an answer is news.
func (w *world) glances(pod *corev1.Pod) {
	w.Helper()
	w.sleep(visit.AppRecheck)
	w.watchesAll()
	w.r.Tracker.TakeDoubted()
	w.reconcile(pod)
}

// TestOneEntryHasTwoKeys: what a pod leaves by its key can be what it has joined by another.
func TestOneEntryHasTwoKeys(t *testing.T) {
	t.Parallel()
	for name, tc := range keyMoves() {
		for when, moves := range map[string]func(w *world, pod *corev1.Pod){
			"in rotation": func(w *world, pod *corev1.Pod) {
				w.changePod(pod, tc.move)
				w.reconcile(pod)
			},
			"while it is updated": func(w *world, pod *corev1.Pod) {
				w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
				w.reconcileIn(pod, appspub.LifecycleStateUpdating, tc.move)
				w.reconcileIn(pod, appspub.LifecycleStateUpdated)
				w.expectHooks("the pod is back", pod, "preNormal inPlaceUpdate preDelete")
				w.reconcileIn(pod, appspub.LifecycleStateNormal)
			},
			"under the next leader": func(w *world, pod *corev1.Pod) {
				w.changePod(pod, tc.move)
				w.restart()
				w.reconcile(pod)
			},
		} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				w, pod, app := servingApp(t, tc.config...)
				moves(w, pod)
				for range 3 {
					w.expectApp(tc.reason, app, registry.InService)
					w.glances(pod)
				}
				w.expectEvents("nothing came back that had to be out")
				w.restart()
				w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
				w.expectApp("clients would still be given a pod that is deleted", app, registry.OutOfService)
				w.expectHooks("it is out", pod, "inPlaceUpdate")
			})
		}
	}
}

// TestLateCallByAnotherKeyIsWaitedFor: what timed out by the former key may still take out what was put in by the present one.
func TestLateCallByAnotherKeyIsWaitedFor(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t, callingPods)
	w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpAppFailOver}, context.DeadlineExceeded)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectHooks("it may not have left", pod, "inPlaceUpdate preDelete")
	w.reconcile(pod)
	w.expectHooks("the second call was acknowledged", pod, "preDelete")
	w.reconcileIn(pod, appspub.LifecycleStateUpdating)
	w.reconcileIn(pod, appspub.LifecycleStateUpdated, annotated(service.AnnotationServices, "shop=8080"))
	w.expectApp("it has joined by its new name", app, registry.InService)
	w.expectHooks("the first call may still be carried out", pod, "preDelete")
	w.sleep(2 * testTimeout)
	w.reconcile(pod)
	w.expectHooks("nothing can take it out any more", pod, "preNormal inPlaceUpdate preDelete")
}
