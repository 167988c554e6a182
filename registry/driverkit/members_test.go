package driverkit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestMembers: what is absent at one of several servers behind an address may be there at another.
func TestMembers(t *testing.T) {
	t.Parallel()
	const one, two = "http://10.0.0.1", "http://10.0.0.1,http://10.0.0.2"
	refused := errors.New("not for you")
	expect.Each(t, map[string]struct {
		reason, endpoint string
		servers          []string
		err              error
		more             int
		unlisted         bool
	}{
		"a server":                  {"there is no other", one, []string{"a"}, nil, 0, false},
		"as many as addresses":      {"each is asked by its own", two, []string{"a", "b"}, nil, 0, false},
		"fewer than addresses":      {"one may have been added to the endpoint first", two, []string{"a"}, nil, 0, false},
		"more":                      {"all have to agree", one, []string{"a", "b", "c", "b"}, nil, 2, true},
		"more than two":             {"which stands for two of them is not known", two, []string{"a", "b", "c"}, nil, 2, true},
		"not known, of one address": {"it may be a load balancer's", one, nil, refused, 2, false},
		"not known, of two":         {"who lists two lists all", two, nil, refused, 0, false},
	}, func(t *testing.T, tc struct {
		reason, endpoint string
		servers          []string
		err              error
		more             int
		unlisted         bool
	}) {
		var logged bytes.Buffer
		asked := 0
		cfg := registry.Config{Endpoint: tc.endpoint, Logger: slog.New(slog.NewTextHandler(&logged, nil))}
		m := driverkit.NewMembers(newClient(t, cfg, driverkit.HTTPOptions{}), func(context.Context) ([]string, error) {
			asked++
			return tc.servers, tc.err
		})
		for range 2 {
			if several := m.Several(t.Context()); several != (tc.more > 0) {
				t.Errorf("stands for several servers: %t, want %t: %s", several, tc.more > 0, tc.reason)
			}
			expect.Equal(t, tc.more, m.More(t.Context()), "more answers: %s", tc.reason)
			m.Refresh(t.Context())
		}
		if unlisted := m.Unlisted(); (unlisted != nil) != tc.unlisted {
			t.Errorf("got %q, want some: %t", unlisted, tc.unlisted)
		}
		if told := strings.Count(logged.String(), "not for you"); asked != 1 || (told == 1) != (tc.err != nil) {
			t.Errorf("asked %d times, and logged:\n%s", asked, logged.String())
		}
	})
}

// TestAloneHasAConnectionOfItsOwn, for all of its requests, and closes it in the end.
func TestAloneHasAConnectionOfItsOwn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var from []string
	open := map[string]bool{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		from = append(from, r.RemoteAddr)
	}))
	server.Config.ConnState = func(conn net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if open[conn.RemoteAddr().String()] = true; state == http.StateClosed {
			delete(open, conn.RemoteAddr().String())
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c := newClient(t, registry.Config{Endpoint: server.URL}, driverkit.HTTPOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	expect.NoError(t, c.Try(ctx, driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
		for _, one := range []driverkit.Server{s, s.Alone(ctx), s.Alone(ctx)} {
			for range 2 {
				if _, err := one.Do(ctx, driverkit.Request{Method: http.MethodGet, Path: "/"}); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	mu.Lock()
	if len(from) != 6 || from[0] != from[1] || from[2] != from[3] || from[4] != from[5] || from[0] == from[2] || from[2] == from[4] {
		t.Errorf("requests came from %q, want two from each of three connections", from)
	}
	mu.Unlock()
	cancel()
	expect.Soon(t, "the connections to be closed but for the client's", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(open) != 1 {
			return fmt.Errorf("open: %v", open)
		}
		return nil
	})
}

// TestAFailureLeavesTheConnection: behind an address of several servers, a new one may lead to one that is well.
func TestAFailureLeavesTheConnection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	from := map[string]bool{}
	status := http.StatusServiceUnavailable
	server := drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		from[r.RemoteAddr] = true
		w.WriteHeader(status)
	})
	c := newClient(t, registry.Config{Endpoint: server}, driverkit.HTTPOptions{})
	driverkit.NewMembers(c, func(context.Context) ([]string, error) { return []string{"a", "b"}, nil }).Refresh(t.Context())
	ask := func() error {
		return c.Try(t.Context(), driverkit.Policy{}, func(ctx context.Context, s driverkit.Server) error {
			a, err := s.Do(ctx, driverkit.Request{Method: http.MethodGet, Path: "/"})
			if err == nil && !a.OK() {
				err = a.Refusal("").Classified()
			}
			return err
		})
	}
	connections := func(want int, why string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(from) != want {
			t.Errorf("requests came from %v, want %d connections: %s", from, want, why)
		}
	}
	for range 3 {
		expect.Error(t, "it fails", ask(), "503")
	}
	connections(3, "each failed")
	mu.Lock()
	status = http.StatusOK
	mu.Unlock()
	for range 3 {
		expect.NoError(t, ask())
	}
	connections(4, "none failed")
}

// TestPolicyAfterReachesWhatIsListed: of a server that the endpoint lacks, as soon as it is known how to reach it.
func TestPolicyAfterReachesWhatIsListed(t *testing.T) {
	t.Parallel()
	const one, two, three = "http://10.0.0.1", "http://10.0.0.2", "http://10.0.0.3"
	at := func(text string) *url.URL {
		u, err := url.Parse(text)
		expect.NoError(t, err)
		return u
	}
	c := newClient(t, registry.Config{Endpoint: one}, driverkit.HTTPOptions{})
	left, asked := 1, 0
	var m *driverkit.Members
	m = driverkit.NewMembers(c, func(context.Context) ([]string, error) {
		asked++
		m.Reach([]*url.URL{at(two), at(three)}, left)
		return []string{one, two, three}, nil
	})
	after := func(from driverkit.Server) (servers []string) {
		_ = c.Try(t.Context(), driverkit.Policy{After: from}, func(_ context.Context, s driverkit.Server) error {
			servers = append(servers, s.String())
			return errors.New("ask the next one")
		})
		return servers
	}
	expect.NoError(t, c.Try(t.Context(), driverkit.Policy{}, func(_ context.Context, s driverkit.Server) error {
		expect.Equal(t, []string(nil), after(s), "before the registry was asked")
		for range 2 {
			m.Refresh(t.Context())
		}
		expect.Equal(t, []string{two, three}, after(s), "after the endpoint's")
		_ = c.Try(t.Context(), driverkit.Policy{After: s}, func(_ context.Context, s driverkit.Server) error {
			if s.String() == two {
				expect.Equal(t, []string{one, three}, after(s), "after another one")
			}
			return errors.New("ask the next one")
		})
		return nil
	}))
	if more := m.More(t.Context()); more != 2 || len(m.Unlisted()) != 3 || asked != 2 {
		t.Errorf("with one left: %d more answers, unlisted %q, asked %d times; want 2, all three, and each time", more, m.Unlisted(), asked)
	}
	left = 0
	m.Refresh(t.Context())
	if more := m.More(t.Context()); more != 0 || len(m.Unlisted()) != 0 || !m.Several(t.Context()) {
		t.Errorf("with all reached: %d more answers, unlisted %q; want none, and a connection for each call still", more, m.Unlisted())
	}
}
