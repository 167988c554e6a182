package plugin

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/uninstall"
)

// uninstallOptions are the command's flags.
type uninstallOptions struct {
	dryRun, yes, freePods bool
	file                  string
	timeout               time.Duration
}

func (o *options) uninstallCommand() *cobra.Command {
	var of uninstallOptions
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove what in the cluster waits for Rollcall, so that Rollcall can be removed",
		Long: "Wait until no rollout is running, remove the enrollment labels of namespaces, Rollcall's hooks from all workloads, and its " +
			"finalizers, marks and readiness gate from their templates, which starts an update. Then wait until Rollcall has removed its " +
			"finalizers from the pods, and delete the configuration of the eviction webhook. What is left is shown, and the exit status is 0 " +
			"if that is nothing: then remove the installation itself.\n\n" +
			"With --free-pods and no manager running, the command removes the finalizers from the pods itself, and does not wait for a " +
			"rollout. Their entries stay in the registries.",
		Example: "  kubectl rollcall uninstall --dry-run\n  kubectl rollcall uninstall --timeout 10m",
		Args:    cobra.NoArgs,
		RunE: o.connected(func(ctx context.Context, cluster *cluster, _ []string) error {
			return cluster.uninstall(ctx, of)
		}),
	}
	c.Flags().BoolVar(&of.dryRun, "dry-run", false, "Show what is left, and change nothing.")
	c.Flags().BoolVarP(&of.yes, "yes", "y", false, "Do not ask for confirmation.")
	c.Flags().DurationVar(&of.timeout, "timeout", 10*time.Minute, "How long to wait for pods.")
	c.Flags().BoolVar(&of.freePods, "free-pods", false, "Remove Rollcall's finalizers from pods while no manager runs.")
	c.Flags().StringVar(&of.file, "config", "", "Configuration file of an installation that is gone. Default: the ConfigMap in the cluster.")
	return c
}

func (c *cluster) uninstall(ctx context.Context, of uninstallOptions) error {
	if of.timeout <= 0 {
		return fmt.Errorf("--timeout %s: set how long to wait for pods, such as 10m", of.timeout)
	}
	parsed, err := c.configOf(ctx, of.file)
	if err != nil {
		return err
	}
	from := &uninstall.Cluster{Client: c, Config: parsed, Owner: enroll.PluginOwner, Unled: of.freePods}
	left, err := from.Survey(ctx)
	if err != nil {
		return asking(err)
	}
	if findings := left.Findings(); of.dryRun || len(findings) == 0 {
		return c.remaining(findings, exitFailed)
	}
	if err := c.cleanable(ctx, left, of.freePods); err != nil {
		return err
	}
	err = c.confirm(of.yes, fmt.Sprintf("remove Rollcall's hooks, labels and finalizers from %s? Updates then wait for no registry, new pods "+
		"are not registered, and a changed template starts an update.", counted(len(left.Findings()), "object")), "nothing was changed")
	if err != nil {
		return err
	}
	removed := func(f uninstall.Finding) { fmt.Fprintf(c.Out, "removed from %s\n", printable(f.String())) }
	if of.freePods {
		if err := from.FreePods(ctx, left, removed); err != nil {
			return asking(err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, of.timeout)
	defer cancel()
	findings, err := from.Clean(ctx, removed)
	if err != nil {
		return asking(err)
	}
	return c.remaining(findings, exitTimedOut)
}

// configOf reads the file, if one is given. What a manager refuses is refused here too: without valid namespaces, those of other
// installations would count.
func (c *cluster) configOf(ctx context.Context, file string) (*config.Config, error) {
	limits := config.Limits{
		Unknown: c.tolerant().Unknown, ClusterUID: func() (string, error) { return clusterstate.ReadUID(ctx, c) },
	}
	if file == "" {
		parsed, err := c.config(ctx, limits)
		if statusOf(err) == exitNoManager {
			return nil, &exitError{exitNoManager, fmt.Errorf(
				"%w; if the installation is gone, or none is there yet, pass its configuration with --config", err)}
		}
		return parsed, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	parsed, err := config.Parse(text, limits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return parsed, nil
}

// cleanable refuses to wait for a manager that does not run, and to take from pods what one that runs puts back.
func (c *cluster) cleanable(ctx context.Context, left *uninstall.Left, freePods bool) error {
	if left.Waiting() == 0 && !freePods {
		return nil
	}
	lease, unled := c.renewed(ctx)
	known, unled := c.led(ctx, lease, unled)
	switch {
	case freePods && known && unled == nil:
		return fmt.Errorf("a manager leads, and would put the finalizers back: run this without --free-pods, or stop it with "+
			"kubectl -n %s scale deployment rollcall --replicas=0%s", c.installation, c.kubectl)
	case !freePods && unled != nil && (known || len(left.Held) > 0):
		return fmt.Errorf("pods that only a manager releases: %d. Start one, or add --free-pods, which leaves their entries in the "+
			"registries: %w", left.Waiting(), unled)
	}
	return nil
}

// remaining prints what is left.
func (c *cluster) remaining(findings []uninstall.Finding, status int) error {
	for _, f := range findings {
		fmt.Fprintln(c.Out, printable(f.String()))
	}
	if len(findings) > 0 {
		return &exitError{status, fmt.Errorf("objects that depend on Rollcall: %d; the lines above show why", len(findings))}
	}
	fmt.Fprintln(c.Out, "nothing depends on Rollcall: remove its installation")
	return nil
}
