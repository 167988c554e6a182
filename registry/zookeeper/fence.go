package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// fence keeps a registration that another driver gave up from being carried out after this one has removed the pod: a server that is frozen
// reads what it was sent once it runs again, however long that takes. Each change is made on condition that the version of the services'
// folder is as it was, and the first change of a driver raises it, by writing the folder's data as they are. What the driver itself has
// given up comes from a connection that its session has left: ZooKeeper refuses that.
type fence struct {
	mu      sync.Mutex
	state   fenceState
	version int32
}

type fenceState int

const (
	// toRaise: this driver has changed nothing yet, or the folder was made again.
	toRaise fenceState = iota
	// toRead: another driver has raised it.
	toRead
	known
	// notAllowed: the user may not write the folder, so pods are left with the time that they wait for such calls.
	notAllowed
)

func (f *fence) get() (fenceState, int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.version
}

func (f *fence) set(state fenceState, version int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.version = state, version
}

// lost notes that the folder was not at this version, unless another call has found that out, and perhaps read the new one, meanwhile.
func (f *fence) lost(version int32, state fenceState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == known && f.version == version {
		f.state = state
	}
}

// isUp reports whether nothing is to be done for it.
func (f *fence) isUp() bool {
	state, _ := f.get()
	return state == known || state == notAllowed
}

// raiseFence comes before a change reads what there is: if that needs no removal, it writes nothing.
func (r *Registry) raiseFence(ctx context.Context) error {
	if r.fence.isUp() {
		return nil
	}
	release, err := r.locks.Acquire(ctx, r.tree.folder())
	if err != nil {
		return err
	}
	defer release()
	for !r.fence.isUp() {
		if ctx.Err() != nil {
			return r.fenceMoves(ctx)
		}
		switch err := r.tryFence(ctx); {
		case errors.Is(err, zk.ErrNoAuth):
			r.session.log.Info("the user may not write the folder of the services: a registration that another manager gave up may "+
				"be carried out late", "folder", r.tree.folder())
			r.fence.set(notAllowed, 0)
		case errors.Is(err, zk.ErrNoNode): // a registration into a folder that is not there fails
			return nil
		case err != nil && !isConflict(err):
			return err
		}
	}
	return nil
}

// fenceMoves is the error of a call that had no time left to follow the other drivers: nothing was changed.
func (r *Registry) fenceMoves(ctx context.Context) error {
	return fmt.Errorf("others keep changing %s: %w", r.tree.folder(), ctx.Err())
}

func (r *Registry) tryFence(ctx context.Context) error {
	var stat *zk.Stat
	data, err := caughtUp(ctx, r.session, func(ctx context.Context) (data []byte, err error) {
		data, stat, err = r.session.get(ctx, r.tree.folder())
		return data, err
	})
	if err != nil {
		return err
	}
	if state, _ := r.fence.get(); state == toRaise {
		if stat, err = r.session.set(ctx, r.tree.folder(), data, stat.Version); err != nil {
			return err
		}
	}
	r.fence.set(known, stat.Version)
	return nil
}

// commit makes all changes or none, behind the fence, and returns which one of them is to blame for the error, -1 if that is not known.
// Each driver that begins moves the fence once, so as many tries are needed as begin meanwhile: the call's own time is their bound.
func (r *Registry) commit(ctx context.Context, ops []any) (blame int, err error) {
	for ctx.Err() == nil {
		if err := r.raiseFence(ctx); err != nil {
			return -1, err
		}
		state, version := r.fence.get()
		if state != known {
			return r.session.commit(ctx, ops)
		}
		check := &zk.CheckVersionRequest{Path: r.tree.folder(), Version: version}
		blame, err = r.session.commit(ctx, slices.Concat([]any{check}, ops))
		switch {
		case blame != 0:
			return max(blame, 0) - 1, err
		case errors.Is(err, zk.ErrNoNode):
			r.fence.lost(version, toRaise)
		case errors.Is(err, zk.ErrBadVersion):
			r.fence.lost(version, toRead)
		default:
			return -1, err
		}
	}
	return -1, r.fenceMoves(ctx)
}
