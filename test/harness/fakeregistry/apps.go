package fakeregistry

import (
	"context"
	"fmt"
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
// entries, as Nacos does, so that it outlives an application that registers anew, and one that is gone. The zero value is empty.
// It is safe for concurrent use.
type Apps struct {
	mu sync.Mutex
	// registered says how many entries there are at a place.
	registered map[place]int
	out        map[place]bool
	// onePerAddress: it is the application itself that is asked, whatever its services and ports.
	onePerAddress bool
	// ignoresCase: names of services that differ in case are one.
	ignoresCase bool
}

type place struct{ service, endpoint string }

func placeOf(in registry.Instance) place { return place{in.Service, in.Endpoint()} }

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

// set runs change under the lock.
func (s *Apps) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registered == nil {
		s.registered, s.out = map[place]int{}, map[place]bool{}
	}
	change()
}

// state is of a place. The caller holds the lock.
func (s *Apps) state(at place) registry.State {
	switch {
	case s.registered[at] == 0:
		return registry.Absent
	case s.out[at]:
		return registry.OutOfService
	default:
		return registry.InService
	}
}

func (s *Apps) steer(in registry.Instance, change func(at place) error) (err error) {
	s.set(func() { err = change(s.place(in)) })
	return err
}

// Register implements [registry.Registry].
func (s *Apps) Register(_ context.Context, in registry.Instance) error {
	return s.steer(in, func(at place) error {
		if s.registered[at] == 0 {
			return s.notRegistered(at)
		}
		delete(s.out, at)
		return s.several(at)
	})
}

// notRegistered says under which other names the endpoint is registered. The caller holds the lock.
func (s *Apps) notRegistered(at place) error {
	err := fmt.Errorf("no application has registered %s at %s", at.service, at.endpoint)
	for other, n := range s.registered {
		if n > 0 && other.endpoint == at.endpoint {
			return registry.OtherNames(registry.NotRegistered(fmt.Errorf("%w, which is registered as %s", err, other.service)), other.service)
		}
	}
	return registry.NotRegistered(err)
}

// several is of a place with more than one entry. The caller holds the lock.
func (s *Apps) several(at place) error {
	if s.registered[at] > 1 {
		return registry.SeveralEntries(fmt.Errorf("%d applications have registered %s at %s", s.registered[at], at.service, at.endpoint))
	}
	return nil
}

// FailOver implements [registry.Registry].
func (s *Apps) FailOver(_ context.Context, in registry.Instance) error {
	return s.steer(in, func(at place) error {
		if s.registered[at] > 0 {
			s.out[at] = true
		}
		return s.several(at)
	})
}

// Deregister implements [registry.Registry].
func (s *Apps) Deregister(ctx context.Context, in registry.Instance) error {
	if err := s.steer(in, func(at place) error { delete(s.out, at); return nil }); err != nil {
		return err
	}
	return s.FailOver(ctx, in)
}

// App is the client of one application, which registers itself at an instance's service, address and port.
type App struct {
	apps *Apps
	at   place
}

// App returns the client of the application at the instance.
func (s *Apps) App(at registry.Instance) App {
	s.mu.Lock()
	defer s.mu.Unlock()
	return App{s, s.place(at)}
}

// Register writes the application's entry, as at each renewal.
func (a App) Register() { a.apps.set(func() { a.apps.registered[a.at] = 1 }) }

// RegisterTwice writes two entries at its place.
func (a App) RegisterTwice() { a.apps.set(func() { a.apps.registered[a.at] = 2 }) }

// Deregister removes it. What the registry remembers of the place stays.
func (a App) Deregister() { a.apps.set(func() { delete(a.apps.registered, a.at) }) }

// PutBack puts it into rotation, past Rollcall.
func (a App) PutBack() { a.apps.set(func() { delete(a.apps.out, a.at) }) }

// State is what clients are given of it.
func (a App) State() (state registry.State) {
	a.apps.set(func() { state = a.apps.state(a.at) })
	return state
}

// Remembered reports whether the registry keeps the next one at this place out of rotation.
func (a App) Remembered() (out bool) {
	a.apps.set(func() { out = a.apps.out[a.at] })
	return out
}

// CallPods makes it one that calls the application at an instance's address, whatever the instance's service and port.
func (f *Registry) CallPods() { f.apps.set(func() { f.apps.onePerAddress = true }) }

// IgnoreCase makes it one that takes services' names for one if they differ in case.
func (f *Registry) IgnoreCase() { f.apps.set(func() { f.apps.ignoresCase = true }) }

// App returns the client of the application at the instance.
func (f *Registry) App(at registry.Instance) App { return f.apps.App(at) }

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
	err = s.f.call(ctx, OpAppGet, in, func(context.Context, Backend) error {
		state = s.f.App(in).State()
		return nil
	})
	return state, err
}
