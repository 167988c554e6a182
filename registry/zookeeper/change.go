package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// maxConflicts bounds how often somebody else may be quicker at one entry.
const maxConflicts = 8

// node is what is at an entry's path.
type node struct {
	registry.Entry

	stat         *zk.Stat
	ours         bool             // Entry is set
	foreign      []registry.Entry // what clients are given by it, of which no Rollcall has written anything
	registeredAt int64
}

// isOwn reports whether a change that takes the instance out may touch the node.
func (n *node) isOwn(in registry.Instance) bool {
	return n != nil && n.ours && in.Owns(n.UID, n.Registry)
}

// gives reports whether clients are given the instance by a node at its path that is not Rollcall's.
func (n *node) gives(in registry.Instance) bool {
	return n != nil && slices.ContainsFunc(n.foreign, func(e registry.Entry) bool { return driverkit.GivesInstance(e, in) })
}

// leftAlone is the error of a change that takes the instance out and leaves the node as it is.
func (n *node) leftAlone() error {
	if n == nil || len(n.foreign) == 0 {
		return nil
	}
	return registry.ForeignEntry(errors.New("the entry at its path was written by another"))
}

// prepared is a change that was checked.
type prepared struct {
	registry.Change

	path string
}

func (r *Registry) prepare(c registry.Change) (prepared, error) {
	if err := r.tree.check(c.Instance); err != nil {
		return prepared{}, err
	}
	if _, err := r.opts.encode(c.Instance, c.State, 0); err != nil {
		return prepared{}, registry.Terminal(err)
	}
	return prepared{Change: c, path: r.tree.entry(c.Instance)}, nil
}

// read returns the node of an entry, nil if there is none. A server may be behind the others, by default: an answer by
// which nothing is to be done must be fresh, see [caughtUp]. What is written on an answer that was not is refused by the version.
func (r *Registry) read(ctx context.Context, in registry.Instance) (*node, error) {
	raw, stat, err := r.session.get(ctx, r.tree.entry(in))
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	n := &node{stat: stat}
	if n.Entry, n.registeredAt, n.ours = decode(in.Service, idOf(in), raw); !n.ours {
		n.foreign = decodeForeign(in.Service, idOf(in), in.Cluster, raw)
	}
	return n, nil
}

// look is read, at a server that has caught up if the answer must be fresh.
func (r *Registry) look(ctx context.Context, in registry.Instance, fresh bool) (*node, error) {
	read := func(ctx context.Context) (*node, error) { return r.read(ctx, in) }
	if fresh {
		return caughtUp(ctx, r.session, read)
	}
	return read(ctx)
}

// apply makes one change. It looks again if somebody else was quicker, or an answer may be old.
func (r *Registry) apply(ctx context.Context, p prepared) error {
	for tries := range maxConflicts {
		fresh := tries > 0
		n, err := r.look(ctx, p.Instance, fresh)
		if errors.Is(err, errReconnected) {
			continue
		} else if err != nil {
			return err
		}
		op, err := r.plan(p, n)
		switch {
		case err != nil:
			return err
		case op == nil && fresh:
			return n.leftAlone()
		case op == nil:
			continue
		}
		err = r.write(ctx, p, n, op)
		if err == nil || !isConflict(err) {
			return err
		}
	}
	return errors.New("others keep changing the entry")
}

// write makes the change's operation, and makes the service's folder if that is missing.
func (r *Registry) write(ctx context.Context, p prepared, n *node, op any) error {
	_, err := r.commit(ctx, []any{op})
	if n == nil && errors.Is(err, zk.ErrNoNode) {
		if err := r.makeFolders(ctx, p.Instance.Service); err != nil {
			return err
		}
	}
	return err
}

// plan returns the operation that makes the change if the node is this one; nil if nothing is to be done. An entry
// that is as it should be is written all the same: its new version is what stops a call that was given up and lands late.
func (r *Registry) plan(p prepared, n *node) (any, error) {
	removes := p.State == registry.Absent || p.State == registry.OutOfService && r.opts.OutOfRotation == outDelete
	switch {
	case p.State != registry.InService && !n.isOwn(p.Instance):
		return nil, nil
	case removes:
		return &zk.DeleteRequest{Path: p.path, Version: n.stat.Version}, nil
	}
	registeredAt := time.Now().UnixMilli()
	if p.State != registry.InService {
		registeredAt = n.registeredAt
	}
	data, err := r.opts.encode(p.Instance, p.State, registeredAt)
	if err != nil {
		return nil, err
	}
	if n == nil {
		return &zk.CreateRequest{Path: p.path, Data: data, Acl: r.acl, Flags: zk.FlagPersistent}, nil
	}
	return &zk.SetDataRequest{Path: p.path, Data: data, Version: n.stat.Version}, nil
}

// makeFolders makes the folder of a service and those above it, as Curator does: containers, which the servers remove when
// they have been empty for a while, if they know them.
func (r *Registry) makeFolders(ctx context.Context, service string) error {
	parents := r.tree.parents(service)
	for _, path := range parents {
		err := r.session.createFolder(ctx, path, r.acl)
		switch {
		case err == nil || errors.Is(err, zk.ErrNodeExists):
		case errors.Is(err, zk.ErrNoNode) && path == parents[0]:
			return r.noChroot()
		case errors.Is(err, zk.ErrNoAuth) && r.isThere(ctx, path): // the server asks for the right to create first
		default:
			return fmt.Errorf("creating %s: %w", path, err)
		}
	}
	return nil
}

func (r *Registry) isThere(ctx context.Context, path string) bool {
	is, err := r.session.exists(ctx, path)
	return err == nil && is
}

// noChroot is for a chroot that is not there. ZooKeeper's clients don't make it: a slip of the pen would.
func (r *Registry) noChroot() error {
	return registry.Terminal(registry.FieldError("endpoint",
		fmt.Errorf("has a chroot, %s, that does not exist; create it", r.tree.chroot)))
}
