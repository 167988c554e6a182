package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

func TestNothingIsClosedUnderACall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		call   func(ctx context.Context, reg *opened, in registry.Instance) error
	}{
		"joined calls": {
			reason: "a batch goes on in a lane of its own when all of its callers' time is up",
			call: func(ctx context.Context, reg *opened, in registry.Instance) error {
				return reg.client.Change(ctx, registryclient.Caller{}, registry.Change{Instance: in, State: registry.InService})
			},
		},
		"heartbeats": {
			reason: "a heartbeat is a call",
			call: func(ctx context.Context, reg *opened, in registry.Instance) error {
				return reg.client.Heartbeat(ctx, in)
			},
		},
		"probes": {
			reason: "a probe is a call",
			call: func(ctx context.Context, reg *opened, in registry.Instance) error {
				return reg.client.Probe(ctx, registryclient.Caller{}, in)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				slow := &joining{proceed: make(chan struct{})}
				d := newDrivers(t, func(context.Context, registry.Config) (registry.Registry, error) { return slow, nil })
				before := expectOpened(t, d, configured(t, minimal))
				ctx, leave := context.WithCancel(t.Context())
				for i := range 20 {
					go func() { _ = tc.call(ctx, before, registry.Instance{Port: i + 1}) }()
				}
				synctest.Wait()
				slow.proceed <- struct{}{} // what has waited meanwhile goes on in batches
				synctest.Wait()
				leave()
				synctest.Wait()

				go func() { _ = d.replace(&registries{}) }()
				synctest.Wait()
				if slow.closed.Load() {
					t.Errorf("closed with %d calls under way\nreason: %s", slow.underWay, tc.reason)
				}
				close(slow.proceed)
				synctest.Wait()
				if !slow.closed.Load() {
					t.Error("not closed when all had ended")
				}
			})
		})
	}
}

func TestACallThatWasCutOffMayStillBeCarriedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := &joining{proceed: make(chan struct{}), obeys: true}
		d := newDrivers(t, func(context.Context, registry.Config) (registry.Registry, error) { return slow, nil })
		reg := expectOpened(t, d, configured(t, minimal)).client
		register := func(ctx context.Context, port int) error {
			change := registry.Change{Instance: registry.Instance{Port: port}, State: registry.InService}
			return reg.Change(ctx, registryclient.Caller{}, change)
		}
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			go func() { _ = register(ctx, 100+i) }()
		}
		synctest.Wait()
		leaving, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		outcome := make(chan error, 1)
		go func() { outcome <- register(t.Context(), 2) }()
		synctest.Wait()
		go func() { _ = register(leaving, 1) }()
		synctest.Wait()
		for slow.batched(2) == 0 {
			slow.proceed <- struct{}{}
			synctest.Wait()
		}
		err := <-outcome // since the other caller's time is up
		if registryclient.Classify(err) != registryclient.TimedOut {
			t.Errorf("got %v, want an error that the controller takes for a time-out, through all that is around the call", err)
		}
		close(slow.proceed)
	})
}

// joining takes two changes in a batch. It holds every call until it is let go on, whatever the call's context says unless
// it obeys.
type joining struct {
	fake

	proceed chan struct{}
	obeys   bool

	mu       sync.Mutex
	underWay int
	batches  [][]registry.Change
}

func (j *joining) hold(ctx context.Context) error {
	j.mu.Lock()
	j.underWay++
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.underWay--
	}()
	if !j.obeys {
		ctx = context.WithoutCancel(ctx)
	}
	select {
	case <-j.proceed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("calling: %w", ctx.Err())
	}
}

// batched returns in how many batches the instance at a port is.
func (j *joining) batched(port int) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := 0
	for _, changes := range j.batches {
		for _, c := range changes {
			if c.Instance.Port == port {
				n++
			}
		}
	}
	return n
}

func (j *joining) BatchLimit() int { return 2 }

func (j *joining) Batch(ctx context.Context, changes []registry.Change) []error {
	j.mu.Lock()
	j.batches = append(j.batches, changes)
	j.mu.Unlock()
	err := j.hold(ctx)
	errs := make([]error, len(changes))
	for i := range errs {
		errs[i] = err
	}
	return errs
}

func (j *joining) Register(ctx context.Context, _ registry.Instance) error   { return j.hold(ctx) }
func (j *joining) FailOver(ctx context.Context, _ registry.Instance) error   { return j.hold(ctx) }
func (j *joining) Deregister(ctx context.Context, _ registry.Instance) error { return j.hold(ctx) }
func (j *joining) Probe(ctx context.Context, _ registry.Instance) error      { return j.hold(ctx) }
func (j *joining) Heartbeat(ctx context.Context, _ registry.Instance) error  { return j.hold(ctx) }
func (j *joining) HeartbeatInterval() time.Duration                          { return time.Second }

func TestARotationThatFailsCostsNobodyTheRegistry(t *testing.T) {
	t.Parallel()
	var made []*fake
	bad := ""
	d := newDrivers(t, func(_ context.Context, c registry.Config) (registry.Registry, error) {
		if bad != "" && c.Endpoint == bad {
			return nil, registry.FieldError("tls.certFile", errors.New("does not go with tls.keyFile"))
		}
		made = append(made, &fake{})
		return made[len(made)-1], nil
	})
	c := configured(t, strings.ReplaceAll(strings.Replace(several, "old: {", "old: {endpoint: first, ", 1), "new: {", "new: {endpoint: second, "))
	expectOpened(t, d, c)
	before := d.current.Load()
	bad = "first"
	_, err := d.open(t.Context(), c, []string{"new", "old"})
	if err == nil || !strings.Contains(err.Error(), "registries[old].tls.certFile: Invalid value: does not go with tls.keyFile") {
		t.Errorf("got %v, want an error that names registries[old].tls.certFile", err)
	}
	for _, name := range []string{"old", "new"} {
		if err := register(t.Context(), before.get(name)); err != nil {
			t.Errorf("the registry %s in force: %v", name, err)
		}
	}
	if len(made) != 3 || made[0].closed.Load() || made[1].closed.Load() || !made[2].closed.Load() {
		t.Errorf("of %d that were made, want the two in force open and the third closed", len(made))
	}
}

func TestWhatTheControllerGetsOfADriver(t *testing.T) {
	t.Parallel()
	d := newDrivers(t, newFake)
	d.constructors["one"] = func(context.Context, registry.Config) (registry.Registry, error) { return &joining{}, nil }
	c := configured(t, strings.Replace(several, "old: {driver: fake}", "old: {driver: one, timeout: 2s}", 1)+
		"service: {sharedAcrossNamespaces: true, metadata: {site: here}}\n")
	expectOpened(t, d, c)
	all := d.current.Load()
	got := settings(c, all)
	plain, capable := got.Registries["new"], got.Registries["old"]
	if plain.Probes() || !capable.Probes() || capable.Timeout() != 2*time.Second || capable != all.get("old").client {
		t.Errorf("got %+v", got.Registries)
	}
	if !got.SharedAcrossNamespaces || got.Services.Metadata["site"].String() != "here" {
		t.Errorf("got %+v, want what service says", got)
	}
	if len(got.DefaultRegistries) != 1 || got.DefaultRegistries[0] != "old" {
		t.Errorf("the defaults are %q, want old", got.DefaultRegistries)
	}
	for _, source := range sources(all) {
		if source.Client != all.get(source.Name).client {
			t.Errorf("resync gets another client of %s, with slots and an outage of its own", source.Name)
		}
	}
}
