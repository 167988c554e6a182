package registrytest

import (
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// foreignCases are about entries that clients are given and that the driver does not change: of applications that register themselves, and
// with Rollcall's own ownership tag where the driver does not write one.
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
		{
			name: "ForeignEntryInAnotherSpelling",
			why:  "applications write IPv6 addresses in brackets, in capitals or with all groups, and clients use them all the same",
			run:  foreignEntryInAnotherSpelling,
		},
		{
			name:  "CopyOfAnEntryShows",
			why:   "after a change of an option each pod has two entries; OpenKruise would continue while clients are given the other one",
			needs: []Capability{hasCopy},
			run:   copyOfAnEntryShows,
		},
		{
			name:  "CopyOfAnothersEntry",
			why:   "what another cluster has written is for its own Rollcall to remove, and must not hold pods here",
			needs: []Capability{hasCopy},
			run:   copyOfAnothersEntry,
		},
	}, hasForeign)
}

// spellings are forms of one address, as Kubernetes writes it first.
func spellings() []string {
	return []string{
		"fd00:10:244::7", "[fd00:10:244::7]", "fd00:10:244:0:0:0:0:7", "[fd00:10:244:0:0:0:0:7]", "FD00:10:244::7",
		"fd00:0010:0244:0000:0000:0000:0000:0007",
	}
}

// foreignEntryInAnotherSpelling has an IPv6 pod whose application registers itself too.
func foreignEntryInAnotherSpelling(w *world) {
	mine := w.pod(1)
	mine.Address = spellings()[0]
	d := w.registered(mine)
	for _, spelled := range spellings()[1:] {
		at := mine
		at.Address = spelled
		remove := w.h.Foreign(w.TB, at)
		w.becomesForeign(d, mine, true, "an application has registered it as "+spelled)
		remove()
		w.becomesForeign(d, mine, false, spelled+" has gone")
	}
	w.deregister(d, mine)
}

// copyOfAnEntryShows expects the driver to report the copy as foreign, and not as the entry that it manages.
func copyOfAnEntryShows(w *world) {
	d := w.registered(w.pod(1), w.pod(2))
	remove := w.h.Copy(w.TB, w.pod(1))
	w.becomesForeign(d, w.pod(1), true, "it has a copy")
	w.listsOwn(d, w.pod(1), w.pod(2))
	if removed := w.call(opDeregister, d, w.pod(1)); removed != nil && registry.CodeOf(removed) != registry.CodeForeignEntry {
		w.Fatalf("%s of %s next to a copy: got error %q, want none, or registry.ForeignEntry", opDeregister, show(w.pod(1)), removed)
	}
	w.listsOwn(d, w.pod(2))
	w.becomesForeign(d, w.pod(1), true, "its own entry has gone, and clients are given the copy")
	w.becomesForeign(d, w.pod(2), false, "the copy is another's")

	next := heir(w.pod(1))
	w.register(d, next)
	w.becomesForeign(d, next, true, "clients are given the next pod at the address by the copy")
	w.deregister(d, next)
	remove()
	w.becomesForeign(d, w.pod(1), false, "the copy has gone")
}

// listsOwn waits until the driver's list has exactly these of what it manages. What clients read has copies too.
func (w *world) listsOwn(d registry.Registry, want ...registry.Instance) {
	w.Helper()
	lister, is := d.(registry.Lister)
	if !is {
		return
	}
	var entries []registry.Entry
	for _, in := range want {
		entries = append(entries, inService(in))
	}
	wrong := w.until(staleness(d), func() string { return difference(w.read(lister.List, w.cluster), w.h.possible(entries)) })
	if wrong != "" {
		w.Fatalf("the list has the wrong entries of cluster %q\n%s", w.cluster, wrong)
	}
}

func copyOfAnothersEntry(w *world) {
	d := w.registered(w.pod(1))
	theirs := heir(w.pod(1))
	theirs.Cluster += "-other"
	w.Cleanup(w.h.Copy(w.TB, theirs))
	w.becomesForeign(d, w.pod(1), false, "the other entry is another cluster's")
}

// becomesForeign waits until the driver's Get or List shows that.
func (w *world) becomesForeign(d registry.Registry, in registry.Instance, want bool, why string) {
	w.Helper()
	wrong := w.until(staleness(d), func() string {
		if w.isForeign(d, in) != want {
			return fmt.Sprintf("Get and List report it as foreign: %t, want %t", !want, want)
		}
		return ""
	})
	if wrong != "" {
		w.Fatalf("%s: %s: %s", show(in), wrong, why)
	}
}

// foreignEntryShows expects the driver to report that clients are still given the instance: by the removal, Get or List.
func foreignEntryShows(w *world) {
	d := w.registered(w.pod(1), w.pod(2))
	remove := w.h.Foreign(w.TB, w.pod(1))
	removed := w.call(opDeregister, d, w.pod(1))
	if removed != nil && registry.CodeOf(removed) != registry.CodeForeignEntry {
		w.Fatalf("%s of %s next to a foreign entry: got error %q, want none, or registry.ForeignEntry",
			opDeregister, show(w.pod(1)), removed)
	}
	shown := func() string {
		if registry.CodeOf(removed) == registry.CodeForeignEntry || w.isForeign(d, w.pod(1)) {
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
