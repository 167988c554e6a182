package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/steer"
)

// leaseInterval is how often the annotations of the lease are read.
const leaseInterval = 2 * time.Second

// requests reads what a person asks of resync, in annotations of the lease: every installation has one, and only the
// operators of Rollcall may write it. It runs only on the leader.
type requests struct {
	server client.Reader
	lease  client.ObjectKey
	resync interface {
		Approve(digests []string)
		Run()
	}
	logger logr.Logger

	// run is the last value that was seen; nil before the first look, which begins with a run anyway.
	run *string
	// failed: the lease could not be read last time.
	failed bool
}

// Start reads the annotations until the context ends.
func (r *requests) Start(ctx context.Context) error {
	wait.UntilWithContext(ctx, r.look, leaseInterval)
	return nil
}

func (r *requests) look(ctx context.Context) {
	var lease coordinationv1.Lease
	if err := r.server.Get(ctx, r.lease, &lease); err != nil {
		if !r.failed && ctx.Err() == nil {
			r.logger.Error(err, "reading the annotations of the lease, which request a resync and approve removals")
		}
		r.failed = true
		return
	}
	r.failed = false
	r.resync.Approve(steer.Approved(lease.Annotations[steer.AnnotationApprove]))
	run := lease.Annotations[steer.AnnotationRun]
	if r.run != nil && *r.run != run && run != "" {
		r.logger.Info("resync requested", "annotation", steer.AnnotationRun, "value", run)
		r.resync.Run()
	}
	r.run = &run
}
