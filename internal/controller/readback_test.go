package controller

import (
	"context"
	"errors"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const asks = "Get web@10.0.0.1:8080"

// asking has every registry asked that can be.
func asking(s *choices) {
	for name, reg := range s.Registries {
		reg.Getter, _ = reg.Calls.(registry.Getter)
		s.Registries[name] = reg
	}
}

func gets() fakeregistry.Match { return fakeregistry.Match{Op: fakeregistry.OpGet} }

func TestUnknownOutcomeIsReadBack(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		fault  func(f *fakeregistry.Registry)
	}
	expect.Each(t, map[string]row{
		"refused connection": {"nothing happened, and the error does not say so",
			func(f *fakeregistry.Registry) { f.FailNext(anyCall(), errors.New("connection refused")) }},
		"lost answer": {"it happened, and the error does not say so",
			func(f *fakeregistry.Registry) { f.LoseAnswers(anyCall(), 1, errors.New("connection reset")) }},
		"time-out of what is wanted anyway": {"it may happen yet, and does no harm",
			func(f *fakeregistry.Registry) { f.FailNext(anyCall(), context.DeadlineExceeded) }},
	}, func(t *testing.T, tc row) {
		w, pod := serving(t, asking)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		tc.fault(w.registry)
		w.reconciles(pod, "before it is acknowledged there is nothing to confirm", deregisters+failed, writes)
		w.expectHooks(tc.reason, pod, "inPlaceUpdate preDelete")

		w.reconciles(pod, tc.reason+": the acknowledged call is confirmed before the release", deregisters, asks, writes)
		w.expectHooks("now it is confirmed", pod, "inPlaceUpdate")

		w.changePod(pod, func(p *corev1.Pod) { p.Labels["look"] = "again" })
		w.reconciles(pod, "what was confirmed is not asked for again")
	})
}

func TestNoHookIsAssertedOnAReadBackThatSaysOtherwise(t *testing.T) {
	t.Parallel()
	w, pod := born(t, asking)
	w.registry.FailNext(anyCall(), errors.New("connection reset"))
	w.reconcile(pod)
	w.takeEvents()
	w.takeJournal()
	stop := w.registry.OnAnswer(fakeregistry.Match{Op: fakeregistry.OpRegister}, func(fakeregistry.Call) {
		w.must(w.backend.FailOver(context.WithoutCancel(t.Context()), w.instance(pod, "web", 8080)), "undoing the call")
	})
	w.reconciles(pod, "somebody took it out since", registers, asks, registers, asks)
	w.expectHooks("Kruise would count a pod that no client finds", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", "Warning NotConfirmed hook preNormal waits: service \"web\" at 10.0.0.1:8080: "+
		"the registry has acknowledged that it is InService, but shows OutOfService")

	stop()
	w.reconciles(pod, "now it agrees", registers, asks, writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
}

func TestReadBackOfAGonePod(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, asking)
	w.removePod(pod)
	w.registry.FailNext(anyCall(), errors.New("connection reset"))
	w.reconcile(pod)
	w.registry.FailNext(gets(), errors.New("connection reset"))
	w.reconciles(pod, "", deregisters+failed, deregisters, asks+failed)
	w.reconciles(pod, "nothing of it may be left", asks)
	w.expectNoPages("that is confirmed")
}
