package nacos

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestWhenAServerIsLeftThatShowsNothing looks at where the next call begins.
func TestWhenAServerIsLeftThatShowsNothing(t *testing.T) {
	t.Parallel()
	const first, second = "http://first/nacos", "http://second/nacos"
	type row struct {
		reason string
		left   time.Duration // of the call's time when it writes
		next   string
	}
	expect.Each(t, map[string]row{
		"one look":           {"it shows a change half a second late by itself, and later under load", 600 * time.Millisecond, first},
		"less than a second": {"requests before the write took the time", 950 * time.Millisecond, first},
		"a whole call":       {"it has shown neither the write nor the same once more", 5 * time.Second, second},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			r := twoServers(t, first, second)
			ctx, cancel := context.WithTimeout(t.Context(), tc.left)
			defer cancel()
			err := r.until(ctx, func() error { return nil }, func(context.Context) (bool, driverkit.Server, error) {
				return false, r.begins(t), nil
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want that the time was up", err)
			}
			if next := r.begins(t).String(); next != tc.next {
				t.Errorf("the next call begins at %s, want %s\nreason: %s", next, tc.next, tc.reason)
			}
		})
	})
}

func twoServers(t *testing.T, first, second string) *Registry {
	t.Helper()
	http, err := driverkit.NewHTTPClient(registry.Config{Endpoint: first + "," + second}, driverkit.HTTPOptions{})
	expect.NoError(t, err)
	return &Registry{client: newClient(http, Options{}, nil, slog.New(slog.DiscardHandler))}
}

// begins returns the server that calls begin at.
func (r *Registry) begins(t *testing.T) (at driverkit.Server) {
	t.Helper()
	expect.NoError(t, r.client.http.Try(t.Context(), driverkit.Policy{}, func(_ context.Context, s driverkit.Server) error {
		at = s
		return nil
	}))
	return at
}
