package etcd

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

// fenceName is the last part of the fence's key, which is not a service's: it has no address below it. The value is one that readers of
// every format take for an entry without an address, if they read so far up: CoreDNS and Kratos fail at what they can't decode.
const fenceName, fenceValue = "~rollcall", `{"text":"rollcall"}`

// fence keeps a registration that was given up from being carried out after the opposite was acknowledged: a member that is frozen reads
// what it was sent once it runs again, however long that takes. Each registration is made on condition that a key is as it was. The first
// change of a driver writes that key, since another manager, or the driver before a reload, may have given up registrations; and so does
// the next call after one that this driver gave up.
type fence struct {
	key string
	// revision is the key's, 0 while it is not there.
	revision atomic.Int64
	// lost is how many registrations were given up, and ended how many of them can't be carried out any more. All that another driver may
	// have given up count as one.
	lost, ended atomic.Int64
	others      sync.Once
	// turn is held while the key is written.
	turn chan struct{}
}

func newFence(t target) *fence {
	return &fence{key: t.before + fenceName, turn: make(chan struct{}, 1)}
}

// unchanged is the condition on which a registration is made, and read tells in the other case how the key is.
func (f *fence) unchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(f.key), "=", f.revision.Load())
}

func (f *fence) read() clientv3.Op { return clientv3.OpGet(f.key) }

func (f *fence) see(answer *clientv3.GetResponse) {
	f.revision.Store(0)
	for _, kv := range answer.Kvs {
		f.revision.Store(kv.ModRevision)
	}
}

// begin has the driver's first change end what others have given up. Its reads don't: a dry run writes nothing.
func (f *fence) begin() { f.others.Do(func() { f.lost.Add(1) }) }

// note takes in how a registration ended. Those that may still be carried out are lost.
func (f *fence) note(ctx context.Context, err error) {
	var late interface{ Timeout() bool }
	if ctx.Err() != nil || errors.As(classify(err), &late) && late.Timeout() {
		f.lost.Add(1)
	}
}

// endLost fails all registrations that were given up. If Rollcall may not write the key, pods are left with the time that
// they wait for such calls; and while the database is full, nothing is put.
func (r *Registry) endLost(ctx context.Context) error {
	f := r.fence
	if f.ended.Load() == f.lost.Load() {
		return nil
	}
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	lost := f.lost.Load()
	if f.ended.Load() == lost {
		return nil
	}
	answer, err := eachInTurn(ctx, r.members, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.commit(ctx, nil, []clientv3.Op{clientv3.OpPut(f.key, fenceValue)}, nil)
	})
	switch refusal := rpctypes.Error(err); {
	case errors.Is(refusal, rpctypes.ErrNoSpace):
		return nil
	case codeOf(refusal) == codes.PermissionDenied:
		f.ended.Store(lost) // it would be refused again
		return nil
	case err != nil:
		return err
	}
	f.revision.Store(answer.Header.GetRevision())
	f.ended.Store(lost)
	return nil
}
