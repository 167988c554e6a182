package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// beatsPerLease is how often an entry is renewed while a lease lasts: two may fail.
	beatsPerLease = 3
	// grantsAtOnce bounds how many leases a batch asks for at the same time.
	grantsAtOnce = 16
)

// Heartbeat implements [registry.Heartbeater]. It renews the lease that the entry has, whichever process it is from.
func (r *Registry) Heartbeat(ctx context.Context, in registry.Instance) error {
	err := driverkit.CheckInstance(in)
	if err == nil {
		err = classify(r.renew(ctx, in))
	}
	return driverkit.CallError(ctx, "renewing", in, err)
}

func (r *Registry) renew(ctx context.Context, in registry.Instance) error {
	kv, err := eachInTurn(ctx, r.members, func(ctx context.Context) (*mvccpb.KeyValue, error) {
		return r.get(ctx, r.target.key(in))
	})
	switch {
	case err != nil:
		return err
	case kv == nil:
		return registry.NotRegistered(errors.New("there is no such entry"))
	case r.target.markOf(kv)[registry.MetaUID] != in.UID:
		return registry.NotRegistered(errors.New("the entry is another pod's"))
	case kv.GetLease() == 0:
		return registry.NotRegistered(errors.New("the entry has no lease"))
	}
	ttl, err := eachInTurn(ctx, r.members, func(ctx context.Context) (time.Duration, error) {
		return r.keepAlive(ctx, kv.GetLease())
	})
	switch {
	case err != nil:
		return err
	case ttl <= 0:
		return registry.NotRegistered(errors.New("the entry's lease has ended"))
	case ttl < r.lease: // of an earlier configuration
		return registry.NotRegistered(fmt.Errorf("the entry's lease is of %s, and shorter than options.lease", ttl))
	}
	return nil
}

// eachInTurn makes a request that can be repeated until a member answers it: the client sends each to the next one. A member that
// accepts connections and does not serve, since it is cut off from its peers or its disk stalls, would otherwise let entries expire
// that the others could renew, and have hooks wait. There is one request more than there are members, because calls under way take turns
// too. Each has half of the time that is left, so that a member which is only slow still answers in time.
func eachInTurn[T any](ctx context.Context, members int, request func(context.Context) (T, error)) (answer T, err error) {
	left := 1
	if members > 1 {
		left = members + 1
	}
	for ; left > 0; left-- {
		part, cancel := driverkit.Share(ctx, min(left, 2))
		answer, err = request(part)
		cancel()
		if !isAway(err) || ctx.Err() != nil {
			break
		}
	}
	return answer, err
}

func (r *Registry) get(ctx context.Context, key string) (kv *mvccpb.KeyValue, err error) {
	err = r.do(ctx, func(ctx context.Context) error {
		answer, err := r.client.Get(ctx, key)
		if err == nil && len(answer.Kvs) > 0 {
			kv = answer.Kvs[0]
		}
		return err
	})
	return kv, err
}

// keepAlive renews a lease once, and returns how long it lasts from now. The client's own KeepAliveOnce tries again and
// again.
func (r *Registry) keepAlive(ctx context.Context, lease int64) (ttl time.Duration, err error) {
	err = r.do(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the stream
		stream, err := pb.NewLeaseClient(r.client.ActiveConnection()).LeaseKeepAlive(ctx)
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: lease}); err != nil {
			return err
		}
		answer, err := stream.Recv()
		ttl = time.Duration(answer.GetTTL()) * time.Second
		return err
	})
	return ttl, err
}

// grant gets a lease for each entry that is to be put. Each has its own, so that one which is no longer renewed ends.
func (r *Registry) grant(ctx context.Context, changes []*change) error {
	if r.lease == 0 {
		return nil
	}
	errs := make([]error, len(changes))
	places := make(chan struct{}, grantsAtOnce)
	var granting sync.WaitGroup
	for i, c := range changes {
		if !c.puts() {
			continue
		}
		places <- struct{}{}
		granting.Go(func() {
			defer func() { <-places }()
			c.lease, errs[i] = r.newLease(ctx)
		})
	}
	granting.Wait()
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("getting a lease: %w", err)
		}
	}
	return nil
}

func (r *Registry) newLease(ctx context.Context) (id clientv3.LeaseID, err error) {
	err = r.do(ctx, func(ctx context.Context) error {
		answer, err := r.client.Grant(ctx, int64(r.lease/time.Second))
		if err == nil {
			id = answer.ID
		}
		return err
	})
	return id, err
}
