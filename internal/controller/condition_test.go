package controller

import (
	"errors"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// TestPodWithAFollower: the condition does not wait for a registry that follows it, and waits for every other one; the hooks wait for both.
func TestPodWithAFollower(t *testing.T) {
	t.Parallel()
	const in, out, follows = "condition of web-1: True", "condition of web-1: False", "new: "
	w := newWorld(t)
	w.rebuilt(func(o *Options) { o.PodCondition = func() bool { return true } })
	behind := w.withRegistry("new")
	w.apply(func(s *choices) {
		other := s.Registries["new"]
		other.Follows = true
		s.Registries["new"] = other
	})
	pod := w.bornPod(w.cloneSet("web", inRegistries("default,new")), "web-1", unready)
	w.reconciles(pod, "it was never in")

	w.changePod(pod, ready)
	away := w.registry.Fail(anyCall(), errors.New("down"))
	notYet := behind.Fail(anyCall(), registry.NotYet(errors.New("clients are not given the pod yet")))
	w.reconciles(pod, "no client may find it by its Service alone", registers+failed, follows+registers+failed)
	away()
	w.reconciles(pod, "the follower waits for the condition", registers, follows+registers+failed, in)
	w.expectFollowing("OpenKruise does not count on the pod")
	w.takeEvents()
	notYet()
	w.reconciles(pod, "it has followed", follows+registers, writes)

	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	notYet = behind.Fail(anyCall(), registry.NotYet(errors.New("clients are still given the pod")))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconciles(pod, "the condition is what takes it out", failsOver, follows+failsOver+failed, writes, out)
	w.expectFollowing("it is still given to clients")
	w.expectEvents("it is part of every rollout")
	notYet()
	w.reconciles(pod, "it has followed", follows+failsOver, writes)
}

// TestPodWithAFollowerAndNoRight: it is not kubelet that has to follow.
func TestPodWithAFollowerAndNoRight(t *testing.T) {
	t.Parallel()
	lacks := "podCondition waits for rights that the manager lacks: patch pods/status"
	w := newWorld(t, with(func(r *Registry) { r.Follows = true }))
	w.rebuilt(func(o *Options) {
		o.PodCondition, o.NoCondition = func() bool { return lacks == "" }, func() string { return lacks }
	})
	notYet := w.registry.Fail(anyCall(), registry.NotYet(errors.New("condition rollcall.dev/InRotation is not True yet")))
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.reconcile(pod)
	w.expectEvents("a person has to give the right", `Warning RightsMissing hook preNormal waits: service "web" at 10.0.0.1:8080: `+
		"condition rollcall.dev/InRotation is not True yet: Rollcall can't write the condition: "+lacks)

	lacks = ""
	w.takeJournal()
	w.reconciles(pod, "the right is there", registers+failed, "condition of web-1: True")
	w.expectFollowing("now kubelet has to follow")
	w.takeEvents()
	notYet()
	w.reconciles(pod, "it has followed", registers, writes)
}

func (w *world) expectFollowing(why string) {
	w.Helper()
	if waits := w.r.Waits(); len(waits) != 1 || waits[0].Reason != string(reason.NotEffective) {
		w.Fatalf("got %+v, want one pod with reason %s\nwhy: %s", waits, reason.NotEffective, why)
	}
}

// TestPodCondition follows a pod through an update, and counts what the condition costs.
func TestPodCondition(t *testing.T) {
	t.Parallel()
	const in, out = "condition of web-1: True", "condition of web-1: False"
	w := newWorld(t)
	w.rebuilt(func(o *Options) { o.PodCondition = func() bool { return true } })
	pod := w.bornPod(w.cloneSet("web"), "web-1", unready)
	w.reconciles(pod, "it was never in, which needs no words")

	w.changePod(pod, ready)
	w.reconciles(pod, "the registry has acknowledged it", registers, writes, in)
	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	w.reconciles(pod, "it says so already")

	stop := w.registry.Fail(anyCall(), errors.New("down"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconciles(pod, "it was asked to be taken out, whatever came of it", failsOver+failed, writes, out)
	w.reconciles(pod, "once", failsOver+failed)
	stop()
	w.reconciles(pod, "the condition stays", failsOver, writes)

	w.takeEvents()
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.conditionRefused = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/status"}, "web-1", errors.New("no right"))
	w.reconciles(pod, "the hook does not wait for the condition", registers, writes)
	w.expectEvents("a person has to give the right", "Warning APIServerFailed patching the pod's condition: pods/status")
	w.conditionRefused = nil
	w.reconciles(pod, "it is tried again", in)
	w.deletePod(pod)
	w.reconciles(pod, "a pod that goes tells it by going", deregisters, writes)
}
