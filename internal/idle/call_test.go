package idle

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestCaller(t *testing.T) {
	t.Parallel()
	answers := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		}
	}
	var elsewhere atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Store(true) }))
	t.Cleanup(other.Close)
	type row struct {
		reason string
		server http.HandlerFunc
		metric string
		want   drain.Answer
		failed string
	}
	expect.Each(t, map[string]row{
		"idle":               {"any 2xx", answers(204, ""), "", drain.Answer{Idle: true}, ""},
		"idle, and talks":    {"the body does not matter", answers(200, "3"), "", drain.Answer{Idle: true}, ""},
		"busy":               {"", answers(503, ""), "", drain.Answer{}, ""},
		"busy, with a count": {"people see what is left", answers(503, "3\n"), "", drain.Answer{Left: 3}, ""},
		"busy, with a page":  {"no count", answers(503, strings.Repeat("<html>", 1<<20)), "", drain.Answer{}, ""},
		"busy, below zero":   {"no count", answers(503, "-3"), "", drain.Answer{}, ""},
		"not found":          {"a wrong path shows nothing", answers(404, ""), "", drain.Answer{}, "answered 404 Not Found"},
		"a fault":            {"the same", answers(500, ""), "", drain.Answer{}, "answered 500"},
		"a redirect": {"only the pod is asked", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, "",
			drain.Answer{}, "answered 302 Found"},
		"large headers": {"a tenant's answer has a bound", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Large", strings.Repeat("x", 2*maxHeader))
		}, "", drain.Answer{}, "header"},
		"breaks off": {"", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", drain.Answer{}, "EOF"},
		"silent":     {"a pod has 2 s", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", drain.Answer{}, "allow this port for Rollcall"},
		"an answer without an end": {"the same", func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := fmt.Fprintln(w, "other 1"); err != nil {
					return
				}
				_ = http.NewResponseController(w).Flush()
			}
		}, "in_flight", drain.Answer{}, "metrics"},

		"a metric":        {"", answers(200, "in_flight 3\n"), "in_flight", drain.Answer{Left: 3}, ""},
		"a metric of 0":   {"", answers(200, "in_flight 0\n"), "in_flight", drain.Answer{Idle: true}, ""},
		"no metrics":      {"503 of a metrics endpoint is no count", answers(503, "in_flight 0\n"), "in_flight", drain.Answer{}, "answered 503"},
		"an empty answer": {"", answers(200, ""), "in_flight", drain.Answer{}, "no series of in_flight"},
		"compressed": {"what is small may be large", func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				t.Error("Rollcall accepts gzip")
			}
			fmt.Fprintln(w, "in_flight 0")
		}, "in_flight", drain.Answer{Idle: true}, ""},
	}, func(t *testing.T, tc row) {
		server := httptest.NewUnstartedServer(tc.server)
		server.Config.ErrorLog = nil
		server.Start()
		defer server.Close()
		defer server.CloseClientConnections()
		host, port, err := net.SplitHostPort(server.Listener.Addr().String())
		expect.NoError(t, err)
		number, err := strconv.Atoi(port)
		expect.NoError(t, err)
		got := newCaller().ask(t.Context(), drain.Question{IP: host, Until: drain.Until{Port: number, Path: "/idle", Metric: tc.metric}})
		if failed := got.Failed; !strings.Contains(failed, tc.failed) || (tc.failed == "") != (failed == "") {
			t.Errorf("%s: failed is %q, want %q", tc.reason, failed, tc.failed)
		}
		if got.Failed = ""; got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.reason, got, tc.want)
		}
	})
	t.Cleanup(func() {
		if elsewhere.Load() {
			t.Error("a redirect was followed")
		}
	})
}

func TestCaller_CallsOnlyAnIP(t *testing.T) {
	t.Parallel()
	for _, ip := range []string{"", "localhost", "10.0.0.1:80/", "example.com"} {
		got := newCaller().ask(context.Background(), drain.Question{IP: ip, Until: drain.Until{Port: 80, Path: "/idle"}})
		expect.Equal(t, "the pod has no IP", got.Failed, "%q: %+v", ip, got)
	}
}

// TestCaller_LeavesNoConnection: a server that counts connections must not count Rollcall's.
func TestCaller_LeavesNoConnection(t *testing.T) {
	t.Parallel()
	var open atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.Close {
			t.Error("the request keeps its connection")
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed, http.StateHijacked:
			open.Add(-1)
		case http.StateActive, http.StateIdle:
		}
	}
	server.Start()
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	expect.NoError(t, err)
	number, err := strconv.Atoi(port)
	expect.NoError(t, err)
	if got := newCaller().ask(t.Context(), drain.Question{IP: host, Until: drain.Until{Port: number, Path: "/idle"}}); !got.Idle {
		t.Errorf("got %+v", got)
	}
	expect.Becomes(t, "the connection is closed", func() bool { return open.Load() == 0 })
}
