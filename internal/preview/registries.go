package preview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// together is how many entries are asked for at the same time.
const together = 16

// registries are those of a configuration, as far as this process can have them. None of them is ever changed.
type registries struct {
	clients registryclient.Registries

	mu sync.Mutex
	// unasked is why a registry can't be asked from here.
	unasked map[string]error
}

// open makes a driver for each registry. Without the files that only the managers have, a driver still tells what it can do.
func open(ctx context.Context, c *config.Config, constructors map[string]registry.Constructor) *registries {
	r := &registries{clients: registryclient.Registries{}, unasked: map[string]error{}}
	for _, name := range c.RegistryNames() {
		section := c.Registries[name]
		made, err := construct(ctx, constructors[section.Driver], section)
		if err != nil {
			r.unasked[name] = err
		}
		r.clients[name] = registryclient.New(made, registryclient.Options{
			Name: name, Driver: section.Driver, Timeout: section.Timeout, MaxInFlight: together,
			DryRun: func(registryclient.Subject) {}, Logger: logr.Discard(),
		})
	}
	return r
}

// construct returns, with an error, a registry that must not be asked.
func construct(ctx context.Context, constructor registry.Constructor, section config.Registry) (registry.Registry, error) {
	if constructor == nil {
		return unknown{}, fmt.Errorf("only the manager can ask registries of driver %s", section.Driver)
	}
	cfg := section.Config
	cfg.Logger = slog.New(slog.DiscardHandler)
	made, err := constructor(ctx, cfg)
	if err == nil {
		return made, nil
	}
	cfg.TLS, cfg.Auth = registry.TLS{}, registry.Auth{}
	if made, without := constructor(ctx, cfg); without == nil {
		return made, err
	}
	return unknown{}, err
}

func (r *registries) close() {
	for _, client := range r.clients {
		_ = client.Close() // which was never written to
	}
}

// asked is one entry of a pod whose state is to be known.
type asked struct {
	tracker.Target

	entry *Entry
}

// ask fills in what each entry's registry has there now. A registry that fails is not asked again: a thousand pods would wait a thousand
// times.
func (r *registries) ask(ctx context.Context, all []asked) {
	var calls errgroup.Group
	calls.SetLimit(together)
	listed := map[string]bool{}
	for _, one := range all {
		client := r.clientOf(one.Target)
		switch {
		case client.Gets():
			calls.Go(func() error {
				r.get(ctx, client, one)
				return nil
			})
		case client.Lists() && client.PlaceTemplate() == "" && !listed[one.Registry]:
			listed[one.Registry] = true
			of := slices.DeleteFunc(slices.Clone(all), func(other asked) bool { return other.Registry != one.Registry })
			calls.Go(func() error {
				r.list(ctx, client, of)
				return nil
			})
		case !client.Lists() || client.PlaceTemplate() != "":
			r.failed(one.Registry, errors.New("its driver can't be asked about one entry"))
		}
	}
	_ = calls.Wait()
}

func (r *registries) clientOf(t tracker.Target) *registryclient.Client {
	client := r.clients[t.Registry]
	if t.Key().ByApp() {
		return client.AppEntries()
	}
	return client
}

func (r *registries) get(ctx context.Context, client *registryclient.Client, one asked) {
	if r.fails(one.Registry) {
		return
	}
	state, err := client.Get(ctx, registryclient.Caller{}, one.Instance)
	if err != nil {
		r.failed(one.Registry, err)
		return
	}
	one.entry.Now = state
}

func (r *registries) list(ctx context.Context, client *registryclient.Client, all []asked) {
	if r.fails(all[0].Registry) {
		return
	}
	entries, err := client.List(ctx, all[0].Instance.Cluster)
	if err != nil {
		r.failed(all[0].Registry, err)
		return
	}
	for _, one := range all {
		one.entry.Now = registry.Absent
		for _, e := range entries {
			if e.Service == one.Instance.Service && e.Endpoint() == one.Instance.Endpoint() {
				one.entry.Now = e.State
			}
		}
	}
}

func (r *registries) fails(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unasked[name] != nil
}

// failed keeps the first failure.
func (r *registries) failed(name string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unasked[name] == nil {
		r.unasked[name] = err
	}
}

// unknown stands for a registry whose driver this process does not have: nothing is known of what it can do.
type unknown struct{}

var errUnknown = errors.New("this process does not have the registry's driver")

// Register implements [registry.Registry].
func (unknown) Register(context.Context, registry.Instance) error { return errUnknown }

// FailOver implements [registry.Registry].
func (unknown) FailOver(context.Context, registry.Instance) error { return errUnknown }

// Deregister implements [registry.Registry].
func (unknown) Deregister(context.Context, registry.Instance) error { return errUnknown }

// Get implements [registry.Getter].
func (unknown) Get(context.Context, registry.Instance) (registry.State, error) { return "", errUnknown }

// Traits implements [registry.Describer]. It refuses no weights.
func (unknown) Traits() registry.Traits { return registry.Traits{Weighs: true} }

// AppEntries implements [registry.AppEntrySteerer], so that no pod is refused for what is not known.
func (unknown) AppEntries() registry.AppRegistry { return unknown{} }
