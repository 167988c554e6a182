package zookeeper

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// batchLimit keeps the changes of a batch, at a usual size of an entry, well within one request.
	batchLimit = 128
	// maxRequest bounds a request, in bytes: half of what a server takes by default.
	maxRequest = 512 << 10
	// opOverhead is more than what a request has for one operation in addition to path and data.
	opOverhead = 256
)

// BatchLimit implements [registry.Batcher].
func (r *Registry) BatchLimit() int { return batchLimit }

// Batch implements [registry.Batcher]: one transaction, or several if the entries are large. If one of its changes
// can't be made, ZooKeeper makes none of them.
func (r *Registry) Batch(ctx context.Context, changes []registry.Change) []error {
	return driverkit.Batch(ctx, changes, r.prepare, func(sound []prepared) []error {
		b := &batch{registry: r, errs: make([]error, len(sound))}
		var paths []string
		for i, p := range sound {
			b.changes = append(b.changes, batched{prepared: p, index: i})
			paths = append(paths, p.path)
		}
		if err := r.exclusively(ctx, paths, b.make); err != nil { // b may still be at work
			return slices.Repeat([]error{err}, len(sound))
		}
		for i, err := range b.errs {
			b.errs[i] = r.explain(err)
		}
		return b.errs
	})
}

// batch is one call's work.
type batch struct {
	registry *Registry
	changes  []batched
	errs     []error // by the changes' index
}

type batched struct {
	prepared

	index int
	op    any
}

// make returns an error if it is that of all changes, and keeps those of single ones.
func (b *batch) make(ctx context.Context) error {
	todo, err := b.plan(ctx)
	if err != nil {
		return err
	}
	for len(todo) > 0 {
		n := fitting(todo)
		b.send(ctx, todo[:n])
		todo = todo[n:]
	}
	return nil
}

// plan reads all entries and returns the changes that have something to do. All is fresh.
func (b *batch) plan(ctx context.Context) ([]batched, error) {
	r := b.registry
	nodes, err := caughtUp(ctx, r.session, func(ctx context.Context) ([]*node, error) {
		nodes := make([]*node, len(b.changes))
		return nodes, each(ctx, len(b.changes), func(ctx context.Context, i int) (err error) {
			nodes[i], err = r.read(ctx, b.changes[i].Instance)
			return b.forbids(b.changes[i], err)
		})
	})
	if err != nil {
		return nil, err
	}
	var todo []batched
	folders := map[string]bool{}
	for i, c := range b.changes {
		if b.errs[c.index] != nil {
			continue
		}
		if c.op, err = r.plan(c.prepared, nodes[i]); err != nil {
			return nil, err
		}
		if c.op == nil {
			b.errs[c.index] = nodes[i].leftAlone()
			continue
		}
		if nodes[i] == nil {
			folders[c.Instance.Service] = true
		}
		todo = append(todo, c)
	}
	return b.makeFolders(ctx, todo, folders)
}

// makeFolders makes those of the services, and returns the changes but for those of a service whose folder the user may not
// make.
func (b *batch) makeFolders(ctx context.Context, todo []batched, services map[string]bool) ([]batched, error) {
	r := b.registry
	for service := range services {
		there, err := r.session.exists(ctx, r.tree.service(service))
		if err == nil && !there {
			err = r.makeFolders(ctx, service)
		}
		if err == nil {
			continue
		}
		for _, c := range todo {
			if c.Instance.Service == service && b.forbids(c, err) != nil {
				return nil, err
			}
		}
		todo = slices.DeleteFunc(todo, func(c batched) bool { return c.Instance.Service == service })
	}
	return todo, nil
}

// forbids keeps a change's error if the user is not allowed to make it, which does not affect the others. Any other is returned.
func (b *batch) forbids(c batched, err error) error {
	if !errors.Is(err, zk.ErrNoAuth) {
		return err
	}
	b.errs[c.index] = err
	return nil
}

// fitting returns how many of the changes go into one request, at least one.
func fitting(todo []batched) int {
	size := 0
	for i, c := range todo {
		if size += sizeOf(c.op); size > maxRequest && i > 0 {
			return i
		}
	}
	return len(todo)
}

func sizeOf(op any) int {
	switch op := op.(type) {
	case *zk.DeleteRequest:
		return opOverhead + len(op.Path)
	case *zk.CreateRequest:
		return opOverhead + len(op.Path) + len(op.Data)
	case *zk.SetDataRequest:
		return opOverhead + len(op.Path) + len(op.Data)
	}
	return opOverhead
}

// send makes one transaction. What is to blame for its failure keeps its own error, unless somebody else was quicker there:
// a call by itself looks again.
func (b *batch) send(ctx context.Context, some []batched) {
	ops := make([]any, len(some))
	for i, c := range some {
		ops[i] = c.op
	}
	blame, err := b.registry.commit(ctx, ops)
	if err == nil {
		return
	}
	for i, c := range some {
		switch {
		case blame < 0, blame == i && !isConflict(err):
			b.errs[c.index] = err
		case blame == i:
			b.errs[c.index] = registry.NotApplied(errors.New("somebody else has changed the entry meanwhile"))
		default:
			b.errs[c.index] = registry.NotApplied(errors.New("another change of the batch could not be made"))
		}
	}
}
