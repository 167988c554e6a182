package eureka_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

// bound is generous: what is waited for comes at once.
const bound = 30 * time.Second

// TestWhichAnswerSendsACallOn has a first peer that fails in one way and a second one that is well.
func TestWhichAnswerSendsACallOn(t *testing.T) {
	t.Parallel()
	const here, there = "first", "second"
	for name, tc := range map[string]struct {
		reason string
		first  string // its address; else answer is what it says
		answer int
		fails  bool
		next   string // who is asked next time
	}{
		"refuses connections": {reason: "nothing was sent", first: registrytest.UnusedAddress(t), next: there},
		"does not resolve":    {reason: "nothing was sent", first: "eureka.invalid", next: there},
		"500":                 {reason: "it has failed, and said so", answer: 500, next: there},
		"502":                 {reason: "nobody is behind the proxy", answer: 502, next: there},
		"503":                 {reason: "it is starting, or over its limit", answer: 503, next: there},
		"504": {
			reason: "it may still be under way behind the proxy; made elsewhere, it could undo there what comes later",
			answer: 504, fails: true, next: there,
		},
		"400": {reason: "another would say the same", answer: 400, fails: true, next: here},
		"401": {reason: "another would say the same", answer: 401, fails: true, next: here},
		"403": {reason: "another would say the same", answer: 403, fails: true, next: here},
		"429": {reason: "all of them are for all; it is to wait", answer: 429, fails: true, next: here},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := web(1)
			first, second := newFake(t, status(tc.answer)), newFake(t, healthy(in))
			address := first.URL
			if tc.first != "" {
				address = "http://" + tc.first
			}
			for _, call := range []string{"Register", "FailOver", "Deregister", "Heartbeat", "List"} {
				d := open(t, registry.Config{Endpoint: address + "," + second.URL, Timeout: bound})
				if err := callsOf(t, d, in)[call](); (err != nil) != tc.fails {
					t.Errorf("%s: got error %v, want one: %t\nreason: %s", call, err, tc.fails, tc.reason)
				}
				first.requests()
				second.requests()
				first.set(healthy(in))
				if err := callsOf(t, d, in)[call](); err != nil && tc.first == "" {
					t.Errorf("%s again: %v", call, err)
				}
				first.set(status(tc.answer))
				asked := map[string]bool{here: len(first.requests()) > 0, there: len(second.requests()) > 0}
				if diff := cmp.Diff(map[string]bool{here: tc.next == here, there: tc.next == there}, asked); diff != "" {
					t.Errorf("%s: who was asked next time, -want +got:\n%s\nreason: %s", call, diff, tc.reason)
				}
			}
		})
	}
}

func callsOf(t *testing.T, d *eureka.Registry, in registry.Instance) map[string]func() error {
	t.Helper()
	return map[string]func() error{
		"Register":   func() error { return d.Register(t.Context(), in) },
		"FailOver":   func() error { return d.FailOver(t.Context(), in) },
		"Deregister": func() error { return d.Deregister(t.Context(), in) },
		"Heartbeat":  func() error { return d.Heartbeat(t.Context(), in) },
		"List": func() error {
			_, err := d.List(t.Context(), in.Cluster)
			return err
		},
	}
}

// TestACallIsMadeWholeElsewhere has a peer fail in the middle: what it has acknowledged is not yet known to the other.
func TestACallIsMadeWholeElsewhere(t *testing.T) {
	t.Parallel()
	in := web(1)
	first := newFake(t, func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet {
			return http.StatusServiceUnavailable, ""
		}
		return healthy(in)(r)
	})
	second := newFake(t, healthy(in))
	if err := open(t, registry.Config{Endpoint: first.URL + "," + second.URL}).Register(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	const app, id = "/apps/SHOP%20WEB", "/apps/SHOP%20WEB/10.0.0.1:80:Shop%20web"
	if diff := cmp.Diff([]string{"POST " + app, "GET " + id}, second.requests()); diff != "" {
		t.Errorf("requests at the second peer, -want +got:\n%s", diff)
	}
}

// TestAPeerThatHangsKeepsItsCall gives the time-out back, and begins elsewhere afterwards.
func TestAPeerThatHangsKeepsItsCall(t *testing.T) {
	t.Parallel()
	in := web(1)
	second := newFake(t, healthy(in))
	d := open(t, registry.Config{Endpoint: "http://" + registrytest.SilentAddress(t) + "," + second.URL})
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := d.Register(short, in); !errors.Is(err, context.DeadlineExceeded) || len(second.requests()) > 0 {
		t.Errorf("got error %v, want the deadline's, and nothing sent elsewhere: it may still be made", err)
	}
	long, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	if err := d.Register(long, in); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestACancelledCallLeavesThePeerAlone(t *testing.T) {
	t.Parallel()
	in := web(1)
	reached := make(chan struct{}, 1)
	first := newFake(t, func(r *http.Request) (int, string) {
		reached <- struct{}{}
		<-r.Context().Done()
		return http.StatusOK, ""
	})
	second := newFake(t, healthy(in))
	d := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-reached
		cancel()
	}()
	if err := d.Register(ctx, in); !errors.Is(err, context.Canceled) {
		t.Fatalf("got error %v, want that it was cancelled", err)
	}
	first.set(healthy(in))
	if err := d.Register(t.Context(), in); err != nil || len(second.requests()) > 0 {
		t.Errorf("got error %v, want none, and nothing sent elsewhere: nothing is wrong with the first peer", err)
	}
}

func TestAllPeersAwayTellsOfAll(t *testing.T) {
	t.Parallel()
	first, second := newFake(t, status(503)), newFake(t, status(500))
	d := open(t, registry.Config{Endpoint: first.URL + "/a," + second.URL + "/b"})
	for call, err := range calls(t, d, web(1)) {
		if err == nil || registry.IsTerminal(err) || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), first.URL+"/a answered 503") || !strings.Contains(err.Error(), second.URL+"/b answered 500") {
			t.Errorf("%s: got error %v, want one that passes, in one line, and tells of both", call, err)
		}
	}
}

// TestOnePeerThatMayComeBackMakesItPass has a peer with a certificate that nobody vouches for.
func TestOnePeerThatMayComeBackMakesItPass(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	in := web(1)
	away := "https://" + registrytest.UnusedAddress(t)
	for name, tc := range map[string]struct {
		endpoint string
		terminal bool
	}{
		"one":               {untrusted.URL, true},
		"two":               {untrusted.URL + "," + untrusted.URL + "/other", true},
		"one and one away":  {untrusted.URL + "," + away, false},
		"one away, and one": {away + "," + untrusted.URL, false},
	} {
		err := open(t, registry.Config{Endpoint: tc.endpoint}).Register(t.Context(), in)
		field, _ := registry.FieldOf(err)
		if err == nil || registry.IsTerminal(err) != tc.terminal || (field == "tls.caFile") != tc.terminal ||
			!strings.Contains(err.Error(), "tls.caFile: does not vouch for the registry") {
			t.Errorf("%s: got error %v, want one that is terminal: %t", name, err, tc.terminal)
		}
	}
}
