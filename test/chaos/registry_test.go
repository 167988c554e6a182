package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"

	"k8s.io/apimachinery/pkg/types"
)

// TestForeignEntries: whatever becomes of a foreign entry, chaos sees it.
func TestForeignEntries(t *testing.T) {
	t.Parallel()
	type row struct {
		touch func(registry.Registry, registry.Instance) error
		want  int
	}
	expect.Each(t, map[string]row{
		"nothing":   {func(registry.Registry, registry.Instance) error { return nil }, 0},
		"removed":   {func(r registry.Registry, in registry.Instance) error { return r.Deregister(t.Context(), in) }, 1},
		"taken out": {func(r registry.Registry, in registry.Instance) error { return r.FailOver(t.Context(), in) }, 1},
		"taken over": {func(r registry.Registry, in registry.Instance) error {
			in.Cluster, in.UID = clusterName, "ours"
			return r.Register(t.Context(), in)
		}, 1},
	}, func(t *testing.T, tc row) {
		r := newRegistryServer(t)
		expect.NoError(t, r.books[defaultRegistry].Register(t.Context(), instanceOf("10.0.0.1")))
		r.addForeign(t.Context(), rand.New(rand.NewPCG(1, 2)), []string{"web"}, 8)
		for id, e := range r.foreign {
			if e.UID == "" {
				continue // no driver removes what has no mark
			}
			expect.NoError(t, tc.touch(r.books[id.Registry], e.Instance))
			break
		}
		if got := r.touched(t.Context()); len(got) != tc.want {
			t.Errorf("touched are %q, want %d", got, tc.want)
		}
		if ours := r.list(t.Context(), defaultRegistry); tc.want == 0 && len(ours) != 1 {
			t.Errorf("%d entries of the cluster, want the one: foreign ones have no owner, or another cluster", len(ours))
		}
	})
}

// TestLeftEntries: those that stay are not chaos' to wipe, and no leak.
func TestLeftEntries(t *testing.T) {
	t.Parallel()
	r, dice := newRegistryServer(t), func() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }
	r.leave(t.Context(), dice(), []string{"web"}, 4, "cluster-1", false)
	ours := func() (n int) {
		for name := range r.books {
			n += len(r.ours(t.Context(), name))
		}
		return n
	}
	expect.Equal(t, 4, ours(), "entries are ours to remove")
	r.leave(t.Context(), rand.New(rand.NewPCG(3, 4)), []string{"web"}, 4, "cluster-2", true)
	expect.Equal(t, 4, ours(), "entries are ours to remove as before")
	for range 5 {
		r.wipe(t.Context(), dice())
	}
	if touched := r.touched(t.Context()); len(touched) > 0 {
		t.Errorf("touched are %q, want none", touched)
	}
	for name := range r.books {
		for _, e := range r.list(t.Context(), name) {
			if e.ClusterUID == "cluster-2" {
				expect.NoError(t, r.books[name].Deregister(t.Context(), e.Instance))
			}
		}
	}
	if touched := r.touched(t.Context()); len(touched) != 4 {
		t.Errorf("touched are %q, want 4", touched)
	}
}

// TestFaultsOfTheRegistry: what each does to the entry, and what the sender sees.
func TestFaultsOfTheRegistry(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		fault  kind
		status int // 0: no answer
		held   bool
		late   bool
	}
	expect.Each(t, map[string]row{
		"none": {"the work is done and acknowledged", "", http.StatusNoContent, true, false},
		"500":  {"the work is not done", answer500, http.StatusInternalServerError, false, false},
		"lost": {"the work is done, and no answer leaves", loseAnswers, 0, true, false},
		"held": {"the work is done when the sender has given up", holdBack, 0, true, true},
	}, func(t *testing.T, tc row) {
		r := newRegistryServer(t)
		// Half of the calls meet the fault: one of many does.
		for i := range 64 {
			in := instanceOf("10.0.0.1")
			in.Port += i
			r.setFault(tc.fault)
			status := send(t, r, defaultRegistry, checker.Register, in)
			r.held.Wait()
			calls := r.journal.Calls(in.UID)
			c := calls[len(calls)-1]
			if c.Fault != string(tc.fault) {
				continue
			}
			held, late := r.holds(t.Context(), in), c.Applied.Sub(c.Received) > r.timeout
			if status != tc.status || held != tc.held || late != tc.late {
				t.Errorf("the sender got %d, the entry is there: %t, done after the time-out: %t: %s", status, held, late, tc.reason)
			}
			if tc.fault != "" && r.journal.Counts().Met[string(tc.fault)] != 1 {
				t.Errorf("the calls that met a fault are counted as %v", r.journal.Counts().Met)
			}
			return
		}
		t.Error("no call met the fault")
	})
}

func newRegistryServer(t *testing.T) *registryServer {
	t.Helper()
	r, err := startRegistry(t.Context(), newJournal(), 100*time.Millisecond)
	expect.NoError(t, err)
	t.Cleanup(r.Stop)
	return r
}

func instanceOf(address string) registry.Instance {
	return registry.Instance{Service: "web", Address: address, Port: 8080, Cluster: clusterName, Namespace: "a", Pod: "web-1", UID: "0a1b"}
}

// send asks for a change of an instance as the driver http does, and returns the answer's status; 0 where there was none.
func send(t *testing.T, r *registryServer, name string, o checker.Op, in registry.Instance) int {
	t.Helper()
	body, err := json.Marshal(in)
	expect.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.address+"/m1/"+name+"/v1/"+string(o), bytes.NewReader(body))
	expect.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0
	}
	expect.NoError(t, response.Body.Close())
	return response.StatusCode
}

func (r *registryServer) holds(ctx context.Context, in registry.Instance) bool {
	state, err := r.books[defaultRegistry].Get(ctx, in)
	return err == nil && state != registry.Absent
}

// TestTheLeasedRegistryForgets what was not renewed, and writes down that it did: no manager removed it.
func TestTheLeasedRegistryForgets(t *testing.T) {
	t.Parallel()
	r := newRegistryServer(t)
	made, other := instanceOf("10.0.0.1"), instanceOf("10.0.0.2")
	for _, in := range []registry.Instance{made, other} {
		r.journal.Saw(in.UID, types.NamespacedName{Namespace: "a", Name: "web-1"}, nil, checker.Sighting{Version: 1})
		if status := send(t, r, leasedRegistry, checker.Register, in); status != http.StatusNoContent {
			t.Fatalf("register: %d", status)
		}
	}
	registered := time.Now()
	expect.Equal(t, http.StatusNoContent, send(t, r, leasedRegistry, heartbeat, made), "a heartbeat")
	r.mu.Lock()
	renewed := r.renewed[checker.KeyOf(leasedRegistry, made)]
	r.mu.Unlock()
	if renewed.Before(registered) {
		t.Errorf("the heartbeat renewed nothing")
	}
	r.expireBy(renewed.Add(leaseOfEntries - time.Nanosecond))
	if left := r.list(t.Context(), leasedRegistry); len(left) != 1 || left[0].Address != made.Address {
		t.Errorf("left are %v, want the one that was renewed", left)
	}
	r.expireBy(renewed.Add(leaseOfEntries))
	if left := r.list(t.Context(), leasedRegistry); len(left) != 0 {
		t.Errorf("left are %v, want none", left)
	}
	told := r.journal.History(made.UID, func(time.Time) string { return "" })
	expect.Equal(t, 2, strings.Count(told, "WIPED"), "written down as expired")
	if status := send(t, r, leasedRegistry, heartbeat, made); status != http.StatusNotFound {
		t.Errorf("a heartbeat of what is gone: %d, want an error", status)
	}
}
