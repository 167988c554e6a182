package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/suggest"
)

// writeTimeout is how much of the lease must be left for a write to the API server. A patch that comes later fails its tests
// if the pod has moved on.
const writeTimeout = 5 * time.Second

// off turns a listener off.
const off = "0"

type flags struct {
	config           string
	kubeconfig       string
	healthAddress    string
	metrics          metricsFlags
	pprofAddress     string
	leaderElect      bool
	leaseNamespace   string
	dryRun           bool
	evictionsAddress string
	checkConfig      bool
	checkRegistries  bool
	uninstall        string
	version          bool
	zap              zap.Options
}

// limits are what a configuration is held to besides.
func (o *options) limits(ctx context.Context, f *flags) config.Limits {
	return config.Limits{Drivers: slices.AppendSeq([]string{}, maps.Keys(o.constructors)), ClusterUID: o.clusterUID(ctx, f)}
}

// clusterUID reads it until it is known, with a client of its own: the configuration is read before all else.
func (o *options) clusterUID(ctx context.Context, f *flags) func() (string, error) {
	var known string
	return func() (string, error) {
		if known != "" {
			return known, nil
		}
		_, restConfig, err := o.cluster(f)
		if err != nil {
			return "", err
		}
		server, err := client.New(restConfig, client.Options{})
		if err != nil {
			return "", fmt.Errorf("connecting to the API server: %w", err)
		}
		known, err = clusterstate.ReadUID(ctx, server)
		return known, err
	}
}

// usageError is a command line that makes no sense.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// Flags returns the flags that [Run] understands, for documentation: each call a new set, which changes no manager.
func Flags() *flag.FlagSet {
	_, set := newFlags()
	return set
}

func newFlags() (*flags, *flag.FlagSet) {
	// A stack trace under each error hides the error; a panic brings its own.
	// The order of two lines of different managers is in their times.
	f := &flags{zap: zap.Options{StacktraceLevel: zapcore.PanicLevel, TimeEncoder: zapcore.RFC3339NanoTimeEncoder}}
	set := flag.NewFlagSet("manager", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&f.config, "config", "/etc/rollcall/config/config.yaml",
		"the configuration `file`; the manager reloads it when it changes")
	set.StringVar(&f.kubeconfig, "kubeconfig", "",
		"the kubeconfig `file` of the cluster; without it KUBECONFIG, ~/.kube/config or the cluster that the manager runs in")
	f.metrics.bind(set)
	set.StringVar(&f.healthAddress, "health-probe-bind-address", ":8081",
		"the `address` of /healthz and /readyz; 0 turns it off")
	set.StringVar(&f.pprofAddress, "pprof-bind-address", off,
		"the `address` of Go's profiles under /debug/pprof, over plain HTTP, 127.0.0.1:6060 for example; 0 turns it off")
	set.BoolVar(&f.leaderElect, "leader-elect", true,
		"work only while holding a lease, so that several replicas can run")
	set.StringVar(&f.leaseNamespace, "leader-election-namespace", "",
		"the `namespace` of the lease, which is called rollcall; without it POD_NAMESPACE, or the namespace of the kubeconfig's context")
	set.BoolVar(&f.dryRun, "dry-run", false,
		"write nothing, and report what the manager would do in the log and in rollcall_dry_run_total: no call that changes "+
			"the registry, no patch, no Event and no lease, so that it can run next to a manager that works")
	set.StringVar(&f.evictionsAddress, "eviction-webhook-bind-address", ":9443",
		"the `address` of the webhook that turns evictions into hooked deletions, if the configuration enables evictions")
	set.BoolVar(&f.checkConfig, "check-config", false,
		"check the configuration, the files that it names and what each driver accepts, print what is in force with all defaults, and "+
			"exit: the manager calls no registry and no API server")
	set.BoolVar(&f.checkRegistries, "check-registries", false,
		"ask each registry of the configuration, write an entry of service rollcall-check that nothing answers to, remove it, print a line of "+
			"JSON for each, and exit with status 1 if one fails: kubectl rollcall check runs this in the leader's pod")
	set.StringVar(&f.uninstall, "uninstall", "",
		"with check, list what in the cluster still depends on Rollcall, and exit with status 1 if anything does; with clean, remove hooks and "+
			"labels first: a `mode` for the chart's pre-delete hook, for people there is kubectl rollcall uninstall")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	f.bindLogging(set)
	return f, set
}

// bindLogging takes one of the library's flags. Its usage text has another default than holds here. The log is JSON, which history reads.
func (f *flags) bindLogging(set *flag.FlagSet) {
	const level = "zap-log-level"
	all := flag.NewFlagSet("", flag.ContinueOnError)
	f.zap.BindFlags(all)
	set.Var(all.Lookup(level).Value, level,
		"the `level` of the log: debug, info, error, panic, or a number above 0 for more detail than debug")
	set.Lookup(level).DefValue = "info"
}

// parseFlags writes to output only what --help asks for.
func parseFlags(args []string, output io.Writer) (*flags, error) {
	f, set := newFlags()
	if err := set.Parse(args); errors.Is(err, flag.ErrHelp) {
		all := pflag.NewFlagSet("manager", pflag.ContinueOnError) // it prints two dashes, as all pages do
		all.AddGoFlagSet(set)
		fmt.Fprintf(output, "Usage: manager [flags]\n\n%s", all.FlagUsages())
		return nil, err
	} else if err != nil {
		return nil, &usageError{suggested(err, set)}
	}
	if err := f.check(set.Args()); err != nil {
		return nil, &usageError{err}
	}
	return f, nil
}

// suggested adds the nearest flag to the error about an unknown one.
func suggested(err error, set *flag.FlagSet) error {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err
	}
	var known []string
	set.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
	if nearest := suggest.Nearest(name, known); nearest != "" {
		return fmt.Errorf("unknown flag --%s (did you mean --%s?)", name, nearest)
	}
	return fmt.Errorf("unknown flag --%s", name)
}

func (f *flags) check(rest []string) error {
	for _, of := range []struct{ name, address string }{
		{"metrics", f.metrics.address}, {"health-probe", f.healthAddress}, {"pprof", f.pprofAddress},
		{"eviction-webhook", f.evictionsAddress},
	} {
		if of.address == "" { // a listener would take any port, on all interfaces
			return fmt.Errorf("--%s-bind-address is empty: set 0 to turn it off", of.name)
		}
	}
	switch {
	case len(rest) > 0:
		return fmt.Errorf("unexpected argument %q: the manager takes only flags", rest[0])
	case f.config == "":
		return errors.New("--config is empty: set the configuration file")
	case !slices.Contains([]string{"", uninstallCheck, uninstallClean}, f.uninstall):
		return fmt.Errorf("--uninstall: %q is neither %s nor %s", f.uninstall, uninstallCheck, uninstallClean)
	default:
		return f.metrics.check()
	}
}

// features are those of the configuration that this manager has. It refuses those for which it has no address.
func (f *flags) features(c *config.Config) (has config.Features, leftOut []string, err error) {
	has = c.Features
	if f.dryRun {
		has, leftOut = has.WithoutWrites()
	}
	switch {
	case has.StatusPage == config.PageForAll && f.metrics.address == off:
		return has, nil, fmt.Errorf("%s: statusPage needs an address: set --metrics-bind-address, :8080 for example", f.config)
	case has.Evictions.Enabled && f.evictionsAddress == off:
		return has, nil, fmt.Errorf("%s: evictions.enabled needs an address: set --eviction-webhook-bind-address, :9443 for example", f.config)
	default:
		return has, leftOut, nil
	}
}

// builtVersion is what Go knows of the main module of this binary.
func builtVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
