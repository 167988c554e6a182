package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
)

// readTimeout bounds how long a request to a registry of the demo's own may take to arrive.
const readTimeout = time.Second

// mirror is what keeps a registry in step where there are no hooks: it watches the pods, and has a pod in the registry
// exactly while the pod is ready. It is as quick as such a thing can be, and yet always behind: it learns of a change
// only when it has happened.
type mirror struct {
	registry registry.Registry
	port     int
}

// startMirror makes the registry, serves it and follows the namespace's pods until ctx ends. It returns the registry's URL.
func startMirror(ctx context.Context, k8s client.WithWatch, namespace string, port int) (string, error) {
	store, err := memory.New(ctx, registry.Config{Cluster: "demo"})
	if err != nil {
		return "", fmt.Errorf("making the mirror's registry: %w", err)
	}
	view, ok := store.(http.Handler)
	if !ok {
		return "", fmt.Errorf("the memory driver (%T) does not serve its list", store)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listening for the mirror's registry: %w", err)
	}
	server := &http.Server{Handler: view, ReadHeaderTimeout: readTimeout}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(listener) }() // until closed; if not, the reader can't read, and says so

	m := &mirror{registry: store, port: port}
	err = watchPods(ctx, k8s, namespace, func(pod *corev1.Pod, gone bool) { m.follow(ctx, pod, gone) })
	if err != nil {
		return "", err
	}
	return "http://" + listener.Addr().String() + "/v1/instances", nil
}

// follow puts a ready pod into the registry and takes any other out.
func (m *mirror) follow(ctx context.Context, pod *corev1.Pod, gone bool) {
	if pod.Status.PodIP == "" {
		return
	}
	instance := registry.Instance{
		Service: pod.Labels["app"], Address: pod.Status.PodIP, Port: m.port,
		Cluster: "demo", Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	}
	call := m.registry.Register
	if gone || pod.DeletionTimestamp != nil || !ready(pod) {
		call = m.registry.Deregister
	}
	// The registry is in memory: it fails only when ctx has ended.
	_ = call(ctx, instance)
}
