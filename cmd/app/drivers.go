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

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/registry"
)

// drivers makes registries and knows the one in force, which it serves read-only.
type drivers struct {
	constructors map[string]registry.Constructor
	metrics      *metrics.RegistryMetrics
	current      atomic.Pointer[opened]
}

// opened is a registry that was made from one registry section.
type opened struct {
	section config.Registry
	// registry times its calls; the controller knows it by its identity.
	registry registry.Registry
	// handler is nil where the driver serves nothing.
	handler http.Handler
	close   func() error
}

// open returns the registry for a configuration: the one in force where the registry section is the same, so that the
// controller keeps what it knows of it, else a new one. It puts nothing in force.
func (d *drivers) open(ctx context.Context, c *config.Config) (*opened, error) {
	if current := d.current.Load(); current != nil && reflect.DeepEqual(current.section, c.Registry) {
		return current, nil
	}
	made, err := d.constructors[c.Registry.Driver](ctx, c.Driver())
	if err == nil && made == nil {
		err = errors.New("the driver made no registry")
	}
	if err != nil {
		return nil, registryError(err)
	}
	next := &opened{section: c.Registry, close: func() error { return nil }}
	next.handler, _ = made.(http.Handler)
	if closer, ok := made.(io.Closer); ok {
		r := &retirable{Registry: made}
		next.close = func() error {
			r.retire()
			return closer.Close()
		}
		made = r.asCapableAs(made)
	}
	next.registry = metrics.Decorate(made, c.Registry.Driver, d.metrics)
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
func registryError(err error) error {
	path, detail := field.NewPath("registry"), err.Error()
	if name, ok := registry.FieldOf(err); ok {
		path = path.Child(name)
		detail = strings.TrimPrefix(detail, name+": ")
	}
	return field.Invalid(path, field.OmitValueType{}, detail)
}

// retirable keeps a registry from being closed under a call.
type retirable struct {
	registry.Registry
	mu      sync.Mutex
	retired bool
	calls   sync.WaitGroup
}

var errRetired = errors.New("the configuration has changed: this registry is no longer in use")

// retire refuses further calls and waits for those under way.
func (r *retirable) retire() {
	r.mu.Lock()
	r.retired = true
	r.mu.Unlock()
	r.calls.Wait()
}

func (r *retirable) call(do func() error) error {
	r.mu.Lock()
	if r.retired {
		r.mu.Unlock()
		return errRetired
	}
	r.calls.Add(1)
	r.mu.Unlock()
	defer r.calls.Done()
	return do()
}

func (r *retirable) Register(ctx context.Context, in registry.Instance) error {
	return r.call(func() error { return r.Registry.Register(ctx, in) })
}

func (r *retirable) FailOver(ctx context.Context, in registry.Instance) error {
	return r.call(func() error { return r.Registry.FailOver(ctx, in) })
}

func (r *retirable) Deregister(ctx context.Context, in registry.Instance) error {
	return r.call(func() error { return r.Registry.Deregister(ctx, in) })
}

// asCapableAs returns r with the optional capabilities that made has.
func (r *retirable) asCapableAs(made registry.Registry) registry.Registry {
	if lister, ok := made.(registry.Lister); ok {
		return &retirableLister{retirable: r, lister: lister}
	}
	return r
}

type retirableLister struct {
	*retirable
	lister registry.Lister
}

func (r *retirableLister) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = r.call(func() error {
		entries, err = r.lister.List(ctx, cluster)
		return err
	})
	return entries, err
}
