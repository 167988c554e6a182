package integration

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// TestProbe: OpenKruise counts on a pod only once a server that has a probe agrees to it, and the pod says what is missing.
func TestProbe(t *testing.T) {
	t.Parallel()
	ns := namespaceOf("probe", preNormal)
	var agrees atomic.Bool
	server := startRegistry(t, registryOptions{around: func(next http.Handler) http.Handler {
		protocol := http.NewServeMux()
		protocol.Handle("/", next)
		protocol.HandleFunc("GET /v1/capabilities", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"probe": true}`)
		})
		protocol.HandleFunc("POST /v1/probe", func(w http.ResponseWriter, _ *http.Request) {
			if !agrees.Load() {
				w.WriteHeader(http.StatusConflict)
				_, _ = io.WriteString(w, `{"error": "its cache is warming up"}`)
			}
		})
		return protocol
	}})
	s := newScenario(t, startManager(t, ns, defaultConfiguration(server.URL(), ns)), server, preNormal, ns)
	s.troubled = true
	s.Create(replicas(1))
	pod := s.AwaitPods(1)[0]
	s.ExpectEvent(pod, corev1.EventTypeWarning, "NotServing", "not given to clients yet", "its cache is warming up")
	s.ExpectNeverSeen(pod, appspub.LifecycleStateNormal)
	agrees.Store(true)
	s.ExpectSteady()
	s.ExpectAlways()
}
