package registrytest

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// appCases are about registry.AppEntrySteerer.
func appCases() []testCase {
	return needing([]testCase{
		{
			name: "AppEntryGoesOutAndBack",
			why:  "clients are sent to the pod by this entry, and by nothing else that Rollcall writes",
			run:  appEntryGoesOutAndBack, apps: true,
		},
		{
			name: "AppEntryNotThere",
			why:  "an entry that Rollcall made would stay when the application ends; a person must be told what is missing, and where",
			run:  appEntryNotThere,
		},
		{
			name: "AppEntryElsewhere",
			why:  "another pod, or another application of the same one, would lose its clients",
			run:  appEntryElsewhere,
		},
		{
			name: "TwoAppEntries",
			why:  "clients continue to use the pod by the entry that was overlooked",
			run:  twoAppEntries,
		},
		{
			name: "AppEntryLeavesNothing",
			why:  "the next pod at the address would start out of rotation, and nothing would show why",
			run:  appEntryLeavesNothing,
		},
	}, isSteerer, hasApp)
}

func appEntryGoesOutAndBack(w *world) {
	d := w.newProcess()
	a := w.app(d, w.pod(1))
	a.Register()
	a.is(registry.InService)
	for range 2 {
		for _, op := range []operation{opAppFailOver, opAppRegister} {
			w.must(op, d, a.at)
			a.is(stateAfterApp(op))
			a.Renew()
			a.is(stateAfterApp(op))
			w.must(op, w.newProcess(), a.at)
			a.is(stateAfterApp(op))
		}
	}
	w.must(opAppDeregister, d, a.at)
	a.is(registry.OutOfService)
}

// stateAfterApp is what an application's entry is after a change.
func stateAfterApp(op operation) registry.State {
	if op == opAppRegister {
		return registry.InService
	}
	return registry.OutOfService
}

func appEntryNotThere(w *world) {
	a := w.app(w.newProcess(), w.apart())
	if names := registry.OtherNamesOf(a.isNotThere()); len(names) > 0 {
		w.Fatalf("%s: got other names %q, want none, since no application has registered it", show(a.at), names)
	}
}

// apart returns an instance at an address that no other case uses, under any name.
func (w *world) apart() registry.Instance {
	in, sum := w.pod(1), fnv.New32a()
	_, _ = sum.Write([]byte(w.service))
	own := sum.Sum(nil)
	in.Address = fmt.Sprintf("10.%d.%d.%d", 100+own[0]%100, own[1], 1+own[2]%250)
	return in
}

// isNotThere makes each call for an application's entry that is not there, and returns the error of the one that would put it back.
func (a *application) isNotThere() error {
	a.w.Helper()
	a.is(registry.Absent)
	err := a.w.call(opAppRegister, a.d, a.at)
	if registry.CodeOf(err) != registry.CodeNotRegistered {
		a.w.Fatalf("%s of %s, which is not there: got error %v, want registry.NotRegistered",
			opAppRegister, show(a.at), err)
	}
	for _, name := range []string{a.at.Service, a.at.Address} {
		if !strings.Contains(err.Error(), name) {
			a.w.Fatalf("%s of %s: got an error without %s: %v", opAppRegister, show(a.at), name, err)
		}
	}
	a.w.must(opAppFailOver, a.d, a.at)
	a.w.must(opAppDeregister, a.d, a.at)
	a.is(registry.Absent)
	return err
}

// appEntryElsewhere has entries at another port, at another address and under another name, at first without the entry that
// is looked for. A person must be told of the last of them.
func appEntryElsewhere(w *world) {
	d := w.newProcess()
	a := w.app(d, w.apart())
	var others []*application
	for _, change := range []func(*registry.Instance){
		func(in *registry.Instance) { in.Port++ },
		func(in *registry.Instance) { in.Address = w.pod(2).Address },
		func(in *registry.Instance) { in.Service += "-admin" },
	} {
		at := a.at
		change(&at)
		other := w.app(d, at)
		other.Register()
		others = append(others, other)
	}
	names, named := registry.OtherNamesOf(a.isNotThere()), others[len(others)-1].at
	if len(names) != 1 || names[0] != named.Service {
		w.expectShown(d, named, "no error contains its name")
	}
	a.Register()
	for _, op := range []operation{opAppFailOver, opAppDeregister} {
		w.must(op, d, a.at)
		a.is(registry.OutOfService)
		for _, other := range others {
			other.is(registry.InService)
		}
	}
}

// twoAppEntries has a pod whose address still has the entry of the pod before it, which ended without removing it.
func twoAppEntries(w *world) {
	d := w.newProcess()
	one, two := w.app(d, w.pod(1)), w.app(d, heir(w.pod(1)))
	one.Register()
	two.Register()
	for _, op := range []operation{opAppFailOver, opAppRegister} {
		err := w.call(op, d, two.at)
		one.is(stateAfterApp(op))
		two.is(stateAfterApp(op))
		switch {
		case err != nil && registry.CodeOf(err) != registry.CodeSeveralEntries:
			w.Fatalf("%s of two entries: got error %q, want none, or registry.SeveralEntries", op, err)
		case err == nil && op == opAppRegister:
			w.expectShown(d, two.at, "no error reports that there are two")
		}
	}
}

// expectShown is for what applications wrote and the driver's errors do not report: the list must have it.
func (w *world) expectShown(d registry.Registry, at registry.Instance, without string) {
	w.Helper()
	shown := func() string {
		if lister, is := d.(registry.Lister); is && w.lists(lister, at) {
			return ""
		}
		return without + ", and no list contains it"
	}
	if wrong := w.until(staleness(d), shown); wrong != "" {
		w.Fatalf("the application's entry of %s: %s", show(at), wrong)
	}
}

func appEntryLeavesNothing(w *world) {
	d := w.newProcess()
	a := w.app(d, w.pod(1))
	a.Register()
	w.must(opAppFailOver, d, a.at)
	a.Deregister()
	w.must(opAppDeregister, d, a.at)
	a.is(registry.Absent)

	next := w.app(d, heir(w.pod(1)))
	next.Register()
	next.is(registry.InService)
}

// application is one of the harness, whose entry the driver steers.
type application struct {
	App

	w  *world
	d  registry.Registry
	at registry.Instance
	// entry is what the registry held of the entry when it was new.
	entry string
}

func (w *world) app(d registry.Registry, at registry.Instance) *application {
	w.Helper()
	return &application{App: w.h.App(w.TB, at), w: w, d: d, at: at}
}

func (a *application) Register() {
	a.w.Helper()
	a.App.Register()
	_, a.entry = a.Look()
	if a.entry == "" {
		a.w.Fatalf("harness: App registered %s, but Look finds no entry", show(a.at))
	}
}

// is compares what readers get, what Get returns and the rest of the entry with what they should be.
func (a *application) is(want registry.State) {
	a.w.Helper()
	given, entry := a.Look()
	switch {
	case given != (want == registry.InService):
		a.w.Fatalf("the application's entry of %s is given to clients: %t, want the state %s", show(a.at), given, want)
	case want == registry.Absent && entry != "":
		a.w.Fatalf("the registry has an entry of %s, want none: %s", show(a.at), entry)
	case want != registry.Absent && entry != a.entry:
		a.w.Fatalf("the application's entry of %s was changed: got\n%s\nwant\n%s", show(a.at), entry, a.entry)
	}
	got, err := ask(a.w.Context(), a.w, func(ctx context.Context) (registry.State, error) { return appsOf(a.d).Get(ctx, a.at) })
	if err != nil || got != want {
		a.w.Fatalf("%s of %s: got %q and error %v, want %q", opAppGet, show(a.at), got, err, want)
	}
}
