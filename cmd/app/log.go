package app

import (
	"log/slog"
	"runtime"
	"slices"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func (o *options) log(f *flags) logr.Logger {
	if o.logger != nil {
		return *o.logger
	}
	return logr.New(lazySink{LogSink: zap.New(zap.UseFlagOptions(&f.zap)).GetSink()})
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

// lazySink keeps the values of a logger until a line is logged. zap encodes them at once, and a controller gives each reconcile
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
