// Package app is the manager as a library: a main of ten lines adds registry drivers of its own.
//
//	func main() {
//		app.Main(app.WithRegistry("acme", acme.New))
//	}
package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/registry"
)

// Exit codes of [Main].
const (
	exitFailure = 1
	exitUsage   = 2
)

// Option is a choice that is made when a manager is built. Flags are the choices that are made when it runs.
type Option func(*options)

type options struct {
	constructors map[string]registry.Constructor
	// slices is what driver endpointslice, which needs the manager's cache, reads.
	slices  *endpointslice.Watch
	version string
	logger  *logr.Logger
	// listening is called once, when all addresses are bound and before anything is served there.
	listening func(addresses)
	output    io.Writer
	// main is set if this process is the manager and nothing else, so that it can set what is the process's: the loggers of
	// all libraries, and Go's memory limit.
	main     bool
	problems []error
}

// WithRegistry adds a registry driver: the configuration chooses it by its name. A name given twice, an empty one or a
// nil constructor makes [Run] fail.
func WithRegistry(name string, constructor registry.Constructor) Option {
	return func(o *options) {
		switch _, known := o.constructors[name]; {
		case known:
			o.problems = append(o.problems, fmt.Errorf("registry driver %q was added twice", name))
		case name == "" || constructor == nil:
			o.problems = append(o.problems, fmt.Errorf("registry driver %q has no name or no constructor", name))
		}
		o.constructors[name] = constructor
	}
}

// WithVersion sets what --version prints and the logs, metrics and API requests say. The default is what Go knows of
// the module this was built from.
func WithVersion(version string) Option {
	return func(o *options) { o.version = version }
}

// WithLogger sends the manager's log to logger. The --zap flags have no effect then.
func WithLogger(logger logr.Logger) Option {
	return func(o *options) { o.logger = &logger }
}

// Main runs the manager with the flags of the command line until SIGTERM or SIGINT, and ends the process: with 0 when it
// was asked to stop, 1 when it failed, 2 when it was called wrongly. A second signal ends it immediately.
func Main(opts ...Option) {
	opts = append(opts, func(o *options) { o.main = true })
	os.Exit(exitCode(os.Stderr, Run(ctrl.SetupSignalHandler(), os.Args[1:], opts...)))
}

func exitCode(stderr io.Writer, err error) int {
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		_, _ = fmt.Fprintf(stderr, "rollcall: %v\nSee --help.\n", err)
		return exitUsage
	default:
		_, _ = fmt.Fprintf(stderr, "rollcall: %v\n", err)
		return exitFailure
	}
}

// Run runs the manager with these arguments (without the program's name) until ctx ends, which gives nil, or until it can't
// continue. If Run returns an error, the process should exit: a manager that lost its lease returns immediately, before all
// its calls have returned. Several managers can run in one process.
func Run(ctx context.Context, args []string, opts ...Option) error {
	slices := endpointslice.NewWatch()
	o := &options{
		constructors: map[string]registry.Constructor{endpointslice.Name: slices.New}, slices: slices, version: builtVersion(), output: os.Stdout,
	}
	for _, apply := range opts {
		apply(o)
	}
	if err := errors.Join(o.problems...); err != nil {
		return err
	}
	f, err := parseFlags(args, o.output)
	if err != nil {
		return err
	}
	if f.version {
		_, err := fmt.Fprintln(o.output, o.version)
		return err
	}
	if f.checkConfig {
		return o.checkConfig(ctx, f)
	}
	if f.checkRegistries {
		return o.checkRegistries(ctx, f)
	}
	if f.uninstall != "" {
		return o.uninstall(ctx, f)
	}
	m, err := newManager(ctx, o, f)
	if err != nil {
		return err
	}
	return m.run(ctx)
}
