package fakeregistry

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/rollcall-dev/rollcall/registry"
)

// The methods of [registry.AppRegistry], on the applications' own entries.
const (
	OpAppRegister   Op = "AppRegister"
	OpAppFailOver   Op = "AppFailOver"
	OpAppDeregister Op = "AppDeregister"
	OpAppGet        Op = "AppGet"
)

// Apps is a registry of the entries that applications wrote themselves. That a place is out of rotation it keeps apart from the
// entries, as Nacos does, so that it outlives an application that registers again, and one that is gone. The zero value is empty.
// It is safe for concurrent use.
type Apps struct {
	// Owned: whoever speaks of another pod than the one that wrote the entry finds none.
	Owned bool

	mu     sync.Mutex
	places map[place]*site
	// onePerAddress: it is the application itself that is asked, whatever its services and ports.
	onePerAddress bool
	// ignoresCase: names of services that differ in case are one.
	ignoresCase bool
}

var _ Backend = (*Apps)(nil)

type place struct{ service, endpoint string }

func placeOf(in registry.Instance) place { return place{in.Service, in.Endpoint()} }

// site is what there is at a place.
type site struct {
	entries map[string]*appEntry // by writer
	out     bool
}

type appEntry struct {
	registry.Instance

	out bool // until it is written again
}

// place is the caller's, who holds the lock.
func (s *Apps) place(in registry.Instance) place {
	switch {
	case s.onePerAddress:
		return place{"", in.Address}
	case s.ignoresCase:
		in.Service = strings.ToLower(in.Service)
	}
	return placeOf(in)
}

// at runs do under the lock, with what is at the instance's place, and with how many entries it finds there.
func (s *Apps) at(in registry.Instance, do func(there *site, found int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := s.place(in), 0
	if s.places == nil {
		s.places = map[place]*site{}
	}
	if s.places[at] == nil {
		s.places[at] = &site{entries: map[string]*appEntry{}}
	}
	for _, e := range s.places[at].entries {
		if !s.Owned || e.UID == in.UID {
			found++
		}
	}
	do(s.places[at], found)
}

// Register implements [registry.Registry].
func (s *Apps) Register(_ context.Context, in registry.Instance) (err error) {
	s.at(in, func(there *site, found int) {
		if found == 0 {
			err = s.notRegistered(in)
			return
		}
		there.out = false
		for _, e := range there.entries {
			e.out = false
		}
		err = several(in, found)
	})
	return err
}

// notRegistered says under which other names the endpoint is registered. The caller holds the lock.
func (s *Apps) notRegistered(in registry.Instance) error {
	err := fmt.Errorf("no application has registered %s at %s", in.Service, in.Endpoint())
	var names []string
	for _, there := range s.places {
		for _, e := range there.entries {
			if e.Endpoint() == in.Endpoint() && !slices.Contains(names, e.Service) {
				names = append(names, e.Service)
			}
		}
	}
	if len(names) > 0 {
		err = fmt.Errorf("%w, which is registered as %s", err, strings.Join(names, ", "))
	}
	return registry.OtherNames(registry.NotRegistered(err), names...)
}

func several(in registry.Instance, found int) error {
	if found < 2 {
		return nil
	}
	return registry.SeveralEntries(fmt.Errorf("%d applications have registered %s at %s", found, in.Service, in.Endpoint()))
}

// FailOver implements [registry.Registry].
func (s *Apps) FailOver(_ context.Context, in registry.Instance) (err error) {
	s.at(in, func(there *site, found int) {
		there.out = there.out || found > 0
		err = several(in, found)
	})
	return err
}

// Deregister implements [registry.Registry].
func (s *Apps) Deregister(_ context.Context, in registry.Instance) (err error) {
	s.at(in, func(there *site, found int) {
		if found > 0 || len(there.entries) == 0 { // another pod's entry stays as it is
			there.out = found > 0
		}
		err = several(in, found)
	})
	return err
}

// Get implements [registry.Getter].
func (s *Apps) Get(_ context.Context, in registry.Instance) (state registry.State, _ error) {
	s.at(in, func(there *site, found int) {
		if state = registry.Absent; found > 0 {
			state = there.state()
		}
	})
	return state, nil
}

// state is of a place with entries. The caller holds the lock.
func (s *site) state() registry.State {
	for _, e := range s.entries {
		if !s.out && !e.out {
			return registry.InService
		}
	}
	return registry.OutOfService
}

// List implements [registry.Lister].
func (s *Apps) List(_ context.Context, cluster string) (all []registry.Entry, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, there := range s.places {
		for _, e := range there.entries {
			if e.Cluster == cluster {
				all = append(all, registry.Entry{Instance: e.Instance, State: there.state()})
			}
		}
	}
	return all, nil
}

// Clear forgets everything.
func (s *Apps) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = nil
}

// At returns the clients of the applications that have registered at the instance's place.
func (s *Apps) At(in registry.Instance) (all []App) {
	s.at(in, func(there *site, _ int) {
		for _, writer := range slices.Sorted(maps.Keys(there.entries)) {
			all = append(all, App{s, there.entries[writer].Instance, writer})
		}
	})
	return all
}

// App is the client of one application, which registers itself at an instance's service, address and port. Each writer has an entry of
// its own there.
type App struct {
	Apps   *Apps
	At     registry.Instance
	Writer string
}

func (a App) there(do func(*site)) { a.Apps.at(a.At, func(there *site, _ int) { do(there) }) }

// Register writes the application's entry, as at each renewal.
func (a App) Register() {
	a.there(func(s *site) { s.entries[a.Writer] = &appEntry{Instance: a.At} })
}

// RegisterTwice writes two entries at its place.
func (a App) RegisterTwice() {
	a.Register()
	a.Writer += " again"
	a.Register()
}

// Deregister removes it. What the registry remembers of the place stays.
func (a App) Deregister() { a.there(func(s *site) { delete(s.entries, a.Writer) }) }

// PutBack puts its place into rotation, past Rollcall.
func (a App) PutBack() { a.there(func(s *site) { s.out = false }) }

// TakeOut takes its entry alone out of rotation, until it is written again.
func (a App) TakeOut() { a.there(func(s *site) { s.entries[a.Writer].out = true }) }

// Look returns whether clients are given its entry, and what is in it: nothing if there is none.
func (a App) Look() (given bool, entry string) {
	a.there(func(s *site) {
		if e := s.entries[a.Writer]; e != nil {
			given, entry = !s.out && !e.out, fmt.Sprint(e.Instance)
		}
	})
	return given, entry
}

// State is what clients are given at its place.
func (a App) State() registry.State {
	state, _ := a.Apps.Get(context.Background(), a.At) // it never fails
	return state
}

// Remembered reports whether the registry keeps the next one at this place out of rotation.
func (a App) Remembered() (out bool) {
	a.there(func(s *site) { out = s.out })
	return out
}

// CallPods makes it one that calls the application at an instance's address, whatever the instance's service and port.
func (f *Registry) CallPods() { f.apps.onePerAddress = true }

// IgnoreCase makes it one that takes services' names for one if they differ in case.
func (f *Registry) IgnoreCase() { f.apps.ignoresCase = true }

// App returns the client of the application at the instance.
func (f *Registry) App(at registry.Instance) App { return App{Apps: &f.apps, At: at} }

// AppEntries implements [registry.AppEntrySteerer].
func (f *Registry) AppEntries() registry.AppRegistry { return steered{f} }

type steered struct{ f *Registry }

func (s steered) Register(ctx context.Context, in registry.Instance) error {
	return s.f.call(ctx, OpAppRegister, in, func(ctx context.Context, _ Backend) error { return s.f.apps.Register(ctx, in) })
}

func (s steered) FailOver(ctx context.Context, in registry.Instance) error {
	return s.f.call(ctx, OpAppFailOver, in, func(ctx context.Context, _ Backend) error { return s.f.apps.FailOver(ctx, in) })
}

func (s steered) Deregister(ctx context.Context, in registry.Instance) error {
	return s.f.call(ctx, OpAppDeregister, in, func(ctx context.Context, _ Backend) error { return s.f.apps.Deregister(ctx, in) })
}

func (s steered) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = s.f.call(ctx, OpAppGet, in, func(ctx context.Context, _ Backend) (err error) {
		state, err = s.f.apps.Get(ctx, in)
		return err
	})
	return state, err
}
