package pod_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/pod"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const (
	token = "t0ken-of-all-pods"
	// options are Dubbo's, but for the names.
	options = `{"leave": {"path": "/offline"}, "join": {"path": "/online"}, "state": {"path": "/ls"}, "in": {"body": "\\(Y\\)"}, "out": {"body": "\\(N\\)"}}`
)

// TestMain fails where a goroutine is left when all tests are done. The environment has a proxy, which does not answer.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "", "no_proxy": ""} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// application is asked to leave and to join.
type application struct {
	testing.TB
	address string

	mu       sync.Mutex
	server   *httptest.Server
	out      bool
	answer   func(http.ResponseWriter, *http.Request) bool // it reports whether it has answered
	requests []string
}

// listen has it answer at an address.
func listen(t testing.TB, address string) *application {
	a := &application{TB: t, address: address}
	t.Cleanup(a.Deregister)
	return a
}

func (a *application) Register() {
	a.Helper()
	listener, err := (&net.ListenConfig{}).Listen(a.Context(), "tcp", a.address)
	expect.NoError(a, err)
	a.server = httptest.NewUnstartedServer(a)
	a.server.Listener.Close()
	a.server.Listener = listener
	a.server.Start()
}

func (*application) Renew() {}

func (a *application) Deregister() {
	if a.server != nil {
		a.server.Close()
	}
}

func (a *application) Look() (given bool, entry string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.out, "it runs"
}

func (a *application) port() string {
	_, port, _ := net.SplitHostPort(a.server.Listener.Addr().String())
	return port
}

func (a *application) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.requests = append(a.requests, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL, body)))
	if a.answer != nil && a.answer(w, r) {
		return
	}
	switch r.URL.Path {
	case "/offline":
		a.out = true
	case "/online":
		a.out = false
	case "/ls":
		_, _ = fmt.Fprintf(w, "|org.example.Shop|zookeeper-A(%s)|", map[bool]string{true: "N", false: "Y"}[a.out])
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (a *application) taken() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	taken := a.requests
	a.requests = nil
	return taken
}

func (a *application) answers(how func(http.ResponseWriter, *http.Request) bool) *application {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = how
	return a
}

// running is an application in service, at an address of this machine.
func running(t testing.TB) *application {
	a := listen(t, "127.0.0.1:0")
	a.Register()
	return a
}

func with(port string) registry.Config {
	return registry.Config{Cluster: "test", Endpoint: "http://{podIP}:" + port, Options: []byte(options)}
}

func open(t testing.TB, cfg registry.Config) *pod.Registry {
	t.Helper()
	t.Helper()
	return drivertest.Open[*pod.Registry](t, pod.New, cfg)
}

func instance() registry.Instance {
	return registry.Instance{Service: "shop", Address: "127.0.0.1", Port: 20880, Cluster: "test", Namespace: "shop", Pod: "shop-1", UID: "uid"}
}

// local has the addresses of the suite's pods on this machine.
type local struct {
	*pod.Registry

	address func(string) string
}

type localEntries struct {
	registry.AppRegistry

	local local
}

func (l local) AppEntries() registry.AppRegistry { return localEntries{l.Registry.AppEntries(), l} }

func (l localEntries) at(in registry.Instance) registry.Instance {
	in.Address = l.local.address(in.Address)
	return in
}

func (l localEntries) Register(ctx context.Context, in registry.Instance) error {
	return l.AppRegistry.Register(ctx, l.at(in))
}

func (l localEntries) FailOver(ctx context.Context, in registry.Instance) error {
	return l.AppRegistry.FailOver(ctx, l.at(in))
}

func (l localEntries) Deregister(ctx context.Context, in registry.Instance) error {
	return l.AppRegistry.Deregister(ctx, l.at(in))
}

func (l localEntries) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	return l.AppRegistry.Get(ctx, l.at(in))
}

func TestConformance(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("NOT TESTED: each pod has an address of 127.0.0.0/8, as only Linux allows")
	}
	loopback := func(address string) string { return "127" + strings.TrimPrefix(address, "10") }
	const host = "127.0.0.1"
	one := func(t testing.TB, cfg registry.Config) registry.Registry {
		return local{open(t, cfg), func(string) string { return host }}
	}
	at := func(address string) registry.Config {
		_, port, err := net.SplitHostPort(address)
		expect.NoError(t, err)
		return with(port)
	}
	_, port, err := net.SplitHostPort(registrytest.UnusedAddress(t))
	expect.NoError(t, err)
	secret := drivertest.File(t, token)
	registrytest.Run(t, registrytest.Harness{
		Open: func(t testing.TB, _ string) registry.Registry { return local{open(t, with(port)), loopback} },
		App: func(t testing.TB, at registry.Instance) registrytest.App {
			return listen(t, net.JoinHostPort(loopback(at.Address), port))
		},
		Unreachable: func(t testing.TB) registry.Registry { return one(t, at(registrytest.UnusedAddress(t))) },
		Stalled:     func(t testing.TB) registry.Registry { return one(t, at(registrytest.SilentAddress(t))) },
		Refusing: func(t testing.TB) registry.Registry {
			return one(t, with(running(t).answers(status(http.StatusNotFound)).port()))
		},
		WrongCredentials: func(t testing.TB) registry.Registry {
			cfg := with(running(t).answers(status(http.StatusForbidden)).port())
			cfg.Auth.TokenFile = secret
			return one(t, cfg)
		},
		Failing: func(t testing.TB) (registry.Registry, func() int) {
			a := running(t).answers(status(http.StatusServiceUnavailable))
			attempts := 0
			return one(t, with(a.port())), func() int { attempts += len(a.taken()); return attempts }
		},
		Secrets: []string{token},
	})
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true }
}

func TestRequests(t *testing.T) {
	t.Parallel()
	a := running(t)
	cfg := with(a.port())
	cfg.Options = []byte(`{"leave": {"path": "/offline?wait=1", "body": "{\"status\": \"OUT\"}"}, "join": {"path": "/online", "method": "GET"},
		"state": {"path": "/ls"}, "in": {"status": 200, "body": "Y"}, "out": {"body": "N"}}`)
	apps := open(t, cfg).AppEntries()
	for _, step := range []struct {
		reason string
		call   func(context.Context, registry.Instance) error
		want   []string
	}{
		{"it is in already", apps.Register, []string{"GET /ls"}},
		{"whether it has left is for its state to say", apps.FailOver, []string{"GET /ls", `POST /offline?wait=1 {"status": "OUT"}`, "GET /ls"}},
		{"it may only have tried", apps.Deregister, []string{"GET /ls", `POST /offline?wait=1 {"status": "OUT"}`, "GET /ls"}},
		{"some take only GET", apps.Register, []string{"GET /ls", "GET /online", "GET /ls"}},
	} {
		expect.NoError(t, step.call(t.Context(), instance()))
		expect.Equal(t, step.want, a.taken(), "requests: %s", step.reason)
	}
}

// TestResetOfAMesh: the proxy of a pod in a mesh resets a plain connection once it has read the request.
func TestResetOfAMesh(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(drivertest.Accepting(t, "127.0.0.1", func(conn net.Conn) {
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.(*net.TCPConn).SetLinger(0)
	}))
	expect.NoError(t, err)
	apps := open(t, with(port)).AppEntries()
	_, asked := apps.Get(t.Context(), instance())
	for doing, err := range map[string]error{
		"asking": asked, "joining": apps.Register(t.Context(), instance()), "leaving": apps.FailOver(t.Context(), instance()),
	} {
		drivertest.Passes(t, doing+": the error shows what to set in the mesh", err, "portLevelMtls")
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: got error %v, want that of the connection", doing, err)
		}
	}
}

// TestEachRequestHasAConnection: Dubbo closes it after each answer and does not say so, and what is sent then may be lost.
func TestEachRequestHasAConnection(t *testing.T) {
	t.Parallel()
	a := listen(t, "127.0.0.1:0")
	remote := map[string]bool{}
	a.answers(func(_ http.ResponseWriter, r *http.Request) bool { remote[r.RemoteAddr] = true; return false })
	a.Register()
	expect.NoError(t, open(t, with(a.port())).AppEntries().FailOver(t.Context(), instance()))
	if requests := len(a.taken()); len(remote) != requests {
		t.Errorf("%d requests came by %d connections", requests, len(remote))
	}
}

func TestAnswersThatAcknowledgeNothing(t *testing.T) {
	t.Parallel()
	state := func(r *http.Request) bool { return r.URL.Path == "/ls" }
	says := func(text string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if state(r) {
				_, _ = io.WriteString(w, text)
			}
			return state(r)
		}
	}
	type row struct {
		reason   string
		answer   func(http.ResponseWriter, *http.Request) bool
		join     bool
		want     string
		terminal bool
		waits    bool // for the application to register
	}
	expect.Each(t, map[string]row{
		"it stays in":        {reason: "clients are given it", answer: says("(Y)"), want: "its answer to options.state is still InService"},
		"a part stays in":    {reason: "clients are given that part", answer: says("A(Y) B(N)"), want: "still InService"},
		"it says neither":    {reason: "what is not known to be out may have clients", answer: says("starting"), want: `answered "starting", which matches neither`},
		"it has not started": {reason: "Rollcall waits for it", answer: says("starting"), join: true, want: `answered "starting"`, waits: true},
		"its registry refuses": {
			reason: "Spring says out as soon as it has tried", answer: func(w http.ResponseWriter, r *http.Request) bool {
				return says("(N)")(w, r) || status(http.StatusInternalServerError)(w, r)
			}, want: "500",
		},
		"it can't be asked": {
			reason: "nothing tells whether it is out", answer: func(w http.ResponseWriter, r *http.Request) bool {
				return !state(r) || status(http.StatusNotFound)(w, r)
			}, want: "options.state: http://127.0.0.1", terminal: true,
		},
		"it redirects": {
			reason: "a pod must not choose what Rollcall calls", answer: func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "http://169.254.169.254/latest", http.StatusTemporaryRedirect)
				return true
			}, want: "redirects are not followed", terminal: true,
		},
		"it refuses": {
			reason: "a person has to say who Rollcall is", answer: status(http.StatusUnauthorized), want: "auth: http://127.0.0.1", terminal: true,
		},
		"it says too much": {
			reason: "a pod must not fill Rollcall's memory", answer: says(strings.Repeat("Y", 2<<20)), want: "more than 1048576 bytes",
		},
	}, func(t *testing.T, tc row) {
		a := running(t).answers(tc.answer)
		apps := open(t, with(a.port())).AppEntries()
		call := apps.FailOver
		if tc.join {
			call = apps.Register
		}
		err := call(t.Context(), instance())
		expect.Error(t, tc.reason, err, tc.want)
		if (registry.CodeOf(err) == registry.CodeTerminal) != tc.terminal || (registry.CodeOf(err) == registry.CodeNotRegistered) != tc.waits {
			t.Errorf("got error %v, terminal: %t, not registered: %t\nreason: %s", err, registry.CodeOf(err) == registry.CodeTerminal, registry.CodeOf(err) == registry.CodeNotRegistered, tc.reason)
		}
		for _, request := range a.taken() {
			if strings.Contains(request, "latest") {
				t.Errorf("got the request %q", request)
			}
		}
	})
}

// TestSilentPodChangesNothing: the caller has not to wait for what can still be carried out.
func TestSilentPodChangesNothing(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(registrytest.SilentAddress(t))
	expect.NoError(t, err)
	ctx := drivertest.Within(t, time.Second)
	err = open(t, with(port)).AppEntries().FailOver(ctx, instance())
	if err == nil || ctx.Err() != nil || drivertest.MayLand(err) {
		t.Errorf("got error %v, and the call's context %v; want an error before that ends, of what changed nothing", err, ctx.Err())
	}
}

func TestWhatCanBeCalled(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"localhost", "metadata.internal", "127.0.0.1:80", "127.0.0.1@10.0.0.1", ""} {
		in := instance()
		in.Address = address
		expect.Code(t, registry.CodeTerminal, open(t, with("1")).AppEntries().FailOver(t.Context(), in), "at %q: a name would be looked up", address)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	file := drivertest.File(t, token+"\n")
	for header, want := range map[string]string{"": "Bearer " + token, "x-api-key": token} {
		var got []string
		a := running(t).answers(func(_ http.ResponseWriter, r *http.Request) bool {
			name := header
			if name == "" {
				name = "Authorization"
			}
			got = append(got, r.Header.Get(name))
			return false
		})
		cfg := with(a.port())
		cfg.Auth.TokenFile = file
		if header != "" {
			cfg.Options = []byte(strings.Replace(options, "{", `{"tokenHeader": "`+header+`", `, 1))
		}
		expect.NoError(t, open(t, cfg).AppEntries().FailOver(t.Context(), instance()))
		expect.Equal(t, slices.Repeat([]string{want}, len(a.taken())), got, "header %q", header)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	change := func(before, after string) string { return strings.Replace(options, before, after, 1) }
	type row struct {
		reason, endpoint, options, field string
	}
	expect.Each(t, map[string]row{
		"no pod's address":         {"it would be called for all pods", "http://10.0.0.1:22222", options, "endpoint"},
		"part of a name":           {"a name would be looked up", "http://{podIP}.example.com:22222", options, "endpoint"},
		"in the path":              {"the host would not be the pod", "http://example.com:80/{podIP}", options, "endpoint"},
		"a password":               {"it belongs into auth", "http://{podIP}@example.com:80", options, "endpoint"},
		"no port":                  {"the configuration says which are called", "http://{podIP}", options, "endpoint"},
		"a port that is none":      {"", "http://{podIP}:0", options, "endpoint"},
		"several":                  {"", "http://{podIP}:1,http://{podIP}:2", options, "endpoint"},
		"no request":               {"", "http://{podIP}:1", change(`"leave": {"path": "/offline"}, `, ""), "options.leave.path"},
		"an absolute URL":          {"a path could lead anywhere", "http://{podIP}:1", change("/online", "http://example.com/online"), "options.join.path"},
		"another host":             {"a path could lead anywhere", "http://{podIP}:1", change("/ls", "//example.com/ls"), "options.state.path"},
		"a state that changes":     {"it is asked all the time", "http://{podIP}:1", change(`"/ls"`, `"/ls", "method": "DELETE"`), "options.state.method"},
		"no answer":                {"every answer would do", "http://{podIP}:1", change(`{"body": "\\(N\\)"}`, "{}"), "options.out"},
		"a bad expression":         {"", "http://{podIP}:1", change(`\\(N\\)`, "("), "options.out.body"},
		"a body of a refusal":      {"it may be half of one", "http://{podIP}:1", change(`{"body"`, `{"status": 503, "body"`), "options.in.body"},
		"an unknown option":        {"", "http://{podIP}:1", change(`"path": "/ls"`, `"path": "/ls", "port": 1`), "options"},
		"a header without a token": {"", "http://{podIP}:1", change("{", `{"tokenHeader": "X-Token", `), "options.tokenHeader"},
		"a name without TLS":       {"", "http://{podIP}:1", change("{", `{"serverName": "shop", `), "options.serverName"},
	}, func(t *testing.T, tc row) {
		_, err := pod.New(t.Context(), registry.Config{Cluster: "test", Endpoint: tc.endpoint, Options: []byte(tc.options)})
		if field, _ := registry.FieldOf(err); field != tc.field {
			t.Errorf("got error %v of field %q, want %q\nreason: %s", err, field, tc.field, tc.reason)
		}
	})
}
