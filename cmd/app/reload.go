package app

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

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

	// standing is a refusal that still holds and has no Event yet; empty where there is none.
	mu       sync.Mutex
	standing string
	// untold: making its Event has failed, which is logged once.
	untold bool
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

// onceElected makes the Event of a refusal that came while another manager led, whose own Event may be missing. If the API
// server does not accept the Event, it tries again as often as the file is read, while the refusal stands.
func (r *reload) onceElected(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-r.events.elected:
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tellStanding(ctx)
	}, cmp.Or(r.watcher.Interval, config.DefaultInterval))
}

// tellStanding makes the Event of a refusal that has none yet, if this manager leads. r.mu is held.
func (r *reload) tellStanding(ctx context.Context) {
	if r.standing == "" || !r.events.leads() {
		return
	}
	err := r.events.create(ctx, corev1.EventTypeWarning, "Reload", "ConfigRefused", r.standing)
	switch {
	case err == nil:
		r.standing, r.untold = "", false
	case !r.untold && ctx.Err() == nil:
		r.untold = true
		r.logger.Error(err, eventFailed)
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
		r.logger.Info("rotated files of registries are in use", "registries", rotated)
	}
	if err := r.drivers.replace(next); err != nil {
		r.logger.Error(err, "closing the previous registries")
	}
	return nil
}

func (r *reload) applied(ctx context.Context) {
	r.metrics.Applied()
	r.logger.Info("configuration reloaded", "file", r.watcher.Path)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing, r.untold = "", false
	r.events.tell(ctx, corev1.EventTypeNormal, "Reload", "ConfigApplied", "the configuration is in force")
}

func (r *reload) refused(ctx context.Context, err error) {
	r.metrics.Refused()
	// Wrapped, so that the logger does not list the causes a second time.
	r.logger.Error(fmt.Errorf("%s: %w", r.watcher.Path, err), "configuration refused, the previous one stays in force")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.standing = "the previous configuration stays in force: " + err.Error()
	r.tellStanding(ctx) // else onceElected does, if it still stands then
}

// podNamespace is the namespace of the pod that this process runs in; empty outside a cluster.
func podNamespace() string { return os.Getenv("POD_NAMESPACE") }
