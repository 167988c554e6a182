package httpregistry_test

import (
	"cmp"
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
)

// upgraded is a server that is replaced by one of another version.
type upgraded struct {
	handler atomic.Pointer[http.Handler]
	asked   atomic.Int64 // what the server can do
}

func (u *upgraded) to(h http.Handler) { u.handler.Store(&h) }

func (u *upgraded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/capabilities" {
		u.asked.Add(1)
	}
	(*u.handler.Load()).ServeHTTP(w, r)
}

// TestServersOfAllVersions has one server after another at the same address, as in an upgrade and its rollback.
func TestServersOfAllVersions(t *testing.T) {
	t.Parallel()
	backend := fakeregistry.Memory(t.Context())
	oldest := httpserver.New(backend, httpserver.Options{})
	newest := httpserver.New(backend, httpserver.Options{BatchLimit: 50, Probe: true})
	var server upgraded
	d := open(t, registry.Config{Endpoint: drivertest.Serve(t, server.ServeHTTP)})
	in := drivertest.Pod(1)
	resync := func() {
		t.Helper()
		_, err := d.List(t.Context(), in.Cluster)
		expect.NoError(t, err)
	}
	expectCan := func(batchLimit int, probes bool) {
		t.Helper()
		if d.BatchLimit() != batchLimit || d.Probes() != probes {
			t.Fatalf("the driver takes the server for one of batches of %d that probes: %t; want %d, %t",
				d.BatchLimit(), d.Probes(), batchLimit, probes)
		}
	}
	expectProbe := func(reason, says string) {
		t.Helper()
		err := d.Probe(t.Context(), in)
		expect.Error(t, reason, err, says)
		if registry.CodeOf(err) == registry.CodeTerminal {
			t.Errorf("got %v, want an error that passes\nreason: %s", err, reason)
		}
	}

	expectCan(1, true) // it is not known yet
	server.to(oldest)
	expectProbe("it may be a gateway that has no way to the server for a moment", "404 Not Found")
	expectCan(1, true)
	resync()
	expectProbe("a server of version 1.2 goes on as ever", "")
	expectCan(1, false)

	server.to(newest)
	resync()
	expectCan(50, true)
	expectProbe("the pod is not registered", "409 Conflict: clients are not given the instance")
	expect.NoError(t, d.Register(t.Context(), in))
	expectProbe("clients are given it", "")
	if n := server.asked.Load(); n != 3 {
		t.Errorf("the server was asked %d times what it can do, want once before the first probe and once with each list", n)
	}

	server.to(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	if _, err := d.List(t.Context(), in.Cluster); err == nil {
		t.Error("List: got success of a server that is away")
	}
	expectCan(50, true) // an error says nothing of that

	server.to(oldest)
	expectProbe("whether clients are given it must be known before OpenKruise goes on", "404 Not Found")
	expectProbe("a gateway may have no way to it for a moment", "404 Not Found")
	expectCan(50, true)
	resync()
	expectProbe("the server has none", "")
	expectCan(1, false)

	server.to(newest)
	resync()
	server.to(oldest)
	expect.Code(t, registry.CodeNotApplied, d.Batch(t.Context(), []registry.Change{{Instance: in, State: registry.Absent}})[0], "Batch: an error by which the change is made by itself")
	expectCan(1, true)
	expectProbe("a gateway that has no way to it for a moment turns no probe off", "404 Not Found")
	expectCan(1, true)
	server.to(newest)
	expectProbe("the pod is registered", "")
	expectCan(1, true)
	resync()
	expectCan(50, true)
}

// TestWhatAServerCanDo is of answers that are not as documented. They count only from a server that has just listed: else a gateway
// may have given them.
func TestWhatAServerCanDo(t *testing.T) {
	t.Parallel()
	const unknown = "capabilities are known only after the first list"
	type row struct {
		reason string
		status int
		answer string
		limit  int
		probes bool
		says   string // by the probe
		// unlisted is what that says before a list, where that is something else.
		unlisted string
	}
	expect.Each(t, map[string]row{
		"no such path":        {"it is of an older version", 404, `{"error":"no"}`, 1, false, "", unknown},
		"no such method":      {"it is of an older version", 405, ``, 1, false, "", unknown},
		"not implemented":     {"it is of an older version", 501, ``, 1, false, "", unknown},
		"a page":              {"some servers answer every path", 200, `<html>`, 1, false, "", unknown},
		"something else":      {"some servers answer every path", 200, `{"status":"ok"}`, 1, false, "", ""},
		"more than is taken":  {"an answer must fit into memory", 200, `{"batchLimit":100000}`, 1000, false, "", ""},
		"less than nothing":   {"it is a slip", 200, `{"batchLimit":-1}`, 1, false, "", ""},
		"away":                {"it is asked again", 503, ``, 1, true, "503", ""},
		"may not be asked":    {"it is asked again, and a person looks", 403, ``, 1, true, "auth", ""},
		"where it can't read": {"a status of its own says nothing of its version", 400, ``, 1, true, "400", ""},
	}, func(t *testing.T, tc row) {
		d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			answer := tc.answer
			switch r.URL.Path {
			case "/v1/capabilities":
				w.WriteHeader(tc.status)
			case "/v1/instances":
				answer = `{"instances":[]}`
			}
			_, _ = io.WriteString(w, answer)
		})})
		before := cmp.Or(tc.says, tc.unlisted)
		err := d.Probe(t.Context(), drivertest.Pod(1))
		if expect.Error(t, tc.reason, err, before); tc.unlisted != "" && (registry.CodeOf(err) == registry.CodeTerminal || !d.Probes()) {
			t.Errorf("before a list: got %v, probes: %t, want an error that passes\nreason: %s", err, d.Probes(), tc.reason)
		}
		_, err = d.List(t.Context(), "test")
		expect.NoError(t, err)
		expect.Error(t, tc.reason, d.Probe(t.Context(), drivertest.Pod(1)), tc.says)
		if d.BatchLimit() != tc.limit || d.Probes() != tc.probes {
			t.Errorf("got batches of %d, probes %t; want %d, %t\nreason: %s", d.BatchLimit(), d.Probes(), tc.limit, tc.probes, tc.reason)
		}
	})
}
