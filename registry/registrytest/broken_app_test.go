package registrytest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// applications is a registry in which applications register themselves. That a place is out of rotation it keeps apart from
// the entries, as Nacos does, so it can outlive them; that a single entry is out ends when that is written again.
type applications struct {
	mu      sync.Mutex
	entries map[string]appEntry // by the host of each
	out     map[string]bool     // by placeOf, or by host
}

type appEntry struct {
	at      registry.Instance
	version int
}

func placeOf(in registry.Instance) string { return in.Service + " " + in.Endpoint() }

func (a *applications) Register(ctx context.Context, in registry.Instance) error {
	return a.change(ctx, func() error {
		if len(a.hosts(in)) == 0 {
			return registry.NotRegistered(fmt.Errorf("no application has registered %s", placeOf(in)))
		}
		delete(a.out, placeOf(in))
		for _, host := range a.hosts(in) {
			delete(a.out, host)
		}
		return nil
	})
}

func (a *applications) FailOver(ctx context.Context, in registry.Instance) error {
	return a.change(ctx, func() error {
		if len(a.hosts(in)) > 0 {
			a.out[placeOf(in)] = true
		}
		return nil
	})
}

func (a *applications) Deregister(ctx context.Context, in registry.Instance) error {
	return a.change(ctx, func() error {
		delete(a.out, placeOf(in))
		if len(a.hosts(in)) > 0 {
			a.out[placeOf(in)] = true
		}
		return nil
	})
}

func (a *applications) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = a.change(ctx, func() error {
		switch {
		case len(a.hosts(in)) == 0:
			state = registry.Absent
		case slices.ContainsFunc(a.hosts(in), a.isGiven):
			state = registry.InService
		default:
			state = registry.OutOfService
		}
		return nil
	})
	return state, err
}

func (a *applications) change(ctx context.Context, change func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return change()
}

func (a *applications) isGiven(host string) bool {
	return !a.out[host] && !a.out[placeOf(a.entries[host].at)]
}

// takesOut returns a FailOver that takes out so many single entries, at most.
func (a *applications) takesOut(most int) func(context.Context, registry.Instance) error {
	return func(ctx context.Context, in registry.Instance) error {
		return a.change(ctx, func() error {
			hosts := a.hosts(in)
			for _, host := range hosts[:min(most, len(hosts))] {
				a.out[host] = true
			}
			return nil
		})
	}
}

// hosts returns those that have an entry at the instance's place. The caller holds the lock.
func (a *applications) hosts(in registry.Instance) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(a.entries)), func(host string) bool {
		return placeOf(a.entries[host].at) != placeOf(in)
	})
}

// appClient is the client of one application.
type appClient struct {
	*applications

	at registry.Instance
}

func (c appClient) host() string { return c.at.Pod + " " + placeOf(c.at) }

func (c appClient) Register() {
	c.set(func() {
		c.entries[c.host()] = appEntry{at: c.at, version: 1}
		delete(c.out, c.host())
	})
}

func (c appClient) Renew() { c.Register() }

func (c appClient) Deregister() { c.set(func() { delete(c.entries, c.host()) }) }

func (c appClient) Look() (given bool, entry string) {
	c.set(func() {
		if e, known := c.entries[c.host()]; known {
			given, entry = c.isGiven(c.host()), fmt.Sprintf("%+v", e)
		}
	})
	return given, entry
}

func (c appClient) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// steering is a driver that has an application's entries.
type steering struct {
	backend

	apps registry.AppRegistry
}

func (s steering) AppEntries() registry.AppRegistry { return s.apps }

// brokenApps is the registry of the applications' entries with some methods replaced.
type brokenApps struct {
	registry.AppRegistry

	register, failOver, deregister func(context.Context, registry.Instance) error
}

func (b brokenApps) Register(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.register, b.AppRegistry.Register)
}

func (b brokenApps) FailOver(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.failOver, b.AppRegistry.FailOver)
}

func (b brokenApps) Deregister(ctx context.Context, in registry.Instance) error {
	return either(ctx, in, b.deregister, b.AppRegistry.Deregister)
}

// amongApps is the harness of a driver of a registry in which applications register themselves.
func amongApps(wrap func(*applications) registry.AppRegistry) func(*testing.T) registrytest.Harness {
	return func(t *testing.T) registrytest.Harness {
		t.Helper()
		all := &applications{entries: map[string]appEntry{}, out: map[string]bool{}}
		h := overMemory(t, func(b backend) registry.Registry { return steering{b, wrap(all)} })
		h.App = func(_ registrytest.T, at registry.Instance) registrytest.App { return appClient{all, at} }
		return h
	}
}

func TestADriverThatSteersAppsPasses(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, amongApps(func(a *applications) registry.AppRegistry { return a })(t))
}

func brokenAppEntries() map[string]brokenDriver {
	return map[string]brokenDriver{
		"a driver that takes an application's entry out until it is renewed": {
			reason: "the client's next heartbeat puts it back",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, failOver: a.takesOut(2)}
			}),
			want: []string{"AppEntryGoesOutAndBack"},
		},
		"a driver that writes the application's entry anew": {
			reason: "what the application had registered besides is lost",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, register: func(ctx context.Context, in registry.Instance) error {
					for _, host := range a.hosts(in) {
						a.entries[host] = appEntry{at: in}
					}
					return a.Register(ctx, in)
				}}
			}),
			want: []string{"AppEntryGoesOutAndBack", "TwoAppEntries"},
		},
		"a driver that makes the application's entry": {
			reason: "it is still there when the application has gone",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, register: func(ctx context.Context, in registry.Instance) error {
					if len(a.hosts(in)) == 0 {
						appClient{a, in}.Register()
					}
					return a.Register(ctx, in)
				}}
			}),
			want: []string{"AppEntryNotThere"},
		},
		"a driver that does not say where it looked": {
			reason: "whether the name or the port is wrong is left to guess",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, register: func(ctx context.Context, in registry.Instance) error {
					if err := a.Register(ctx, in); registry.IsNotRegistered(err) {
						return registry.NotRegistered(errors.New("404"))
					} else if err != nil {
						return err
					}
					return nil
				}}
			}),
			want: []string{"AppEntryNotThere"},
		},
		"a driver that takes out whatever has the address": {
			reason: "the pod's other ports serve other clients",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, failOver: func(ctx context.Context, in registry.Instance) error {
					return a.change(ctx, func() error {
						for _, e := range a.entries {
							if e.at.Service == in.Service && e.at.Address == in.Address {
								a.out[placeOf(e.at)] = true
							}
						}
						return nil
					})
				}}
			}),
			want: []string{"AppEntryElsewhere"},
		},
		"a driver that takes out the first entry that it finds": {
			reason: "the second is given to clients",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, failOver: func(ctx context.Context, in registry.Instance) error {
					if len(a.hosts(in)) == 1 {
						return a.FailOver(ctx, in)
					}
					return a.takesOut(1)(ctx, in)
				}}
			}),
			want: []string{"TwoAppEntries"},
		},
		"a driver that leaves the application's place out": {
			reason: "no pod at the address is given to clients any more",
			broken: amongApps(func(a *applications) registry.AppRegistry {
				return brokenApps{AppRegistry: a, deregister: a.FailOver}
			}),
			want: []string{"AppEntryLeavesNothing"},
		},
	}
}
