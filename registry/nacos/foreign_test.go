package nacos_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAnApplicationBesideUs has a server on which an application has registered itself over gRPC: readers get its entry, with
// what was set for the address laid over it, and a DELETE over HTTP does not remove it.
func TestAnApplicationBesideUs(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v1")
	d := at(t, f.URL, `{"ephemeral": true}`)
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	f.meets("DELETE", func(w http.ResponseWriter) { f.bare(w, "ok") }) // and the entry that readers get stays
	expect.Code(t, registry.CodeForeignEntry, d.Deregister(t.Context(), drivertest.Pod(1)), "Deregister: somebody else's entry is there: readers are given the address")
	if left := f.put["10.0.0.1 80"]; left.Get("enabled") != "true" || left.Get("metadata") != "{}" {
		t.Errorf("it left %v on the application's entry, want it enabled and without our mark", left)
	}

	f.meets("GET /v1/ns/instance", func(w http.ResponseWriter) {
		f.bare(w, map[string]any{"ip": "10.0.0.1", "port": 80, "enabled": true, "healthy": true})
	})
	_ = f.requests() // those until now
	for name, err := range map[string]error{
		"Register":   d.Register(t.Context(), drivertest.Pod(1)),
		"FailOver":   d.FailOver(t.Context(), drivertest.Pod(1)),
		"Deregister": d.Deregister(t.Context(), drivertest.Pod(1)),
	} {
		expect.Code(t, registry.CodeForeignEntry, err, "%s: somebody else's entry is there", name)
	}
	for _, request := range f.requests() {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("sent %s: our metadata would hide the application's entry", request)
		}
	}
	drivertest.Says(t, "clients are given it", d, drivertest.Pod(1), registry.Foreign)
}

// TestAnApplicationThatIsHeldOut has failed over the application's entry with ours. What holds it out of service stays set until the
// pod is to be in by the application's entry, or that has gone.
func TestAnApplicationThatIsHeldOut(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v1")
	d := at(t, f.URL, `{"ephemeral": true}`)
	for _, call := range []func(context.Context, registry.Instance) error{d.Register, d.FailOver} {
		expect.NoError(t, call(t.Context(), drivertest.Pod(1)))
	}
	f.registersItself(drivertest.Pod(1), true)
	f.meets("DELETE", func(w http.ResponseWriter) { f.bare(w, "ok") })
	removal := func() {
		t.Helper()
		for range 3 {
			expect.Code(t, registry.CodeForeignEntry, d.Deregister(t.Context(), drivertest.Pod(1)), "Deregister: somebody else's entry is there: what holds it out must be undone")
		}
		drivertest.Says(t, "clients are given neither entry", d, drivertest.Pod(1), registry.Absent)
		if left := f.put["10.0.0.1 80"]; left.Get("enabled") != "false" || strings.Contains(left.Get("metadata"), registry.MetaUID) {
			t.Errorf("it left %v, want it out of service and without the pod's mark", left)
		}
	}
	undone := func() {
		t.Helper()
		if left := f.put["10.0.0.1 80"]; left.Get("enabled") != "true" || left.Get("metadata") != "{}" {
			t.Errorf("it left %v, want that undone", left)
		}
	}
	removal()
	f.mu.Lock()
	f.first = nil
	delete(f.posted, "10.0.0.1 80")
	f.mu.Unlock()
	expect.NoError(t, d.Deregister(t.Context(), drivertest.Pod(1)))
	undone()

	for _, call := range []func(context.Context, registry.Instance) error{d.Register, d.FailOver} {
		expect.NoError(t, call(t.Context(), drivertest.Pod(1)))
	}
	f.meets("DELETE", func(w http.ResponseWriter) { f.bare(w, "ok") })
	removal()
	expect.NoError(t, d.AppEntries().Register(t.Context(), drivertest.Pod(1)))
	undone()
	expect.NoError(t, d.AppEntries().FailOver(t.Context(), drivertest.Pod(1)))
	expect.NoError(t, d.Deregister(t.Context(), drivertest.Pod(1))) // it is the application's to be put back from now on
}
