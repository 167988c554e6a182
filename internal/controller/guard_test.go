package controller

import (
	"errors"
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
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

func TestPolicyLeavesTheGuard(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, guards, proceeds)
	w.registry.Fail(anyCall(), errors.New("down"))
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.sleep(time.Minute)
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

func TestGuardOutlivesItsCloneSet(t *testing.T) {
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
