package integration

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// announced has OpenKruise wait for new pods too.
func announced(set *kruisev1alpha1.CloneSet) {
	set.Spec.Lifecycle.PreNormal = &appspub.LifecycleHook{LabelsHandler: map[string]string{"example.com/traffic": "online"}}
	set.Spec.Template.Labels["example.com/traffic"] = "offline"
}

// shares is how people and CI share traffic out by revision.
func shares(text string) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, lifecycle.AnnotationTraffic, text)
	}
}

func (s *scenario) untilStatus(what string, so func(now kruisev1alpha1.CloneSetStatus) bool) {
	s.Helper()
	s.until(what, func() bool {
		set := s.history.Set(s.key)
		return set != nil && so(set.Status)
	})
}

// weighted are clients that pick by the weights that Consul gives at that time. Never may it give them nobody.
type weighted struct {
	*scenario

	pods  *busyPods
	given atomic.Pointer[weights]
	// fewest is how many they were given at the least.
	fewest atomic.Int64
}

// watch reads the registry until the test ends.
func (c *weighted) watch(server *consul.Server) {
	read := func() {
		var nodes []struct {
			Service struct {
				Address string
				Weights struct{ Passing int }
			}
		}
		if err := server.Do(c.Context(), http.MethodGet, "/v1/health/service/"+c.ns+"?passing", nil, &nodes); err != nil {
			return // at the test's end
		}
		given := weights{}
		for _, n := range nodes {
			given[n.Service.Address] = float64(n.Service.Weights.Passing)
		}
		c.fewest.Store(min(c.fewest.Load(), int64(len(given))))
		if before := c.given.Swap(&given); len(given) == 0 && before != nil && len(*before) > 0 {
			c.Error("clients are given nobody")
		}
	}
	read()
	go func() {
		ticks := time.NewTicker(glance)
		defer ticks.Stop()
		for {
			select {
			case <-c.Context().Done():
				return
			case <-ticks.C:
				read()
			}
		}
	}()
}

func (c *weighted) awaitGiven(what string, so func(weights) bool) {
	c.Helper()
	c.await(what, func() error {
		if given := *c.given.Load(); !so(given) {
			return fmt.Errorf("clients are given %v", given)
		}
		return nil
	})
}

// request sends so many requests to the pods, and returns what percentage of them the pod got.
func (c *weighted) request(n int, pod *corev1.Pod) float64 {
	c.Helper()
	const clients = 4
	before, transport := len(c.pods.Asked(pod)), &http.Transport{MaxIdleConnsPerHost: clients}
	defer transport.CloseIdleConnections()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range n / clients {
				to := "http://" + net.JoinHostPort(c.given.Load().pick(random), strconv.Itoa(c.pods.port))
				pod := registries.Client{URL: to, HTTP: &http.Client{Transport: transport}}
				if _, err := pod.Do(c.Context(), http.MethodGet, "", nil); err != nil {
					c.Errorf("a request is lost: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	return 100 * float64(len(c.pods.Asked(pod))-before) / float64(n)
}

// pick returns an address, with a probability by its weight.
func (w weights) pick(random *rand.Rand) (address string) {
	sum := 0.0
	for _, weight := range w {
		sum += weight
	}
	at := random.Float64() * sum
	for address, weight := range w {
		if at -= weight; at < 0 {
			return address
		}
	}
	return address
}

// TestTrafficByRevision: a canary of one pod in ten, in place. It waits without requests, gets 20 % of them, all of them, and none again.
func TestTrafficByRevision(t *testing.T) {
	t.Parallel()
	const name, requests = "traffic-by-revision", 20_000
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	config := defaultConfiguration("", name)
	config["registry"] = map[string]any{"driver": "consul", "endpoint": server.URL, "timeout": callTimeout.String()}
	config["service"] = map[string]any{"name": "{label:app}", "metadata": map[string]any{"weight": "100"}}
	s := newScenario(t, startManager(t, name, config), env.registry, labels, name)
	c := &weighted{scenario: s, pods: startBusyPods(t)}
	c.watch(server)
	s.Create(replicas(10), inPlace, announced, shares("stable=100,canary=0"), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: int32(c.pods.port)}}
	})
	c.awaitGiven("all pods to be in rotation", func(w weights) bool { return len(w) == 10 })
	s.untilStatus("OpenKruise to count all pods", func(now kruisev1alpha1.CloneSetStatus) bool { return now.AvailableReplicas == 10 })

	t.Log("One pod is updated: it waits for its first request.")
	s.Edit(func(set *kruisev1alpha1.CloneSet) { image("nginx:2")(set); partitioned(9)(set) })
	canary := s.AwaitPodIn(appspub.LifecycleStateUpdated)
	s.ExpectEvent(canary, corev1.EventTypeNormal, "HeldOut", "canary, has no share of the traffic", "stable=100,canary=0")
	c.awaitGiven("the canary to be out", func(w weights) bool { return len(w) == 9 && w[canary.Status.PodIP] == 0 })
	got := c.request(requests/10, canary)
	s.Expect(got == 0, "a revision without a share got %.2f %% of the requests", got)
	s.Expect(stateOf(s.Now(canary.UID)) == string(appspub.LifecycleStateUpdated), "OpenKruise went on with a pod that is out of rotation")

	t.Log("It gets a fifth of the traffic.")
	s.Edit(shares("stable=80,canary=20"))
	s.AwaitState(canary, appspub.LifecycleStateNormal)
	c.awaitGiven("the weights of the shares", func(w weights) bool {
		stable := 0
		for _, weight := range w {
			if weight == 44 {
				stable++
			}
		}
		return stable == 9 && w[canary.Status.PodIP] == 100
	})
	got = c.request(requests, canary)
	t.Logf("with 9 + 1 pods and a share of 20 %%, the canary got %.2f %% of %d requests", got, requests)
	s.Expect(math.Abs(got-20) < 2, "the canary got %.2f %% of the requests, want 20", got)

	t.Log("All of it, and back.")
	s.Edit(shares("stable=0,canary=100"))
	c.awaitGiven("only the canary", func(w weights) bool { return len(w) == 1 && w[canary.Status.PodIP] > 0 })
	got = c.request(requests/10, canary)
	s.Expect(got == 100, "the canary got %.2f %% of the requests, want all", got)
	s.Edit(shares("stable=100,canary=0"))
	c.awaitGiven("only the others", func(w weights) bool { return len(w) == 9 && w[canary.Status.PodIP] == 0 })
	got = c.request(requests/10, canary)
	s.Expect(got == 0, "the canary got %.2f %% of the requests, want none", got)
	s.Edit(func(set *kruisev1alpha1.CloneSet) { delete(set.Annotations, lifecycle.AnnotationTraffic) })
	c.awaitGiven("all pods with one weight", func(w weights) bool {
		return len(w) == 10 && !slices.ContainsFunc(slices.Collect(maps.Values(w)), func(weight float64) bool { return weight != 100 })
	})
}

// TestBlueGreen: a new revision is as large as the old one before it gets requests. It is rolled back once, then it replaces the old one.
func TestBlueGreen(t *testing.T) {
	t.Parallel()
	const n = 3
	s := alone(t, "blue-green", nil)
	blue := s.Begin(replicas(n), announced, shares("stable=100,canary=0"), updateType(kruisev1alpha1.RecreateCloneSetUpdateStrategyType),
		func(set *kruisev1alpha1.CloneSet) {
			all, none := intstr.FromInt32(n), intstr.FromInt32(0)
			set.Spec.UpdateStrategy.MaxSurge, set.Spec.UpdateStrategy.MaxUnavailable = &all, &none
		})
	preview := func(image string) (green []*corev1.Pod) {
		t.Helper()
		s.UpdateImage(image)
		s.AwaitObserved()
		s.untilStatus("the new pods to be ready", func(now kruisev1alpha1.CloneSetStatus) bool {
			return now.UpdatedReadyReplicas == n && now.Replicas == 2*n
		})
		for _, pod := range s.Pods() {
			if pod.Spec.Containers[0].Image == image {
				green = append(green, pod)
				s.ExpectEvent(pod, corev1.EventTypeNormal, "HeldOut", "canary, has no share of the traffic")
			}
		}
		s.must(s.registryHolds(blue))
		s.Expect(len(green) == n && len(s.Pods()) == 2*n, "OpenKruise replaces pods by some that no client finds")
		return green
	}
	expectNeverIn := func(pods []*corev1.Pod) {
		t.Helper()
		for _, pod := range pods {
			s.Expect(s.counted(pod, fakeregistry.OpRegister) == 0, "pod %s was registered", pod.Name)
		}
	}
	green := preview("nginx:2")
	s.UpdateImage("nginx:1")
	for _, pod := range green {
		s.AwaitGone(pod)
	}
	expectNeverIn(green)
	s.must(s.registryHolds(blue))

	green = preview("nginx:3")
	expectNeverIn(green)
	s.Edit(shares("stable=0,canary=100"))
	for _, pod := range blue {
		s.AwaitGone(pod)
	}
	s.ExpectSteady()
	s.ExpectImage("nginx:3", green)
	s.ExpectNothingLeft()
}
