package consul_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
)

// pods are those with an address in the catalog.
const pods = 100

// agent is a catalog with one service, and the agent that owns it. The catalog follows the agent one question later.
type agent struct {
	status int // 0: it does what it is asked
	silent bool
	deaf   bool // it takes what it is asked, and the catalog does not follow
	away   bool // only the catalog is there

	mu            sync.Mutex
	absent        bool
	hides         bool     // the token may not see all there is
	denies        int      // the status by which the server says that there is no token; 0: it keeps nothing from those without
	newLeader     bool     // the server denies until a transaction has waited for its log
	leftover      string   // the checks of a node that has failed, whose pod had the address before
	goes          bool     // the application ends when its agent is asked
	meta          string   // of the service, and of its node, as JSON
	others        []string // names under which the address stands
	checks, shown string   // of the service, as JSON
	asked         []string
	named         int // how often it was asked for the names
}

func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	query := r.URL.Query()
	switch {
	case r.URL.Path == "/v1/acl/token/self":
		w.WriteHeader(a.denies)
	case r.URL.Path == "/v1/txn":
		if a.newLeader {
			a.denies = http.StatusOK
		}
		if a.goes {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"Errors": [{"OpIndex": 0, "What": "service \"web/1\" on node \"worker-3\" doesn't exist"}]}`)
			return
		}
		_, _ = io.WriteString(w, `{"Results": [{"Service": {"ID": "web/1"}}]}`)
	case r.URL.Path == "/v1/catalog/services":
		a.named++
		tags := map[string][]string{}
		for _, name := range a.others {
			tags[name] = []string{"v2"}
		}
		_ = json.NewEncoder(w).Encode(tags)
	case r.URL.Path == "/v1/health/node/worker-2":
		_, _ = io.WriteString(w, "["+a.leftover+"]")
	case r.URL.Path == "/v1/health/node/worker-3":
		w.Header().Set("X-Consul-Index", "7")
		a.asked = append(a.asked, strings.TrimSpace("the node since "+query.Get("index")))
		if wait, err := time.ParseDuration(query.Get("wait")); err == nil && a.deaf {
			a.mu.Unlock()
			select {
			case <-time.After(wait + wait/16): // as a server does
			case <-r.Context().Done():
			}
			a.mu.Lock()
		}
		_, _ = io.WriteString(w, "["+a.shown+"]")
		a.shown = a.checks
	case r.URL.Path == "/v1/health/service/web":
		a.asked = append(a.asked, "the service")
		if a.hides {
			w.Header().Set("X-Consul-Results-Filtered-By-Acls", "true")
		}
		if a.denies != 0 {
			w.Header().Set("X-Consul-Default-Acl-Policy", "deny")
		}
		var services []string
		for n := range pods { // a filter can let pass more than what is looked for
			at := fmt.Sprintf(`"ID": "web/1", "Address": "10.0.0.%d", "Port": 80`, n)
			if a.leftover != "" {
				services = append(services, `{"Node": {"Node": "worker-2", "Address": "::1"}, "Service": {`+at+`}, "Checks": [`+a.leftover+`]}`)
			}
			services = append(services, `{"Node": {"Node": "worker-3", "Address": "127.0.0.1", "Meta": {`+a.meta+`}}, `+
				`"Service": {`+at+`, "Meta": {`+a.meta+`}}, "Checks": [`+a.shown+`]}`)
		}
		if a.absent {
			services = nil
		}
		_, _ = io.WriteString(w, "["+strings.Join(services, ", ")+"]")
		a.shown = a.checks
	case a.silent:
		a.mu.Unlock()
		<-r.Context().Done()
		a.mu.Lock()
	case a.status != 0:
		w.WriteHeader(a.status)
	case r.Method == http.MethodPut:
		a.asked = append(a.asked, r.Method+" "+r.URL.EscapedPath()+" enable="+query.Get("enable"))
		a.checks = ""
		if query.Get("enable") == "true" && !a.deaf {
			a.checks = `{"CheckID": "_service_maintenance:web/1", "ServiceID": "web/1", "Status": "critical"}`
		}
	}
}

func (a *agent) open(t *testing.T) *consul.Registry {
	t.Helper()
	address := drivertest.Serve(t, a.ServeHTTP)
	agent := address
	if a.away {
		agent = "http://" + registrytest.UnusedAddress(t)
	}
	return open(t, registry.Config{
		Endpoint: address,
		Options:  fmt.Appendf(nil, `{"agentEndpoint": %q}`, strings.Replace(agent, "127.0.0.1", "{nodeIP}", 1)),
	})
}

// TestAppEntryAtItsAgent acknowledges what the catalog shows. A question about the service is proportional to its instances, and one that
// waits is answered at each change of any: from the first answer on, the node is asked.
func TestAppEntryAtItsAgent(t *testing.T) {
	t.Parallel()
	a := &agent{}
	apps := a.open(t).AppEntries()
	const path = "PUT /v1/agent/service/maintenance/web%2F1 enable="
	expectAsked := func(want ...string) {
		t.Helper()
		expect.Equal(t, want, a.asked, "requests")
		a.asked = nil
	}
	expect.NoError(t, apps.FailOver(t.Context(), drivertest.Pod(1)))
	expectAsked("the service", path+"true", "the node since", "the node since 7")
	expect.NoError(t, apps.Deregister(t.Context(), drivertest.Pod(1))) // it is out
	expectAsked("the service")
	drivertest.Says(t, "it is out", apps, drivertest.Pod(1), registry.OutOfService)
	expectAsked("the service")
	expect.NoError(t, apps.Register(t.Context(), drivertest.Pod(1)))
	expectAsked("the service", path+"false", "the node since", "the node since 7")
	expect.NoError(t, apps.Register(t.Context(), drivertest.Pod(1))) // it is in
	expectAsked("the service")
}

// TestApplicationsAreLookedForTogether: a server looks through all instances of the service for each question.
func TestApplicationsAreLookedForTogether(t *testing.T) {
	t.Parallel()
	const room = 48 // of one question; calls beyond it ask again, and how often is a matter of speed
	for _, calls := range []int{room, pods} {
		a := &agent{}
		endpoint := drivertest.Serve(t, a.ServeHTTP)
		synctest.Test(t, func(t *testing.T) {
			apps := open(t, registry.Config{Endpoint: endpoint, Outgoing: drivertest.Slow("/health/service/web")}).AppEntries()
			var group errgroup.Group
			for n := range calls {
				group.Go(func() error {
					state, err := apps.Get(t.Context(), drivertest.Pod(n))
					if err == nil && state != registry.InService {
						err = fmt.Errorf("pod %d is %s", n, state)
					}
					return err
				})
			}
			expect.NoError(t, group.Wait())
		})
		a.mu.Lock()
		asked := len(a.asked)
		a.mu.Unlock()
		if calls == room && (asked == 0 || asked > 2) {
			t.Errorf("%d questions for %d pods, want at most 2: one that is under way, and one for all that came meanwhile", asked, calls)
		}
	}
}

// TestOtherNamesAreLookedForTogether: a server looks through all services for them, and pods ask while their applications start.
func TestOtherNamesAreLookedForTogether(t *testing.T) {
	t.Parallel()
	const few = 16 // one question has room for them; beyond it, how often calls ask is a matter of speed
	for _, tc := range []struct {
		calls  int
		others []string
	}{{few, nil}, {pods, nil}, {pods, []string{"api"}}} {
		a := &agent{absent: true, others: tc.others}
		endpoint := drivertest.Serve(t, a.ServeHTTP)
		synctest.Test(t, func(t *testing.T) {
			apps := open(t, registry.Config{Endpoint: endpoint, Outgoing: drivertest.Slow("/catalog/services")}).AppEntries()
			var group sync.WaitGroup
			for n := range tc.calls {
				group.Go(func() {
					err := apps.Register(t.Context(), drivertest.Pod(n))
					if registry.CodeOf(err) != registry.CodeNotRegistered || !slices.Equal(registry.OtherNamesOf(err), tc.others) {
						t.Errorf("pod %d: got error %v with the names %q, want that it is not registered, and %q",
							n, err, registry.OtherNamesOf(err), tc.others)
					}
				})
			}
			group.Wait()
		})
		a.mu.Lock()
		named := a.named
		a.mu.Unlock()
		if tc.calls == few && (named == 0 || named > 2) {
			t.Errorf("%d questions for %d pods, want at most 2: one that is under way, and one for all that came meanwhile", named, tc.calls)
		}
	}
}

// TestAnApplicationThatEndsWhileItIsSteered is out, and is not in.
func TestAnApplicationThatEndsWhileItIsSteered(t *testing.T) {
	t.Parallel()
	expect.NoError(t, (&agent{deaf: true, goes: true}).open(t).AppEntries().FailOver(t.Context(), drivertest.Pod(1)))
	const maintenance = `{"CheckID": "_service_maintenance:web/1", "ServiceID": "web/1", "Status": "critical"}`
	err := (&agent{goes: true, shown: maintenance}).open(t).AppEntries().Register(t.Context(), drivertest.Pod(1))
	expect.Code(t, registry.CodeNotRegistered, err, "Register: nothing is registered")
}

// TestAgentsAreNotTheRegistry: agents that fail, on whatever number of nodes, stop no call for another pod.
func TestAgentsAreNotTheRegistry(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]*agent{
		"failing": {status: http.StatusInternalServerError}, "not knowing it": {status: http.StatusNotFound}, "silent": {silent: true},
		"telling the catalog nothing": {deaf: true},
	}, func(t *testing.T, a *agent) {
		const many = 7
		client := registryclient.New(a.open(t), registryclient.Options{Timeout: 4 * time.Second, MaxInFlight: 3 * many}).AppEntries()
		change := func(i int) {
			err := client.Change(t.Context(), registryclient.Caller{ID: strconv.Itoa(i), Wake: func() {}},
				registry.Change{Instance: drivertest.Pod(i), State: registry.OutOfService})
			if outcome := registryclient.Classify(err); outcome == registryclient.Acknowledged || !outcome.Asked() {
				t.Errorf("pod %d: got %s, want a call that fails: %v", i, outcome, err)
			}
		}
		var calls sync.WaitGroup
		for i := range many {
			calls.Go(func() { change(i) })
		}
		calls.Wait()
		change(many)
	})
}

func TestAppEntryThatCantBeSteered(t *testing.T) {
	t.Parallel()
	register := func(apps registry.AppRegistry) error { return apps.Register(t.Context(), drivertest.Pod(1)) }
	failOver := func(apps registry.AppRegistry) error { return apps.FailOver(t.Context(), drivertest.Pod(1)) }
	get := func(apps registry.AppRegistry) error { _, err := apps.Get(t.Context(), drivertest.Pod(1)); return err }
	const (
		noService = "no service web in the catalog has the address 10.0.0.1 and port 80"
		noToken   = "is missing: Consul may hide the application's node and service from requests without a token"
		unseen    = "the token may not read the application's node or service"
		critical  = `check "ping" of "web/1" on node worker-3 is critical`
		agentSays = "the agent of node worker-3"
		away      = `the agent of node worker-3, which owns "web/1", can't be reached`
		injected  = "has no agent that could steer it"
		elsewhere = "check that options.agentEndpoint leads to the agent of each node"
	)
	hidden := func() *agent { return &agent{absent: true, hides: true} }
	denies := func(status int) *agent { return &agent{absent: true, denies: status} }
	newLeader := denies(403)
	newLeader.newLeader = true
	others := []string{"web-v2", "web-v3", "web-v4", "web-v5"}
	down := `{"Name": "ping", "CheckID": "ping", "Status": "critical"}`
	type row struct {
		reason        string
		agent         *agent
		do            func(apps registry.AppRegistry) error
		want, field   string
		notRegistered bool
	}
	expect.Each(t, map[string]row{
		"not registered":          {"a person has to learn what was looked for", &agent{absent: true}, register, noService, "", true},
		"another name":            {"a few will do", &agent{absent: true, others: others}, register, noService, "", true},
		"not up":                  {"it is the application's to be up", &agent{shown: down}, register, critical, "", true},
		"the token":               {"an agent asks for the right to write", &agent{status: 403}, failOver, agentSays, "auth.tokenFile", false},
		"hidden, to be taken out": {"clients may be given it", hidden(), failOver, unseen, "auth.tokenFile", false},
		"hidden, to be put back":  {"the application can do nothing", hidden(), register, unseen, "auth.tokenFile", false},
		"hidden, to be read":      {"it is not gone", hidden(), get, unseen, "auth.tokenFile", false},
		"hidden without a token":  {"Consul does not say so", denies(403), failOver, noToken, "auth.tokenFile", false},
		"a new leader":            {"it does not know the agent's token yet", newLeader, register, noService, "", true},
		"perhaps hidden":          {"the server fails to say so", denies(500), failOver, "500", "", false},
		"ACLs that are off":       {"the policy means nothing then", denies(401), register, noService, "", true},
		"an agent with a token":   {"it takes that for who has none", denies(200), register, noService, "", true},
		"a port for TLS":          {"it answers so where it is asked without", &agent{status: 400}, failOver, agentSays, "options.agentEndpoint", false},
		"a redirect":              {"it is not followed", &agent{status: 302}, failOver, agentSays, "options.agentEndpoint", false},
		"an agent that is busy":   {"it passes", &agent{status: 429}, failOver, agentSays, "", false},
		"another agent":           {"the address leads to none that knows it", &agent{status: 404}, failOver, elsewhere, "", false},
		"no agent: connect-inject": {
			"nobody could reach one", &agent{away: true, meta: `"managed-by": "consul-k8s-endpoints-controller"`}, failOver, injected, "", false,
		},
		"no agent: a synthetic node": {"nobody could reach one", &agent{away: true, meta: `"synthetic-node": "true"`}, failOver, injected, "", false},
		"an agent that is away":      {"it passes", &agent{away: true}, failOver, away, "", false},
	}, func(t *testing.T, tc row) {
		err := tc.do(tc.agent.open(t).AppEntries())
		expect.Error(t, tc.reason, err, tc.want)
		if field, _ := registry.FieldOf(err); field != tc.field || (registry.CodeOf(err) == registry.CodeTerminal) != (field != "" || tc.want == injected) {
			t.Errorf("got error %v of field %q, want one of field %q\nreason: %s", err, field, tc.field, tc.reason)
		}
		if got, want := registry.IsOfAgent(err), strings.Contains(tc.want, "agent"); got != want {
			t.Errorf("got error %v, want one of an agent: %t\nreason: %s", err, want, tc.reason)
		}
		expect.Equal(t, tc.agent.others[:min(len(tc.agent.others), 3)], registry.OtherNamesOf(err), "other names: %s", tc.reason)
		if (registry.CodeOf(err) == registry.CodeNotRegistered) != tc.notRegistered {
			t.Errorf("got error %v, want one that says not registered: %t\nreason: %s", err, tc.notRegistered, tc.reason)
		}
	})
}

// TestALeftoverOfADeadNode is the first in the catalog. The pod that has the address now goes out and in all the same.
func TestALeftoverOfADeadNode(t *testing.T) {
	t.Parallel()
	const dead = `{"CheckID": "serfHealth", "Status": "critical"}`
	a := &agent{leftover: dead}
	apps := a.open(t).AppEntries()
	err := apps.FailOver(t.Context(), drivertest.Pod(1))
	if !registry.IsOfAgent(err) || registry.CodeOf(err) == registry.CodeTerminal || !strings.Contains(err.Error(), "the agent of node worker-2") {
		t.Errorf("FailOver: got error %v, want that of the agent which is away", err)
	}
	_, err = apps.Get(t.Context(), drivertest.Pod(1)) // the catalog follows with the next answer
	expect.NoError(t, err)
	expect.Code(t, registry.CodeSeveralEntries, apps.Register(t.Context(), drivertest.Pod(1)), "Register: want it acknowledged with a word of the two services")
	const path = "PUT /v1/agent/service/maintenance/web%2F1 enable="
	want := []string{
		"the service", path + "true", "the service", "the service", path + "false", "the node since", "the node since 7",
	}
	expect.Equal(t, want, a.asked, "requests")
}

// TestALeftoverInMaintenance stays so, and the pod that has the address now is acknowledged once clients are given it.
func TestALeftoverInMaintenance(t *testing.T) {
	t.Parallel()
	const maintenance = `{"CheckID": "_service_maintenance:web/1", "Status": "critical"}`
	a := &agent{leftover: maintenance, checks: maintenance, shown: maintenance}
	apps := a.open(t).AppEntries()
	if err := apps.Register(t.Context(), drivertest.Pod(1)); !registry.IsOfAgent(err) {
		t.Errorf("Register: got error %v, want that of the agent which is away: clients are given neither", err)
	}
	_, err := apps.Get(t.Context(), drivertest.Pod(1)) // the catalog follows with the next answer
	expect.NoError(t, err)
	expect.Code(t, registry.CodeSeveralEntries, apps.Register(t.Context(), drivertest.Pod(1)), "Register: want it acknowledged with a word of the two services")
}

// TestASlowAgentIsNoServersFault: the catalog answers, and has nothing new to say, so that calls stay with the server that they are at.
func TestASlowAgentIsNoServersFault(t *testing.T) {
	t.Parallel()
	var seconds atomic.Int64
	second := drivertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		seconds.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	first := drivertest.Serve(t, (&agent{deaf: true}).ServeHTTP)
	apps := open(t, registry.Config{
		Endpoint: first + "," + second,
		Options:  fmt.Appendf(nil, `{"agentEndpoint": %q}`, strings.Replace(first, "127.0.0.1", "{nodeIP}", 1)),
	}).AppEntries()
	ctx := drivertest.Within(t, 5*time.Second) // before which a busy machine has answered
	err := apps.FailOver(ctx, drivertest.Pod(1))
	if registry.CodeOf(err) == registry.CodeTerminal || !registry.IsOfAgent(err) || !errors.Is(err, context.DeadlineExceeded) || // it may come to pass
		!strings.Contains(err.Error(), `the catalog does not show it yet: "web/1" on node worker-3`) {
		t.Errorf("got error %v, want one of the agent that says what is missing", err)
	}
	if _, err := apps.Get(t.Context(), drivertest.Pod(1)); err != nil || seconds.Load() > 0 {
		t.Errorf("Get: error %v, and the second server was asked %d times, want none", err, seconds.Load())
	}
}

// TestAnAgentsCertificate has expired. That is the agent's, and no field of the servers' is wrong.
func TestAnAgentsCertificate(t *testing.T) {
	t.Parallel()
	authority, err := pki.NewAuthority(t.TempDir(), "test")
	expect.NoError(t, err)
	pair, err := authority.Issue("server", pkix.Name{CommonName: "server"}, "127.0.0.1")
	expect.NoError(t, err)
	good, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	expect.NoError(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	expect.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	expired, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	expect.NoError(t, err)
	serve := func(certificate tls.Certificate) string {
		server := httptest.NewUnstartedServer(&agent{})
		server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
		server.Config.ErrorLog = log.New(io.Discard, "", 0) // it reports every handshake that fails
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL
	}
	agents := strings.Replace(serve(tls.Certificate{Certificate: [][]byte{expired}, PrivateKey: key}), "127.0.0.1", "{nodeIP}", 1)
	err = open(t, registry.Config{
		Endpoint: serve(good), TLS: registry.TLS{CAFile: authority.CertFile}, Options: fmt.Appendf(nil, `{"agentEndpoint": %q}`, agents),
	}).AppEntries().FailOver(t.Context(), drivertest.Pod(1))
	if field, _ := registry.FieldOf(err); field != "options.agentEndpoint" || registry.CodeOf(err) != registry.CodeTerminal || !registry.IsOfAgent(err) {
		t.Errorf("got error %v of field %q, want a terminal one of an agent and of options.agentEndpoint", err, field)
	}
}
