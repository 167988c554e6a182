package integration

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
)

// TestCrashedContainers: with the driver pod, an application that has crashed can't be asked to leave, and does not hold up the rollout that
// repairs it.
func TestCrashedContainers(t *testing.T) {
	t.Parallel()
	apps := startApps(t)
	s := alone(t, "crashed-containers", func(c configuration) {
		path := func(name string) map[string]any { return map[string]any{"path": "/" + name} }
		c["registry"] = map[string]any{
			"driver": "pod", "registeredBy": "App", "endpoint": fmt.Sprintf("http://{podIP}:%d", apps.port), "readerLag": "0s",
			"options": map[string]any{
				"leave": path("leave"), "join": path("join"), "state": path("state"),
				"in": map[string]any{"status": http.StatusOK}, "out": map[string]any{"status": http.StatusServiceUnavailable},
			},
		}
	})
	s.Create(replicas(2), inPlace, func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(2)) })
	s.awaitAtHome()
	pods := s.Pods()
	for _, pod := range pods {
		s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"10m"}}}`, cluster.AnnotationStartDelay)) // or else kubelet starts it again
		apps.Crash(pod)
		s.Crash(pod)
	}
	s.UpdateImage("nginx:2")
	for _, pod := range pods {
		s.AwaitState(pod, appspub.LifecycleStateUpdating)
		apps.Start(pod)
		s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, cluster.AnnotationStartDelay))
	}
	s.awaitAtHome()
	s.ExpectImage("nginx:2", pods)
}

// awaitAtHome waits until every pod is where OpenKruise wants it.
func (s *scenario) awaitAtHome() {
	s.Helper()
	s.await("everything to be steady", func() error {
		_, err := s.podsAtHome()
		return err
	})
}

// Crash is kubelet's report of a container that ends again and again.
func (s *scenario) Crash(pod *corev1.Pod) {
	s.Helper()
	containers := s.Now(pod.UID).DeepCopy().Status.ContainerStatuses
	for i := range containers {
		containers[i].Ready, containers[i].Started = false, new(false)
		containers[i].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	}
	text, err := json.Marshal(containers)
	s.must(err)
	s.PatchStatus(pod, fmt.Sprintf(`{"containerStatuses":%s,"conditions":[{"type":"ContainersReady","status":"False"},`+
		`{"type":"Ready","status":"False","reason":"ContainersNotReady"}]}`, text))
	s.untilPod(pod, "is unready", func(now *corev1.Pod) bool { return !lifecycle.IsTrue(lifecycle.PodOf(now), corev1.PodReady) })
}

// apps are the applications of pods, which leave and join when they are asked to. One listener takes the connections to all pods.
type apps struct {
	port int

	mu        sync.Mutex
	out, dead map[string]bool // by the pod's address
}

func startApps(t *testing.T) *apps {
	t.Helper()
	a := &apps{out: map[string]bool{}, dead: map[string]bool{}}
	a.port = serveOnPods(t, a)
	return a
}

// ServeHTTP implements http.Handler.
func (a *apps) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	address := local.IP.String()
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.dead[address]:
		panic(http.ErrAbortHandler) // the connection ends without an answer
	case r.Method == http.MethodPost:
		a.out[address] = r.URL.Path == "/leave"
	case a.out[address]:
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// Crash has nothing answer for the pod.
func (a *apps) Crash(pod *corev1.Pod) { a.is(pod, true) }

// Start has the application answer, which registers itself as it starts.
func (a *apps) Start(pod *corev1.Pod) { a.is(pod, false) }

func (a *apps) is(pod *corev1.Pod, crashed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead[pod.Status.PodIP], a.out[pod.Status.PodIP] = crashed, false
}
