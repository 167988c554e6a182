package registrytest

import (
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// stateCases are about one instance in rotation, out of rotation and absent.
func stateCases() []testCase {
	return slices.Concat(registerCases(), failOverCases(), deregisterCases())
}

// registerCases are about putting one instance into rotation, and back.
func registerCases() []testCase {
	return []testCase{
		{
			name: "RegisterIsVisibleAtOnce",
			why:  "OpenKruise counts the pod as available when Register has returned nil; clients must find it by then",
			run: func(w *world) {
				w.registered(w.pod(1))
				w.expect(inService(w.pod(1)))
			},
		},
		{
			name: "RegisterTwiceIsOne",
			why:  "a call is made again whenever its outcome is unknown; a second entry would never be removed",
			run: func(w *world) {
				w.registered(w.pod(1), w.pod(1))
				w.registered(w.pod(1))
				w.expect(inService(w.pod(1)))
			},
		},
		{
			name: "RegisterPutsBack",
			why:  "after an in-place update the pod keeps its address and must get requests again",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.register(d, w.pod(1))
				w.expect(inService(w.pod(1)))
			},
		},
		{
			name: "RegisterPutsBackAgainAndAgain",
			why:  "an instance is taken out at every update; a registry may remember an earlier removal next to the entry",
			run: func(w *world) {
				for range 3 {
					w.registered(w.pod(1))
					w.expect(inService(w.pod(1)))
					w.failOver(w.newProcess(), w.pod(1))
					w.expect(outOfService(w.pod(1)))
				}
			},
		},
		{
			name: "RegisterAfterRemovalPutsBack",
			why:  "a pod at the address of one that left while out of rotation must get requests immediately",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.deregister(d, w.pod(1))
				w.register(d, heir(w.pod(1)))
				w.expect(inService(heir(w.pod(1))))
			},
		},
	}
}

// failOverCases are about taking one instance out of rotation.
func failOverCases() []testCase {
	return []testCase{
		{
			name: "FailOverTakesOutOfRotation",
			why:  "OpenKruise updates the pod when FailOver has returned nil; no client may be sent there any more",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.expectNotInService(w.pod(1))
			},
		},
		{
			name:  "FailOverKeepsKnown",
			why:   "an update is not a removal: a client that watches the registry must see the instance out of rotation",
			needs: []Capability{OutOfServiceState},
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.expect(outOfService(w.pod(1)))
			},
		},
		{
			name: "FailOverTwice",
			why:  "a call is made again whenever its outcome is unknown; an error would then hold up the update forever",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1), w.pod(1))
				w.failOver(w.newProcess(), w.pod(1))
				w.expect(outOfService(w.pod(1)))
			},
		},
		{
			name: "FailOverOfUnknown",
			why:  "a pod can be updated before it was ever in rotation; then there is nothing to take out, which is not an error",
			run: func(w *world) {
				w.failOver(w.newProcess(), w.pod(1))
				w.expectNotInService(w.pod(1))
			},
		},
		{
			name: "RestartedProcessFailsOver",
			why:  "the process that registered the pod may be dead; the next process knows only what is on the pod",
			run: func(w *world) {
				w.registered(w.pod(1), w.pod(2))
				w.failOver(w.newProcess(), w.pod(1))
				w.expect(outOfService(w.pod(1)), inService(w.pod(2)))
			},
		},
	}
}

// deregisterCases are about removing one instance.
func deregisterCases() []testCase {
	return []testCase{
		{
			name: "DeregisterRemoves",
			why:  "the pod is about to be deleted; an entry that stays is an orphan that clients are sent to",
			run: func(w *world) {
				d := w.registered(w.pod(1), w.pod(2))
				w.failOver(d, w.pod(2))
				w.deregister(d, w.pod(1), w.pod(2))
				w.expect()
			},
		},
		{
			name: "DeregisterAbsent",
			why:  "an entry that is gone needs no removal; an error would keep the pod Terminating forever",
			run: func(w *world) {
				d := w.newProcess()
				w.deregister(d, w.pod(1))
				w.register(d, w.pod(1))
				w.deregister(d, w.pod(1), w.pod(1))
				w.deregister(w.newProcess(), w.pod(1))
				w.expect()
			},
		},
		{
			name:  "RemovalSparesOthers",
			why:   "the end of one entry must not affect another pod's, nor the pod's own at another port or service",
			needs: []Capability{EachApart},
			run:   removalSparesOthers,
		},
		{
			name: "RestartedProcessDeregisters",
			why:  "the process that registered the pod may be dead; the next process knows only what is on the pod",
			run: func(w *world) {
				w.registered(w.pod(1), w.pod(2))
				w.deregister(w.newProcess(), w.pod(1))
				w.expect(inService(w.pod(2)))
			},
		},
	}
}

func removalSparesOthers(w *world) {
	gone := w.pod(1)
	otherPort, otherService, otherAddress := gone, gone, gone
	otherPort.Port = 9090
	otherService.Service += "-admin"
	otherAddress.Address = "10.0.99.1"
	otherPod := w.pod(2)

	d := w.registered(gone, otherPort, otherService, otherAddress, otherPod)
	w.failOver(d, gone)
	left := []registry.Entry{
		inService(otherPort), inService(otherService), inService(otherAddress), inService(otherPod),
	}
	w.expect(append(slices.Clip(left), outOfService(gone))...)
	w.deregister(d, gone)
	w.expect(left...)
}
