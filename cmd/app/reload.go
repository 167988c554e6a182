package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	eventsv1client "k8s.io/client-go/kubernetes/typed/events/v1"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
)

const (
	// configMapName is fixed: the Event about a configuration has to find it.
	configMapName = "rollcall-config"

	// controllerName is who our Events come from.
	controllerName = "rollcall"

	// maxNote is how long the API server allows an Event's note to be.
	maxNote      = 1024
	eventTimeout = 5 * time.Second
)

// reload puts a changed configuration in force. It runs on every manager: one that waits for the lease must know the
// configuration when it gets it.
type reload struct {
	watcher config.Watcher
	drivers *drivers
	apply   func(*config.Config, *registries)
	metrics *metrics.ConfigMetrics
	logger  logr.Logger

	// events makes the Events about the ConfigMap; nil outside a cluster, where there is none.
	events eventsv1client.EventInterface
	// elected is closed once this manager leads. Only the leader makes Events, else each would be told twice.
	elected <-chan struct{}
}

// NeedLeaderElection makes it run without the lease.
func (*reload) NeedLeaderElection() bool { return false }

// Start watches the file until the context ends.
func (r *reload) Start(ctx context.Context) error {
	r.watcher.Apply = r.putInForce
	r.watcher.Applied = func(*config.Config) { r.applied(ctx) }
	r.watcher.Refused = func(err error) { r.refused(ctx, err) }
	r.watcher.Run(ctx)
	return nil
}

// putInForce makes what the configuration asks for first, so that an error changes nothing.
func (r *reload) putInForce(ctx context.Context, c *config.Config, rotated []string) error {
	next, err := r.drivers.open(ctx, c, rotated)
	if err != nil {
		return err
	}
	r.apply(c, next)
	if len(rotated) > 0 {
		r.logger.Info("files of registries have changed and are in use", "registries", rotated)
	}
	if err := r.drivers.replace(next); err != nil {
		r.logger.Error(err, "closing what was in use before")
	}
	return nil
}

func (r *reload) applied(ctx context.Context) {
	r.metrics.Applied()
	r.logger.Info("the configuration was read again and is in force", "file", r.watcher.Path)
	r.event(ctx, corev1.EventTypeNormal, "ConfigApplied", "the configuration is in force")
}

func (r *reload) refused(ctx context.Context, err error) {
	r.metrics.Refused()
	// Wrapped, so that the logger does not list the causes a second time.
	r.logger.Error(fmt.Errorf("%s: %w", r.watcher.Path, err), "the configuration was refused, the one before stays in force")
	r.event(ctx, corev1.EventTypeWarning, "ConfigRefused", "the one before stays in force: "+err.Error())
}

// event makes an Event about the ConfigMap. It does not go through a recorder, which would take a second refusal for the
// first one come again and keep the first one's note.
func (r *reload) event(ctx context.Context, kind, reason, note string) {
	select {
	case <-r.elected:
	default:
		return
	}
	if r.events == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	host, _ := os.Hostname() // only for the reader
	event := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: podNamespace(), GenerateName: configMapName + "-"},
		EventTime:           metav1.NowMicro(),
		ReportingController: controllerName,
		ReportingInstance:   cmp.Or(host, controllerName),
		Regarding: corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: podNamespace(), Name: configMapName,
		},
		Action: "Reload", Type: kind, Reason: reason, Note: shorten(note),
	}
	if _, err := r.events.Create(ctx, event, metav1.CreateOptions{}); err != nil {
		r.logger.Error(err, "making an Event about the configuration")
	}
}

// shorten cuts a note to what the API server allows, which refuses a longer one.
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
