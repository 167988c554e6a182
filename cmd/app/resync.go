package app

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rollcall-dev/rollcall/internal/orders"
)

// leaseInterval is how often the annotation of the lease is read.
const leaseInterval = 2 * time.Second

// settling has resync, and with it the work on pods, wait until no call of a process before this one can be carried out any more. With a
// lease that time has passed before another manager leads. Without one, the process before may have been killed just now.
type settling struct {
	manager.Runnable

	until  time.Time
	logger logr.Logger
}

// Start waits, and then does what the runnable does.
func (s *settling) Start(ctx context.Context) error {
	if why := s.unready(); why != "" {
		s.logger.Info(why)
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(s.until)):
		}
	}
	return s.Runnable.Start(ctx)
}

// unready returns why no pod is worked on yet, or nothing.
func (s *settling) unready() string {
	if left := time.Until(s.until); left > 0 {
		return fmt.Sprintf("without leader election, pods wait for %s: calls of the previous manager may still be carried out",
			left.Round(time.Second))
	}
	return ""
}

// settles is until when calls of a process before this one may still be carried out, by the longest registry.timeout; zero if that
// process had a lease, or this one makes no calls.
func (a *app) settles() (until time.Time) {
	if a.lease != nil || a.dryRun != nil {
		return until
	}
	for _, one := range a.drivers.inForce().byName {
		if lands := time.Now().Add(one.client.MayLandFor()); lands.After(until) {
			until = lands
		}
	}
	return until
}

// requests reads what a person asks of resync, in an annotation of the lease: every installation has one, and only the
// operators of Rollcall may write it. It runs only on the leader, which takes out the approvals that count no more.
type requests struct {
	server client.Client
	lease  client.ObjectKey
	resync interface {
		Approve(digests []string) (spent []string)
		Run()
	}
	logger logr.Logger

	// seen is the last value; nil before the first look, since a leader begins with a run anyway.
	seen *string
	// failed: the lease could not be read, or written, last time.
	failed bool
}

// Start reads the annotation until the context ends.
func (r *requests) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.look, leaseInterval)
	return nil
}

func (r *requests) look(ctx context.Context) {
	err := r.follow(ctx)
	if err != nil && !r.failed && ctx.Err() == nil {
		r.logger.Error(err, "failed to follow the annotation of the lease that requests a resync and approves removals")
	}
	r.failed = err != nil
}

func (r *requests) follow(ctx context.Context) error {
	var lease coordinationv1.Lease
	if err := r.server.Get(ctx, r.lease, &lease); err != nil {
		return fmt.Errorf("reading lease %s: %w", r.lease, err)
	}
	value := lease.Annotations[orders.Annotation]
	spent := r.resync.Approve(orders.Digests(value))
	if r.seen != nil && *r.seen != value && value != "" {
		r.logger.Info("resync requested", "annotation", orders.Annotation, "value", value)
		r.resync.Run()
	}
	r.seen = &value
	if len(spent) == 0 {
		return nil
	}
	return r.takeOut(ctx, &lease, spent)
}

// takeOut removes the digests from the lease as it was read. If somebody has written it since, it is tried again after the next look.
func (r *requests) takeOut(ctx context.Context, lease *coordinationv1.Lease, spent []string) error {
	left := orders.Without(*r.seen, spent)
	if lease.Annotations[orders.Annotation] = left; left == "" {
		delete(lease.Annotations, orders.Annotation)
	}
	switch err := r.server.Update(ctx, lease); {
	case apierrors.IsConflict(err):
		return nil
	case err != nil:
		return fmt.Errorf("taking approvals that count no more out of annotation %s of lease %s: %w", orders.Annotation, r.lease, err)
	}
	r.logger.Info("took approvals that count no more out of the lease: they are used up, or this manager does not hold back these removals",
		"annotation", orders.Annotation, "digests", spent)
	r.seen = &left
	return nil
}
