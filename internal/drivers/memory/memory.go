// Package memory keeps the registry in this process: the reference of what every driver does, and the default of a
// Rollcall that has no other registry yet. Its content is lost when the process ends.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rollcall-dev/rollcall/registry"
)

// Registry is a service registry in memory. It implements [registry.Registry] and [registry.Lister], and serves what it
// holds read-only as an http.Handler. It is safe for concurrent use.
type Registry struct {
	mu      sync.RWMutex
	entries map[identity]registry.Entry
}

// identity is what makes two calls speak of one entry.
type identity struct {
	service, address string
	port             int
}

func identityOf(in registry.Instance) identity {
	return identity{service: in.Service, address: in.Address, port: in.Port}
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
)

// New makes an empty registry. It has nothing to reach and nothing to choose, so an endpoint, tls, auth or options in
// the configuration is an error that names the field.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	return &Registry{entries: map[identity]registry.Entry{}}, nil
}

func check(cfg registry.Config) error {
	for _, f := range []struct{ name, value string }{
		{"endpoint", cfg.Endpoint},
		{"tls.caFile", cfg.TLS.CAFile},
		{"auth.tokenFile", cfg.Auth.TokenFile},
	} {
		if f.value != "" {
			return registry.FieldError(f.name, errors.New("driver memory runs inside Rollcall and takes none; remove it"))
		}
	}
	return cfg.DecodeOptions(&struct{}{})
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "registering", in, func() {
		r.entries[identityOf(in)] = registry.Entry{Instance: in, State: registry.InService}
	})
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "failing over", in, func() {
		if r.holds(in) {
			r.entries[identityOf(in)] = registry.Entry{Instance: in, State: registry.OutOfService}
		}
	})
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "deregistering", in, func() {
		if r.holds(in) {
			delete(r.entries, identityOf(in))
		}
	})
}

// List implements [registry.Lister]. The entries are sorted by service, address and port.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return r.pick(func(e registry.Entry) bool { return e.Cluster == cluster }), nil
}

func (r *Registry) change(ctx context.Context, doing string, in registry.Instance, apply func()) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s at %s: %w", doing, in.Service, in.Endpoint(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	apply()
	return nil
}

// holds reports whether the entry at the instance's identity is that of the same pod. The caller holds the lock.
func (r *Registry) holds(in registry.Instance) bool {
	e, known := r.entries[identityOf(in)]
	return known && e.UID == in.UID
}

func (r *Registry) pick(wanted func(registry.Entry) bool) []registry.Entry {
	r.mu.RLock()
	picked := make([]registry.Entry, 0, len(r.entries))
	for _, e := range r.entries {
		if wanted(e) {
			picked = append(picked, e)
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(picked, func(a, b registry.Entry) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return picked
}
