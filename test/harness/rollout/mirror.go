package rollout

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

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// MirrorCluster is the mark of a mirror's entries.
	MirrorCluster = "mirror"
	// mirrorEvery is how often it looks at the pods, and mirrorTimeout bounds each of its calls.
	mirrorEvery   = 100 * time.Millisecond
	mirrorTimeout = 5 * time.Second
)

// Mirror keeps a registry in step with the readiness of pods, as controllers do that sync services into one: no pod waits for it. It has
// the pods of a namespace there, under their label app, while they are ready and not being deleted. What fails it tries again.
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

// NewMirror makes a mirror of the pods of a namespace, all of which serve at one port, in the registry of a driver at the endpoint of the
// configuration.
func NewMirror(
	ctx context.Context, k8s client.Client, namespace string, port int, open registry.Constructor, config registry.Config,
) (*Mirror, error) {
	config.Cluster, config.Timeout, config.Logger = MirrorCluster, mirrorTimeout, slog.New(slog.DiscardHandler)
	to, err := open(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("making the mirror's registry: %w", err)
	}
	return &Mirror{k8s: k8s, registry: to, namespace: namespace, port: port, told: map[types.UID]*told{}}, nil
}

// Run mirrors until ctx ends.
func (m *Mirror) Run(ctx context.Context) {
	for ctx.Err() == nil {
		m.pass(ctx)
		wait.Pause(ctx, mirrorEvery)
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
	ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
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
				Cluster: MirrorCluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
			}
		}
	}
	return want
}
