package httpregistry_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	httpregistry "github.com/rollcall-dev/rollcall/internal/drivers/http"
	"github.com/rollcall-dev/rollcall/internal/drivers/http/httpserver"
	"github.com/rollcall-dev/rollcall/internal/drivers/memory"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
)

const goodToken = "s3cret-token"

// harness is that of a server at cfg.Endpoint, which may want a token.
func harness(cfg registry.Config) registrytest.Harness {
	open := func(t registrytest.T, cfg registry.Config) registry.Registry {
		t.Helper()
		d, err := httpregistry.New(t.Context(), cfg)
		if err != nil {
			t.Fatalf("making the driver: %v", err)
		}
		return d
	}
	serve := func(t registrytest.T, handler http.HandlerFunc) registry.Registry {
		t.Helper()
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return open(t, registry.Config{Endpoint: server.URL})
	}
	return registrytest.Harness{
		Open: func(t registrytest.T, cluster string) registry.Registry {
			c := cfg
			c.Cluster = cluster
			return open(t, c)
		},
		Unreachable: func(t registrytest.T) registry.Registry {
			return open(t, registry.Config{Endpoint: "http://" + registrytest.UnusedAddress(t)})
		},
		Refusing: func(t registrytest.T) registry.Registry {
			return serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		},
		Stalled: func(t registrytest.T) registry.Registry {
			return open(t, registry.Config{Endpoint: "http://" + registrytest.SilentAddress(t)})
		},
		Failing: func(t registrytest.T) (registry.Registry, func() int) {
			var attempts atomic.Int64
			d := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				attempts.Add(1)
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			return d, func() int { return int(attempts.Load()) }
		},
		Lacks: map[registrytest.Capability]string{
			registrytest.Probing:          "an acknowledgement means that clients are given the instance",
			registrytest.Heartbeats:       "nothing expires",
			registrytest.Batching:         "the protocol has no batches",
			registrytest.WrongCredentials: "no test for it yet",
			registrytest.Restart:          "no test for it yet",
		},
	}
}

func newMemory(t *testing.T) httpserver.Backend {
	t.Helper()
	r, err := memory.New(t.Context(), registry.Config{})
	if err != nil {
		t.Fatalf("making the memory registry: %v", err)
	}
	return r.(httpserver.Backend)
}

// runWatched runs the suite on a server, with all traffic held against the document.
func runWatched(t *testing.T, backend http.Handler, start func(http.Handler) registry.Config) {
	t.Helper()
	traffic := loadDocument(t).watch(t, backend)
	t.Cleanup(func() { // after the cases, which are parallel
		const fewest = 500
		if n := traffic.count.Load(); n < fewest {
			t.Errorf("%d exchanges were held against the document, want %d or more: did the suite use this server?", n, fewest)
		}
	})
	registrytest.Run(t, harness(start(traffic)))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	runWatched(t, httpserver.New(newMemory(t), httpserver.Options{}), func(h http.Handler) registry.Config {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return registry.Config{Endpoint: server.URL}
	})
}

func TestConformanceWithTLSAndToken(t *testing.T) {
	t.Parallel()
	authorize := func(token string) bool { return token == goodToken }
	handler := httpserver.New(newMemory(t), httpserver.Options{Authorize: authorize})
	runWatched(t, handler, func(h http.Handler) registry.Config {
		server := httptest.NewTLSServer(h)
		t.Cleanup(server.Close)
		return registry.Config{
			Endpoint: server.URL,
			TLS:      registry.TLS{CAFile: authorityFile(t, server)},
			Auth:     registry.Auth{TokenFile: writeFile(t, "token", goodToken+"\n")},
		}
	})
}

func authorityFile(t *testing.T, server *httptest.Server) string {
	t.Helper()
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	return writeFile(t, "ca.crt", string(pem.EncodeToMemory(block)))
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
