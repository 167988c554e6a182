// Package drivertest has what the tests of every driver ask for, on servers of their own and on real ones.
package drivertest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// Open makes a driver, and closes it in the end.
func Open[D registry.Registry](t testing.TB, construct registry.Constructor, cfg registry.Config) D {
	t.Helper()
	made, err := construct(t.Context(), cfg)
	expect.NoError(t, err)
	if closer, ok := made.(io.Closer); ok {
		t.Cleanup(func() { _ = closer.Close() })
	}
	driver, ok := made.(D)
	if !ok {
		t.Fatalf("the driver is a %T", made)
	}
	return driver
}

// Within is the context of a call that has so much time.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Serve starts a server until the end of the test, and returns its URL.
func Serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// Through leads requests to a server.
func Through(t testing.TB, server string) *httputil.ReverseProxy {
	t.Helper()
	to, err := url.Parse(server)
	expect.NoError(t, err)
	return httputil.NewSingleHostReverseProxy(to)
}

// Slow is a [registry.Config.Outgoing] for a bubble of synctest. A request whose path has the suffix takes a second, which passes only when
// all other calls wait. No connection stays open after its answer: time stands still while one is.
func Slow(suffix string) func(context.Context, *url.URL) map[string]string {
	return func(ctx context.Context, asked *url.URL) map[string]string {
		if strings.HasSuffix(asked.Path, suffix) {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
		return map[string]string{"Connection": "close"}
	}
}

// Answering is a server that gives one answer to everything.
func Answering(t testing.TB, status int, header map[string]string, body string) (endpoint string) {
	t.Helper()
	return Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// InTurn leads each connection to another one of the servers, by turns, as a Kubernetes Service does.
func InTurn(t testing.TB, urls ...string) (address string) {
	t.Helper()
	var next atomic.Int64
	return "http://" + Leading(t, func() string { return network.HostPort(urls[int(next.Add(1)-1)%len(urls)]) })
}

// Accepting listens at a port of the host for connections until the end of the test. Each is served in a goroutine of its own,
// and closed after it.
func Accepting(t testing.TB, host string, serve func(net.Conn)) (address string) {
	t.Helper()
	address, err := network.Accept(whole(t), host, serve)
	expect.NoError(t, err)
	return address
}

// whole ends with the test, once its drivers are closed.
func whole(t testing.TB) context.Context {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(end)
	return ctx
}

// ServeGRPC starts a server until the end of the test.
func ServeGRPC(t testing.TB, server *grpc.Server) (address string) {
	t.Helper()
	listener := listen(t, "127.0.0.1")
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return listener.Addr().String()
}

func listen(t testing.TB, host string) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", net.JoinHostPort(host, "0"))
	expect.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// Saying is the address of a server that says one thing to everybody, once it has read something.
func Saying(t testing.TB, text string) (address string) {
	t.Helper()
	return Accepting(t, "127.0.0.1", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1<<10))
		_, _ = io.WriteString(conn, text)
	})
}

// OwnAddress is one of this machine that is not its loopback's, without which the test is skipped.
func OwnAddress(t testing.TB) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	expect.NoError(t, err)
	for _, one := range all {
		if at, is := one.(*net.IPNet); is && at.IP.To4() != nil && at.IP.IsGlobalUnicast() {
			return at.IP.String()
		}
	}
	t.Skip("!!!! SKIPPED: this machine has no address but its loopback's")
	return ""
}

// File writes a file for the time of the test, such as one with a password.
func File(t testing.TB, content string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	expect.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Pod returns the instance of a pod of service web, at an address of its own for each n.
func Pod(n int) registry.Instance {
	return registry.Instance{
		Service: "web", Address: fmt.Sprintf("10.0.0.%d", n), Port: 80,
		Cluster: "test", Namespace: "shop", Pod: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("uid-%d", n),
	}
}

// Calls makes each call for an instance that the driver has, and returns their errors.
func Calls(ctx context.Context, d registry.Registry, in registry.Instance) map[string]error {
	errs := map[string]error{
		"Register": d.Register(ctx, in), "FailOver": d.FailOver(ctx, in), "Deregister": d.Deregister(ctx, in),
	}
	if beating, is := d.(registry.Heartbeater); is {
		errs["Heartbeat"] = beating.Heartbeat(ctx, in)
	}
	if listing, is := d.(registry.Lister); is {
		_, errs["List"] = listing.List(ctx, in.Cluster)
	}
	if batching, is := d.(registry.Batcher); is {
		errs["Batch"] = batching.Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})[0]
	}
	return errs
}

// Harness is that of a driver with this configuration, as far as it takes no server of its kind: it opens the driver of each
// cluster, and drivers whose server is away or silent, which is at the scheme and an address. The caller fills in the rest.
func Harness(construct registry.Constructor, cfg registry.Config, scheme string) registrytest.Harness {
	elsewhere := elsewhere(construct, cfg)
	return registrytest.Harness{
		Open: func(t testing.TB, cluster string) registry.Registry {
			t.Helper()
			mine := cfg
			mine.Cluster = cluster
			return Open[registry.Registry](t, construct, mine)
		},
		Unreachable: func(t testing.TB) registry.Registry { return elsewhere(t, scheme+registrytest.UnusedAddress(t)) },
		Stalled:     func(t testing.TB) registry.Registry { return elsewhere(t, scheme+registrytest.SilentAddress(t)) },
	}
}

// LosingAnswers is that function of a harness, for a driver whose configuration has one server.
func LosingAnswers(
	construct registry.Constructor, cfg registry.Config,
) func(testing.TB, string) (registry.Registry, func(int) func() bool) {
	return func(t testing.TB, cluster string) (registry.Registry, func(int) func() bool) {
		t.Helper()
		mine := cfg
		endpoint, lose := losing(t, cfg.Endpoint)
		mine.Cluster, mine.Endpoint = cluster, endpoint
		return Open[registry.Registry](t, construct, mine), lose
	}
}

// manyOthers is how many instances are in the service in which calls are metered, in a run of that alone. CPU counts then.
const manyOthers = "ROLLCALL_OTHERS"

// Others is how many, 0 unless this is such a run.
func Others() int {
	others, _ := strconv.Atoi(os.Getenv(manyOthers))
	return others
}

// Meter has the suite measure what a driver's calls cost, whose configuration has one server, and what they cost that server, unless nil.
func Meter(h *registrytest.Harness, construct registry.Constructor, cfg registry.Config, server interface{ PID() int }) {
	h.Others = Others() // else 0: the default
	alone := h.Others > 0 && server != nil
	h.Metered = func(t testing.TB, cluster string) (registry.Registry, func() registrytest.Spent) {
		t.Helper()
		var moved network.Traffic
		mine := cfg
		mine.Cluster, mine.Endpoint = cluster, leading(t, cfg.Endpoint, moved.Pass)
		return Open[registry.Registry](t, construct, mine), func() registrytest.Spent {
			spent := registrytest.Spent{Bytes: moved.Bytes.Load(), Requests: moved.Trips.Load()}
			if alone {
				spent.CPU, spent.Server = cpu(t, os.Getpid()), cpu(t, server.PID())
			}
			return spent
		}
	}
}

func cpu(t testing.TB, pid int) time.Duration {
	t.Helper()
	used, err := process.CPU(pid)
	expect.NoError(t, err)
	return used
}

// losing leads connections to the one server of the endpoint. The n-th answer that it sends after lose was called is lost with its
// connection; what it sends more before it is asked again is of the same answer.
func losing(t testing.TB, endpoint string) (through string, lose func(n int) (lost func() bool)) {
	t.Helper()
	var left atomic.Int64
	through = leading(t, endpoint, func(client, upstream net.Conn) {
		var asked atomic.Bool // since the server sent something last
		go func() {
			defer upstream.Close()
			_, _ = io.Copy(upstream, io.TeeReader(client, network.Tell(func(int) { asked.Store(true) })))
		}()
		for some := make([]byte, 64<<10); ; {
			n, err := upstream.Read(some)
			if err != nil || asked.Swap(false) && left.Add(-1) == 0 {
				return
			}
			if _, err := client.Write(some[:n]); err != nil {
				return
			}
		}
	})
	return through, func(n int) func() bool {
		left.Store(int64(n))
		return func() bool { return left.Load() <= 0 }
	}
}

// Leading passes each connection on to the address that to returns.
func Leading(t testing.TB, to func() string) (address string) {
	t.Helper()
	return Accepting(t, "127.0.0.1", func(client net.Conn) {
		upstream, err := net.Dial("tcp", to()) //nolint:noctx // it is on this machine
		if err != nil {
			return
		}
		defer upstream.Close()
		new(network.Traffic).Pass(client, upstream)
	})
}

// leading has each connection to the one server of the endpoint passed on.
func leading(t testing.TB, endpoint string, pass func(client, upstream net.Conn)) (through string) {
	t.Helper()
	through, err := network.Lead(whole(t), endpoint, pass)
	expect.NoError(t, err)
	return through
}

// elsewhere opens drivers with the same options at other endpoints, and with no credentials.
func elsewhere(construct registry.Constructor, cfg registry.Config) func(t testing.TB, endpoint string) registry.Registry {
	return func(t testing.TB, endpoint string) registry.Registry {
		t.Helper()
		return Open[registry.Registry](t, construct, registry.Config{Endpoint: endpoint, Options: cfg.Options})
	}
}

// HTTPHarness is [Harness] for a registry that speaks HTTP, with servers that refuse everything with a status, or fail with
// another.
func HTTPHarness(construct registry.Constructor, cfg registry.Config, refuses, fails int) registrytest.Harness {
	h, elsewhere := Harness(construct, cfg, "http://"), elsewhere(construct, cfg)
	h.Refusing = func(t testing.TB) registry.Registry { return elsewhere(t, Answering(t, refuses, nil, "")) }
	h.LoginPage = func(t testing.TB) registry.Registry {
		html := map[string]string{"Content-Type": "text/html; charset=utf-8"}
		return elsewhere(t, Answering(t, http.StatusOK, html, "<!DOCTYPE html><title>Log in</title>"))
	}
	h.Failing = func(t testing.TB) (registry.Registry, func() int) {
		var attempts atomic.Int64
		endpoint := Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			attempts.Add(1)
			w.WriteHeader(fails)
		})
		return elsewhere(t, endpoint), func() int { return int(attempts.Load()) }
	}
	return h
}
