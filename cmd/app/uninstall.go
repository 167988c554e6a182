package app

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/uninstall"
)

// Modes of --uninstall.
const (
	uninstallCheck = "check"
	uninstallClean = "clean"
)

// uninstallFor is how long clean waits for pods, less than Helm waits for a hook by default.
const uninstallFor = 4 * time.Minute

// uninstall prints what depends on Rollcall, and fails if anything does. It refuses an invalid configuration, whose namespaces are not
// known: those of other installations would count.
func (o *options) uninstall(ctx context.Context, f *flags) error {
	c, err := config.Load(f.config, config.Limits{Unknown: func(string) {}})
	if err != nil {
		return err
	}
	_, rest, err := o.cluster(f)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clusterstate.AddToScheme(scheme); err != nil {
		return fmt.Errorf("making the scheme: %w", err)
	}
	by, err := client.New(rest, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("connecting to the API server: %w", err)
	}
	cluster := &uninstall.Cluster{Client: by, Config: c, Owner: "rollcall-uninstall", KeepWebhook: true}
	return o.uninstallFrom(ctx, cluster, f.uninstall == uninstallClean)
}

func (o *options) uninstallFrom(ctx context.Context, cluster *uninstall.Cluster, clean bool) error {
	const skip = "helm uninstall --no-hooks skips this check"
	findings, err := o.dependents(ctx, cluster, clean)
	if err != nil { // with Roles, also if one of the namespaces is gone
		return fmt.Errorf("%w; %s", err, skip)
	}
	for _, f := range findings {
		_, _ = fmt.Fprintln(o.output, f)
	}
	if len(findings) > 0 {
		return fmt.Errorf("objects that depend on Rollcall: %d. Run kubectl rollcall uninstall, as in %s; %s",
			len(findings), reason.Docs(o.version, "docs/uninstall.md"), skip)
	}
	_, err = fmt.Fprintln(o.output, "nothing depends on Rollcall")
	return err
}

func (o *options) dependents(ctx context.Context, cluster *uninstall.Cluster, clean bool) ([]uninstall.Finding, error) {
	if !clean {
		left, err := cluster.Survey(ctx)
		if err != nil {
			return nil, err
		}
		return left.Findings(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, uninstallFor)
	defer cancel()
	return cluster.Clean(ctx, func(f uninstall.Finding) { _, _ = fmt.Fprintf(o.output, "removed from %s\n", f) })
}
