// Package plugin is the kubectl plugin. view.go and explain.go are pure: they say of a pod what the manager's own rules say
// of it, from what the API server has. cluster.go reads that; a file for each command prints it.
package plugin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/suggest"
	"github.com/rollcall-dev/rollcall/registry"
)

// The exit statuses, which docs/kubectl-plugin.md lists.
const (
	exitOK         = 0
	exitFailed     = 1
	exitNotFound   = 3
	exitNotManaged = 4
	exitForbidden  = 5
	exitNoManager  = 6
	// exitFindings is of a history that shows what must not have happened, and exitUnread of one that may lack lines.
	exitFindings  = 7
	exitUnread    = 8
	exitTimedOut  = 9
	exitUnchecked = 10
)

// exitError is an error with an exit status of its own.
type exitError struct {
	status int
	err    error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// statusOf is the exit status of a command that returns the error, or nil.
func statusOf(err error) int {
	exit := (*exitError)(nil)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.status
	default:
		return exitFailed
	}
}

// options are what all commands share.
type options struct {
	genericiooptions.IOStreams

	flags        *genericclioptions.ConfigFlags
	installation string
	context      string // one of several that the person asked for; else empty
	version      string
	drivers      map[string]registry.Constructor
	now          func() time.Time
	dry          bool     // write nothing
	warned       []string // what [options.warnOnce] has reported
	given        string   // the flags of the command line that [options.again] repeats
	kubectl      string   // those of them that kubectl has too
	kubectlFlags []string // the same and the token, each as one argument
}

// Run runs the plugin with the arguments after its name, and returns its exit status. Registries of other drivers than these are not asked.
func Run(
	ctx context.Context, version string, arguments []string, streams genericiooptions.IOStreams, drivers map[string]registry.Constructor,
) int {
	o := newOptions(version, streams)
	o.drivers = drivers
	root := o.command() //nolint:contextcheck // cobra gives each command the context
	root.SetArgs(arguments)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(streams.ErrOut, "error:", err)
	}
	return statusOf(err)
}

// Command is what Run runs, for the reference.
func Command() *cobra.Command {
	return newOptions("", genericiooptions.NewTestIOStreamsDiscard()).command()
}

func newOptions(version string, streams genericiooptions.IOStreams) *options {
	return &options{IOStreams: streams, flags: genericclioptions.NewConfigFlags(true), version: version, now: time.Now}
}

func (o *options) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-rollcall",
		Short: "Show and control what Rollcall does",
		Long: "Show which pods are in rotation, why a pod waits, and the progress of a rollout; check a CloneSet before you apply it; " +
			"add the hooks to CloneSets; release a stuck pod; compare the registries with the cluster; " +
			"show what Rollcall did to a pod; clean up before you remove Rollcall.",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl rollcall"},
		Version:       o.version,
		SilenceUsage:  true,
		SilenceErrors: true,

		PersistentPreRun: o.repeat,
	}
	root.SetFlagErrorFunc(suggested)
	// Twenty flags of kubectl's would push what the command does off the screen.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}",
		"      --rollcall-namespace string   The namespace in which Rollcall is installed. (default \""+orders.Namespace+"\")\n"+
			"  -n, --namespace string            The namespace of the objects.\n"+
			"and --context, --kubeconfig, --as and the others of kubectl's that kubectl options lists.", 1))
	o.flags.AddFlags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&o.installation, "rollcall-namespace", orders.Namespace,
		"The namespace in which Rollcall is installed.")
	root.AddCommand(o.statusCommand(), o.explainCommand(), o.rolloutCommand(), o.lintCommand(), o.enrollCommand(),
		o.skipCommand(), o.holdCommand(), o.resyncCommand(), o.historyCommand(), o.checkCommand(), o.versionCommand(),
		o.debugCommand(), o.uninstallCommand())
	return root
}

// suggested adds the nearest flag to the error about an unknown one.
func suggested(cmd *cobra.Command, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if nearest := suggest.Nearest(unknown.GetSpecifiedName(), known); nearest != "" {
		return fmt.Errorf("%w (did you mean --%s?)", err, nearest)
	}
	return err
}

// repeat has the kubectl that this command runs, and the commands to copy, be about the same cluster, installation and person as it is
// itself: with all flags of kubectl's that reach a cluster. A token is not shown.
func (o *options) repeat(cmd *cobra.Command, _ []string) {
	o.given, o.kubectl, o.kubectlFlags = "", "", nil
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags.AddFlags(all)
	all.VisitAll(func(own *pflag.Flag) {
		if slices.Contains([]string{"namespace", "request-timeout", "cache-dir", "disable-compression"}, own.Name) {
			return
		}
		for _, value := range givenTo(cmd, own.Name) {
			o.kubectlFlags = append(o.kubectlFlags, fmt.Sprintf("--%s=%s", own.Name, value))
			if own.Name != "token" {
				o.kubectl += fmt.Sprintf(" --%s=%s", own.Name, shell(value))
			}
		}
	})
	o.given = o.kubectl
	for _, value := range givenTo(cmd, "rollcall-namespace") {
		o.given += " --rollcall-namespace=" + shell(value)
	}
}

// givenTo returns the values of a flag on the command line.
func givenTo(cmd *cobra.Command, name string) []string {
	f := cmd.Flag(name)
	if f == nil || !f.Changed || f.Value.String() == "" {
		return nil
	}
	if list, is := f.Value.(pflag.SliceValue); is {
		return list.GetSlice()
	}
	return []string{f.Value.String()}
}

// again returns a command to copy.
func (o *options) again(format string, arguments ...any) string {
	return "kubectl rollcall " + fmt.Sprintf(format, arguments...) + o.given
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shell quotes a word for a shell if it needs that.
func shell(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// complete offers the shell the names of the objects in the namespace that the list finds, for the first argument.
func (o *options) complete(list client.ObjectList, opts ...client.ListOption) cobra.CompletionFunc {
	return func(cmd *cobra.Command, arguments []string, begun string) (names []string, _ cobra.ShellCompDirective) {
		if len(arguments) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		cluster, err := o.cluster()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		if err := cluster.List(cmd.Context(), list, append(opts, client.InNamespace(cluster.namespace))...); err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			if one, is := object.(client.Object); is && strings.HasPrefix(one.GetName(), begun) {
				names = append(names, one.GetName())
			}
			return nil
		})
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namespace returns that of the flags or of the kubeconfig's context.
func (o *options) namespace() (string, error) {
	namespace, _, err := o.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}

// short writes a duration as kubectl does.
func short(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

func lastSeen(e eventsv1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	return e.EventTime.Time
}

func byLastSeen(a, b eventsv1.Event) int { return lastSeen(a).Compare(lastSeen(b)) }

// confirm asks a person about the cluster, unless they agreed beforehand. Only the word yes agrees; another answer gives an error with
// the text of refused.
func (c *cluster) confirm(yes bool, question, refused string) error {
	if yes {
		return nil
	}
	fmt.Fprintf(c.ErrOut, "%s: %s Type yes to continue: ", printable(c.where), printable(question))
	answer, err := bufio.NewReader(c.In).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New(refused)
	}
	return nil
}
