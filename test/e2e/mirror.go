package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
)

const (
	mirrorEvery   = 100 * time.Millisecond
	mirrorTimeout = 5 * time.Second
)

// mirror keeps Consul in step with the pods' readiness, as controllers do that sync services into a registry: a pod is
// in while it is ready and not being deleted. It tries again at once what fails. No pod waits for it.
type mirror struct {
	k8s       client.Client
	registry  registry.Registry
	namespace string
	told      map[types.UID]*told
}

// told is what Consul has acknowledged of an instance: that it is in, that it is out, or neither.
type told struct {
	instance registry.Instance
	in, out  bool
}

func newMirror(ctx context.Context, k8s client.Client, namespace string) (*mirror, error) {
	store, err := consul.New(ctx, registry.Config{
		Cluster: "mirror", Endpoint: fmt.Sprintf("http://127.0.0.1:%d", writersPort), Timeout: mirrorTimeout,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, fmt.Errorf("making the mirror's registry: %w", err)
	}
	return &mirror{k8s: k8s, registry: store, namespace: namespace, told: map[types.UID]*told{}}, nil
}

func (m *mirror) run(ctx context.Context) {
	ticker := time.NewTicker(mirrorEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.pass(ctx)
		}
	}
}

// pass makes all changes that are due at the same time. What fails is due again in the next one.
func (m *mirror) pass(ctx context.Context) {
	var pods corev1.PodList
	if err := m.k8s.List(ctx, &pods, client.InNamespace(m.namespace)); err != nil {
		return
	}
	want := wanted(pods.Items)
	var all sync.WaitGroup
	for uid, in := range want {
		if m.told[uid] == nil {
			m.told[uid] = &told{instance: in}
		}
	}
	for uid, t := range m.told {
		switch _, serves := want[uid]; {
		case serves && !t.in:
			all.Go(func() { t.in = m.call(ctx, m.registry.Register, t.instance) })
		case !serves:
			all.Go(func() { t.out, t.in = m.call(ctx, m.registry.Deregister, t.instance), false })
		}
	}
	all.Wait()
	maps.DeleteFunc(m.told, func(_ types.UID, t *told) bool { return t.out })
}

// call reports whether Consul has acknowledged the change.
func (m *mirror) call(
	ctx context.Context, change func(context.Context, registry.Instance) error, in registry.Instance,
) bool {
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
	defer cancel()
	return change(ctx, in) == nil
}

// wanted are the instances of the pods that serve.
func wanted(pods []corev1.Pod) map[types.UID]registry.Instance {
	want := map[types.UID]registry.Instance{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && ready(&pod) && pod.Status.PodIP != "" {
			want[pod.UID] = registry.Instance{
				Service: pod.Labels["app"], Address: pod.Status.PodIP, Port: appPort,
				Cluster: "mirror", Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
			}
		}
	}
	return want
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
