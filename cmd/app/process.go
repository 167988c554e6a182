package app

import (
	"context"
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"github.com/go-logr/zapr"
	uberzap "go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rollcall-dev/rollcall/internal/history"
)

// log returns the manager's logger, and the history's. zap drops what comes more than a hundred times in a second, which the lines of a
// storm do: the history's logger is what is below that.
func (o *options) log(f *flags) (logr.Logger, history.Log) {
	if o.logger != nil {
		return *o.logger, history.New(*o.logger)
	}
	var all zapcore.Core
	below := uberzap.WrapCore(func(core zapcore.Core) zapcore.Core {
		all = core
		return core
	})
	logger := zap.New(zap.UseFlagOptions(&f.zap), zap.RawZapOpts(below))
	return logr.New(lazySink{LogSink: logger.GetSink()}), history.New(zapr.NewLogger(uberzap.New(all)))
}

// setProcess sets what belongs to the whole process: the loggers of all libraries, whether allocations are sampled for a profile,
// and Go's memory limit. Go collects garbage more often as the heap comes near 90 % of the container's limit. A GOMEMLIMIT in the
// environment is left as it is.
func setProcess(logger logr.Logger, profiled bool) {
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	logTraces(logger)
	if !profiled {
		runtime.MemProfileRate = 0 // the samples take a megabyte
	}
	// It logs its error, and the manager works without a limit.
	_, _ = memlimit.Set(memlimit.WithLogger(slog.New(logr.ToSlogHandler(logger.V(1)))))
}

// lazySink keeps the values of a logger until a line is logged. zap encodes them immediately, and a controller gives each reconcile
// a logger of its own, of which hardly one logs a line.
type lazySink struct {
	logr.LogSink

	values []any
}

// WithValues implements logr.LogSink, as do all that follow.
func (s lazySink) WithValues(values ...any) logr.LogSink {
	s.values = s.and(values)
	return s
}

func (s lazySink) WithName(name string) logr.LogSink {
	s.LogSink = s.LogSink.WithName(name)
	return s
}

func (s lazySink) Info(level int, message string, values ...any) {
	s.LogSink.Info(level, message, s.and(values)...)
}

func (s lazySink) Error(err error, message string, values ...any) {
	s.LogSink.Error(err, message, s.and(values)...)
}

func (s lazySink) and(values []any) []any { return append(slices.Clip(s.values), values...) }

const (
	restInterval = time.Second
	// restAfter is for how many intervals the manager has little to do before it rests.
	restAfter = 2
	// restBelow is how many bytes are allocated in an interval, at most, by a manager that has little to do.
	restBelow = 1 << 20
	// restFor is what must have been allocated since the last time: it is about what there is to give back.
	restFor = 8 << 20
	// spareBytes is how much more garbage than there are objects in use may gather, whatever their number: with few pods, Go would collect it
	// after each 80 changes, and look through the stacks of all workers each time.
	spareBytes = 16 << 20
)

// resting gives free memory back to the system once the manager has little to do. Go keeps as much free as it holds, for
// garbage that comes only with the next storm, and an hour of that would be an hour in which nothing else can use it.
type resting struct {
	release func()
	// spare counts as in use, and so for a limit of memory too. It takes no memory of the machine: nothing writes into it.
	spare []byte
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
