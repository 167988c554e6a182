package registrytest

import (
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// stateCases are about one instance's way through in service, out of service and absent.
func stateCases() []testCase {
	return slices.Concat(registerCases(), failOverCases(), deregisterCases())
}

// registerCases are about putting one instance in service, and back in.
func registerCases() []testCase {
	return []testCase{
		{
			name: "RegisterIsVisibleAtOnce",
			why:  "OpenKruise counts the pod available as soon as Register returns nil; clients must find it by then",
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
			why:  "after an in-place update the pod keeps its address and must get its traffic back",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.register(d, w.pod(1))
				w.expect(inService(w.pod(1)))
			},
		},
		{
			name: "RegisterPutsBackAgainAndAgain",
			why:  "an instance fails over at every update; a registry may keep the mark of an earlier one beside the entry",
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
			why:  "a pod that comes to the address of one that left while out of service must get traffic, and at once",
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

// failOverCases are about taking one instance out of service.
func failOverCases() []testCase {
	return []testCase{
		{
			name: "FailOverTakesOutOfRotation",
			why:  "OpenKruise updates the pod as soon as FailOver returns nil; no client may be sent there any more",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.expectNotInService(w.pod(1))
			},
		},
		{
			name:  "FailOverKeepsKnown",
			why:   "an update is no removal: a client that watches the registry must see the instance out of service",
			needs: []Capability{OutOfServiceState},
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1))
				w.expect(outOfService(w.pod(1)))
			},
		},
		{
			name: "FailOverTwice",
			why:  "a call is made again whenever its outcome is unknown; an error then would hold the update up forever",
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.failOver(d, w.pod(1), w.pod(1))
				w.failOver(w.newProcess(), w.pod(1))
				w.expect(outOfService(w.pod(1)))
			},
		},
		{
			name: "FailOverOfUnknown",
			why:  "a pod may be updated before it was ever in rotation; nothing is there to take out, and all is well",
			run: func(w *world) {
				w.failOver(w.newProcess(), w.pod(1))
				w.expectNotInService(w.pod(1))
			},
		},
		{
			name: "RestartedProcessFailsOver",
			why:  "the process that registered the pod may be dead; the next process knows only what the pod itself says",
			run: func(w *world) {
				w.registered(w.pod(1), w.pod(2))
				w.failOver(w.newProcess(), w.pod(1))
				w.expect(outOfService(w.pod(1)), inService(w.pod(2)))
			},
		},
	}
}

// deregisterCases are about taking one instance out for good.
func deregisterCases() []testCase {
	return []testCase{
		{
			name: "DeregisterRemoves",
			why:  "the pod is about to be deleted; what stays behind is an orphan that clients are sent to",
			run: func(w *world) {
				d := w.registered(w.pod(1), w.pod(2))
				w.failOver(d, w.pod(2))
				w.deregister(d, w.pod(1), w.pod(2))
				w.expect()
			},
		},
		{
			name: "DeregisterAbsent",
			why:  "removing what is gone is done already; an error would keep the pod in termination forever",
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
			why:   "one pod's end must not touch another's traffic, nor its own under another port or service",
			needs: []Capability{EachApart},
			run:   removalSparesOthers,
		},
		{
			name: "RestartedProcessDeregisters",
			why:  "the process that registered the pod may be dead; the next process knows only what the pod itself says",
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
