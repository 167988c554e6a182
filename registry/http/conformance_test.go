package httpregistry_test

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/httpserver"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

const (
	goodToken, wrongToken       = "s3cret-token", "s3cret-that-has-gone"
	goodPassword, wrongPassword = "s3cret: päss w0rd", "s3cret of yesterday"
)

// harness is that of a server at cfg.Endpoint, which lets in whom cfg names, and keeps out who has wrong's credentials.
func harness(cfg registry.Config, wrong registry.Auth, restart func(testing.TB)) registrytest.Harness {
	h := drivertest.HTTPHarness(httpregistry.New, cfg, http.StatusUnprocessableEntity, http.StatusServiceUnavailable)
	h.LosingAnswers = drivertest.LosingAnswers(httpregistry.New, cfg)
	drivertest.Meter(&h, httpregistry.New, cfg, nil)
	made := h.Open
	h.Open = func(t testing.TB, cluster string) registry.Registry {
		d := made(t, cluster)
		_, _ = d.(registry.Lister).List(t.Context(), cluster) // from which the driver learns what the server can do
		return d
	}
	h.WrongCredentials = func(t testing.TB) registry.Registry {
		c := cfg
		c.Auth = wrong
		return drivertest.Open[registry.Registry](t, httpregistry.New, c)
	}
	h.Restart = restart
	h.Secrets = []string{goodToken, wrongToken, goodPassword, wrongPassword}
	return h
}

// watch has all traffic of the suite held against the document.
func watch(t *testing.T, backend http.Handler) http.Handler {
	t.Helper()
	var exchanges atomic.Int64
	t.Cleanup(func() { // after the cases, which are parallel
		const fewest = 3000
		if n := exchanges.Load(); n < fewest {
			t.Errorf("%d exchanges were held against the document, want %d or more: did the suite use this server?", n, fewest)
		}
	})
	return loadDocument(t).watch(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchanges.Add(1)
		backend.ServeHTTP(w, r)
	}), func(r *http.Request, err error) {
		if r.Context().Err() == nil {
			t.Errorf("%s %s differs from the document: %v", r.Method, r.URL, err)
		}
	})
}

// serve starts a server that can be restarted: for a moment it ends all connections, those that come then, too.
func serve(t *testing.T, handler http.Handler, tlsConfig *tls.Config) (endpoint string, restart func(testing.TB)) {
	t.Helper()
	var away atomic.Bool
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports every connection that its clients give up
	if server.TLS = tlsConfig; tlsConfig == nil {
		server.Start()
	} else {
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	return server.URL, func(testing.TB) {
		away.Store(true)
		server.CloseClientConnections()
		time.Sleep(100 * time.Millisecond) // calls meet no server meanwhile
		away.Store(false)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	handler := httpserver.New(fakeregistry.Memory(t.Context()), httpserver.Options{BatchLimit: 50, Probe: true})
	endpoint, restart := serve(t, watch(t, handler), nil)
	h := harness(registry.Config{Endpoint: endpoint}, registry.Auth{}, restart)
	h.WrongCredentials = nil // this server lets everybody in
	registrytest.Run(t, h)
}

func TestConformanceWithClientCertificateAndPassword(t *testing.T) {
	t.Parallel()
	login := func(username, password string) bool { return username == "rollcall" && password == goodPassword }
	handler := httpserver.New(fakeregistry.Memory(t.Context()), httpserver.Options{Login: login, BatchLimit: 50, Probe: true})
	own, err := pki.NewTLS(t.TempDir(), pkix.Name{CommonName: "server"}, pkix.Name{CommonName: "client"})
	expect.NoError(t, err)
	tlsConfig, err := own.Authority.TLSConfig(own.Serving)
	expect.NoError(t, err)
	tlsConfig.ClientAuth, tlsConfig.ClientCAs = tls.RequireAndVerifyClientCert, tlsConfig.RootCAs
	endpoint, restart := serve(t, watch(t, handler), tlsConfig)
	ca, cert, key := own.Files()
	registrytest.Run(t, harness(registry.Config{
		Endpoint: endpoint,
		TLS:      registry.TLS{CAFile: ca, CertFile: cert, KeyFile: key},
		Auth:     registry.Auth{Username: "rollcall", PasswordFile: drivertest.File(t, goodPassword+"\n")},
	}, registry.Auth{Username: "rollcall", PasswordFile: drivertest.File(t, wrongPassword)}, restart))
}
