package memory_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

func newRegistry(t *testing.T) *memory.Registry {
	t.Helper()
	r, err := memory.New(t.Context(), registry.Config{Cluster: "test", Options: json.RawMessage(`{}`)})
	expect.NoError(t, err)
	return r.(*memory.Registry)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	store := newRegistry(t)
	registrytest.Run(t, registrytest.Harness{Open: func(testing.TB, string) registry.Registry { return store }})
}

// TestNewRefusesWhatItHasNoUseFor since who writes it means another driver: there is no server here.
func TestNewRefusesWhatItHasNoUseFor(t *testing.T) {
	t.Parallel()
	for field, cfg := range map[string]registry.Config{
		"endpoint":          {Endpoint: "https://registry.example.com"},
		"tls.caFile":        {TLS: registry.TLS{CAFile: "/etc/ca.crt"}},
		"tls.certFile":      {TLS: registry.TLS{CertFile: "/etc/tls.crt"}},
		"tls.keyFile":       {TLS: registry.TLS{KeyFile: "/etc/tls.key"}},
		"auth.username":     {Auth: registry.Auth{Username: "me"}},
		"auth.passwordFile": {Auth: registry.Auth{PasswordFile: "/etc/password"}},
		"auth.tokenFile":    {Auth: registry.Auth{TokenFile: "/etc/token"}},
		"options":           {Options: json.RawMessage(`{"datacenter":"dc1"}`)},
	} {
		_, err := memory.New(t.Context(), cfg)
		says := cmp.Or(map[string]string{"options": "datacenter", "endpoint": "127.0.0.1:8090, or remove it"}[field], "remove it")
		if named, _ := registry.FieldOf(err); named != field || !strings.Contains(err.Error(), says) {
			t.Errorf("New: got error %v of field %q, want one of field %s with %q", err, named, field, says)
		}
	}
}

// populated holds one instance in each of two clusters and services, and one that is out of service.
func populated(t *testing.T) *memory.Registry {
	t.Helper()
	r := newRegistry(t)
	for i, in := range []registry.Instance{
		{Service: "web", Address: "10.0.0.2", Cluster: "a"},
		{Service: "web", Address: "10.0.0.1", Cluster: "b"},
		{Service: "db", Address: "10.0.0.3", Cluster: "a"},
	} {
		in.Port, in.Namespace, in.Pod, in.UID = 80, "shop", fmt.Sprintf("pod-%d", i), fmt.Sprintf("uid-%d", i)
		expect.NoError(t, r.Register(t.Context(), in))
		if in.Service == "db" {
			expect.NoError(t, r.FailOver(t.Context(), in))
		}
	}
	return r
}

func TestTheViewLists(t *testing.T) {
	t.Parallel()
	r := populated(t)
	type row struct {
		reason string
		query  string
		want   []string
	}
	expect.Each(t, map[string]row{
		"all":            {"a newcomer asks with nothing", "", []string{"db@10.0.0.3 OutOfService", "web@10.0.0.1 InService", "web@10.0.0.2 InService"}},
		"cluster":        {"one cluster's alone", "?cluster=a", []string{"db@10.0.0.3 OutOfService", "web@10.0.0.2 InService"}},
		"service":        {"one service's alone", "?service=web", []string{"web@10.0.0.1 InService", "web@10.0.0.2 InService"}},
		"both":           {"filters narrow together", "?service=web&cluster=b", []string{"web@10.0.0.1 InService"}},
		"unknown":        {"nothing is a list too", "?service=nope", nil},
		"empty cluster":  {"a filter that is given counts, though it is empty", "?cluster=", nil},
		"unknown filter": {"what is not known is ignored", "?color=red&service=db", []string{"db@10.0.0.3 OutOfService"}},
	}, func(t *testing.T, tc row) {
		answer := ask(t, r, http.MethodGet, "/v1/instances"+tc.query)
		if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/json" {
			t.Errorf("got %d %s, want 200 in JSON", answer.Code, answer.Header().Get("Content-Type"))
		}
		var got struct {
			Instances []registry.Entry `json:"instances"`
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", answer.Body, err)
		}
		if got.Instances == nil {
			t.Errorf("%s: instances is null, want a list", answer.Body)
		}
		var names []string
		for _, e := range got.Instances {
			names = append(names, fmt.Sprintf("%s@%s %s", e.Service, e.Address, e.State))
		}
		expect.Equal(t, tc.want, names, "instances: %s", tc.reason)
	})
}

func TestTheViewChangesNothing(t *testing.T) {
	t.Parallel()
	r := populated(t)
	before := ask(t, r, http.MethodGet, "/v1/instances").Body.String()
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
		answer := ask(t, r, method, "/v1/instances?service=web")
		if answer.Code != http.StatusMethodNotAllowed || answer.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: got %d, Allow %q; want 405 and GET, HEAD", method, answer.Code, answer.Header().Get("Allow"))
		}
	}
	for _, path := range []string{"/", "/v1/register", "/v1/deregister", "/v1/instances/web"} {
		answer := ask(t, r, http.MethodPost, path)
		if answer.Code != http.StatusNotFound || !strings.Contains(answer.Body.String(), "/v1/instances") {
			t.Errorf("%s: got %d %s, want 404 that says where to go", path, answer.Code, answer.Body)
		}
	}
	if after := ask(t, r, http.MethodGet, "/v1/instances").Body.String(); after != before {
		t.Errorf("the registry changed:\n%s\nwas\n%s", after, before)
	}
}

// TestTheEndpointServesTheEntries: the one that is opened in place of another waits for its address.
func TestTheEndpointServesTheEntries(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	expect.NoError(t, err)
	address := taken.Addr().String()
	refused := make(chan struct{})
	logged := logs(func(line string) {
		if strings.Contains(line, "can't be served") {
			close(refused)
		}
	})
	made, err := memory.New(t.Context(), registry.Config{Endpoint: address, Logger: slog.New(slog.NewTextHandler(logged, nil))})
	expect.NoError(t, err)
	<-refused // logged once
	r := made.(*memory.Registry)
	expect.NoError(t, r.Register(t.Context(), registry.Instance{Service: "web", Address: "10.0.0.1", Port: 80}))
	expect.NoError(t, taken.Close())
	server := registries.NewClient("http://" + address)
	read := func() (string, error) {
		body, err := server.Do(t.Context(), http.MethodGet, "/v1/instances", nil)
		return string(body), err
	}
	expect.Soon(t, "the entries", func() error {
		if body, err := read(); err != nil || !strings.Contains(body, `"address": "10.0.0.1"`) {
			return fmt.Errorf("got %q, %w", body, err)
		}
		return nil
	})
	expect.NoError(t, r.Close())
	if body, err := read(); err == nil {
		t.Errorf("after it was closed it answers %q", body)
	}
}

// logs is called with each line.
type logs func(line string)

func (l logs) Write(line []byte) (int, error) {
	l(string(line))
	return len(line), nil
}

func ask(t *testing.T, h http.Handler, method, url string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, url, nil))
	return answer
}
