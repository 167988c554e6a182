package integration

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// busyPods answer for the applications of pods: how many requests each has left, at /idle and as a metric. One listener takes the
// connections to all pods.
type busyPods struct {
	testing.TB

	port int

	mu    sync.Mutex
	left  map[string]int // by the pod's address
	asked map[string][]time.Time
}

// serveOnPods has one listener take the connections to all pods.
func serveOnPods(t *testing.T, applications http.Handler) (port int) {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp4", "0.0.0.0:0")
	expect.NoError(t, err)
	server := &http.Server{Handler: applications, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return listener.Addr().(*net.TCPAddr).Port
}

func startBusyPods(t *testing.T) *busyPods {
	t.Helper()
	b := &busyPods{TB: t, left: map[string]int{}, asked: map[string][]time.Time{}}
	b.port = serveOnPods(t, b)
	return b
}

// ServeHTTP implements http.Handler. The metrics count their own request, as Spring's do.
func (b *busyPods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	address := local.IP.String()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked[address] = append(b.asked[address], time.Now())
	switch left := b.left[address]; {
	case r.URL.Path == "/metrics":
		fmt.Fprintf(w, "# TYPE http_active_seconds summary\nhttp_active_seconds_count{method=\"GET\"} %d\nhttp_active_seconds_sum{method=\"GET\"} 0.1\n", left+1)
	case left > 0:
		http.Error(w, fmt.Sprint(left), http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// Have leaves a pod with so many requests.
func (b *busyPods) Have(pod *corev1.Pod, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left[pod.Status.PodIP] = left
}

func (b *busyPods) Asked(pod *corev1.Pod) []time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[pod.Status.PodIP]
}

// beginDraining is a scenario of two pods that drain from min to max, or until they are idle. Each has 3 requests left.
func (s *scenario) beginDraining(b *busyPods, least, most time.Duration, until string) {
	s.Helper()
	s.drain = least
	for _, pod := range s.Begin(replicas(2), annotated(drainKey, fmt.Sprintf("{min: %s, max: %s, until: {port: %d, %s}}", least, most, b.port, until))) {
		b.Have(pod, 3)
	}
}

// scaleIn returns the pod that OpenKruise deletes, once it has been asked so many times, all of them after min.
func (s *scenario) scaleIn(b *busyPods, times int) *corev1.Pod {
	s.Helper()
	s.Scale(1)
	pod := s.AwaitPod("that is out of rotation", func(pod *corev1.Pod) bool { return lifecycle.RecordOf(lifecycle.PodOf(pod)).OutSince != nil })
	s.awaitAsked(b, pod, times)
	out := *lifecycle.RecordOf(lifecycle.PodOf(pod)).OutSince
	asked := b.Asked(pod)
	s.Expect(!asked[0].Before(out.Add(s.drain)), "asked %s after it was taken out", asked[0].Sub(out))
	for i, at := range asked[1:] {
		s.Expect(at.Sub(asked[i]) > 900*time.Millisecond, "asked %s after the last time", at.Sub(asked[i]))
	}
	return pod
}

func (s *scenario) awaitAsked(b *busyPods, pod *corev1.Pod, times int) {
	s.Helper()
	s.await(fmt.Sprintf("pod %s to be asked %d times", pod.Name, times), func() error {
		if len(b.Asked(pod)) < times {
			return errors.New("it was not")
		}
		return nil
	})
}

// TestDrainsUntilIdle: a pod is held while it is busy, and let go once it is idle, long before the drain's end.
func TestDrainsUntilIdle(t *testing.T) {
	t.Parallel()
	b := startBusyPods(t)
	s := alone(t, "drain-until-idle", nil)
	s.style = finalizer
	s.beginDraining(b, 3*time.Second, time.Hour, "path: /idle")
	pod := s.scaleIn(b, 3)
	s.Expect(s.Now(pod.UID).DeletionTimestamp == nil, "a busy pod is deleted")
	s.ExpectMetric(`rollcall_waiting_pods{.*reason="Draining".*} 1`)
	b.Have(pod, 0)
	s.AwaitGone(pod)
	s.ExpectMetric(`rollcall_drains_total{by="idle"} 1`)
	s.ExpectAlways()
}

// TestDrainsUntilMax: a pod that is never idle is let go all the same, with a Warning.
func TestDrainsUntilMax(t *testing.T) {
	t.Parallel()
	b := startBusyPods(t)
	s := alone(t, "drain-until-max", nil)
	s.style = finalizer
	s.beginDraining(b, time.Second, 6*time.Second, "path: /idle")
	pod := s.scaleIn(b, 1)
	s.AwaitGone(pod)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "DrainTimeout", "a drain of 6s", "3 requests left")
	s.ExpectMetric(`rollcall_drains_total{by="max"} 1`)
	s.drain = 6 * time.Second // so long it was held, whatever was asked
	s.ExpectAlways()
}

// TestDrainUntilIdleOutlivesItsLeader: the next one asks on, by the drain that the lost leader began.
func TestDrainUntilIdleOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	const name = "leader-lost-until-idle"
	b, reg := startBusyPods(t), startRegistry(t)
	config, flags := defaultConfiguration(reg.URL(), name), elect(t, name+"-lease")
	s := newScenario(t, startManager(t, name+"-first", config, flags...), reg, finalizer, name)
	s.troubled = true
	s.beginDraining(b, 2*time.Second, time.Hour, "metric: http_active_seconds_count, labels: {method: GET}, allow: 1")
	s.standby = startManager(t, name+"-second", config, flags...)
	pod := s.scaleIn(b, 2)
	out := *lifecycle.RecordOf(lifecycle.PodOf(s.Now(pod.UID))).OutSince
	s.manager.Kill()
	s.awaitAsked(b, pod, len(b.Asked(pod))+2) // one call may have been under way
	now := lifecycle.RecordOf(lifecycle.PodOf(s.Now(pod.UID))).OutSince
	s.Expect(now != nil && now.Equal(out), "the drain began at %s, and now the record shows %v", out, now)
	b.Have(pod, 0)
	s.AwaitGone(pod)
	s.manager = s.standby
	s.ExpectMetric(`rollcall_drains_total{by="idle"} 1`)
}
