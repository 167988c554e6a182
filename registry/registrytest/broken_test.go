package registrytest_test

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// impatience is how long the suite waits for what will never come. It is longer than shortLease.
const impatience = 10 * time.Second

// breakage is one way in which a driver can be broken.
type breakage struct {
	reason string
	// breaks returns what is broken of a process's driver; nil: nothing is.
	breaks func(d sound) broken
	// plain is of a driver that has only what it must.
	plain bool
	// about is what of that which takes time the driver is broken in.
	about registrytest.Capability
	// set changes the registry and the harness before the suite runs.
	set func(s *store, h *registrytest.Harness)
	// want is the cases that fail, from testdata/caught.txt.
	want string
}

// caught has a line for each broken driver: its name, and the cases that fail.
//
//go:embed testdata/caught.txt
var caught string

// broken is what of a driver's methods is replaced.
type broken struct {
	calls map[string]method // by name; those of AppEntries begin with App
	list  func(context.Context, string) ([]registry.Entry, error)
	get   func(context.Context, registry.Instance) (registry.State, error)
	batch func(context.Context, []registry.Change) []error
	limit int // 0: that of the sound one
	close func() error
	deaf  string // the method that ignores its context
}

type method = func(context.Context, registry.Instance) error

// brokenBy returns the driver with what that replaces of the sound one.
func (d sound) brokenBy(breaks func(sound) broken) sound {
	d.broken = breaks(d)
	return d
}

// calling replaces one call.
func calling(name string, replaced func(context.Context, sound, registry.Instance) error) func(sound) broken {
	return func(d sound) broken {
		return broken{calls: map[string]method{name: func(ctx context.Context, in registry.Instance) error {
			return replaced(ctx, d, in)
		}}}
	}
}

// given makes one call for another instance than the caller's.
func given(name string, other func(context.Context, sound, registry.Instance) registry.Instance) func(sound) broken {
	return calling(name, func(ctx context.Context, d sound, in registry.Instance) error {
		return map[string]method{
			"Register": d.Register, "FailOver": d.FailOver, "Deregister": d.Deregister, "Probe": d.Probe, "Heartbeat": d.Heartbeat,
		}[name](ctx, other(ctx, d, in))
	})
}

// changed makes one call for the instance with a change.
func changed(name string, change func(*registry.Instance)) func(sound) broken {
	return given(name, func(_ context.Context, _ sound, in registry.Instance) registry.Instance {
		change(&in)
		return in
	})
}

// asMarked returns the instance that has the identity now, so that its mark fits.
func asMarked(ctx context.Context, d sound, in registry.Instance) registry.Instance {
	if e, known := find(ctx, d, in); known {
		return e.Instance
	}
	return in
}

// getting replaces Get.
func getting(get func(context.Context, sound, registry.Instance) (registry.State, error)) func(sound) broken {
	return func(d sound) broken {
		return broken{get: func(ctx context.Context, in registry.Instance) (registry.State, error) { return get(ctx, d, in) }}
	}
}

// listing replaces List.
func listing(list func(context.Context, sound, string) ([]registry.Entry, error)) func(sound) broken {
	return func(d sound) broken {
		return broken{list: func(ctx context.Context, cluster string) ([]registry.Entry, error) { return list(ctx, d, cluster) }}
	}
}

// batching replaces Batch. The context is not looked at.
func batching(batch func(context.Context, sound, []registry.Change) []error) func(sound) broken {
	return func(d sound) broken {
		return broken{batch: func(ctx context.Context, changes []registry.Change) []error { return batch(ctx, d, changes) }}
	}
}

// harness is that of the broken driver, on a registry of its own.
func (b breakage) harness(t *testing.T) registrytest.Harness {
	t.Helper()
	s := newStore(t)
	breaks := b.breaks
	if breaks == nil {
		breaks = func(sound) broken { return broken{} }
	}
	h := s.plainHarness(func(d sound) registry.Registry { return bare(d.brokenBy(breaks)) })
	if !b.plain {
		h = only(s.harness(func(d sound) registry.Registry { return d.brokenBy(breaks) }), b.about)
	}
	if b.set != nil {
		b.set(s, &h)
	}
	return h
}

// only leaves out what takes time, but for what the broken driver is about.
func only(h registrytest.Harness, about registrytest.Capability) registrytest.Harness {
	if about != registrytest.ShortLease {
		h.ShortLease = nil
	}
	if about != registrytest.Restart {
		h.Restart = nil
	}
	if about != registrytest.Unreachable {
		h.Unreachable = nil
	}
	h.Stalled, h.Failing, h.Refusing, h.LoginPage, h.WrongCredentials = nil, nil, nil, nil, nil
	return h
}

// TestTheSuiteCatches runs the suite on drivers that are broken in one way each, and wants exactly the cases in testdata/caught.txt
// to fail: one that fails for everything tells nothing.
func TestTheSuiteCatches(t *testing.T) {
	t.Parallel()
	for name, tc := range breakages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.want == "" {
				t.Error("testdata/caught.txt has no cases for it")
			}
			results, err := registrytest.Check(t, registrytest.Impatient(tc.harness(t), impatience))
			expect.NoError(t, err)
			expectFailures(t, results, strings.Fields(tc.want), tc.reason)
		})
	}
}

// expectFailures wants exactly these cases to have failed, and shows what others said.
func expectFailures(t *testing.T, results []registrytest.Result, want []string, reason string) {
	t.Helper()
	var failed []string
	var said strings.Builder
	for _, r := range results {
		if r.Outcome != registrytest.Failed {
			continue
		}
		failed = append(failed, r.Name)
		if !slices.Contains(want, r.Name) {
			fmt.Fprintf(&said, "%s: %s\n", r.Name, strings.Join(r.Messages, "\n"))
		}
	}
	slices.Sort(want)
	slices.Sort(failed)
	if !slices.Equal(want, failed) {
		t.Errorf("failed cases, -want +got:\n%s\nreason: %s\n%s", cmp.Diff(want, failed), reason, said.String())
	}
}

// TestEveryCaseCanFail wants a broken driver for each case: one that can't fail proves nothing.
func TestEveryCaseCanFail(t *testing.T) {
	t.Parallel()
	caught := map[string]bool{}
	for _, b := range breakages() {
		for name := range strings.FieldsSeq(b.want) {
			caught[name] = true
		}
	}
	for _, name := range registrytest.CaseNames() {
		if !caught[name] {
			t.Errorf("no broken driver fails %s", name)
		}
	}
}

func breakages() map[string]breakage {
	all := map[string]breakage{}
	for _, plain := range []map[string]breakage{brokenChanges(), brokenDetails(), brokenLists(), brokenErrors()} {
		for name, b := range plain {
			b.plain = true
			all[name] = b
		}
	}
	for _, rich := range []map[string]breakage{
		brokenGets(), brokenProbes(), brokenHeartbeats(), brokenBatches(), brokenCloses(), brokenRestarts(), brokenApplications(),
		brokenPlaces(),
	} {
		maps.Copy(all, rich)
	}
	for line := range strings.Lines(caught) {
		name, cases, _ := strings.Cut(strings.TrimSpace(line), ": ")
		b := all[name]
		b.want = cases
		all[name] = b
	}
	return all
}
