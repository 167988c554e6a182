package registrytest

import (
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// foreignCases are about what an application writes that registers itself.
func foreignCases() []testCase {
	return needing([]testCase{
		{
			name: "ForeignEntryShows",
			why:  "clients go on to the pod by the other entry, and OpenKruise would be let go on",
			run:  foreignEntryShows,
		},
		{
			name: "ForeignEntryElsewhere",
			why:  "a service may have other members; a pod must not wait for what is at another address or port",
			run:  foreignEntryElsewhere,
		},
	}, hasForeign)
}

// foreignEntryShows has the driver say, in the removal, when it is asked or in its list, that the instance is not gone.
func foreignEntryShows(w *world) {
	d := w.registered(w.pod(1), w.pod(2))
	remove := w.h.Foreign(w.TB, w.pod(1))
	removed := w.call(opDeregister, d, w.pod(1))
	if removed != nil && !registry.IsForeignEntry(removed) {
		w.Fatalf("%s of %s beside another's entry: got error %q, want none, or one of a foreign entry",
			opDeregister, show(w.pod(1)), removed)
	}
	shown := func() string {
		if registry.IsForeignEntry(removed) || w.isForeign(d, w.pod(1)) {
			return ""
		}
		return "neither the removal nor Get nor List says that clients are given it"
	}
	if wrong := w.until(staleness(d), shown); wrong != "" {
		w.Fatalf("%s beside another's entry: %s", show(w.pod(1)), wrong)
	}
	w.expect(inService(w.pod(2))) // and the other one is not touched: it is still foreign, should it be asked for

	remove()
	w.deregister(d, w.pod(1))
	over := func() string {
		if w.isForeign(d, w.pod(1)) {
			return "it is still said to be foreign"
		}
		return ""
	}
	if wrong := w.until(staleness(d), over); wrong != "" {
		w.Fatalf("%s after the other's entry has gone: %s", show(w.pod(1)), wrong)
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
		w.Fatalf("%s is said to be foreign, and others are at other places", show(mine))
	}
	w.deregister(d, mine)
	if w.isForeign(d, mine) {
		w.Fatalf("%s is said to be foreign once it is removed, and others are at other places", show(mine))
	}
}

// isForeign reports whether Get or List says that clients are given the instance by another's entry.
func (w *world) isForeign(d registry.Registry, in registry.Instance) bool {
	w.Helper()
	if _, is := d.(registry.Getter); is && w.says(d, in) == registry.Foreign {
		return true
	}
	lister, is := d.(registry.Lister)
	return is && w.lists(lister, in)
}

// lists reports whether the list has another's entry at the instance's place.
func (w *world) lists(lister registry.Lister, in registry.Instance) bool {
	w.Helper()
	return slices.ContainsFunc(w.readAll(lister.List, w.cluster), func(e registry.Entry) bool {
		return isForeign(e) && sameIdentity(e.Instance, in)
	})
}
