package consul_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const serviceAccount = "s3cret-of-the-service-account"

// guarded is a Consul that answers nobody without a token, and gives tokens by the auth method kubernetes. What Consul makes of a
// ServiceAccount's token is tested on a real one.
type guarded struct {
	lasts time.Duration // 0: forever

	mu      sync.Mutex
	good    []string // tokens
	logins  int
	refuses string // the answer to each login
	hangs   bool   // no login is answered
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	token := r.Header.Get("X-Consul-Token")
	switch {
	case r.URL.Path == "/v1/acl/login" && g.hangs:
		g.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body) // or nothing shows that the client has gone
		<-r.Context().Done()
		g.mu.Lock()
	case r.URL.Path == "/v1/acl/login":
		g.login(w, r)
	case !slices.Contains(g.good, token):
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "ACL not found: "+token)
	case r.URL.Path == "/v1/acl/logout":
		g.good = slices.DeleteFunc(g.good, func(t string) bool { return t == token })
	default:
		_, _ = io.WriteString(w, (&wire{}).answer(request{path: r.URL.Path}))
	}
}

func (g *guarded) login(w http.ResponseWriter, r *http.Request) {
	var by struct {
		AuthMethod  string `json:"AuthMethod"`  //nolint:tagliatelle // Consul's
		BearerToken string `json:"BearerToken"` //nolint:tagliatelle // Consul's
	}
	_ = json.NewDecoder(r.Body).Decode(&by)
	if g.refuses == "" && (by.AuthMethod != "kubernetes" || by.BearerToken != serviceAccount) {
		g.refuses = "Permission denied"
	}
	if g.refuses != "" {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, g.refuses+": "+by.BearerToken)
		return
	}
	g.logins++
	g.good = append(g.good, fmt.Sprintf("s3cret-token-%d", g.logins))
	answer := map[string]any{"SecretID": g.good[len(g.good)-1], "CreateTime": time.Unix(1, 0)}
	if g.lasts > 0 {
		answer["ExpirationTime"] = time.Unix(1, 0).Add(g.lasts)
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// forgets makes all tokens end.
func (g *guarded) forgets(refuses string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.good, g.refuses = nil, refuses
}

func (g *guarded) open(t *testing.T) *consul.Registry {
	t.Helper()
	return open(t, registry.Config{
		Cluster: "test", Endpoint: drivertest.Serve(t, g.ServeHTTP), Auth: registry.Auth{TokenFile: drivertest.File(t, serviceAccount+"\n")},
		Options: json.RawMessage(`{"authMethod": "kubernetes"}`),
	})
}

// TestATokenIsRenewed before it ends.
func TestATokenIsRenewed(t *testing.T) {
	t.Parallel()
	g := &guarded{lasts: 100 * time.Millisecond}
	d := g.open(t)
	expect.Soon(t, "the token to be renewed", func() error {
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.logins < 3 {
			return fmt.Errorf("%d logins", g.logins)
		}
		return nil
	})
	g.mu.Lock()
	g.refuses = "Internal error"
	g.mu.Unlock()
	expect.Soon(t, "a call with a token that is due, and that Consul still takes", func() error { return d.Register(t.Context(), drivertest.Pod(1)) })
}

// TestALoginThatHangs does not hold up calls, whose token is still good: only one of them waits, for half of its time.
func TestALoginThatHangs(t *testing.T) {
	t.Parallel()
	g := &guarded{lasts: 100 * time.Millisecond}
	d := g.open(t)
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	g.mu.Lock()
	g.hangs = true
	g.mu.Unlock()
	<-time.After(g.lasts) // the token is due
	var group errgroup.Group
	for n := range 5 {
		group.Go(func() error {
			ctx := drivertest.Within(t, 4*time.Second)
			return d.Register(ctx, drivertest.Pod(n))
		})
	}
	expect.NoError(t, group.Wait())
}

// TestATokenThatConsulForgot: the next call logs in again.
func TestATokenThatConsulForgot(t *testing.T) {
	t.Parallel()
	g := &guarded{}
	d := g.open(t)
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	g.forgets("")
	drivertest.Passes(t, "the token has ended", d.Register(t.Context(), drivertest.Pod(1)), "ACL not found: [secret]")
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	g.mu.Lock()
	expect.Equal(t, 2, g.logins, "logins")
	g.mu.Unlock()

	g.forgets("ACL not found: auth method \"kubernetes\" not found") // as by a server that has not replayed its log yet
	for range 2 {
		drivertest.Passes(t, "Consul has accepted a login before", d.Register(t.Context(), drivertest.Pod(1)), "")
	}
	g.forgets("")
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
}
