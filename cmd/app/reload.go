package app

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
)

// reload puts a changed configuration in force. It runs on every manager: one that waits for the lease must know the
// configuration when it gets it.
type reload struct {
	watcher config.Watcher
	drivers *drivers
	apply   func(*config.Config, *registries)
	metrics *metrics.ConfigMetrics
	logger  logr.Logger
	events  *configEvents

	// standing is a refusal that holds and that no Event tells yet; empty where there is none.
	mu       sync.Mutex
	standing string
}

// NeedLeaderElection makes it run without the lease.
func (*reload) NeedLeaderElection() bool { return false }

// Start watches the file until the context ends.
func (r *reload) Start(ctx context.Context) error {
	r.watcher.Apply = r.putInForce
	r.watcher.Applied = func(*config.Config) { r.applied(ctx) }
	r.watcher.Refused = func(err error) { r.refused(ctx, err) }
	var waits sync.WaitGroup
	waits.Go(func() { r.onceElected(ctx) })
	r.watcher.Run(ctx)
	waits.Wait()
	return nil
}

// onceElected tells of a refusal that came while another manager led, which may be gone with what it told.
func (r *reload) onceElected(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.events.elected:
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standing != "" {
		r.events.create(ctx, corev1.EventTypeWarning, "Reload", "ConfigRefused", r.standing)
		r.standing = ""
	}
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
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing = ""
	r.events.create(ctx, corev1.EventTypeNormal, "Reload", "ConfigApplied", "the configuration is in force")
}

func (r *reload) refused(ctx context.Context, err error) {
	r.metrics.Refused()
	// Wrapped, so that the logger does not list the causes a second time.
	r.logger.Error(fmt.Errorf("%s: %w", r.watcher.Path, err), "the configuration was refused, the one before stays in force")
	note := "the one before stays in force: " + err.Error()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events.leads() { // else onceElected tells it, if it still stands then
		r.events.create(ctx, corev1.EventTypeWarning, "Reload", "ConfigRefused", note)
		note = ""
	}
	r.standing = note
}

// podNamespace is the namespace of the pod that this process runs in; empty outside a cluster.
func podNamespace() string { return os.Getenv("POD_NAMESPACE") }
