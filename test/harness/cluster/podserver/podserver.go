// Package podserver answers HTTP for every pod of a cluster whose pods have loopback addresses.
//
// One listener on 0.0.0.0 takes the connections to all pods, and tells them apart by the local address of the
// connection. It answers a request to a pod only while a real one could: its containers run and are ready with the images
// that its spec names, and it is not being deleted; or kubelet has yet to stop them, since they sleep in preStop. Otherwise
// the connection is reset. A real pod does not wait for a watch to begin: before that, the API server is asked whether the pod
// has begun to run meanwhile.
package podserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/history"
)

const headerTimeout = 10 * time.Second

// Answer is the JSON body of every response.
type Answer struct {
	Pod       string `json:"pod"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
	// Image is what the first container runs.
	Image string `json:"image"`
}

// Server knows which pods can serve, and serves for them. Its methods are safe for concurrent use.
type Server struct {
	// Port is where it answers for each pod.
	Port int

	// look asks the API server for the pods that have the address.
	look func(ctx context.Context, address string) ([]corev1.Pod, error)

	mu      sync.Mutex
	serving map[string]Answer // by address, only pods that can serve
}

// Use answers for the cluster's pods until the end of the test, at the port that it returns.
func Use(t testing.TB, k8s client.WithWatch) (port int) {
	t.Helper()
	s, stop, err := Start(t.Context(), k8s, func(err error) { t.Error(err) })
	expect.NoError(t, err)
	t.Cleanup(stop)
	return s.Port
}

// Start answers for the cluster's pods on a free port until stop is called, so that the requests under way when ctx ends are
// answered. It calls failed where it can't go on before that.
func Start(ctx context.Context, k8s client.WithWatch, failed func(error)) (s *Server, stop func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if s, err = newWatching(ctx, k8s); err != nil {
		cancel()
		return nil, nil, err
	}
	listener, err := listen(ctx)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	if address, ok := listener.Addr().(*net.TCPAddr); ok {
		s.Port = address.Port
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.serve(ctx, listener); err != nil {
			failed(err)
		}
	})
	return s, func() { cancel(); serving.Wait() }, nil
}

func listen(ctx context.Context) (net.Listener, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the pods: %w", err)
	}
	return listener, nil
}

// newWatching returns a server that knows all pods, and watches them until ctx ends.
func newWatching(ctx context.Context, k8s client.WithWatch) (*Server, error) {
	s := newServer(func(ctx context.Context, address string) ([]corev1.Pod, error) {
		var pods corev1.PodList
		if err := k8s.List(ctx, &pods, client.MatchingFields{"status.podIP": address}); err != nil {
			return nil, fmt.Errorf("looking for the pod at %s: %w", address, err)
		}
		return pods.Items, nil
	})
	_, err := history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) { s.observe(v.Object, v.Gone) })
	return s, err
}

func newServer(look func(context.Context, string) ([]corev1.Pod, error)) *Server {
	return &Server{look: look, serving: map[string]Answer{}}
}

// serve answers on the listener until ctx ends, then closes it with all its connections and returns nil.
func (s *Server) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler:           http.HandlerFunc(s.answer),
		ReadHeaderTimeout: headerTimeout,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(listener)
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serving for the pods: %w", err)
}

// connKey is of a request's connection in its context.
type connKey struct{}

// answer runs for each request: a connection that was opened in time may carry one that is too late.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	address, _, _ := net.SplitHostPort(c.LocalAddr().String()) // of TCP it has both
	s.mu.Lock()
	answer, serving := s.serving[address]
	s.mu.Unlock()
	if !serving {
		answer, serving = s.lookUp(r.Context(), address)
	}
	if !serving {
		reset(c)
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	// The client is gone if this fails.
	_ = json.NewEncoder(w).Encode(answer)
}

// lookUp asks for a pod that runs at the address and that the watch has not come to yet.
func (s *Server) lookUp(ctx context.Context, address string) (answer Answer, serving bool) {
	pods, err := s.look(ctx, address)
	if err != nil {
		return Answer{}, false
	}
	for i := range pods {
		if CanServe(&pods[i]) {
			return answerFor(&pods[i]), true
		}
	}
	return Answer{}, false
}

func answerFor(pod *corev1.Pod) Answer {
	return Answer{Pod: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID), Image: pod.Status.ContainerStatuses[0].Image}
}

func (s *Server) observe(pod *corev1.Pod, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !gone && CanServe(pod) {
		s.serving[pod.Status.PodIP] = answerFor(pod)
		return
	}
	maps.DeleteFunc(s.serving, func(_ string, a Answer) bool { return a.UID == string(pod.UID) })
}

// CanServe tells whether a kubelet would have the pod's containers running and ready. Without a preStop sleep it stops them
// at once where the pod is deleted or its spec wants another image; with one they run until the status says otherwise.
func CanServe(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
		return false
	}
	statuses := make(map[string]*corev1.ContainerStatus, len(pod.Status.ContainerStatuses))
	for i := range pod.Status.ContainerStatuses {
		statuses[pod.Status.ContainerStatuses[i].Name] = &pod.Status.ContainerStatuses[i]
	}
	for _, container := range pod.Spec.Containers {
		status := statuses[container.Name]
		if status == nil || status.State.Running == nil || !status.Ready {
			return false
		}
		if stops := pod.DeletionTimestamp != nil || status.Image != container.Image; stops && !sleeps(&container) {
			return false
		}
	}
	return true
}

func sleeps(container *corev1.Container) bool {
	return container.Lifecycle != nil && container.Lifecycle.PreStop != nil && container.Lifecycle.PreStop.Sleep != nil
}

// reset closes a connection so that the other side sees it refused, and not a regular end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
