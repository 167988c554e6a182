package app

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	restInterval = time.Second
	// restAfter is for how many intervals the manager has little to do before it rests.
	restAfter = 2
	// restBelow is how many bytes are allocated in an interval, at most, by a manager that has little to do.
	restBelow = 1 << 20
	// restFor is what must have been allocated since the last time: it is about what there is to give back.
	restFor = 8 << 20
)

// resting gives free memory back to the system once the manager has little to do. Go keeps as much free as it holds, for
// garbage that comes only with the next storm, and an hour of that would be an hour in which nothing else can use it.
type resting struct {
	release func()
	// before was allocated when it looked last, and released when it gave memory back last.
	before, released uint64
	quiet            int
}

// giveBack collects garbage twice: what a sync.Pool holds is free only then.
func giveBack() {
	runtime.GC()
	debug.FreeOSMemory()
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every manager has the caches.
func (*resting) NeedLeaderElection() bool { return false }

// Start looks again and again until the context ends.
func (r *resting) Start(ctx context.Context) error {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	wait.UntilWithContext(ctx, func(context.Context) {
		metrics.Read(samples)
		r.look(samples[0].Value.Uint64())
	}, restInterval)
	return nil
}

// look takes how much was allocated since the process began.
func (r *resting) look(allocated uint64) {
	if r.quiet++; allocated-r.before > restBelow {
		r.quiet = 0
	}
	if r.before = allocated; r.quiet >= restAfter && allocated-r.released >= restFor {
		r.released = allocated
		r.release()
	}
}
