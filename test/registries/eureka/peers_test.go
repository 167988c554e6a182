package eureka_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

// TestPeers takes one instance through all calls while one server after the other is down.
func TestPeers(t *testing.T) {
	t.Parallel()
	var other *eureka.Server
	one := registries.Use(t, func(ctx context.Context) (one *eureka.Server, err error) {
		one, other, err = eureka.StartPeers(ctx, eureka.Options{})
		return one, err
	})
	t.Cleanup(other.Stop)
	cfg := configOf(t, one)
	cfg.Endpoint = one.Endpoint + "/, " + other.Endpoint + "/" // as in defaultZone
	d := open(t, cfg)
	in, out := web(t, 1), web(t, 2)
	shows := func(server *eureka.Server, in registry.Instance, want string) {
		t.Helper()
		expect.Becomes(t, in.Address+" has status "+want+" at "+server.Endpoint, func() bool {
			t.Helper()
			return statusOf(t, server, in) == want
		})
	}

	expect.NoError(t, errors.Join(d.Register(t.Context(), in), d.Register(t.Context(), out), d.FailOver(t.Context(), out)))
	for _, server := range []*eureka.Server{one, other} {
		shows(server, in, "UP")
		shows(server, out, "STARTING")
	}
	expect.NoError(t, d.Register(t.Context(), out))
	shows(other, out, "UP")
	expect.NoError(t, d.FailOver(t.Context(), out))
	shows(other, out, "STARTING")

	// The first one goes. The other knows all, and every call is taken there.
	one.Kill()
	expect.NoError(t, errors.Join(d.Heartbeat(t.Context(), in), d.Heartbeat(t.Context(), out)))
	expect.NoError(t, errors.Join(d.FailOver(t.Context(), in), d.Register(t.Context(), out)))
	shows(other, in, "STARTING")
	shows(other, out, "UP")

	// It comes back with nothing in its memory, and learns from the other's heartbeats, the status too.
	expect.NoError(t, one.Restart(t.Context()))
	if got := statusOf(t, one, in); got != "" {
		t.Logf("after its restart the server has an entry with status %q already: the other one repeats what it could not tell", got)
	}
	expect.NoError(t, errors.Join(d.Heartbeat(t.Context(), in), d.Heartbeat(t.Context(), out)))
	shows(one, in, "STARTING")
	shows(one, out, "UP")

	// Now the other one goes. A call on a connection to it can get lost, and is made again.
	other.Kill()
	expect.Becomes(t, "the calls are taken at the peer that is left", func() bool {
		return errors.Join(d.Register(t.Context(), in), d.Deregister(t.Context(), out)) == nil
	})
	shows(one, in, "UP")
	shows(one, out, "")
	if entries, err := d.List(t.Context(), in.Cluster); err != nil || len(entries) == 0 {
		t.Errorf("List: got %d entries, error %v; want some", len(entries), err)
	}

	// With none left it is an error that passes, and tells of both, once no open connection is left on which a call may get lost.
	one.Kill()
	expect.Becomes(t, "with no peer left an error tells of both", func() bool {
		err := d.Register(t.Context(), in)
		if err == nil || registry.CodeOf(err) == registry.CodeTerminal {
			t.Fatalf("with no peer left: got error %v, want one that passes", err)
		}
		return strings.Contains(err.Error(), one.Endpoint) && strings.Contains(err.Error(), other.Endpoint)
	})
}

// TestARemovalAfterAHeartbeatStays: a peer tells the others of a heartbeat half a second later, and gives one that lacks the entry the entry
// as it was. By then it was removed from both.
func TestARemovalAfterAHeartbeatStays(t *testing.T) {
	t.Parallel()
	var other *eureka.Server
	one := registries.Use(t, func(ctx context.Context) (one *eureka.Server, err error) {
		one, other, err = eureka.StartPeers(ctx, eureka.Options{})
		return one, err
	})
	t.Cleanup(other.Stop)
	cfg := configOf(t, one)
	cfg.Endpoint = one.Endpoint + "," + other.Endpoint
	d := open(t, cfg)
	const pods = 8
	each := func(do func(registry.Instance) error) {
		t.Helper()
		for pod := range pods {
			expect.NoError(t, do(web(t, pod+1)))
		}
	}
	marks := 0
	hasTold := func() { // in order
		t.Helper()
		marks++
		in := web(t, pods+marks)
		a := newApp(t, one, in)
		a.id = in.Endpoint() + ":" + in.Service
		a.post()
		expect.Becomes(t, "the first peer has told what it was told before", func() bool { return statusOf(t, other, in) == "UP" })
	}
	each(func(in registry.Instance) error { return d.Register(t.Context(), in) })
	hasTold()
	each(func(in registry.Instance) error {
		return errors.Join(d.Heartbeat(t.Context(), in), d.Deregister(t.Context(), in))
	})
	hasTold() // of the heartbeats, and now it knows what the other one lacks
	hasTold()
	each(func(in registry.Instance) error {
		for _, server := range []*eureka.Server{one, other} {
			if got := statusOf(t, server, in); got != "" {
				t.Errorf("%s was removed, and has status %s at %s", in.Address, got, server.Endpoint)
			}
		}
		return nil
	})
}
