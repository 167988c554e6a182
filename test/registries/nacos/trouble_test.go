package nacos_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

// only32 leads to a server of version 3.1 by what 3.2 serves. That has lost v1 and v2, but for what clients of version 2 need over
// HTTP (alibaba/nacos#14050). Before what is left of naming's v1 there is still the filter that knows no other paths (DistroFilter).
func only32(t *testing.T, s *nacos.Server) http.HandlerFunc {
	t.Helper()
	server := drivertest.Through(t, s.Endpoint)
	server.Transport = &http.Transport{DisableKeepAlives: true} // the server is restarted
	server.ModifyResponse = whole
	return func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/nacos")
		switch {
		case strings.HasPrefix(path, "/v3/"), path == "/v1/auth/users/login", path == "/v1/ns/operator/metrics":
			server.ServeHTTP(w, r)
		case strings.HasPrefix(path, "/v1/ns/"):
			page(w, r, http.StatusNotImplemented, "no such api:"+r.Method+":"+r.URL.Path)
		default:
			page(w, r, http.StatusNotFound, "No message available")
		}
	}
}

// whole has a proxy send an answer in one piece, not one chunk after the other: half an answer is an acknowledgement, and a test that loses
// answers must lose all of it.
func whole(answer *http.Response) error {
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	_ = answer.Body.Close()
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// page is what the framework of the server answers.
func page(w http.ResponseWriter, r *http.Request, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"timestamp": time.Now(), "status": status, "error": http.StatusText(status), "message": message, "path": r.URL.Path,
	})
}

// A user that the server does not know, or does not let, gets the field to correct.
func TestWrongUserIsNamed(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{}, func(s *scenario) {
		const other = "Other-2"
		user := "user-" + s.service
		s.ask(http.MethodPost, userPath(s), url.Values{"username": {user}, "password": {other}})
		for name, tc := range map[string]struct {
			reason, user, password, field string
		}{
			"wrong password": {"the file is wrong", nacos.Admin, wrong, "auth.passwordFile"},
			"unknown user":   {"servers tell it apart from a wrong password at best by their words", "nobody", other, "auth.passwordFile"},
			"no user":        {"the server wants one", "", "", "auth.username"},
			"no role":        {"the password is right", user, other, "auth.username"},
		} {
			cfg := config(s, s.server.Endpoint, tc.password, driver.Options{})
			cfg.Auth.Username = tc.user
			d := open(s, cfg)
			for _, what := range []call{d.Register, d.FailOver, d.Deregister, d.Probe} {
				drivertest.Refused(s, name+": "+tc.reason, what(s.Context(), s.pod(1)), tc.field, "")
			}
		}
	})
}

func userPath(s *scenario) string {
	if s.version() == nacos.V2 {
		return "/v1/auth/users"
	}
	return "/v3/auth/user"
}

// The permission that the documents ask for suffices.
func TestRoleForTheNamespaceSuffices(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{Namespace: "ns-of-role"}, func(s *scenario) {
		const other = "Other-2"
		user := "user-" + s.service
		expect.NoError(s, s.server.AddUser(s.Context(), user, other, "ns-of-role"))
		cfg := config(s, s.server.Endpoint, other, s.opts)
		cfg.Auth.Username = user
		d := open(s, cfg)
		s.eventually(func() error { return d.Register(s.Context(), s.pod(1)) })
		s.do(d.Probe, s.pod(1))
		s.do(d.FailOver, s.pod(1))
		s.expectEntries(registry.Entry{Instance: s.pod(1), State: registry.OutOfService})
		if _, err := d.List(s.Context(), "test"); err != nil {
			s.Error(err)
		}
		s.do(d.Deregister, s.pod(1))
		outside := config(s, s.server.Endpoint, other, driver.Options{Namespace: "ns-of-others"})
		outside.Auth.Username = user
		expect.Code(s, registry.CodeTerminal, open(s, outside).Register(s.Context(), s.pod(1)), "in another namespace")
	})
}

// A cluster is upgraded while Rollcall runs, and sometimes back.
func TestServerIsUpgradedWhileRunning(t *testing.T) {
	t.Parallel()
	older := newScenario(t, shared2.Use(t), driver.Options{})
	newer := newScenario(t, shared3.Use(t), driver.Options{})
	newer.service = older.service
	var states atomic.Int64 // how often it was asked which API there is
	var behind atomic.Value
	d := open(t, config(t, drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/state") {
			states.Add(1)
		}
		behind.Load().(http.HandlerFunc)(w, r)
	}), password, driver.Options{}))
	a := older.pod(1)
	for _, newest := range []http.HandlerFunc{drivertest.Through(t, newer.server.Endpoint).ServeHTTP, only32(t, newer.server)} {
		for _, s := range []*scenario{older, newer} {
			behind.Store(newest)
			if s == older {
				behind.Store(http.HandlerFunc(drivertest.Through(t, older.server.Endpoint).ServeHTTP))
			}
			// The token is not good there: the two are not one cluster, and yet have one secret.
			s.do(d.Register, a)
			s.expectClients(map[string]bool{a.Endpoint(): true})
			s.do(d.FailOver, a)
			s.expectClients(map[string]bool{})
			s.do(d.Register, a)
			s.expectClients(map[string]bool{a.Endpoint(): true})
			s.do(d.Deregister, a)
			s.expectClients(map[string]bool{})
		}
	}
	before := states.Load()
	newer.do(d.Register, a)
	newer.do(d.Deregister, a)
	if n := states.Load() - before; n != 0 {
		t.Errorf("it was asked %d times which API the server has, and that is known", n)
	}
}
