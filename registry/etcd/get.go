package etcd

import (
	"context"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Get implements [registry.Getter] with linearizable reads: a member answers only after it has made sure, with a majority, that it has
// applied all that was acknowledged before. It reads the instance's key, and those at which others give clients its address.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	state, err := r.state(ctx, in)
	return state, driverkit.CallError(ctx, "asking for", in, err)
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := driverkit.CheckInstance(in); err != nil {
		return "", err
	}
	if r.target.bare {
		return r.bareState(ctx, in)
	}
	if err := r.endLost(ctx); err != nil {
		return "", classify(err)
	}
	theirs, err := r.keysOfOthers(ctx, in)
	if err != nil {
		return "", err
	}
	gets := []clientv3.Op{clientv3.OpGet(r.target.key(in))}
	for _, key := range theirs {
		gets = append(gets, clientv3.OpGet(key))
	}
	answer, err := eachInTurn(ctx, r.members, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.commit(ctx, nil, gets, nil)
	})
	if err != nil {
		return "", classify(err)
	}
	return r.target.stateOf(answer, in), nil
}

// stateOf is the instance's state by its key, which is the first that was read, and those of others.
func (t target) stateOf(answer *clientv3.TxnResponse, in registry.Instance) registry.State {
	state := registry.Absent
	for _, response := range answer.Responses {
		for _, kv := range response.GetResponseRange().GetKvs() { // one or none
			held, ours := t.decode(kv)
			switch {
			case slices.ContainsFunc(t.foreign(kv, in.Cluster), func(e registry.Entry) bool { return driverkit.GivesInstance(e, in) }):
				return registry.Foreign
			case ours && string(kv.GetKey()) == t.key(in) && in.Owns(held.UID, held.Registry) && held.Cluster == in.Cluster:
				state = registry.InService
			}
		}
	}
	return state
}

// bareState reads the record and the key that clients read at one revision. Without a record, that key is ours all the same: nobody else's
// has the endpoint in its name. Whose it was is not known then, and clients are given it.
func (r *Registry) bareState(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := r.endLost(ctx); err != nil {
		return "", classify(err)
	}
	key := r.target.key(in)
	answer, err := eachInTurn(ctx, r.members, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.commit(ctx, nil, []clientv3.Op{clientv3.OpGet(key), clientv3.OpGet(bareKey(key))}, nil)
	})
	if err != nil {
		return "", classify(err)
	}
	record, bare := only(answer, 0), only(answer, 1)
	mark := r.target.markOf(record)
	switch {
	case mark[registry.MetaUID] == "" && bare != nil:
		return registry.InService, nil
	case !in.OwnsMeta(mark), mark[registry.MetaCluster] != in.Cluster:
		return registry.Absent, nil
	case bare == nil:
		return registry.OutOfService, nil
	}
	return registry.InService, nil
}

// only is what a read of one key in a transaction has read, nil for nothing.
func only(answer *clientv3.TxnResponse, read int) *mvccpb.KeyValue {
	kvs := answer.Responses[read].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
}
