package registrytest

import (
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// ownerCases are about two clusters, each with a Rollcall of its own, in one registry.
func ownerCases() []testCase {
	return []testCase{
		{
			name: "TwoOwnersApart",
			why:  "staging and production can share a registry; what one does to its pods must not affect the other's",
			run:  twoOwnersApart,
		},
		{
			name: "TwoOwnersAtOneAddress",
			why:  "an address that moved to another cluster belongs to that one; the old cluster's late calls must spare it",
			run:  twoOwnersAtOneAddress,
		},
	}
}

// ofCluster returns what a cluster with the same workload runs: the same names, at addresses of its own.
func (w *world) ofCluster(cluster string, ins []registry.Instance) []registry.Instance {
	theirs := slices.Clone(ins)
	for i := range theirs {
		theirs[i].Cluster = cluster
		theirs[i].Address = "10.9" + theirs[i].Address[len("10.0"):]
		theirs[i].UID += "-of-another"
	}
	return theirs
}

func twoOwnersApart(w *world) {
	const pods = 3
	other := w.cluster + "-other"
	ours, theirs := w.newProcess(), w.newProcessOf(other)
	a := w.pods(pods)
	b := w.ofCluster(other, a)
	w.register(ours, a...)
	w.register(theirs, b...)
	w.expect(allInService(a)...)
	w.expectOf(other, allInService(b)...)

	w.failOver(ours, a[0])
	w.failOver(theirs, b[1])
	w.deregister(ours, a[2])
	w.expect(outOfService(a[0]), inService(a[1]))
	w.expectOf(other, inService(b[0]), outOfService(b[1]), inService(b[2]))

	w.deregister(ours, a...)
	w.expect()
	w.expectOf(other, inService(b[0]), outOfService(b[1]), inService(b[2]))
	w.register(theirs, b[1])
	w.expectOf(other, allInService(b)...)
}

func twoOwnersAtOneAddress(w *world) {
	other := w.cluster + "-other"
	ours, theirs := w.newProcess(), w.newProcessOf(other)
	old := w.pod(1)
	next := heir(old)
	next.Cluster = other
	w.register(ours, old)
	w.register(theirs, next)
	w.expect()
	w.expectOf(other, inService(next))

	for _, late := range []operation{opFailOver, opDeregister} {
		w.must(late, ours, old)
		w.must(late, w.newProcess(), old)
	}
	w.expect()
	w.expectOf(other, inService(next))
}
