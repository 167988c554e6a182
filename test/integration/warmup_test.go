package integration

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

// rampFor is long enough to see most of its ten steps on a busy machine.
const rampFor = 30 * time.Second

func TestWarmUpByConsul(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	expectRamp(t, "warm-up-consul", map[string]any{"driver": "consul", "endpoint": server.URL, "timeout": "4s"}, func(service string) (weights, error) {
		var nodes []struct {
			Service struct {
				Address string
				Port    int
				Weights struct{ Passing int }
			}
		}
		if err := server.Do(t.Context(), http.MethodGet, "/v1/health/service/"+service+"?passing", nil, &nodes); err != nil {
			return nil, err
		}
		given := weights{}
		for _, n := range nodes {
			given[net.JoinHostPort(n.Service.Address, strconv.Itoa(n.Service.Port))] = float64(n.Service.Weights.Passing)
		}
		return given, nil
	})
}

func TestWarmUpByNacos(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, registries.With(nacos.Start, nacos.Options{Version: nacos.V2}))
	var reader *nacos.Reader
	expectRamp(t, "warm-up-nacos", map[string]any{"driver": "nacos", "endpoint": server.Endpoint, "timeout": "5s"}, func(service string) (weights, error) {
		var err error
		if reader == nil {
			reader, err = server.Subscribe(t.Context(), service)
			expect.NoError(t, err)
		}
		seen, err := reader.Latest()
		given := weights{}
		for _, s := range seen {
			if s.Healthy && s.Enabled {
				given[net.JoinHostPort(s.IP, strconv.Itoa(s.Port))] = s.Weight
			}
		}
		return given, err
	})
}

// weights are by address and port.
type weights map[string]float64

// share is the part of many requests that a client sends to a place which picks by the weights.
func (w weights) share(to string) float64 {
	const requests = 50_000
	random, sum, got := rand.New(rand.NewPCG(1, 2)), 0.0, 0
	for _, weight := range w {
		sum += weight
	}
	for range requests {
		if random.Float64()*sum < w[to] {
			got++
		}
	}
	return float64(got) / requests
}

// expectRamp has a pod come next to one that is warm, and a client that is given both by the registry. Half-way, another manager takes over.
func expectRamp(t *testing.T, namespace string, section map[string]any, read func(service string) (weights, error)) {
	t.Helper()
	config := defaultConfiguration("", namespace)
	config["registry"], config["warmUp"] = section, rampFor.String()
	config["service"] = map[string]any{"name": "{label:app}", "metadata": map[string]any{"weight": "100"}}
	s := newScenario(t, startManager(t, namespace, config), env.registry, labels, namespace)
	at := func(pod *corev1.Pod) string { return net.JoinHostPort(s.Now(pod.UID).Status.PodIP, "80") }
	given := weights{}
	until := func(what string, enough func() bool) {
		t.Helper()
		s.await(what, func() (err error) {
			if given, err = read(namespace); err == nil && !enough() {
				err = fmt.Errorf("clients are given %v", given)
			}
			return err
		})
	}
	s.Create(replicas(1))
	warm := s.AwaitPods(1)[0]
	until("the first pod to be warm", func() bool { return len(given) == 1 && given[at(warm)] == 100 })

	s.Scale(2)
	cold := s.AwaitPods(2)[0]
	if cold.UID == warm.UID {
		cold = s.Pods()[1]
	}
	until("the second pod to be given to clients", func() bool { return len(given) == 2 })
	s.untilPod(cold, "to have a record", func(now *corev1.Pod) bool { return lifecycle.RecordOf(lifecycle.PodOf(now)).Exists() })
	to, steps, restarted := at(cold), 0, false
	for last := 0.0; last < 100; steps++ {
		until("the weight to grow", func() bool { return given[to] > last })
		last = given[to]
		in := time.Since(lifecycle.RecordOf(lifecycle.PodOf(s.Now(cold.UID))).InSince)
		part := math.Max(last/100, 0.01)
		want, got := part/(part+1), given.share(to)
		t.Logf("after %s: weight %v of 100, %.2f %% of the requests, by the curve %.2f %%", in.Round(time.Second), last, 100*got, 100*want)
		s.Expect(last == 1 || math.Mod(last, 10) == 0, "the weight is %v", last)
		s.Expect(math.Abs(got-want) <= want/5, "the share is %.4f, by the curve %.4f", got, want)
		s.Expect(in.Seconds() >= rampFor.Seconds()*last/100-1 || last == 1, "the weight is %v after %s of %s", last, in, rampFor)
		if last >= 50 && !restarted {
			restarted = true
			s.manager.Kill()
			restart(t, s.manager)
		}
	}
	s.Expect(steps >= 5, "clients saw %d steps, want most of ten", steps)
	s.Expect(given[at(warm)] == 100, "the warm pod has %v", given)
}
