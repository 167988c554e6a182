package controller

import (
	"errors"
	"slices"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

func guards(s *choices) { s.Guard = true }

func (w *world) expectGuard(why string, pod *corev1.Pod, want bool) {
	w.Helper()
	now := w.current(pod)
	if now == nil {
		w.Fatalf("pod %s is gone: %s", pod.Name, why)
	}
	if got := slices.Contains(now.Finalizers, lifecycle.GuardFinalizer); got != want {
		w.Fatalf("guarded: %t, want %t: %s", got, want, why)
	}
}

func TestWhoIsGuarded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		settings []func(*choices)
		want     bool
	}{
		"guarded":     {"the guard stands before the pod is registered", []func(*choices){guards}, true},
		"not guarded": {"a resync finds what a pod leaves that vanishes", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.settings...)
			pod := w.bornPod(w.cloneSet("web"), "web-1")
			w.reconcile(pod)
			w.expectGuard(tc.reason, pod, tc.want)
			if tc.want {
				w.expectJournal("the guard stands first", writes, registers, writes)
			}
			w.reconcile(pod)
			w.expectGuard("and that is all", pod, tc.want)
		})
	}
}

func TestTheGuardIsPutOnWithTheArms(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guards)
	unarmed := func(c *kruisev1alpha1.CloneSet) { c.Spec.Template.Finalizers = nil }
	pod := w.bornPod(w.cloneSet("web", unarmed), "web-1")
	w.reconcile(pod)
	w.expectJournal("one write arms both", writes, registers, writes)
	w.expectGuard("", pod, true)
}

func TestAGuardedPodWaitsForTheRegistry(t *testing.T) {
	t.Parallel()
	labelled := func(c *kruisev1alpha1.CloneSet) {
		c.Spec.Lifecycle.PreDelete, c.Spec.Template.Finalizers = nil, nil
	}
	w := newWorld(t, guards)
	pod := w.servingPod(w.cloneSet("web", labelled), "web-1")
	mend := w.registry.Fail(anyCall(), errors.New("down"))
	w.deletePod(pod)
	w.reconcile(pod)
	w.expectGuard("it was not taken out", pod, true)
	w.restart()
	w.reconcile(pod)
	w.expectGuard("a manager that knows nothing finds it", pod, true)
	w.expectEvents("", "Warning RegistryUnavailable hook preDelete waits", "Warning RegistryUnavailable hook preDelete waits")
	mend()
	w.reconcile(pod)
	w.expectHooks("it may go", pod, "gone")
	w.expectAbsent(pod)
}

func TestTheGuardGoesWithPreDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guards)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectJournal("one write", deregisters, writes)
	w.expectGuard("it is out, so there is nothing to guard", pod, false)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal)
	w.reconcile(pod)
	w.expectJournal("a cancelled scale-in brings it back", writes, registers, writes)
	w.expectGuard("", pod, true)
}

func TestAPolicyLeavesTheGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guards, func(s *choices) { proceeds(s); s.OnRegistryFailure.After = 0 })
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.registry.Fail(anyCall(), errors.New("down"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectHooks("it proceeds", pod, "inPlaceUpdate")
	w.expectGuard("the registry is still to be told", pod, true)

	t.Log("A person who writes on the dying pod means all of it.")
	w.deletePod(pod)
	w.reconcile(pod)
	w.expectGuard("", pod, true)
	w.changePod(pod, skips("preDelete"))
	w.reconcile(pod)
	w.expectHooks("it may go", pod, "gone")
}

func TestGuardsThatNobodyWantsAnyMore(t *testing.T) {
	t.Parallel()
	never := func(w *world, _ *kruisev1alpha1.CloneSet) { w.apply(func(s *choices) { s.Guard = false }) }
	for name, tc := range map[string]struct {
		reason string
		happen func(w *world, c *kruisev1alpha1.CloneSet)
		dying  bool
		want   string
	}{
		"Never":                {reason: "it is freed", happen: never},
		"Never, while it dies": {reason: "it need not wait for the registry", happen: never, dying: true, want: "gone"},
		"the hooks are gone": {reason: "nobody would free it later", happen: func(w *world, c *kruisev1alpha1.CloneSet) {
			w.changeCloneSet(c, func(c *kruisev1alpha1.CloneSet) { c.Spec.Lifecycle = nil })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, guards)
			web := w.cloneSet("web", func(c *kruisev1alpha1.CloneSet) {
				c.Spec.Lifecycle.PreDelete, c.Spec.Template.Finalizers = nil, nil
			})
			pod := w.servingPod(web, "web-1")
			w.expectGuard("", pod, true)
			if tc.dying {
				w.registry.Fail(anyCall(), errors.New("down"))
				w.deletePod(pod)
			}
			tc.happen(w, web)
			w.reconcile(pod)
			if tc.want == "gone" {
				w.expectHooks(tc.reason, pod, "gone")
				return
			}
			w.expectGuard(tc.reason, pod, false)
		})
	}
}

func TestAGuardOutlivesItsCloneSet(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guards)
	web := w.cloneSet("web")
	pod := w.servingPod(web, "web-1")
	w.deleteCloneSet(web)
	w.reconcile(pod)
	w.expectGuard("the garbage collector is about to delete the pod", pod, true)
	w.changePod(pod, func(p *corev1.Pod) { p.OwnerReferences = nil })
	w.reconcile(pod)
	w.expectGuard("it is an orphan, and stays", pod, false)
}
