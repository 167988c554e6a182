// Package memory keeps the registry in this process: it is the reference for what every driver does, and for trials. Its
// content is lost when the process exits.
package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// batchLimit bounds how long one batch keeps all other calls waiting.
const batchLimit = 1000

// Registry is a service registry in memory. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Batcher] and io.Closer, and serves what it holds read-only at its endpoint. It is safe for concurrent use.
type Registry struct {
	mu      sync.RWMutex
	entries map[identity]registry.Entry
	// unserve ends what [Registry.serve] does; it is a no-op without an endpoint.
	unserve func()
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
	_ registry.Getter      = (*Registry)(nil)
	_ registry.Batcher     = (*Registry)(nil)
	_ registry.Describer   = (*Registry)(nil)
)

// New makes an empty registry, which serves its entries at the endpoint, host:port, if there is one. It has nothing to reach and nothing
// to choose, so tls, auth or options in the configuration is an error with the field.
func New(ctx context.Context, cfg registry.Config) (registry.Registry, error) {
	if err := check(cfg); err != nil {
		return nil, err
	}
	r := &Registry{entries: map[identity]registry.Entry{}, unserve: func() {}}
	if cfg.Endpoint != "" {
		r.serve(context.WithoutCancel(ctx), cfg.Endpoint, driverkit.Logger(cfg))
	}
	return r, nil
}

// Close implements io.Closer.
func (r *Registry) Close() error {
	r.unserve()
	return nil
}

func check(cfg registry.Config) error {
	var problems []error
	if field := driverkit.AccessField(cfg); field != "" {
		problems = append(problems, registry.FieldError(field, errors.New("driver memory runs inside Rollcall and takes none; remove it")))
	}
	_, port, err := net.SplitHostPort(cfg.Endpoint)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if cfg.Endpoint != "" && err != nil {
		problems = append(problems, registry.FieldError("endpoint",
			fmt.Errorf("set the address where the entries are served, such as 127.0.0.1:8090, or remove it: %w", err)))
	}
	return errors.Join(append(problems, driverkit.DecodeOptions(cfg, &struct{}{}))...)
}

// Traits implements [registry.Describer].
func (r *Registry) Traits() registry.Traits { return registry.Traits{Weighs: true} }

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})[0]
}

// FailOver implements [registry.Registry]. An instance that is not known stays unknown.
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.OutOfService}})[0]
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.Batch(ctx, []registry.Change{{Instance: in, State: registry.Absent}})[0]
}

// BatchLimit implements [registry.Batcher].
func (r *Registry) BatchLimit() int { return batchLimit }

// Batch implements [registry.Batcher]. No reader sees some of the changes made and others not.
func (r *Registry) Batch(ctx context.Context, changes []registry.Change) []error {
	ended := ctx.Err()
	return driverkit.Batch(ctx, changes, func(c registry.Change) (registry.Change, error) { return c, ended }, r.applyAll)
}

// List implements [registry.Lister]. The entries are sorted by service, address and port.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return r.pick(func(e registry.Entry) bool { return e.Cluster == cluster }), nil
}

// Get implements [registry.Getter].
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := ctx.Err(); err != nil {
		return "", driverkit.CallError(ctx, "asking for", in, err)
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	held, known := r.entries[identityOf(in)]
	if !known || !in.Owns(held.UID, held.Registry) || held.Cluster != in.Cluster {
		return registry.Absent, nil
	}
	return held.State, nil
}

// applyAll makes changes, none of which can fail.
func (r *Registry) applyAll(changes []registry.Change) []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		r.apply(c)
	}
	return make([]error, len(changes))
}

// apply makes a change. The caller holds the lock.
func (r *Registry) apply(c registry.Change) {
	id := identityOf(c.Instance)
	held, known := r.entries[id]
	mine := known && c.Instance.Owns(held.UID, held.Registry)
	switch {
	case c.State == registry.InService:
		r.entries[id] = ownCopy(registry.Entry{Instance: c.Instance, State: registry.InService})
	case mine && c.State == registry.OutOfService:
		held.State = registry.OutOfService
		r.entries[id] = held
	case mine:
		delete(r.entries, id)
	}
}

// ownCopy shares nothing with the entry: its metadata may be changed.
func ownCopy(e registry.Entry) registry.Entry {
	e.Metadata, e.Tags = maps.Clone(e.Metadata), slices.Clone(e.Tags)
	return e
}

func (r *Registry) pick(wanted func(registry.Entry) bool) []registry.Entry {
	r.mu.RLock()
	picked := make([]registry.Entry, 0, len(r.entries))
	for _, e := range r.entries {
		if wanted(e) {
			picked = append(picked, ownCopy(e))
		}
	}
	r.mu.RUnlock()
	slices.SortFunc(picked, func(a, b registry.Entry) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Port, b.Port))
	})
	return picked
}
