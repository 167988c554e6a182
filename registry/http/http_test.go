package httpregistry_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/registry/http/httpserver"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

// bound is generous: what is waited for comes at once.
const bound = 30 * time.Second

func web(n int) registry.Instance {
	return registry.Instance{
		Service: "web", Address: fmt.Sprintf("10.0.0.%d", n), Port: 80,
		Cluster: "test", Namespace: "shop", Pod: fmt.Sprintf("web-%d", n), UID: fmt.Sprintf("uid-%d", n),
	}
}

func serve(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server
}

func open(t *testing.T, cfg registry.Config) *httpregistry.Registry {
	t.Helper()
	d, err := httpregistry.New(t.Context(), cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	driver := d.(*httpregistry.Registry)
	t.Cleanup(func() { _ = driver.Close() })
	return driver
}

// answering makes a driver whose server gives one answer to everything.
func answering(t *testing.T, status int, header map[string]string, body string) *httpregistry.Registry {
	t.Helper()
	return open(t, registry.Config{Endpoint: serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})).URL})
}

func TestStatusDecides(t *testing.T) {
	t.Parallel()
	retryable := map[int]bool{408: true, 409: true, 425: true, 429: true}
	for status := 200; status <= 599; status++ {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			err := answering(t, status, nil, "").Register(t.Context(), web(1))
			switch {
			case status <= 299:
				if err != nil {
					t.Errorf("got error %v, want the acknowledgement", err)
				}
			case err == nil || !strings.Contains(err.Error(), strconv.Itoa(status)):
				t.Errorf("got error %v, want one that says %d", err, status)
			case registry.IsTerminal(err) != (status <= 499 && !retryable[status]):
				t.Errorf("got an error that is terminal: %t: %v", registry.IsTerminal(err), err)
			}
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	date := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
	for name, tc := range map[string]struct {
		reason   string
		status   int
		header   string
		min, max time.Duration
		said     bool
	}{
		"seconds":            {"the usual form", 429, "7", 7 * time.Second, 7 * time.Second, true},
		"zero":               {"at once is said, too", 503, "0", 0, 0, true},
		"date":               {"the other form", 503, date(30 * time.Minute), time.Minute, 30 * time.Minute, true},
		"date that passed":   {"clocks differ", 503, date(-time.Hour), 0, 0, false},
		"a year":             {"a slip of the pen must not strand a pod", 503, "31536000", time.Hour, time.Hour, true},
		"a date in a year":   {"a slip of the pen must not strand a pod", 503, date(365 * 24 * time.Hour), time.Hour, time.Hour, true},
		"too large a number": {"it is no number of seconds", 503, "99999999999999999999", 0, 0, false},
		"below zero":         {"it is no number of seconds", 503, "-1", 0, 0, false},
		"words":              {"they are neither form", 503, "soon", 0, 0, false},
		"none":               {"nothing was said", 503, "", 0, 0, false},
		"terminal":           {"trying again is of no use, whenever", 403, "7", 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			header := map[string]string{}
			if tc.header != "" {
				header["Retry-After"] = tc.header
			}
			err := answering(t, tc.status, header, "").Deregister(t.Context(), web(1))
			after, said := registry.RetryAfterOf(err)
			if said != tc.said || after < tc.min || after > tc.max {
				t.Errorf("got %s, %t; want %s to %s, %t\nreason: %s", after, said, tc.min, tc.max, tc.said, tc.reason)
			}
		})
	}
}

func TestTheServersWordsAreTold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		body   string
		want   string // what follows the status
	}{
		"documented form": {"it is there for this", `{"error":"service web is frozen","code":7}`, ": service web is frozen"},
		"other JSON":      {"better than nothing", `{"message":"frozen"}`, `: {"message":"frozen"}`},
		"text":            {"a proxy on the way answers so", "upstream down\n", ": upstream down"},
		"nothing":         {"the status alone must do", "", ""},
		"lines":           {"a log line is one line", "a\r\nb\x1b[31m\tc", ": a b [31m c"},
		"not UTF-8":       {"an event must be", "\xff\xfe!", ": ?!"},
		"long":            {"an event is short", strings.Repeat("x", 100_000), ": " + strings.Repeat("x", 300) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := answering(t, 422, nil, tc.body).FailOver(t.Context(), web(1))
			want := "failing over web at 10.0.0.1:80: the registry answered 422 Unprocessable Entity" + tc.want
			if err == nil || err.Error() != want {
				t.Errorf("got %v\nwant %s\nreason: %s", err, want, tc.reason)
			}
		})
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var reached atomic.Int64
	elsewhere := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	for _, status := range []int{301, 302, 303, 307, 308} {
		d := answering(t, status, map[string]string{"Location": elsewhere.URL + "/v1/register"}, "")
		err := d.Register(t.Context(), web(1))
		if !registry.IsTerminal(err) || !strings.Contains(err.Error(), "redirects are not followed") ||
			!strings.Contains(err.Error(), elsewhere.URL) {
			t.Errorf("%d: got error %v, want a terminal one that says so and names the location", status, err)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("the redirect's target got %d requests, want none", n)
	}
}

func TestRequestsAreAsDocumented(t *testing.T) {
	t.Parallel()
	type request struct{ Method, URL, Auth, Type, Body string }
	var mu sync.Mutex
	var got []request
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, request{
			r.Method, r.URL.String(), r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body),
		})
		_, _ = io.WriteString(w, `{"instances":[]}`)
	}))
	in := web(1)
	in.Weight, in.Zone, in.Metadata = 7, "a", map[string]string{"version": "v1"}
	for _, base := range []string{"", "/", "/base", "/base/", "/a%2Fb"} {
		d := open(t, registry.Config{
			Endpoint: server.URL + base, Auth: registry.Auth{TokenFile: writeFile(t, "token", "\t"+goodToken+"\n")},
		})
		if err := errors.Join(
			d.Register(t.Context(), in), d.FailOver(t.Context(), in), d.Deregister(t.Context(), in),
		); err != nil {
			t.Fatal(err)
		}
		if _, err := d.List(t.Context(), "a&b c"); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Get(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		const body = `{"service":"web","address":"10.0.0.1","port":80,` +
			`"cluster":"test","namespace":"shop","pod":"web-1","uid":"uid-1",` +
			`"weight":7,"zone":"a","metadata":{"version":"v1"}}`
		at := strings.TrimSuffix(base, "/")
		want := []request{
			{"POST", at + "/v1/register", "Bearer " + goodToken, "application/json", body},
			{"POST", at + "/v1/fail-over", "Bearer " + goodToken, "application/json", body},
			{"POST", at + "/v1/deregister", "Bearer " + goodToken, "application/json", body},
			{"GET", at + "/v1/instances?cluster=a%26b+c", "Bearer " + goodToken, "", ""},
			{"GET", at + "/v1/instances?address=10.0.0.1&cluster=test&port=80&service=web", "Bearer " + goodToken, "", ""},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("requests with base %q, -want +got:\n%s", base, diff)
		}
		got = nil
	}
}

func TestAnInstanceThatIsNotWholeIsNotSent(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	d := open(t, registry.Config{Endpoint: server.URL})
	for name, spoil := range map[string]func(*registry.Instance){
		"service":   func(in *registry.Instance) { in.Service = "" },
		"address":   func(in *registry.Instance) { in.Address = "" },
		"port":      func(in *registry.Instance) { in.Port = 65536 },
		"cluster":   func(in *registry.Instance) { in.Cluster = "" },
		"namespace": func(in *registry.Instance) { in.Namespace = "" },
		"pod":       func(in *registry.Instance) { in.Pod = "" },
		"uid":       func(in *registry.Instance) { in.UID = "" },
		"weight":    func(in *registry.Instance) { in.Weight = 10001 },
	} {
		in := web(1)
		spoil(&in)
		if err := d.Deregister(t.Context(), in); !registry.IsTerminal(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got error %v, want a terminal one that names it", name, err)
		}
	}
	if _, err := d.List(t.Context(), ""); !registry.IsTerminal(err) {
		t.Errorf("List of no cluster: got error %v, want a terminal one", err)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server got %d requests, want none", n)
	}
}

// TestFilesAreReadOnce has the token's file replaced: whoever watches it makes a new driver, and the old one goes on as it
// was made.
func TestFilesAreReadOnce(t *testing.T) {
	t.Parallel()
	var want atomic.Value
	want.Store("first")
	server := serve(t, httpserver.New(newMemory(t), httpserver.Options{
		Authorize: func(token string) bool { return token == want.Load() },
	}))
	path := writeFile(t, "token", "first")
	cfg := registry.Config{Endpoint: server.URL, Auth: registry.Auth{TokenFile: path}}
	old := open(t, cfg)
	if err := os.WriteFile(path, []byte("second\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := old.Register(t.Context(), web(1)); err != nil {
		t.Errorf("the old driver, before the server has changed: %v", err)
	}
	want.Store("second")
	if err := old.Register(t.Context(), web(1)); !registry.IsTerminal(err) {
		t.Errorf("the old driver, with a token that is no longer good: got error %v, want a terminal one", err)
	}
	if err := open(t, cfg).Register(t.Context(), web(1)); err != nil {
		t.Errorf("the new driver: %v", err)
	}
}

func TestCredentialsThatAreNotGoodAreNamed(t *testing.T) {
	t.Parallel()
	token := registry.Auth{TokenFile: writeFile(t, "token", wrongToken)}
	password := registry.Auth{Username: "me", PasswordFile: writeFile(t, "password", wrongPassword)}
	for name, tc := range map[string]struct {
		reason string
		auth   registry.Auth
		status int
		field  string
	}{
		"token, 401":    {"the server does not know it", token, 401, "auth.tokenFile"},
		"token, 403":    {"it may not do that", token, 403, "auth.tokenFile"},
		"password, 401": {"the server does not know it", password, 401, "auth.passwordFile"},
		"password, 403": {"it may not do that", password, 403, "auth.passwordFile"},
		"none, 401":     {"it must be said that some are needed", registry.Auth{}, 401, "auth"},
		"token, 422":    {"it has nothing to do with the token", token, 422, ""},
		"token, 407":    {"a proxy asks for its own", token, 407, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) }))
			err := open(t, registry.Config{Endpoint: server.URL, Auth: tc.auth}).Register(t.Context(), web(1))
			if field, _ := registry.FieldOf(err); !registry.IsTerminal(err) || field != tc.field {
				t.Errorf("got error %v of field %q, want a terminal one of %q\nreason: %s", err, field, tc.field, tc.reason)
			}
		})
	}
}

func TestSecretsAreNeverTold(t *testing.T) {
	t.Parallel()
	echo := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status := http.StatusForbidden
		if r.URL.Path == "/v1/register" {
			status = http.StatusFound
		}
		_, password, _ := r.BasicAuth()
		said := r.Header.Get("Authorization") + " " + password
		w.Header().Set("Location", "/login?from="+said)
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "not good: " + said})
	}))
	for name, tc := range map[string]struct {
		auth    registry.Auth
		secrets []string
		mask    string
	}{
		"token": {
			registry.Auth{TokenFile: writeFile(t, "token", goodToken)}, []string{goodToken}, "[token]",
		},
		"password": {
			registry.Auth{Username: "me", PasswordFile: writeFile(t, "password", goodPassword)},
			[]string{goodPassword, base64.StdEncoding.EncodeToString([]byte("me:" + goodPassword))}, "[password]",
		},
	} {
		d := open(t, registry.Config{Endpoint: echo.URL, Auth: tc.auth})
		_, listErr := d.List(t.Context(), "test")
		for _, err := range []error{d.Register(t.Context(), web(1)), d.FailOver(t.Context(), web(1)), listErr} {
			if err == nil || !strings.Contains(err.Error(), tc.mask) {
				t.Errorf("%s: got error %v, want one with %s in its place", name, err, tc.mask)
			}
			for _, secret := range tc.secrets {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the error tells it: %v", name, err)
				}
			}
		}
	}
}

func TestAServerThatFailsIsLeft(t *testing.T) {
	t.Parallel()
	var down, reached [3]atomic.Int64 // down: the status to answer with
	var endpoints []string
	for i := range down {
		endpoints = append(endpoints, serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			reached[i].Add(1)
			if status := down[i].Load(); status != 0 {
				w.WriteHeader(int(status))
			}
		})).URL)
	}
	gone := "http://" + registrytest.UnusedAddress(t)
	silent := "http://" + registrytest.SilentAddress(t)
	d := open(t, registry.Config{Endpoint: strings.Join([]string{endpoints[0], gone, silent, endpoints[1], endpoints[2]}, ", ")})
	within := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return d.Register(ctx, web(1))
	}
	call := func() error { return within(bound) }
	expect := func(when string, err error, ok bool, want ...int64) {
		t.Helper()
		got := []int64{reached[0].Load(), reached[1].Load(), reached[2].Load()}
		if (err == nil) != ok || !slices.Equal(got, want) {
			t.Errorf("%s: got error %v after %v requests, want success: %t after %v", when, err, got, ok, want)
		}
	}
	expect("the first server works", call(), true, 1, 0, 0)
	expect("and is used on", call(), true, 2, 0, 0)
	down[0].Store(http.StatusTooManyRequests)
	expect("a server that is busy is not left", call(), false, 3, 0, 0)
	down[0].Store(http.StatusServiceUnavailable)
	expect("a call that failed is not made again", call(), false, 4, 0, 0)
	expect("nobody listens at the second", call(), false, 4, 0, 0)
	expect("the third never answers", within(50*time.Millisecond), false, 4, 0, 0)
	expect("the fourth works", call(), true, 4, 1, 0)

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	expect("a caller that has gone says nothing of the server", d.Register(cancelled, web(1)), false, 4, 1, 0)
	expect("so it is used on", call(), true, 4, 2, 0)
	down[1].Store(http.StatusBadGateway)
	expect("a gateway without a server is left", call(), false, 4, 3, 0)
	expect("the last works", call(), true, 4, 3, 1)
	down[0].Store(0)
	down[2].Store(http.StatusInternalServerError)
	expect("the last fails", call(), false, 4, 3, 2)
	expect("and the first comes round again", call(), true, 5, 3, 2)
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	authority, stranger := newAuthority(t), newAuthority(t)
	client, otherClient := issue(t, authority, "client"), issue(t, stranger, "stranger")
	trusted := registry.TLS{CAFile: authority.CertFile}
	with := func(pair pki.KeyPair) registry.TLS {
		return registry.TLS{CAFile: authority.CertFile, CertFile: pair.CertFile, KeyFile: pair.KeyFile}
	}
	for name, tc := range map[string]struct {
		reason string
		tls    registry.TLS
		spoil  func(*tls.Config)
		host   string // in place of 127.0.0.1
		field  string // of the terminal error; "": success
	}{
		"right":          {reason: "the plain case", tls: with(client)},
		"no certificate": {reason: "the server asks for one", tls: trusted, field: "tls.certFile"},
		"of a stranger":  {reason: "the server does not know the authority", tls: with(otherClient), field: "tls.certFile"},
		"untrusted server": {
			reason: "somebody else may answer there", field: "tls.caFile",
			tls: registry.TLS{CAFile: stranger.CertFile, CertFile: client.CertFile, KeyFile: client.KeyFile},
		},
		"another name": {
			reason: "somebody else may answer there", tls: with(client), host: "127.0.0.2", field: "endpoint",
		},
		"TLS 1.2": {
			reason: "older servers have it", tls: with(client),
			spoil: func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverConfig := serverTLS(t, authority)
			serverConfig.ClientAuth, serverConfig.ClientCAs = tls.RequireAndVerifyClientCert, serverConfig.RootCAs
			if tc.spoil != nil {
				tc.spoil(serverConfig)
			}
			server := httptest.NewUnstartedServer(httpserver.New(newMemory(t), httpserver.Options{}))
			if tc.host != "" {
				listener, err := net.Listen("tcp", net.JoinHostPort(tc.host, "0"))
				if err != nil {
					t.Fatalf("listening on another loopback address: %v", err)
				}
				_ = server.Listener.Close()
				server.Listener = listener
			}
			server.TLS = serverConfig
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports every handshake that fails
			server.StartTLS()
			t.Cleanup(server.Close)
			d := open(t, registry.Config{Endpoint: server.URL, TLS: tc.tls})

			err := registerUntilSaid(t, d)
			if tc.field == "" {
				if err != nil {
					t.Errorf("got error %v, want success\nreason: %s", err, tc.reason)
				}
				return
			}
			if field, _ := registry.FieldOf(err); !registry.IsTerminal(err) || field != tc.field {
				t.Errorf("got error %v of field %q, want a terminal one of %q\nreason: %s", err, field, tc.field, tc.reason)
			}
		})
	}
}

// registerUntilSaid registers until the answer is not that of a connection which broke: with TLS 1.3 a server refuses a
// certificate when the request is on its way already, and what it says of it can be lost.
func registerUntilSaid(t *testing.T, d *httpregistry.Registry) error {
	t.Helper()
	for deadline := time.Now().Add(bound); ; {
		err := d.Register(t.Context(), web(1))
		if err == nil || registry.IsTerminal(err) || time.Now().After(deadline) {
			return err
		}
	}
}

func TestListIsAllOrNothing(t *testing.T) {
	t.Parallel()
	entry := func(cluster, state string) string {
		return `{"service":"web","address":"10.0.0.1","port":80,"cluster":"` + cluster + `","state":"` + state + `"}`
	}
	for name, tc := range map[string]struct {
		reason string
		body   string
		header map[string]string
		want   int
		says   string // "": no error
	}{
		"some":            {reason: "the plain case", body: `{"instances":[` + entry("test", "InService") + `]}`, want: 1},
		"none":            {reason: "nothing is an answer", body: `{"instances":[]}`, want: 0},
		"unknown fields":  {reason: "a later version may have more", body: `{"instances":[],"next":null}`, want: 0},
		"other cluster's": {reason: "a server may ignore the filter", body: `{"instances":[` + entry("other", "UP") + `]}`, want: 0},
		"empty metadata": {
			reason: "it is nil rather than empty", want: 1,
			body: `{"instances":[` + strings.Replace(entry("test", "InService"), "{", `{"metadata":{},`, 1) + `]}`,
		},
		"strange state":  {reason: "it can't be told what it means", body: `{"instances":[` + entry("test", "UP") + `]}`, says: "state"},
		"no list":        {reason: "an answer by somebody else must not read as empty", body: `{"items":[]}`, says: "instances"},
		"null":           {reason: "it is no list", body: `{"instances":null}`, says: "instances"},
		"no JSON":        {reason: "a login page answers 200, too", body: `<html>`, says: "decoding"},
		"nothing at all": {reason: "it is no list", body: ``, says: "decoding"},
		"two answers":    {reason: "the second would be ignored", body: `{"instances":[]}{}`, says: "decoding"},
		"cut short": {
			reason: "a part is not the whole", body: `{"instances":[]}`, header: map[string]string{"Content-Length": "100"},
			says: "unexpected EOF",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := answering(t, 200, tc.header, tc.body).List(t.Context(), "test")
			if tc.says == "" {
				if err != nil || len(got) != tc.want || tc.want > 0 && got[0].Metadata != nil {
					t.Errorf("got %d entries, error %v; want %d\nreason: %s", len(got), err, tc.want, tc.reason)
				}
				return
			}
			if got != nil || err == nil || registry.IsTerminal(err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, error %v; want a retryable error with %q\nreason: %s", got, err, tc.says, tc.reason)
			}
		})
	}
}

// TestAServerThatKnowsNoNarrowing is of version 1.1 of the protocol or older: it lists the whole cluster.
func TestAServerThatKnowsNoNarrowing(t *testing.T) {
	t.Parallel()
	entry := func(n int, state registry.State) string {
		raw, err := json.Marshal(registry.Entry{Instance: web(n), State: state})
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	all := `{"instances":[` + entry(1, registry.InService) + "," + entry(2, registry.OutOfService) + `]}`
	d := answering(t, http.StatusOK, nil, all)
	next := web(1)
	next.UID = "another"
	for _, tc := range []struct {
		reason string
		in     registry.Instance
		want   registry.State
	}{
		{"it is among others", web(1), registry.InService},
		{"the first one is not it", web(2), registry.OutOfService},
		{"the others are not it", web(3), registry.Absent},
		{"the entry is another pod's", next, registry.Absent},
	} {
		if got, err := d.Get(t.Context(), tc.in); err != nil || got != tc.want {
			t.Errorf("Get of %s: got %q, %v; want %q\nreason: %s", tc.in.UID, got, err, tc.want, tc.reason)
		}
	}
	lost := answering(t, http.StatusNotFound, nil, `{"error":"no such list"}`)
	if got, err := lost.Get(t.Context(), web(1)); err == nil || got != "" {
		t.Errorf("Get: got %q, %v; want an error: that there is no list is not that there is no instance", got, err)
	}
}

func TestAListWithoutEndIsGivenUp(t *testing.T) {
	t.Parallel()
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"instances":[`)
		blank := []byte(strings.Repeat(" ", 1<<20))
		for {
			if _, err := w.Write(blank); err != nil {
				return
			}
		}
	}))
	_, err := open(t, registry.Config{Endpoint: server.URL}).List(t.Context(), "test")
	if err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("got error %v, want one that says the answer is too long", err)
	}
}

func TestABodyThatStallsDoesNotHoldTheCall(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 503} {
		server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(status)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}))
		d := open(t, registry.Config{Endpoint: server.URL})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, listErr := d.List(ctx, "test")
		for name, err := range map[string]error{"Register": d.Register(ctx, web(1)), "List": listErr} {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s of a %d whose body never ends: got error %v, want the deadline's", name, status, err)
			}
		}
		cancel()
	}
}

// TestConnectionsAreUsedAgain has 64 workers make calls at once, as the controller does.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	const workers, callsEach = 64, 10
	for name, answer := range map[string]struct {
		reason string
		status int
		body   string
	}{
		"with no body":            {"the documented acknowledgement", 204, ""},
		"with a body":             {"what is not read of it would cost the connection", 200, strings.Repeat("x", 20_000)},
		"with an error":           {"a registry in trouble has no use for new connections", 503, `{"error":"busy"}`},
		"with an error in a page": {"a registry in trouble has no use for new connections", 503, strings.Repeat("x", 20_000)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opened atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(answer.status)
				_, _ = io.WriteString(w, answer.body)
			}))
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			server.Start()
			t.Cleanup(server.Close)
			d := open(t, registry.Config{Endpoint: server.URL})
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			var all sync.WaitGroup
			for worker := range workers {
				all.Go(func() {
					for range callsEach {
						if err := d.Register(ctx, web(worker)); (err == nil) != (answer.status <= 299) {
							t.Errorf("worker %d: got error %v of status %d", worker, err, answer.status)
						}
					}
				})
			}
			all.Wait()
			// On a busy machine the transport gives one up now and then: its own writer was not heard of in time.
			if n := opened.Load(); n > 2*workers {
				t.Errorf("%d calls of %d workers opened %d connections, want about %d\nreason: %s",
					workers*callsEach, workers, n, workers, answer.reason)
			}
		})
	}
}

func TestAnUntrustedServerIsNotTold(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(server.Close)
	token := registry.Auth{TokenFile: writeFile(t, "token", goodToken)}
	err := open(t, registry.Config{Endpoint: server.URL, Auth: token}).Register(t.Context(), web(1))
	if field, _ := registry.FieldOf(err); field != "tls.caFile" || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got error %v of field %q, want one of tls.caFile about the certificate", err, field)
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the server got %d requests, want none", n)
	}
}

// TestALateRequestLands has a request arrive that its sender has given up: what a fake behind the server can do.
func TestALateRequestLands(t *testing.T) {
	t.Parallel()
	fake := registrytest.NewFake(newMemory(t))
	d := open(t, registry.Config{Endpoint: serve(t, httpserver.New(fake, httpserver.Options{})).URL})
	if err := d.Register(t.Context(), web(1)); err != nil {
		t.Fatal(err)
	}
	late := fake.LandLate(registrytest.Match{Op: registrytest.OpDeregister}, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := d.Deregister(ctx, web(1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got error %v, want the deadline's", err)
	}
	if got, err := d.List(t.Context(), "test"); err != nil || len(got) != 1 {
		t.Errorf("before it lands: got %v, %v; want the instance still there", got, err)
	}
	// The server learns a little later than the driver that nobody waits any more.
	waiting, stop := context.WithTimeout(t.Context(), bound)
	defer stop()
	answered := func(calls []registrytest.Call) bool { return len(calls) == 1 && !calls[0].Answered.IsZero() }
	if err := fake.Await(waiting, registrytest.Match{Op: registrytest.OpDeregister}, answered); err != nil {
		t.Fatal(err)
	}
	late.Release()
	if got, err := d.List(t.Context(), "test"); err != nil || len(got) != 0 {
		t.Errorf("after it landed: got %v, %v; want nothing", got, err)
	}
}

// A refusal whose end never comes is no refusal: what ended the call is its deadline.
func TestRefusalThatOutlastsTheDeadlineIsRetryable(t *testing.T) {
	t.Parallel()
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // until the driver gives up
	}))
	d := open(t, registry.Config{Endpoint: server.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := d.Register(ctx, web(1))
	if _, named := registry.FieldOf(err); !errors.Is(err, context.DeadlineExceeded) || registry.IsTerminal(err) || named {
		t.Errorf("got error %v, terminal: %t, names a field: %t; want that of the deadline and no other class",
			err, registry.IsTerminal(err), named)
	}
}
