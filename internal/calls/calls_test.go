package calls

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestEveryCallPassesWhatIsAround(t *testing.T) {
	t.Parallel()
	inner := &capable{}
	var passed []string
	note := func(name string) Around {
		return func(ctx context.Context, operation string, do func(context.Context) error) error {
			passed = append(passed, name+" "+operation)
			return do(ctx)
		}
	}
	reg := Wrap(inner, note("outer"), note("inner"))
	for operation, call := range callsOf(t, reg) {
		passed, inner.got = nil, nil
		if err := call(); err != nil {
			t.Errorf("%s: %v", operation, err)
		}
		if want := []string{"outer " + operation, "inner " + operation}; !slices.Equal(passed, want) {
			t.Errorf("%s passed %q, want %q", operation, passed, want)
		}
		if want := []string{operation}; !slices.Equal(inner.got, want) {
			t.Errorf("%s made the calls %q, want %q", operation, inner.got, want)
		}
	}
}

func TestWhatIsAroundCanRefuse(t *testing.T) {
	t.Parallel()
	inner, refused := &capable{}, errors.New("refused")
	reg := Wrap(inner, func(context.Context, string, func(context.Context) error) error { return refused })
	for operation, call := range callsOf(t, reg) {
		if err := call(); !errors.Is(err, refused) {
			t.Errorf("%s returned %v, want %v", operation, err, refused)
		}
	}
	if len(inner.got) > 0 {
		t.Errorf("the calls %q came through", inner.got)
	}
}

func TestAListThatFailedHasNoEntries(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	reg := Wrap(&capable{}, func(ctx context.Context, _ string, do func(context.Context) error) error {
		return errors.Join(do(ctx), failed)
	})
	if entries, err := reg.Lister.List(t.Context(), "prod"); entries != nil || !errors.Is(err, failed) {
		t.Errorf("got %v, %v; want no entries and %v", entries, err, failed)
	}
}

func TestAReadBackThatFailedSaysNothing(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	reg := Wrap(&capable{}, func(ctx context.Context, _ string, do func(context.Context) error) error {
		return errors.Join(do(ctx), failed)
	})
	if state, err := reg.Getter.Get(t.Context(), registry.Instance{}); state != "" || !errors.Is(err, failed) {
		t.Errorf("got %q, %v; want no state and %v", state, err, failed)
	}
}

func TestCapabilitiesAreThoseOfTheDriver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		made   registry.Registry
		want   string
	}{
		"none":        {"what a driver lacks is nil", &plain{}, ""},
		"all":         {"each is found", &capable{}, "Lister Getter Prober Heartbeater staleness=30s"},
		"no interval": {"a registry that is not configured to lease needs no heartbeats", &capable{eternal: true}, "Lister Getter Prober staleness=30s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := describe(Wrap(tc.made)); got != tc.want {
				t.Errorf("got %q, want %q\nreason: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func describe(reg *Registry) string {
	var has []string
	if reg.Lister != nil {
		has = append(has, "Lister")
	}
	if reg.Getter != nil {
		has = append(has, "Getter")
	}
	if reg.Prober != nil {
		has = append(has, "Prober")
	}
	if reg.Heartbeater != nil {
		has = append(has, "Heartbeater")
	}
	if reg.Staleness > 0 {
		has = append(has, "staleness="+reg.Staleness.String())
	}
	return strings.Join(has, " ")
}

func callsOf(t *testing.T, reg *Registry) map[string]func() error {
	t.Helper()
	ctx, in := t.Context(), registry.Instance{Service: "web"}
	return map[string]func() error{
		Register:   func() error { return reg.Register(ctx, in) },
		FailOver:   func() error { return reg.FailOver(ctx, in) },
		Deregister: func() error { return reg.Deregister(ctx, in) },
		Probe:      func() error { return reg.Prober.Probe(ctx, in) },
		Heartbeat:  func() error { return reg.Heartbeater.Heartbeat(ctx, in) },
		Get: func() error {
			state, err := reg.Getter.Get(ctx, in)
			if err == nil && state != registry.OutOfService {
				t.Errorf("Get: got %q, want what the driver said", state)
			}
			return err
		},
		List: func() error {
			entries, err := reg.Lister.List(ctx, "prod")
			if diff := cmp.Diff([]registry.Entry{{State: registry.InService}}, entries); err == nil && diff != "" {
				t.Errorf("List: (-want +got)\n%s", diff)
			}
			return err
		},
	}
}

// plain notes the calls that it gets.
type plain struct{ got []string }

func (p *plain) note(operation string) error {
	p.got = append(p.got, operation)
	return nil
}

func (p *plain) Register(context.Context, registry.Instance) error   { return p.note(Register) }
func (p *plain) FailOver(context.Context, registry.Instance) error   { return p.note(FailOver) }
func (p *plain) Deregister(context.Context, registry.Instance) error { return p.note(Deregister) }

// capable has every capability but batches.
type capable struct {
	plain
	eternal bool
}

func (c *capable) List(context.Context, string) ([]registry.Entry, error) {
	return []registry.Entry{{State: registry.InService}}, c.note(List)
}
func (c *capable) Get(context.Context, registry.Instance) (registry.State, error) {
	return registry.OutOfService, c.note(Get)
}
func (c *capable) Staleness() time.Duration                           { return 30 * time.Second }
func (c *capable) Probe(context.Context, registry.Instance) error     { return c.note(Probe) }
func (c *capable) Heartbeat(context.Context, registry.Instance) error { return c.note(Heartbeat) }
func (c *capable) HeartbeatInterval() time.Duration {
	if c.eternal {
		return 0
	}
	return time.Second
}
