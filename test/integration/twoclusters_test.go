package integration

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// TestTwoClusters: two clusters share a registry and have a workload of the same name and service, first by mistake under one name, then
// under two. Whatever one of them does, no entry of the other changes. Then the workload moves from one to the other.
func TestTwoClusters(t *testing.T) { //nolint:tparallel // its parts share the second cluster
	t.Parallel()
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
	for _, name := range sharedRegistries() { //nolint:paralleltest // one after the other: each takes a server, and the second cluster
		t.Run(name, func(t *testing.T) {
			shared := startShared(t, name)
			west := newSide(t, shared, "west", env.account, env.client, env.history)
			west.zones = env.zones
			twoClusters(west, newSide(t, shared, "east", ofSecond, second.Client(), pods))
		})
	}
}

func twoClusters(west, east *side) {
	west.Helper()
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

// side is the scenario of one of two clusters that share a registry. Its registry shows what its cluster wrote.
type side struct {
	*scenario

	shared sharedRegistry
	// uid is the cluster's.
	uid string
}

func newSide(t *testing.T, shared sharedRegistry, name string, as *rest.Config, k8s client.WithWatch, pods *watched) *side {
	t.Helper()
	namespace := "two-clusters-" + shared.driver
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}
	expect.NoError(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(system), system))
	config := defaultConfiguration("", namespace)
	config["registry"] = map[string]any{
		"driver": shared.driver, "endpoint": shared.endpoint, "timeout": "5s", "readerLag": "0s", // Nacos asks for 4.5 s
		"options": shared.options,
	}
	config["resync"] = map[string]any{"interval": "1s"}
	m := prepareManager(t, namespace+"-"+name, as, config)
	m.Env = append(m.Env, "POD_NAMESPACE="+namespace)
	s := &side{shared: shared, uid: string(system.UID)}
	its := &registryServer{Registry: fakeregistry.New(half{shared.open(t), s})}
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
	before, err := s.written()
	s.must(err)
	s.Expect(len(before) > 0, "the cluster has no entry to be left alone")
	passing := "" // what a registry that keeps no count of changes shows only for a moment
	meanwhile(func() {
		if now, err := s.written(); err == nil && passing == "" {
			passing = cmp.Diff(before, now)
		}
	}, func() {
		acts()
		runs := other.resyncs()
		other.awaitAtLeast(runs+2, "resyncs", other.resyncs)
	})
	after, err := s.written()
	s.must(err)
	diff := cmp.Diff(before, after)
	s.Expect(diff == "" && passing == "", "the entries of cluster %s, by what cluster %s did (-before +after):\n%s\nmeanwhile:\n%s",
		s.manager.Name, other.manager.Name, diff, passing)
}

// written are the cluster's entries by ID, with all that changes when somebody writes them.
func (s *side) written() (map[string]any, error) {
	all, err := s.shared.entries(s.Context(), s.ns)
	maps.DeleteFunc(all, func(_ string, e any) bool { return metaOf(e)[registry.MetaClusterUID] != s.uid })
	return all, err
}

// leastGiven is how few pods a client is given meanwhile.
func (s *side) leastGiven(acts func()) int {
	s.Helper()
	least := math.MaxInt
	reader := s.shared.reader(s.ns)
	meanwhile(func() {
		if given, err := read.Given(s.Context(), reader); err == nil {
			least = min(least, len(given))
		}
	}, acts)
	return least
}

// meanwhile looks again and again while something is done.
func meanwhile(look, acts func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(glance):
				look()
			}
		}
	}()
	defer func() { close(done); <-ended }()
	acts()
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
