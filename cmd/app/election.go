package app

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// newLease returns the lease that one manager holds. Its own event recorder is left out: who leads stands in the lease.
func newLease(config *rest.Config, namespace, name string) (resourcelock.Interface, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this holder of the lease: %w", err)
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lease, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, name, identity, config, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the lease: %w", err)
	}
	return lease, nil
}

// release gives the lease back, so that the next manager need not wait for it to expire. It must be called only when
// nothing works any more. The election's own release is not used: after a renewal that failed it gives the lease back
// while the controllers still work.
func release(ctx context.Context, lease resourcelock.Interface) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), renewDeadline)
	defer cancel()
	record, _, err := lease.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading the lease to give it back: %w", err)
	}
	if record.HolderIdentity != lease.Identity() {
		return nil
	}
	record.HolderIdentity = ""
	record.LeaseDurationSeconds = 1
	record.RenewTime.Time = time.Now()
	record.AcquireTime = record.RenewTime
	if err := lease.Update(ctx, *record); err != nil {
		return fmt.Errorf("giving the lease back: %w", err)
	}
	return nil
}
