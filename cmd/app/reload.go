package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/metrics"
)

// reloadInterval is how often the files are read.
const reloadInterval = 2 * time.Second

// reload keeps what is in force in step with the configuration's file, and with the files that its registries name. It reads
// them again and again, since a mounted ConfigMap or Secret changes by a swap of symbolic links that is easily missed by a
// watch. It runs on every manager: one that waits for the lease must know the configuration when it gets it.
type reload struct {
	path     string
	limits   config.Limits
	interval time.Duration
	drivers  *drivers
	// apply gives what is in force to those who work with it.
	apply   func(*registries)
	metrics *metrics.ConfigMetrics
	logger  logr.Logger
	events  *configEvents

	// refusal is why the files are not in force; empty if they are.
	refusal string
	event   lasting
}

// NeedLeaderElection makes it run without the lease.
func (*reload) NeedLeaderElection() bool { return false }

// Start reads the files until the context ends.
func (r *reload) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.once, r.interval)
	return nil
}

func (r *reload) inForce() *config.Config { return r.drivers.inForce().config }

// once reads everything, and reports what is new.
func (r *reload) once(ctx context.Context) {
	before := r.inForce()
	err := r.follow(ctx)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && err.Error() != r.refusal:
		r.refused(err)
	case err == nil && (r.inForce() != before || r.refusal != ""):
		r.applied(ctx)
	}
	r.event.make(ctx, r.events)
}

// follow puts the files in force. What is wrong with the configuration does not keep the registries in force from files that
// were rotated.
func (r *reload) follow(ctx context.Context) error {
	next, err := r.read()
	if err != nil {
		return errors.Join(err, r.open(ctx, r.inForce()))
	}
	err = r.open(ctx, next)
	if err != nil && next != r.inForce() {
		_ = r.open(ctx, r.inForce()) // the error has what is wrong with its files
	}
	return err
}

// read returns the configuration in force if the file has the same.
func (r *reload) read() (*config.Config, error) {
	data, err := os.ReadFile(r.path)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	next, err := config.Parse(data, r.limits)
	if err != nil {
		return nil, err
	}
	now := r.inForce()
	if reflect.DeepEqual(next, now) {
		return now, nil
	}
	return next, config.CheckReload(now, next)
}

// open puts c in force: a new configuration whole or not at all. Of the one in force it opens again each registry whose files
// were rotated; one with a wrong file keeps none of the others from their new credentials.
func (r *reload) open(ctx context.Context, c *config.Config) error {
	next, err := r.drivers.open(ctx, c)
	if err != nil && c != r.inForce() {
		return errors.Join(err, next.closeBut(r.drivers.inForce()))
	}
	if c == r.inForce() && len(next.rotated) == 0 {
		return err
	}
	r.apply(next)
	if len(next.rotated) > 0 {
		r.logger.Info("rotated files of registries are in use", "registries", next.rotated)
	}
	if err := r.drivers.replace(next); err != nil {
		r.logger.Error(err, "failed to close the previous registries")
	}
	return err
}

func (r *reload) applied(ctx context.Context) {
	r.metrics.Applied()
	r.logger.Info("configuration reloaded", "file", r.path)
	r.refusal = ""
	r.event = lasting{}
	r.events.tell(ctx, corev1.EventTypeNormal, "Reload", "ConfigApplied", "the configuration is in force")
}

func (r *reload) refused(err error) {
	r.metrics.Refused()
	// Wrapped, so that the logger does not list the causes a second time.
	r.logger.Error(fmt.Errorf("%s: %w", r.path, err), "failed to apply the configuration: it is refused, and the previous one stays in force")
	r.refusal = err.Error()
	r.event = lasting{action: "Reload", reason: "ConfigRefused", note: "the previous configuration stays in force: " + r.refusal}
}
