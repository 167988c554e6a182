package registrytest

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
)

// probeCases are about registry.Prober.
func probeCases() []testCase {
	return needing([]testCase{
		{
			name: "ProbeAgreesInTheEnd",
			why:  "OpenKruise counts the pod as available only then; a probe that never succeeds stops the rollout forever",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.awaitProbe(d, w.pod(1), true)
				w.awaitProbe(w.newProcess(), w.pod(1), true)
				w.failOver(d, w.pod(1))
				w.register(d, w.pod(1))
				w.awaitProbe(d, w.pod(1), true)
			},
		},
		{
			name: "ProbeDeniesWhatIsOut",
			why:  "after a probe that always succeeds, OpenKruise continues with a pod that gets no requests",
			run:  probeDeniesWhatIsOut,
		},
		{
			name: "ProbeChangesNothing",
			why:  "Probe is called again and again; one that writes puts in instances that were never registered",
			run: func(w *world) {
				d := w.registered(w.pod(1), w.pod(2))
				w.failOver(d, w.pod(2))
				for i := range 4 {
					_ = w.call(opProbe, d, w.pod(i))
					_ = w.call(opProbe, w.newProcess(), heir(w.pod(i)))
				}
				w.expect(inService(w.pod(1)), outOfService(w.pod(2)))
			},
		},
	}, isProber)
}

func probeDeniesWhatIsOut(w *world) {
	d := w.newProcess()
	w.awaitProbe(d, w.pod(0), false) // it was never registered
	w.register(d, w.pod(1), w.pod(2), w.pod(3))
	for i := range 3 {
		w.awaitProbe(d, w.pod(i+1), true)
	}
	w.failOver(d, w.pod(1))
	w.deregister(d, w.pod(2))
	w.registered(heir(w.pod(3)))
	for i := range 3 {
		w.awaitProbe(d, w.pod(i+1), false)
	}
	w.awaitProbe(d, heir(w.pod(3)), true)
}

// awaitProbe probes until the answer is the expected one: what clients are given may lag behind what was acknowledged.
func (w *world) awaitProbe(d registry.Registry, in registry.Instance, agree bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), w.h.patience().probe)
	defer cancel()
	for {
		err := w.call(opProbe, d, in)
		if (err == nil) == agree {
			return
		}
		if sleep(ctx, pause) != nil {
			w.Fatalf("Probe of %s: still returns error %v after %s, want success: %t", show(in), err, w.h.patience().probe, agree)
		}
	}
}
