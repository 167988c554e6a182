package registrytest

import (
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// foreignCases are about the entries of applications that register themselves.
func foreignCases() []testCase {
	return needing([]testCase{
		{
			name: "ForeignEntryShows",
			why:  "clients continue to use the pod by the other entry, and OpenKruise would continue too",
			run:  foreignEntryShows,
		},
		{
			name: "ForeignEntryElsewhere",
			why:  "a service can have other members; a pod must not wait for what is at another address or port",
			run:  foreignEntryElsewhere,
		},
	}, hasForeign)
}

// foreignEntryShows expects the driver to report that clients are still given the instance: by the removal, Get or List.
func foreignEntryShows(w *world) {
	d := w.registered(w.pod(1), w.pod(2))
	remove := w.h.Foreign(w.TB, w.pod(1))
	removed := w.call(opDeregister, d, w.pod(1))
	if removed != nil && !registry.IsForeignEntry(removed) {
		w.Fatalf("%s of %s next to a foreign entry: got error %q, want none, or registry.ForeignEntry",
			opDeregister, show(w.pod(1)), removed)
	}
	shown := func() string {
		if registry.IsForeignEntry(removed) || w.isForeign(d, w.pod(1)) {
			return ""
		}
		return "neither the removal nor Get nor List reports that clients are given it"
	}
	if wrong := w.until(staleness(d), shown); wrong != "" {
		w.Fatalf("%s next to a foreign entry: %s", show(w.pod(1)), wrong)
	}
	w.expect(inService(w.pod(2))) // the foreign entry itself is not touched

	remove()
	w.deregister(d, w.pod(1))
	over := func() string {
		if w.isForeign(d, w.pod(1)) {
			return "the driver still reports it as foreign"
		}
		return ""
	}
	if wrong := w.until(staleness(d), over); wrong != "" {
		w.Fatalf("%s after the foreign entry has gone: %s", show(w.pod(1)), wrong)
	}
	w.register(d, w.pod(1))
	w.expect(inService(w.pod(1)), inService(w.pod(2)))
}

func foreignEntryElsewhere(w *world) {
	d := w.newProcess()
	mine := w.pod(1)
	w.register(d, mine)
	for _, change := range []func(*registry.Instance){
		func(in *registry.Instance) { in.Port++ },
		func(in *registry.Instance) { in.Address = "10.0.99.1" },
		func(in *registry.Instance) { in.Service += "-admin" },
	} {
		other := mine
		change(&other)
		w.Cleanup(w.h.Foreign(w.TB, other))
	}
	if w.isForeign(d, mine) {
		w.Fatalf("the driver reports %s as foreign, although the foreign entries are at other addresses, ports or services", show(mine))
	}
	w.deregister(d, mine)
	if w.isForeign(d, mine) {
		w.Fatalf("after its removal the driver reports %s as foreign, although the foreign entries are at other addresses, ports or services",
			show(mine))
	}
}

// isForeign reports whether Get or List returns that clients are given the instance by a foreign entry.
func (w *world) isForeign(d registry.Registry, in registry.Instance) bool {
	w.Helper()
	if _, is := d.(registry.Getter); is && w.stateOf(d, in) == registry.Foreign {
		return true
	}
	lister, is := d.(registry.Lister)
	return is && w.lists(lister, in)
}

// lists reports whether the list has a foreign entry at the instance's service, address and port.
func (w *world) lists(lister registry.Lister, in registry.Instance) bool {
	w.Helper()
	return slices.ContainsFunc(w.readAll(lister.List, w.cluster), func(e registry.Entry) bool {
		return isForeign(e) && sameIdentity(e.Instance, in)
	})
}
