// Package mirror keeps a registry in step with the readiness of pods, as controllers do that sync services into one: no pod
// waits for it.
package mirror

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// Cluster is the mark of its entries.
	Cluster = "mirror"
	// Every is how often it looks at the pods.
	Every = 100 * time.Millisecond
	// CallTimeout bounds each of its calls.
	CallTimeout = 5 * time.Second
)

// Mirror has the pods of a namespace in a registry, under their label app, while they are ready and not being deleted. What
// fails it tries again.
type Mirror struct {
	k8s       client.Client
	registry  registry.Registry
	namespace string
	port      int
	told      map[types.UID]*told
}

// told is what the registry has acknowledged of an instance: that it is in, that it is out, or neither.
type told struct {
	instance registry.Instance
	in, out  bool
}

// New makes a mirror of the pods of a namespace, all of which serve at one port.
func New(k8s client.Client, to registry.Registry, namespace string, port int) *Mirror {
	return &Mirror{k8s: k8s, registry: to, namespace: namespace, port: port, told: map[types.UID]*told{}}
}

// Run mirrors until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m.pass(ctx)
		wait.Pause(ctx, Every)
	}
}

// pass makes all changes that are due at the same time. What fails is due again in the next one.
func (m *Mirror) pass(ctx context.Context) {
	pods, err := kube.Pods(ctx, m.k8s, m.namespace)
	if err != nil {
		return
	}
	want := m.wanted(pods)
	var all sync.WaitGroup
	for uid, in := range want {
		if m.told[uid] == nil {
			m.told[uid] = &told{instance: in}
		}
	}
	for uid, t := range m.told {
		switch _, serves := want[uid]; {
		case serves && !t.in:
			all.Go(func() { t.in = call(ctx, m.registry.Register, t.instance) })
		case !serves:
			all.Go(func() { t.out, t.in = call(ctx, m.registry.Deregister, t.instance), false })
		}
	}
	all.Wait()
	maps.DeleteFunc(m.told, func(_ types.UID, t *told) bool { return t.out })
}

// call reports whether the registry has acknowledged the change.
func call(ctx context.Context, change func(context.Context, registry.Instance) error, in registry.Instance) bool {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return change(ctx, in) == nil
}

// wanted are the instances of the pods that serve.
func (m *Mirror) wanted(pods []corev1.Pod) map[types.UID]registry.Instance {
	want := map[types.UID]registry.Instance{}
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && lifecycle.IsReady(lifecycle.PodOf(&pod)) && pod.Status.PodIP != "" {
			want[pod.UID] = registry.Instance{
				Service: pod.Labels["app"], Address: pod.Status.PodIP, Port: m.port,
				Cluster: Cluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
			}
		}
	}
	return want
}
