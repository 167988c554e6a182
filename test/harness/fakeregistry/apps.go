package fakeregistry

import (
	"context"
	"fmt"
	"slices"
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

// apps are the entries that applications wrote themselves. That a place is out of rotation is remembered apart from the
// entries, as Nacos does, so that it outlives an application that registers anew, and one that is gone.
type apps struct {
	mu         sync.Mutex
	registered map[place]bool
	out        map[place]bool
}

type place struct{ service, endpoint string }

func placeOf(in registry.Instance) place { return place{in.Service, in.Endpoint()} }

// App is the client of one application, which registers itself at an instance's service, address and port.
type App struct {
	apps *apps
	at   place
}

// App returns the client of the application at the instance.
func (f *Registry) App(at registry.Instance) App { return App{&f.apps, placeOf(at)} }

// Register writes the application's entry, as at each renewal.
func (a App) Register() { a.apps.set(func(s *apps) { s.registered[a.at] = true }) }

// Deregister removes it. What the registry remembers of the place stays.
func (a App) Deregister() { a.apps.set(func(s *apps) { delete(s.registered, a.at) }) }

// PutBack puts it into rotation, past Rollcall.
func (a App) PutBack() { a.apps.set(func(s *apps) { delete(s.out, a.at) }) }

// State is what clients are given of it.
func (a App) State() (state registry.State) {
	a.apps.set(func(s *apps) { state = s.state(a.at) })
	return state
}

// Remembered reports whether the registry keeps the next one at this place out of rotation.
func (a App) Remembered() (out bool) {
	a.apps.set(func(s *apps) { out = s.out[a.at] })
	return out
}

func (s *apps) set(change func(*apps)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.registered == nil {
		s.registered, s.out = map[place]bool{}, map[place]bool{}
	}
	change(s)
}

// state is of a place. The caller holds the lock.
func (s *apps) state(at place) registry.State {
	switch {
	case !s.registered[at]:
		return registry.Absent
	case s.out[at]:
		return registry.OutOfService
	default:
		return registry.InService
	}
}

// AppEntries implements [registry.AppEntrySteerer].
func (f *Registry) AppEntries() registry.AppRegistry { return steered{f} }

type steered struct{ f *Registry }

func (s steered) Register(ctx context.Context, in registry.Instance) error {
	return s.change(ctx, OpAppRegister, in, func(a *apps) error {
		if !a.registered[placeOf(in)] {
			return registry.NotRegistered(fmt.Errorf("no application has registered %s at %s", in.Service, in.Endpoint()))
		}
		delete(a.out, placeOf(in))
		return nil
	})
}

func (s steered) FailOver(ctx context.Context, in registry.Instance) error {
	return s.change(ctx, OpAppFailOver, in, func(a *apps) error {
		if a.registered[placeOf(in)] {
			a.out[placeOf(in)] = true
		}
		return nil
	})
}

func (s steered) Deregister(ctx context.Context, in registry.Instance) error {
	return s.change(ctx, OpAppDeregister, in, func(a *apps) error {
		delete(a.out, placeOf(in))
		if a.registered[placeOf(in)] {
			a.out[placeOf(in)] = true
		}
		return nil
	})
}

func (s steered) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = s.change(ctx, OpAppGet, in, func(a *apps) error {
		state = a.state(placeOf(in))
		return nil
	})
	return state, err
}

func (s steered) change(ctx context.Context, op Op, in registry.Instance, change func(*apps) error) error {
	return s.f.call(ctx, op, in, func(context.Context, Backend) (err error) {
		s.f.apps.set(func(a *apps) { err = change(a) })
		return err
	})
}

// AppsInRotation returns the endpoints that clients are given of a service by the entries of its applications, sorted.
func (f *Registry) AppsInRotation(service string) (endpoints []string) {
	f.apps.set(func(s *apps) {
		for at := range s.registered {
			if at.service == service && !s.out[at] {
				endpoints = append(endpoints, at.endpoint)
			}
		}
	})
	slices.Sort(endpoints)
	return endpoints
}
