package resync

import (
	stdcmp "cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/series"
)

// scene is a cluster, what is known of it, and its registries.
type scene struct {
	*testing.T

	resync     *Resync
	cancel     context.CancelFunc
	ended      chan error
	fakes      map[string]*fakeregistry.Registry
	backends   map[string]*memory.Registry
	registries registryclient.Registries
	namespaces []string
	// selector chooses namespaces by their labels, if it is not nil.
	selector labels.Selector
	// maxRemovals is 20% where it is empty.
	maxRemovals string
	// leaseNamespace is empty where the manager has no lease that a person could write on.
	leaseNamespace string
	// approved are the digests that the lease has when the process begins to lead.
	approved []string
	metrics  *prometheus.Registry
	// identity is nil where the cluster's UID can't be read.
	identity *clusterstate.Identity
	listed   chan struct{}
	number   int

	mu      sync.Mutex
	log     strings.Builder
	live    map[string]bool
	synced  bool
	goneErr error
	// placesErr and compareErr fail these, and drifts is how many entries differ.
	placesErr, compareErr error
	drifts                int
	listings              []tracker.Listing
	warnings              []string // the notes of RemovalBlocked
	events                []string
	// renamed are the former names that every list has.
	renamed []string
	// in and out are what the applications' entries have to be, and differs those that were found otherwise.
	in, out []registry.Instance
	differs map[string]registry.State
	// kept are the instances to be renewed, by registry.
	kept map[string][]registry.Instance
	// places are those of the pods.
	places []string
	// landing are the pods whose removals may still be carried out, and for how long.
	landing []string
	// lost are those that were not there when they were to be renewed, asked when.
	lost  []registry.Instance
	asked time.Time
}

func newScene(t *testing.T, names ...string) *scene {
	t.Helper()
	s := &scene{
		T: t, fakes: map[string]*fakeregistry.Registry{}, backends: map[string]*memory.Registry{}, metrics: prometheus.NewRegistry(),
		registries: registryclient.Registries{}, kept: map[string][]registry.Instance{},
		listed: make(chan struct{}), live: map[string]bool{}, synced: true, leaseNamespace: "system",
	}
	for _, name := range names {
		s.backends[name] = fakeregistry.Memory(t.Context())
		s.fakes[name] = fakeregistry.New(s.backends[name])
		s.client(name, s.fakes[name])
	}
	return s
}

// client has a registry asked through another client.
func (s *scene) client(name string, made registry.Registry, change ...func(*registryclient.Options)) {
	o := registryclient.Options{Timeout: timeout, MaxInFlight: 100}
	for _, c := range change {
		c(&o)
	}
	s.registries[name] = registryclient.New(made, o)
}

// lagging has lists that may be so old.
type lagging struct {
	*fakeregistry.Registry
	staleness time.Duration
	entries   []registry.Entry
}

func (l lagging) Traits() registry.Traits { return registry.Traits{Staleness: l.staleness} }

func (l lagging) List(context.Context, string) ([]registry.Entry, error) {
	return slices.Clone(l.entries), nil
}

// leasing has entries that expire.
type leasing struct {
	*fakeregistry.Registry
	registry.Heartbeater
}

func (leasing) Traits() registry.Traits { return registry.Traits{HeartbeatInterval: time.Second} }

func list() fakeregistry.Match { return fakeregistry.Match{Op: fakeregistry.OpList} }

func (s *scene) start() {
	s.Helper()
	m := metrics.NewResyncMetrics(s.metrics)
	logger := funcr.New(func(_, args string) { s.set(func() { s.log.WriteString(args + "\n") }) }, funcr.Options{})
	s.resync = New(Options{
		Cluster: cluster, Identity: s.identity, Scope: clusterstate.NewScope(service.Namespaces{Names: s.namespaces, Selector: s.selector}, s.namespaces), Pods: s, Listed: s.listed, Metrics: m,
		Logger: logger, History: history.New(logger), Synced: s.Synced, LeaseNamespace: s.leaseNamespace,
		Tell: func(_ context.Context, kind, reason, note string) {
			s.set(func() {
				if s.events = append(s.events, kind+" "+reason+": "+note); reason == removalBlocked {
					s.warnings = append(s.warnings, note)
				}
			})
		},
	})
	s.apply()
	s.resync.Approve(s.approved)
	ctx, cancel := context.WithCancel(s.Context())
	s.cancel, s.ended = cancel, make(chan error, 1)
	go func() { s.ended <- s.resync.Start(ctx) }()
	synctest.Wait()
}

func (s *scene) stop() {
	s.Helper()
	s.cancel()
	if err := <-s.ended; err != nil {
		s.Errorf("Start returned %v", err)
	}
}

func (s *scene) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// apply puts the same configuration in force, again.
func (s *scene) apply() {
	s.resync.Apply(Policy{Interval: time.Minute, MaxRemovals: intstr.FromString(stdcmp.Or(s.maxRemovals, "20%"))}, s.registries)
}

func (s *scene) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// register puts an entry in service whose pod lives.
func (s *scene) register(name, pod string, change ...func(*registry.Instance)) registry.Instance {
	s.Helper()
	s.number++
	in := registry.Instance{
		Service: "web", Address: "10.0.0.1", Port: s.number, Cluster: cluster, Namespace: "shop", Pod: pod, UID: "uid-of-" + pod,
	}
	for _, c := range change {
		c(&in)
	}
	expect.NoError(s, s.backends[name].Register(s.Context(), in))
	s.set(func() { s.live[in.UID] = true })
	return in
}

func (s *scene) pods(name string, pods ...string) {
	s.Helper()
	for _, pod := range pods {
		s.register(name, pod)
	}
}

func (s *scene) many(name string, n int) []string {
	s.Helper()
	var pods []string
	for i := range n {
		pods = append(pods, fmt.Sprintf("web-%02d", i))
	}
	s.pods(name, pods...)
	return pods
}

func (s *scene) gone(pods ...string) {
	s.set(func() {
		for _, pod := range pods {
			delete(s.live, "uid-of-"+pod)
		}
	})
}

func (s *scene) failGone(err error) { s.goneErr = err }

// Compare implements Pods for a process that has come to no pod yet.
func (s *scene) Compare(_ context.Context, l tracker.Listing) (tracker.Comparison, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listings = append(s.listings, l)
	return tracker.Comparison{Unknown: slices.Clone(l.Entries), Renamed: s.renamed, Different: s.drifts}, s.compareErr
}

func (s *scene) Kept(name string) []registry.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept[name]
}

func (s *scene) Missing(target tracker.Target, asked time.Time) {
	s.set(func() { s.lost, s.asked = append(s.lost, target.Instance), asked })
}

func (s *scene) RemovalMayLand(target tracker.Target, now, until time.Time) {
	s.set(func() {
		s.landing = append(s.landing, fmt.Sprintf("%s for %s", target.Pod().UID, until.Sub(now).Round(time.Second)))
	})
}

func (s *scene) Steered(_ string, in bool) []registry.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in {
		return slices.Clone(s.in)
	}
	return slices.Clone(s.out)
}

func (s *scene) Answered(target tracker.Target, state registry.State, _ time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	isIn := slices.ContainsFunc(s.in, target.Instance.Equal)
	if isIn == (state == registry.InService) {
		return false
	}
	if s.differs == nil {
		s.differs = map[string]registry.State{}
	}
	s.differs[target.Key().Source().String()+" "+target.Instance.Endpoint()] = state
	return true
}

// Places implements Pods.
func (s *scene) Places(context.Context, string, string) (map[string]map[string]bool, error) {
	if !s.Synced() {
		s.Error("asked for the places before the cache has synced")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	places := map[string]map[string]bool{}
	for _, place := range s.places {
		namespace := "shop"
		if strings.HasPrefix(place, "hostile-") {
			namespace = "hostile"
		}
		if places[namespace] == nil {
			places[namespace] = map[string]bool{}
		}
		places[namespace][place] = true
	}
	return places, s.placesErr
}

// Synced is of the cache.
func (s *scene) Synced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// Gone implements Pods.
func (s *scene) Gone(_ context.Context, entries []registry.Entry) ([]registry.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.synced {
		s.Error("asked what is gone before the cache has synced")
	}
	return slices.DeleteFunc(slices.Clone(entries), func(e registry.Entry) bool { return s.live[e.UID] }), s.goneErr
}

func (s *scene) lastListing() tracker.Listing {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listings) == 0 {
		s.Fatal("nothing was compared")
	}
	return s.listings[len(s.listings)-1]
}

func (s *scene) lists(name string) int { return len(s.fakes[name].Calls(list())) }

func (s *scene) expectLists(why, name string, want int) {
	s.Helper()
	synctest.Wait()
	if got := s.lists(name); got != want {
		s.Errorf("registry %s was listed %d times, want %d\nwhy: %s", name, got, want, why)
	}
}

// calls are the changes so far, sorted.
func (s *scene) calls(name string) []string {
	var calls []string
	for _, c := range s.fakes[name].Calls(fakeregistry.Match{}) {
		if c.Op != fakeregistry.OpList {
			calls = append(calls, fmt.Sprintf("%s %s", c.Op, c.Instance.Pod))
		}
	}
	slices.Sort(calls)
	return calls
}

// expectCalls holds the changes so far against what they should be.
func (s *scene) expectCalls(why, name string, want ...string) {
	s.Helper()
	synctest.Wait()
	expect.Equal(s, want, s.calls(name), "calls to registry %s: %s", name, why)
}

func (s *scene) expectListed(why, name string, want ...string) {
	s.Helper()
	entries, err := s.backends[name].List(s.Context(), cluster)
	expect.NoError(s, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Pod)
	}
	expect.Equal(s, want, got, "registry %s has: %s", name, why)
}

func (s *scene) expectForeign(name string, in registry.Instance) {
	s.Helper()
	entries, err := s.backends[name].List(s.Context(), in.Cluster)
	if err != nil || len(entries) != 1 || !entries[0].Equal(in) {
		s.Errorf("the other owner's entry is %+v (%v), want it untouched", entries, err)
	}
}

// expectStatus expects a registry that was compared within the last quarter of an hour, with this in the last failure.
func (s *scene) expectStatus(failure string, blocked bool) {
	s.Helper()
	got := s.resync.Status()["a"]
	if !got.Lists || time.Since(got.Succeeded) > 15*time.Minute || got.RemovalsBlocked != blocked ||
		!strings.Contains(got.Failure, failure) || failure == "" && got.Failure != "" {
		s.Errorf("the status is %+v, want the failure %q and removals blocked %t", got, failure, blocked)
	}
}

func (s *scene) expectLogged(words string, want int) {
	s.Helper()
	synctest.Wait()
	if got := strings.Count(s.logged(), words); got != want {
		s.Errorf("logged %q %d times, want %d:\n%s", words, got, want, s.logged())
	}
}

// expectMetric expects a metric of registry a with this name and, where there is one, this finding.
func (s *scene) expectMetric(name, finding string, want float64) {
	s.Helper()
	labels := `registry="a"`
	if finding != "" {
		labels = fmt.Sprintf("finding=%q,%s", finding, labels)
	}
	line := fmt.Sprintf("%s{%s} %v", name, labels, want)
	if all := series.Of(s, s.metrics); !slices.Contains(all, line) {
		s.Errorf("there is no %s in\n%s", line, strings.Join(all, "\n"))
	}
}

// expectShown expects series of these registries and of no others.
func (s *scene) expectShown(why string, want ...string) {
	s.Helper()
	found := map[string]bool{}
	for _, match := range regexp.MustCompile(`registry="(\w+)"`).FindAllStringSubmatch(fmt.Sprint(series.Of(s, s.metrics)), -1) {
		found[match[1]] = true
	}
	expect.Equal(s, want, slices.Sorted(maps.Keys(found)), "registries with metrics: %s", why)
}

// digest finds the one that a warning asks to approve.
func (s *scene) digest(warning string) string {
	s.Helper()
	_, rest, found := strings.Cut(warning, orders.Annotation+"=")
	if !found || len(rest) < 2*orders.DigestBytes {
		s.Fatalf("no digest in %q", warning)
	}
	return rest[:2*orders.DigestBytes]
}
