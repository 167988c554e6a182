package app

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/controller"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/service"
)

const (
	// configMapName is fixed: the Event about a configuration has to find it.
	configMapName = "rollcall-config"

	// maxNote is how long the API server allows an Event's note to be.
	maxNote = 1024
)

// reload puts a changed configuration in force. It runs on every manager: one that waits for the lease must know the
// configuration when it gets it.
type reload struct {
	watcher config.Watcher
	drivers *drivers
	apply   func(controller.Settings)
	metrics *metrics.ConfigMetrics
	logger  logr.Logger

	recorder events.EventRecorder
	// namespace is that of the ConfigMap; empty outside a cluster, where there is none.
	namespace string
	// elected is closed once this manager leads. Only the leader makes Events, else each would be told twice.
	elected <-chan struct{}
}

// NeedLeaderElection makes it run without the lease.
func (*reload) NeedLeaderElection() bool { return false }

// Start watches the file until the context ends.
func (r *reload) Start(ctx context.Context) error {
	r.watcher.Apply, r.watcher.Applied, r.watcher.Refused = r.putInForce, r.applied, r.refused
	r.watcher.Run(ctx)
	return nil
}

// putInForce makes what the configuration asks for first, so that an error changes nothing.
func (r *reload) putInForce(ctx context.Context, c *config.Config) error {
	next, err := r.drivers.open(ctx, c)
	if err != nil {
		return err
	}
	r.apply(settings(c, next))
	if err := r.drivers.replace(next); err != nil {
		r.logger.Error(err, "closing the registry that was in use before")
	}
	return nil
}

func (r *reload) applied(*config.Config) {
	r.metrics.Applied()
	r.logger.Info("the configuration was read again and is in force", "file", r.watcher.Path)
	r.event(corev1.EventTypeNormal, "ConfigApplied", "the configuration is in force")
}

func (r *reload) refused(err error) {
	r.metrics.Refused()
	r.logger.Error(err, "the configuration was refused, the one before stays in force", "file", r.watcher.Path)
	r.event(corev1.EventTypeWarning, "ConfigRefused", "the one before stays in force: "+err.Error())
}

func (r *reload) event(kind, reason, note string) {
	select {
	case <-r.elected:
	default:
		return
	}
	if r.namespace == "" {
		return
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: configMapName}}
	r.recorder.Eventf(object, nil, kind, reason, "Reload", "%s", shorten(note))
}

// shorten cuts a note to what the API server allows, which drops a longer one silently.
func shorten(note string) string {
	if len(note) <= maxNote {
		return note
	}
	const more = " …"
	cut := maxNote - len(more)
	for cut > 0 && note[cut]&0xC0 == 0x80 { // not in the middle of a rune
		cut--
	}
	return note[:cut] + more
}

// podNamespace is the namespace of the pod that this process runs in; empty outside a cluster.
func podNamespace() string { return os.Getenv("POD_NAMESPACE") }

// settings are what the controller takes from a configuration.
func settings(c *config.Config, o *opened) controller.Settings {
	return controller.Settings{
		Cluster:                c.Cluster,
		Registry:               o.registry,
		Timeout:                c.Registry.Timeout,
		Ownership:              lifecycle.Ownership{Owned: c.Hooks.Owned, NewlyCreated: c.Hooks.NewlyCreated},
		Services:               service.Rules{Name: c.Service.Name, Port: c.Service.Port},
		SharedAcrossNamespaces: c.Service.SharedAcrossNamespaces,
		Drain:                  c.Drain,
	}
}
