package etcd

import (
	"context"
	"errors"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// change is one of a transaction.
type change struct {
	registry.Change
	key   string
	value string // of an entry to be put
	// bare is a key that is set and deleted with this one, and holds the address alone; empty for none.
	bare  string
	lease clientv3.LeaseID // of an entry to be put, 0 for none
	seen  *mvccpb.KeyValue // an entry to be removed, as it was read; nil if it is not there, or is another's
	// orphaned: the bare key of a removal has no record, which somebody has deleted.
	orphaned bool
	// foreign: what is at the key was written by no Rollcall, and stays.
	foreign bool
}

func (c change) puts() bool { return c.State == registry.InService }

// BatchLimit implements [registry.Batcher].
func (r *Registry) BatchLimit() int {
	if r.target.bare {
		return transactionLimit / 2
	}
	return transactionLimit
}

// Batch implements [registry.Batcher] with one transaction.
func (r *Registry) Batch(ctx context.Context, asked []registry.Change) []error {
	return driverkit.Batch(ctx, asked, r.plan, func(changes []*change) []error {
		err := r.apply(ctx, changes)
		of := classify(err)
		if len(changes) > 1 && refused(err, changes) {
			of = registry.NotApplied(of) // it may be another one that is refused
		}
		errs := slices.Repeat([]error{of}, len(changes))
		for i, c := range changes {
			if err == nil && c.foreign {
				errs[i] = registry.ForeignEntry(errors.New("the entry at its key was written by another"))
			}
		}
		return errs
	})
}

func (r *Registry) plan(a registry.Change) (*change, error) {
	if err := driverkit.CheckInstance(a.Instance); err != nil {
		return nil, err
	}
	c := &change{Change: a, key: r.target.key(a.Instance)}
	if r.target.bare {
		c.bare = bareKey(c.key)
	}
	var err error
	if c.puts() {
		c.value, err = r.target.encode(a.Instance)
	}
	return c, registry.Terminal(err)
}

// apply makes the changes, all or none. What is removed is so on condition that it is as it was read, and what is put on condition of the
// fence. If it is not, the transaction did nothing but read it again, and another one is made of what it read: so two calls for one
// instance do not fail each other.
func (r *Registry) apply(ctx context.Context, changes []*change) error {
	r.fence.begin()
	if err := r.endLost(ctx); err != nil {
		return err
	}
	if err := r.look(ctx, changes); err != nil {
		return err
	}
	if err := r.grant(ctx, changes); err != nil {
		return err
	}
	for {
		done, err := r.transact(ctx, changes)
		if done || err != nil {
			return err
		}
	}
}

// transact makes the changes, or takes over what is there if that is not what they were made for.
func (r *Registry) transact(ctx context.Context, changes []*change) (done bool, err error) {
	conditions, ops := operations(changes)
	if len(ops) == 0 {
		return true, nil
	}
	puts := slices.ContainsFunc(changes, func(c *change) bool { return c.puts() })
	otherwise := reads(changes)
	if puts {
		conditions, otherwise = append(conditions, r.fence.unchanged()), append(otherwise, r.fence.read())
	}
	answer, err := r.commit(ctx, conditions, ops, otherwise)
	if puts {
		r.fence.note(ctx, err)
	}
	if err != nil || answer.Succeeded {
		return true, err
	}
	r.target.see(changes, answer)
	if puts {
		r.fence.see((*clientv3.GetResponse)(answer.Responses[len(otherwise)-1].GetResponseRange()))
	}
	return false, nil
}

// look reads what is to be removed.
func (r *Registry) look(ctx context.Context, changes []*change) error {
	gets := reads(changes)
	if len(gets) == 0 {
		return nil
	}
	answer, err := eachInTurn(ctx, r.members, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return r.commit(ctx, nil, gets, nil)
	})
	if err != nil {
		return err
	}
	r.target.see(changes, answer)
	return nil
}

func (r *Registry) commit(
	ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op,
) (answer *clientv3.TxnResponse, err error) {
	err = r.do(ctx, func(ctx context.Context) (err error) {
		answer, err = r.client.Txn(ctx).If(conditions...).Then(then...).Else(otherwise...).Commit()
		return err
	})
	return answer, err
}

// operations returns what is to be done, and on which conditions.
func operations(changes []*change) ([]clientv3.Cmp, []clientv3.Op) {
	var conditions []clientv3.Cmp
	var ops []clientv3.Op
	for _, c := range changes {
		switch {
		case c.bare == "":
		case c.puts():
			ops = append(ops, clientv3.OpPut(c.bare, c.Instance.Endpoint(), clientv3.WithLease(c.lease)))
		case c.seen != nil, c.orphaned:
			ops = append(ops, clientv3.OpDelete(c.bare))
		}
		switch {
		case c.puts():
			ops = append(ops, clientv3.OpPut(c.key, c.value, clientv3.WithLease(c.lease)))
		case c.seen != nil:
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(c.key), "=", c.seen.GetModRevision()))
			ops = append(ops, clientv3.OpDelete(c.key))
		case c.orphaned:
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(c.key), "=", 0))
		}
	}
	return conditions, ops
}

// reads returns those of each removal: of its key, and of the bare one if there is one.
func reads(changes []*change) []clientv3.Op {
	var gets []clientv3.Op
	for _, c := range changes {
		if !c.puts() {
			gets = append(gets, clientv3.OpGet(c.key))
			if c.bare != "" {
				gets = append(gets, clientv3.OpGet(c.bare))
			}
		}
	}
	return gets
}

// see takes over what reads have read. An entry of another pod, or without an ownership tag, is not seen, and so spared.
func (t target) see(changes []*change, answer *clientv3.TxnResponse) {
	i := 0
	for _, c := range changes {
		if c.puts() {
			continue
		}
		c.seen, c.foreign, c.orphaned = nil, false, false
		if kv := only(answer, i); kv != nil {
			c.foreign = t.markOf(kv)[registry.MetaUID] == "" && len(t.foreign(kv, c.Instance.Cluster)) > 0
			if c.Instance.OwnsMeta(t.markOf(kv)) {
				c.seen = kv
			}
		}
		i++
		if c.bare != "" {
			c.orphaned = only(answer, i-1) == nil && only(answer, i) != nil
			i++
		}
	}
}
