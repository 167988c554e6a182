package registrytest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// besideOthers is the harness of a driver of a registry in which others write too.
func besideOthers(wrap func(f *fakeregistry.Registry) registry.Registry) func(*testing.T) registrytest.Harness {
	return func(t *testing.T) registrytest.Harness {
		t.Helper()
		f := fakeregistry.New(newMemoryFor(t).(bare).backend.(fakeregistry.Backend))
		h := overMemory(t, func(backend) registry.Registry { return wrap(f) })
		h.Truth = f.Truth
		h.Foreign = func(_ registrytest.T, at registry.Instance) func() { return f.Foreign(at) }
		delete(h.Lacks, registrytest.Getting)
		return h
	}
}

func TestADriverOfARegistryThatOthersWriteIntoPasses(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, besideOthers(func(f *fakeregistry.Registry) registry.Registry { return f })(t))
}

// told is a driver whose Get is broken, and whose list tells nothing of others.
type told struct {
	*fakeregistry.Registry

	get func(ctx context.Context, f *fakeregistry.Registry, in registry.Instance) (registry.State, error)
}

func (d told) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return d.Truth(ctx, cluster)
}

func (d told) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	return d.get(ctx, d.Registry, in)
}

func brokenForeign() map[string]brokenDriver {
	return map[string]brokenDriver{
		"a driver that sees only its own": {
			reason: "the application's own entry stays in service",
			broken: besideOthers(func(f *fakeregistry.Registry) registry.Registry {
				return told{f, func(ctx context.Context, f *fakeregistry.Registry, in registry.Instance) (registry.State, error) {
					state, err := f.Get(ctx, in)
					if state == registry.Foreign {
						state = registry.Absent
					}
					return state, err
				}}
			}),
			want: []string{"ForeignEntryShows"},
		},
		"a driver that takes the service alone for the pod": {
			reason: "what others run under the name holds up every pod",
			broken: besideOthers(func(f *fakeregistry.Registry) registry.Registry {
				return told{f, func(ctx context.Context, f *fakeregistry.Registry, in registry.Instance) (registry.State, error) {
					entries, err := f.List(ctx, in.Cluster)
					if slices.ContainsFunc(entries, func(e registry.Entry) bool {
						return e.State == registry.Foreign && e.Service == in.Service
					}) {
						return registry.Foreign, err
					}
					return f.Get(ctx, in)
				}}
			}),
			want: []string{"ForeignEntryElsewhere"},
		},
	}
}
