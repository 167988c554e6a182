package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/registry"
)

// drivers makes registries and knows the one in force, which it serves read-only.
type drivers struct {
	constructors map[string]registry.Constructor
	metrics      *metrics.RegistryMetrics
	// permit refuses a call of up to this long where this manager may no longer make it.
	permit  func(timeout time.Duration) error
	current atomic.Pointer[opened]
}

// opened is a registry that was made from one registry section.
type opened struct {
	section config.Registry
	// registry is guarded and timed; the controller knows it by its identity.
	registry registry.Registry
	// handler is nil where the driver serves nothing.
	handler http.Handler
	close   func() error
}

// open returns the registry for a configuration: the one in force where the registry section is the same, so that the
// controller keeps what it knows of it, else a new one. It puts nothing in force.
func (d *drivers) open(ctx context.Context, c *config.Config) (*opened, error) {
	name := c.DefaultRegistries[0]
	section := c.Registries[name]
	if current := d.current.Load(); current != nil && reflect.DeepEqual(current.section, section) {
		return current, nil
	}
	made, err := d.constructors[section.Driver](ctx, c.Driver(name))
	if err == nil && made == nil {
		err = errors.New("the driver made no registry")
	}
	if err != nil {
		return nil, registryError(c.RegistryPath(name), err)
	}
	timed := metrics.Decorate(made, section.Driver, d.metrics)
	g := &guard{Registry: timed, permit: func() error { return d.permit(section.Timeout) }}
	next := &opened{section: section, registry: g.asCapable()}
	next.handler, _ = made.(http.Handler)
	closer, _ := made.(io.Closer)
	next.close = func() error {
		g.retire()
		if closer == nil {
			return nil
		}
		return closer.Close()
	}
	return next, nil
}

// replace puts next in force, and closes what was before.
func (d *drivers) replace(next *opened) error {
	if before := d.current.Swap(next); before != nil && before != next {
		return before.close()
	}
	return nil
}

// ServeHTTP lets the registry in force answer, which is read-only whatever its own handler could do.
func (d *drivers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the registry is read-only here", http.StatusMethodNotAllowed)
		return
	}
	current := d.current.Load()
	if current.handler == nil {
		http.Error(w, fmt.Sprintf("registry driver %q can't be read here: ask the registry itself", current.section.Driver),
			http.StatusNotFound)
		return
	}
	current.handler.ServeHTTP(w, r)
}

// registryError puts the registry section's path before the field that the driver named.
func registryError(path *field.Path, err error) error {
	detail := err.Error()
	if name, ok := registry.FieldOf(err); ok {
		path = path.Child(name)
		detail = strings.TrimPrefix(detail, name+": ")
	}
	return field.Invalid(path, field.OmitValueType{}, detail)
}

// guard keeps calls from a registry that this manager may no longer use: since another one leads, or since the
// configuration names another registry. No call is under way when it was retired, so that it can be closed.
type guard struct {
	registry.Registry
	permit func() error

	mu      sync.Mutex
	retired bool
	calls   sync.WaitGroup
}

var errRetired = errors.New("the configuration has changed: this registry is no longer in use")

// retire refuses further calls and waits for those under way.
func (g *guard) retire() {
	g.mu.Lock()
	g.retired = true
	g.mu.Unlock()
	g.calls.Wait()
}

func (g *guard) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return errRetired
	}
	if err := g.permit(); err != nil {
		return err
	}
	g.calls.Add(1)
	return nil
}

func (g *guard) call(do func() error) error {
	if err := g.enter(); err != nil {
		return err
	}
	defer g.calls.Done()
	return do()
}

func (g *guard) Register(ctx context.Context, in registry.Instance) error {
	return g.call(func() error { return g.Registry.Register(ctx, in) })
}

func (g *guard) FailOver(ctx context.Context, in registry.Instance) error {
	return g.call(func() error { return g.Registry.FailOver(ctx, in) })
}

func (g *guard) Deregister(ctx context.Context, in registry.Instance) error {
	return g.call(func() error { return g.Registry.Deregister(ctx, in) })
}

// asCapable returns g with the optional capabilities of what it guards.
func (g *guard) asCapable() registry.Registry {
	if lister, ok := g.Registry.(registry.Lister); ok {
		return &guardLister{guard: g, lister: lister}
	}
	return g
}

type guardLister struct {
	*guard
	lister registry.Lister
}

func (g *guardLister) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = g.call(func() error {
		entries, err = g.lister.List(ctx, cluster)
		return err
	})
	return entries, err
}
