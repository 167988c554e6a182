package consul

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	"net/url"
	"slices"
	"sync/atomic"

	"github.com/rollcall-dev/rollcall/registry"
)

// noIndex is that of no node: by it a condition fails. 0 would mean that there is no such node, and so hold after it was dropped.
const noIndex = 1

// fence keeps a registration that was given up from being carried out after the opposite was acknowledged: a server that is frozen reads
// what it was sent once it runs again, however long that takes. Each registration is made on condition that its node is as it was, and
// the next change after one that was given up changes all nodes first. So does the first change of all, for what another process has
// given up.
type fence struct {
	// indexes are the ModifyIndex of each node, 0 while it is not known to be there. A new node has another one, so each ends for good.
	indexes [nodeCount]atomic.Uint64
	// lost is how many registrations were given up, and ended how many of them can't be carried out any more.
	lost, ended atomic.Int64
	// turn is held while nodes are changed.
	turn chan struct{}
}

func newFence() *fence {
	f := &fence{turn: make(chan struct{}, 1)}
	f.lost.Store(1)
	return f
}

// see takes in what nodes a transaction has set.
func (r *Registry) see(made *outcome) {
	for _, result := range made.Results {
		if result.Node != nil {
			if number := r.numberOf(result.Node.Node); number >= 0 {
				r.fence.indexes[number].Store(result.Node.ModifyIndex)
			}
		}
	}
}

// doubt forgets the condition of a registration that may have failed by that, unless another call has learned a newer one.
func (r *Registry) doubt(t *transaction, e operationError) {
	if e.OpIndex >= 0 && e.OpIndex < len(t.ops) && t.ops[e.OpIndex].Node != nil {
		failed := t.ops[e.OpIndex].Node.Node
		if number := r.numberOf(failed.Node); number >= 0 {
			r.fence.indexes[number].CompareAndSwap(failed.ModifyIndex, 0)
		}
	}
}

// numberOf is -1 for a node that is not ours.
func (r *Registry) numberOf(name string) int {
	return slices.IndexFunc(r.nodes, func(n node) bool { return n.Node == name })
}

// endLost has all registrations fail that were given up.
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
	if err := r.markAll(ctx); err != nil {
		return err
	}
	f.ended.Store(lost)
	return nil
}

// markAll changes the nodes that there are: under one that is not, the condition fails too. Who may not write them has registered nothing.
func (r *Registry) markAll(ctx context.Context) error {
	var held []node
	query := url.Values{"node-meta": {metaGroup + ":" + r.opts.group()}}
	if _, err := r.read(ctx, "/v1/catalog/nodes", query, false, &held); err != nil {
		return err
	}
	var ops []operation
	for number := range r.nodes {
		r.fence.indexes[number].Store(0)
		at := slices.IndexFunc(held, func(n node) bool { return n.Node == r.nodes[number].Node })
		if at >= 0 {
			ops = append(ops, nodeOp(cas, marked(r.nodes[number], held[at].ModifyIndex)))
		}
	}
	if len(ops) == 0 {
		return nil
	}
	made, err := r.transact(ctx, ops)
	if err == nil && len(made.Errors) > 0 {
		err = r.refusedOperation(made.Errors[0])
	}
	switch {
	case registry.IsTerminal(err):
		return nil
	case err != nil:
		return err
	}
	r.see(made)
	return nil
}

// knowNodes makes sure of the nodes under which something is registered and of which the condition is not known.
func (r *Registry) knowNodes(ctx context.Context, changes []registry.Change) []error {
	t := &transaction{errs: make([]error, len(changes))}
	for number, registered := range byNode(changes) {
		if r.fence.indexes[number].Load() == 0 {
			t.add(registered, nodeOp(set, r.nodes[number]))
		}
	}
	r.commit(ctx, t)
	return t.errs
}

// marked is a node that may be deleted if it is empty, on condition that its ModifyIndex is this one. No two marks are the same, so each
// changes it.
func marked(n node, index uint64) node {
	n.Meta = maps.Clone(n.Meta)
	n.Meta[metaEmpty] = rand.Text()
	n.ModifyIndex = index
	return n
}

// note takes in how a transaction ended. Registrations that may still be carried out are lost.
func (f *fence) note(ctx context.Context, t *transaction, err error) {
	var late interface{ Timeout() bool }
	registers := slices.ContainsFunc(t.ops, func(op operation) bool { return op.Service != nil && op.Service.Verb == set })
	if registers && (ctx.Err() != nil || errors.As(err, &late) && late.Timeout()) {
		f.lost.Add(1)
	}
}
