package integration

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// TestTwoClusters: two clusters share a Consul and have a workload of the same name and service, first by mistake under one name, then
// under two. Whatever one of them does, no entry of the other changes. Then the workload moves from one to the other.
func TestTwoClusters(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	second, err := cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(env.dir, "second-cluster"), Log: os.Stderr, Nodes: 1, PodCIDR: "127.103.0.0/16",
	})
	expect.NoError(t, err)
	t.Cleanup(second.Stop)
	ofSecond, err := account.Install(t.Context(), second.Config())
	expect.NoError(t, err)
	pods, err := watchPods(t.Context(), second.Client())
	expect.NoError(t, err)
	expect.NoError(t, pods.followSets(t.Context(), second.Client()))
	west := newSide(t, server, "west", env.account, env.client, env.history)
	west.zones = env.zones
	east := newSide(t, server, "east", ofSecond, second.Client(), pods)

	west.Name("prod")
	west.Begin(replicas(2))
	west.ExpectUntouchedBy(east, func() {
		east.Name("prod")
		east.ExpectBlocked(2)
		east.await("an Event that a removal waits", func() error {
			return east.hasEvent(nil, corev1.EventTypeWarning, "RemovalBlocked", "2 of 2 ", "2 carry the UID of another cluster", west.uid)
		})
		east.Begin(replicas(2))
	})
	west.ExpectShared(east)
	east.ExpectUntouchedBy(west, west.live)
	west.ExpectUntouchedBy(east, east.live)
	east.ExpectShared(west)

	west.ExpectUntouchedBy(east, func() {
		east.Name("prod-2")
		east.ExpectSteady()
	})
	east.ExpectUntouchedBy(west, west.live)
	west.ExpectUntouchedBy(east, east.live)
	for _, s := range []*side{west, east} {
		s.ExpectBlocked(0)
	}

	least := west.leastGiven(func() {
		west.ExpectUntouchedBy(east, func() { east.ScaleTo(4) })
		east.ExpectUntouchedBy(west, west.ExpectNothingLeft)
	})
	west.Expect(least == 4, "clients were given %d pods at least while the workload moved, want 4", least)
	east.ExpectSteady()
	east.ExpectNothingLeft()
	for _, s := range []*side{west, east} {
		s.expectAllowedWrites()
	}
}

// side is the scenario of one of two clusters that share a Consul. Its registry shows what its cluster wrote.
type side struct {
	*scenario

	server *consul.Server
	// uid is the cluster's.
	uid string
}

func newSide(t *testing.T, server *consul.Server, name string, as *rest.Config, k8s client.WithWatch, pods *watched) *side {
	t.Helper()
	const namespace = "two-clusters"
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	expect.NoError(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(system), system))
	made, err := driver.New(t.Context(), registry.Config{Endpoint: server.URL})
	expect.NoError(t, err)
	config := defaultConfiguration("", namespace)
	config["registry"] = map[string]any{"driver": "consul", "endpoint": server.URL, "timeout": callTimeout.String()}
	config["resync"] = map[string]any{"interval": "1s"}
	m := prepareManager(t, "two-clusters-"+name, as, config)
	m.Env = append(m.Env, "POD_NAMESPACE="+namespace)
	s := &side{server: server, uid: string(system.UID)}
	its := &registryServer{Registry: fakeregistry.New(half{made.(fakeregistry.Backend), s})}
	s.scenario = newScenarioOn(t, k8s, pods, m, its, labels, namespace)
	s.troubled = true
	return s
}

// half is what one cluster wrote into a registry.
type half struct {
	fakeregistry.Backend

	of *side
}

func (h half) List(ctx context.Context, _ string) ([]registry.Entry, error) {
	entries, err := h.Backend.List(ctx, h.of.cluster)
	return slices.DeleteFunc(entries, func(e registry.Entry) bool { return e.ClusterUID != h.of.uid }), err
}

// Name starts the manager, or starts it again, under a name of the cluster.
func (s *side) Name(cluster string) {
	s.Helper()
	s.cluster, s.manager.config["cluster"] = cluster, cluster
	s.manager.Kill()
	s.must(s.manager.Configure(s.manager.config))
	restart(s.T, s.manager)
}

// live is what happens in a cluster: an update, a pod that is replaced, an outage of Rollcall in which all pods are replaced.
func (s *side) live() {
	s.Helper()
	s.UpdateInPlace("nginx:of-"+s.cluster, s.Pods())
	s.Replace(s.Pods()[0])
	s.manager.Kill()
	before := s.Pods()
	for _, pod := range before {
		s.DeletePod(pod)
	}
	for _, pod := range before {
		s.AwaitGone(pod)
	}
	s.AwaitPods(len(before))
	restart(s.T, s.manager)
	s.ExpectSteady()
}

// ExpectUntouchedBy expects that no entry of the cluster changes by what the other one does, and by two resyncs there.
func (s *side) ExpectUntouchedBy(other *side, acts func()) {
	s.Helper()
	before := s.written()
	s.Expect(len(before) > 0, "the cluster has no entry to be left alone")
	acts()
	runs := other.resyncs()
	other.awaitAtLeast(runs+2, "resyncs", other.resyncs)
	expect.Equal(s, before, s.written(), "the entries of cluster %s, by what cluster %s did", s.manager.Name, other.manager.Name)
}

// written are the cluster's entries by ID, with Consul's indexes: a change raises ModifyIndex, and an entry that was away comes back
// with another CreateIndex.
func (s *side) written() map[string]any {
	s.Helper()
	entries := map[string]any{}
	given, err := s.given("")
	s.must(err)
	for _, e := range given {
		if e.Service.Meta[registry.MetaClusterUID] == s.uid {
			e.Checks = slices.DeleteFunc(e.Checks, func(c checkSeen) bool { return c.ServiceID == "" }) // the node's
			entries[e.Service.ID] = e
		}
	}
	return entries
}

type (
	entrySeen struct {
		Service struct {
			ID                       string
			Meta                     map[string]string
			CreateIndex, ModifyIndex uint64
		}
		Checks []checkSeen
	}
	checkSeen struct {
		ServiceID, Status        string
		CreateIndex, ModifyIndex uint64
	}
)

// given are the entries of the service that Consul gives to a client with this query.
func (s *side) given(query string) (entries []entrySeen, err error) {
	err = s.server.Do(s.Context(), http.MethodGet, "/v1/health/service/"+s.ns+"?"+query, nil, &entries)
	return entries, err
}

// leastGiven is how few pods a client is given meanwhile.
func (s *side) leastGiven(acts func()) int {
	s.Helper()
	done, least := make(chan struct{}), make(chan int)
	go func() {
		fewest := math.MaxInt
		for {
			select {
			case <-done:
				least <- fewest
				return
			default:
				if given, err := s.given("passing"); err == nil {
					fewest = min(fewest, len(given))
				}
			}
		}
	}()
	acts()
	close(done)
	return <-least
}

// resyncs is how often the manager has compared the registry since it was started.
func (s *side) resyncs() int {
	body, err := s.manager.Get(s.Context(), manager.MetricsServer, "/metrics")
	found := regexp.MustCompile(`(?m)^rollcall_resync_duration_seconds_count{outcome="ok",registry="default"} (\d+)$`).FindStringSubmatch(body)
	if err != nil || found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1]) // digits
	return n
}

func (s *side) ExpectBlocked(n int) {
	s.Helper()
	s.ExpectMetric(fmt.Sprintf(`rollcall_resync_blocked_removals{registry="default"} %d`, n))
}

// ExpectShared expects the Warning that the other cluster uses this one's name.
func (s *side) ExpectShared(other *side) {
	s.Helper()
	s.await("an Event that two clusters have one name", func() error {
		return s.hasEvent(nil, corev1.EventTypeWarning, "ClusterNameShared", s.uid, other.uid)
	})
}
