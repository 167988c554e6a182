package nacos_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

const (
	// bound is generous: what is waited for takes seconds.
	bound = 3 * time.Minute
	pause = 50 * time.Millisecond

	// tokenLifetime is so short that most tests need another token.
	tokenLifetime = 10 * time.Second
)

var (
	shared2 = registries.Share(start(nacos.Options{Version: nacos.V2, TokenLifetime: tokenLifetime}))
	shared3 = registries.Share(start(nacos.Options{Version: nacos.V3, TokenLifetime: tokenLifetime}))
)

// scenario is a service of its own on a server, and a driver for it.
type scenario struct {
	*testing.T
	server  *nacos.Server
	driver  *driver.Registry
	opts    driver.Options
	service string
}

// onEach runs a scenario on both versions' shared servers, with the API that the driver finds there.
func onEach(t *testing.T, opts driver.Options, run func(*scenario)) {
	t.Helper()
	for name, shared := range map[string]*registries.Shared[*nacos.Server]{"2": shared2, "3": shared3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newScenario(t, shared.Use(t), opts))
		})
	}
}

func newScenario(t *testing.T, s *nacos.Server, opts driver.Options) *scenario {
	t.Helper()
	return &scenario{
		T: t, server: s, opts: opts, service: "svc-" + strings.ToLower(rand.Text()[:10]),
		driver: open(t, config(t, s.Endpoint, password, opts)),
	}
}

func (s *scenario) pod(n int) registry.Instance {
	name := fmt.Sprintf("web-%d", n)
	return registry.Instance{
		Service: s.service, Address: fmt.Sprintf("10.0.0.%d", n), Port: 8080,
		Cluster: "test", Namespace: "shop", Pod: name, UID: "uid-of-" + s.service + name,
	}
}

type call func(context.Context, registry.Instance) error

// do makes calls. Those that fail for a passing reason are made again, as Rollcall does: a busy machine has many.
func (s *scenario) do(what call, ins ...registry.Instance) {
	s.Helper()
	for _, in := range ins {
		s.eventually(func() error {
			err := what(s.Context(), in)
			if registry.CodeOf(err) == registry.CodeTerminal {
				s.Fatal(err)
			}
			return err
		})
	}
}

// ask asks the server itself. Paths are those of v3; for a server of version 2 they are turned into those of v1.
func (s *scenario) ask(method, path string, form url.Values) string {
	s.Helper()
	if !form.Has("groupName") {
		form.Set("groupName", "DEFAULT_GROUP")
	}
	if s.version() == nacos.V2 {
		path = strings.NewReplacer("/v3/admin", "/v1", "/v3/client", "/v1", "/v3/", "/v1/").Replace(path)
	}
	token, err := s.server.Login(s.Context(), nacos.Admin, password)
	expect.NoError(s, err)
	body, err := s.server.Do(s.Context(), method, path, form, token)
	expect.NoError(s, err)
	return string(body)
}

func (s *scenario) version() nacos.Version {
	if strings.HasPrefix(s.server.Version(), "v2") {
		return nacos.V2
	}
	return nacos.V3
}

// clients returns what a client that looks the service up is given, address by address, and whether it is healthy.
func (s *scenario) clients() map[string]bool {
	s.Helper()
	body := s.ask(http.MethodGet, "/v3/client/ns/instance/list", url.Values{"serviceName": {s.service}})
	var v1 struct{ Hosts []nacos.Seen }
	var v3 struct{ Data []nacos.Seen }
	expect.NoError(s, json.Unmarshal([]byte(body), &v1))
	expect.NoError(s, json.Unmarshal([]byte(body), &v3))
	all := map[string]bool{}
	for _, h := range append(v1.Hosts, v3.Data...) {
		all[net.JoinHostPort(h.IP, strconv.Itoa(h.Port))] = h.Healthy
	}
	return all
}

// expectClients reads once: what was acknowledged is there.
func (s *scenario) expectClients(want map[string]bool) {
	s.Helper()
	if diff := cmp.Diff(want, s.clients()); diff != "" {
		s.Fatalf("clients are given something else (-want +got):\n%s", diff)
	}
}

// expectEntries reads all that the driver lists of the service once.
func (s *scenario) expectEntries(want ...registry.Entry) {
	s.Helper()
	all, err := s.driver.List(s.Context(), "test")
	expect.NoError(s, err)
	got := slices.DeleteFunc(all, func(e registry.Entry) bool { return e.Service != s.service })
	if diff := cmp.Diff(want, got); diff != "" {
		s.Fatalf("the registry holds something else (-want +got):\n%s", diff)
	}
}

func (s *scenario) eventually(wrong func() error) {
	s.Helper()
	expect.Soon(s.T, "it to be right", wrong)
}

func (s *scenario) subscribe() *nacos.Reader {
	s.Helper()
	r, err := s.server.Subscribe(s.Context(), s.service)
	expect.NoError(s, err)
	s.Cleanup(r.Stop)
	return r
}

// expectSeen waits until Nacos' own client, which the server tells of changes, has these addresses and no others.
func (s *scenario) expectSeen(r *nacos.Reader, want ...registry.Instance) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), bound)
	defer cancel()
	err := r.Await(ctx, func(got []nacos.Seen) bool {
		have := map[string]bool{}
		for _, g := range got {
			if g.Enabled && g.Healthy {
				have[net.JoinHostPort(g.IP, strconv.Itoa(g.Port))] = true
			}
		}
		for _, in := range want {
			if !have[in.Endpoint()] {
				return false
			}
		}
		return len(have) == len(want)
	})
	if err != nil {
		s.Fatalf("want %d instances: %v", len(want), err)
	}
}

// What an application with Nacos' own client sees, which subscribes over gRPC.
func TestSubscriberSeesIt(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]driver.Options{"persistent": {}, "ephemeral": {Ephemeral: true, HeartbeatInterval: driverkit.Duration(45 * time.Second)}}, func(t *testing.T, opts driver.Options) {
		onEach(t, opts, func(s *scenario) {
			a, b := s.pod(1), s.pod(2)
			a.Weight, a.Zone, a.Metadata = 7, "zone-b", map[string]string{"version": "ü+%41"}
			client := s.subscribe()
			s.do(s.driver.Register, a, b)
			s.expectSeen(client, a, b)
			expect.NoError(s, client.Await(s.Context(), func(got []nacos.Seen) bool {
				for _, g := range got {
					if g.IP == a.Address {
						return g.Weight == 7 && g.Metadata["zone"] == "zone-b" && g.Metadata["version"] == "ü+%41"
					}
				}
				return false
			}))
			s.do(s.driver.FailOver, a)
			s.expectSeen(client, b)
			s.do(s.driver.Register, a)
			s.expectSeen(client, a, b)
			s.do(s.driver.Deregister, b)
			s.expectSeen(client, a)
			s.do(s.driver.FailOver, a)
			s.expectSeen(client)
			s.do(s.driver.Deregister, a)
		})
	})
}

// Between a leader that died and the next one an entry gets no heartbeat. Nacos goes on giving it to clients: longer than
// an entry beside it, whose lease is as long as such a change of leaders takes at most.
func TestUnrenewedEntryOutlivesAChangeOfLeader(t *testing.T) {
	t.Parallel()
	const ours = 45 * time.Second // what the driver asks for by default
	onEach(t, driver.Options{Ephemeral: true}, func(s *scenario) {
		entry, witness, renewed := s.pod(1), s.pod(2), s.pod(3)
		other := func(in registry.Instance, lease time.Duration) {
			s.ask(http.MethodPost, "/v3/admin/ns/instance", url.Values{
				"serviceName": {s.service}, "ip": {in.Address}, "port": {"8080"}, "ephemeral": {"true"},
				"metadata": {fmt.Sprintf(`{"preserved.heart.beat.timeout":"%d","preserved.ip.delete.timeout":"3600000"}`, lease.Milliseconds())},
			})
		}
		other(renewed, time.Hour) // where all are unhealthy, Nacos gives all of them as healthy
		for {
			began := time.Now()
			s.do(s.driver.Register, entry)
			other(witness, registry.Config{}.LeastLease(0))
			var seen map[string]bool
			s.eventually(func() error {
				seen = s.clients()
				if healthy, given := seen[witness.Endpoint()]; !given || healthy || !seen[renewed.Endpoint()] {
					return fmt.Errorf("want %s to turn unhealthy, clients are given %v", witness.Endpoint(), seen)
				}
				return nil
			})
			if seen[entry.Endpoint()] {
				break
			}
			if time.Since(began) < ours {
				s.Fatalf("clients are given %v, want %s healthy", seen, entry.Endpoint())
			}
			s.Logf("the machine took %s, longer than any lease here: once more", time.Since(began))
		}
		s.do(s.driver.Heartbeat, entry)
		s.do(s.driver.Deregister, entry)
	})
}

// Below the protect threshold Nacos gives clients unhealthy instances as healthy, but none that is out of service.
func TestProtectThresholdKeepsWhatIsOut(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{}, func(s *scenario) {
		s.do(s.driver.Register, s.pod(1), s.pod(2))
		s.ask(http.MethodPut, "/v3/admin/ns/service", url.Values{
			"serviceName": {s.service}, "protectThreshold": {"1"}, "ephemeral": {"false"},
		})
		s.do(s.driver.FailOver, s.pod(1))
		s.eventually(func() error {
			body := s.ask(http.MethodGet, "/v3/admin/ns/service", url.Values{"serviceName": {s.service}})
			if !strings.Contains(body, `"protectThreshold":1.0`) {
				return fmt.Errorf("the threshold is not set: %s", body)
			}
			return nil
		})
		s.expectClients(map[string]bool{s.pod(2).Endpoint(): true})
		s.do(s.driver.Deregister, s.pod(1), s.pod(2))
	})
}

// A service is all ephemeral or all persistent.
func TestOtherKindIsTerminal(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]bool{"persistent into ephemeral": true, "ephemeral into persistent": false}, func(t *testing.T, ephemeral bool) {
		onEach(t, driver.Options{Ephemeral: ephemeral}, func(s *scenario) {
			s.do(s.driver.Register, s.pod(1))
			other := open(s, config(s, s.server.Endpoint, password, driver.Options{Ephemeral: !ephemeral}))
			says := fmt.Sprintf("set it to %t", ephemeral)
			drivertest.Refused(s, "a service has one kind", other.Register(s.Context(), s.pod(2)), "options.ephemeral", says)
			s.do(s.driver.Deregister, s.pod(1))
		})
	})
}

// Where Rollcall makes the service, Nacos does not probe it: no server of its reaches these pods.
func TestUnreachablePodIsServed(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{}, func(s *scenario) {
		s.do(s.driver.Register, s.pod(1))
		s.do(s.driver.Probe, s.pod(1))
		s.eventually(func() error { // the server tells it only when it has seen the instance
			body := s.ask(http.MethodGet, "/v3/admin/ns/service", url.Values{"serviceName": {s.service}})
			if !strings.Contains(body, `"healthChecker":{"type":"NONE"`) {
				return fmt.Errorf("the service's health checker is not NONE: %s", body)
			}
			return nil
		})
		s.do(s.driver.Deregister, s.pod(1))
		// Nacos forgets the checker of an empty service, after a while; the next first one sets it again.
		s.do(s.driver.Register, s.pod(2))
		s.do(s.driver.Probe, s.pod(2))
		s.do(s.driver.Deregister, s.pod(2))
	})
}

// Where Nacos probes, an instance is in service only for those who take unhealthy ones, until it was reached.
func TestProbedPodIsServedOnceReached(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{HealthChecker: "server"}, func(s *scenario) {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		expect.NoError(s, err)
		defer listener.Close()
		reached, unreached := s.pod(1), s.pod(2)
		reached.Address, reached.Port = "127.0.0.1", listener.Addr().(*net.TCPAddr).Port
		unreached.Address, unreached.Port = "127.0.0.2", reached.Port
		s.do(s.driver.Register, reached, unreached)
		if err := s.driver.Probe(s.Context(), unreached); err == nil || !strings.Contains(err.Error(), "NONE") ||
			registry.CodeOf(err) == registry.CodeTerminal {
			s.Errorf("Probe of what Nacos can't reach: got error %v, want one that says what to do", err)
		}
		s.eventually(func() error { return s.driver.Probe(s.Context(), reached) })
		s.expectClients(map[string]bool{reached.Endpoint(): true, unreached.Endpoint(): false})

		// Registering again does not make it healthy.
		s.do(s.driver.Register, unreached)
		if s.driver.Probe(s.Context(), unreached) == nil {
			s.Error("Probe of what Nacos can't reach: got agreement after it was registered again")
		}
		// It is enough to do what the error says.
		s.ask(http.MethodPut, "/v3/admin/ns/cluster", url.Values{
			"serviceName": {s.service}, "clusterName": {"DEFAULT"}, "checkPort": {"80"}, "useInstancePort4Check": {"true"},
			"healthChecker": {`{"type":"NONE"}`},
		})
		s.do(s.driver.Register, unreached)
		s.do(s.driver.Probe, unreached)
		s.do(s.driver.Deregister, reached, unreached)
	})
}

// A server that has not yet learned that the checker is off probes an instance, and then no one does: it would be unhealthy forever.
func TestUnhealthyWithoutAProbeIsRegisteredAgain(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{}, func(s *scenario) {
		in := s.pod(1)
		s.do(s.driver.Register, in)
		listed := func() registry.State {
			all, err := s.driver.List(s.Context(), "test")
			expect.NoError(s, err)
			for _, e := range all {
				if e.Service == s.service {
					return e.State
				}
			}
			return registry.Absent
		}
		if got := listed(); got != registry.InService {
			s.Errorf("a healthy one is listed as %s", got)
		}
		s.ask(http.MethodPost, "/v3/admin/ns/instance", url.Values{ // what was set by PUT, such as the metadata, stays
			"serviceName": {s.service}, "ip": {in.Address}, "port": {strconv.Itoa(in.Port)}, "ephemeral": {"false"}, "healthy": {"false"},
		})
		s.eventually(func() error {
			if got := listed(); got != registry.OutOfService {
				return fmt.Errorf("one that clients are not given is listed as %s", got)
			}
			return nil
		})
		s.do(s.driver.Register, in)
		s.do(s.driver.Probe, in)
		s.expectClients(map[string]bool{in.Endpoint(): true})
		if got := listed(); got != registry.InService {
			s.Errorf("after it was registered again, it is listed as %s", got)
		}
	})
}

// TestTheConsoleIsBelieved: a person clicks Offline or Online, which keeps the metadata with our stamp.
func TestTheConsoleIsBelieved(t *testing.T) {
	t.Parallel()
	s := newScenario(t, shared3.Use(t), driver.Options{})
	in := s.pod(1)
	s.do(s.driver.Register, in)
	click := func(enabled string, want registry.State) {
		s.Helper()
		at := url.Values{
			"serviceName": {s.service}, "clusterName": {"DEFAULT"}, "ip": {in.Address}, "port": {strconv.Itoa(in.Port)}, "ephemeral": {"false"},
		}
		var now struct {
			Data struct {
				Weight   float64           `json:"weight"`
				Metadata map[string]string `json:"metadata"`
			} `json:"data"`
		}
		expect.NoError(s, json.Unmarshal([]byte(s.ask(http.MethodGet, "/v3/admin/ns/instance", maps.Clone(at))), &now))
		metadata, err := json.Marshal(now.Data.Metadata)
		expect.NoError(s, err)
		at["metadata"], at["enabled"] = []string{string(metadata)}, []string{enabled}
		at["weight"] = []string{strconv.FormatFloat(now.Data.Weight, 'f', -1, 64)}
		s.ask(http.MethodPut, "/v3/admin/ns/instance", at)
		s.eventually(func() error {
			state, err := s.driver.Get(s.Context(), in)
			if err == nil && state != want {
				err = fmt.Errorf("the driver reports %s, want %s", state, want)
			}
			return err
		})
	}
	click("false", registry.OutOfService)
	s.do(s.driver.FailOver, in)
	click("true", registry.InService)
	click("false", registry.OutOfService)
}

// Namespace, group and cluster are those of the options.
func TestPlaceIsTheOptions(t *testing.T) {
	t.Parallel()
	onEach(t, driver.Options{Group: "G-1.a", Cluster: "C-1"}, func(s *scenario) {
		elsewhere := open(s, config(s, s.server.Endpoint, password, driver.Options{Group: "G-2", Cluster: "C-1"}))
		another := open(s, config(s, s.server.Endpoint, password, driver.Options{Group: "G-1.a", Cluster: "C-1", Namespace: "ns-1"}))
		a := s.pod(1)
		s.do(s.driver.Register, a)
		for _, d := range []*driver.Registry{elsewhere, another} {
			s.do(d.FailOver, a)
			s.do(d.Deregister, a)
			all, err := d.List(s.Context(), "test")
			expect.NoError(s, err)
			for _, e := range all {
				if e.Service == s.service {
					s.Errorf("listed elsewhere: %+v", e)
				}
			}
		}
		s.expectEntries(registry.Entry{Instance: a, State: registry.InService})
		name := s.service
		if s.version() == nacos.V2 {
			name = "G-1.a@@" + name
		}
		body := s.ask(http.MethodGet, "/v3/admin/ns/instance", url.Values{
			"serviceName": {name}, "groupName": {"G-1.a"}, "clusterName": {"C-1"}, "ip": {a.Address}, "port": {"8080"},
		})
		if !regexp.MustCompile(`"weight":1(\.0)?[,}]`).MatchString(body) {
			s.Errorf("the weight is not 1: %s", body)
		}
		s.do(s.driver.Deregister, a)
	})
}
