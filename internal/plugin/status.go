package plugin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

func (o *options) statusCommand() *cobra.Command {
	var all, watch bool
	var selector string
	var output *form
	c := &cobra.Command{
		Use:   "status [NAME...]",
		Short: "List the pods that Rollcall manages, waiting pods first",
		Long: "List the pods that Rollcall manages, waiting pods first: all, or the named pods and those of the named workloads. " +
			"--context can list several contexts.",
		Example: "  kubectl rollcall status --watch\n  kubectl rollcall status -A --context prod-a,prod-b\n" +
			"  kubectl rollcall status web -n prod\n  kubectl rollcall status -A -o wide\n" +
			"  kubectl rollcall status -l app=web -o json\n" +
			"  kubectl rollcall status -A -o jsonpath='{range [*]}{.namespace}/{.name}{\"\\n\"}{end}'",
		ValidArgsFunction: o.complete(&corev1.PodList{}, client.HasLabels{appspub.LifecycleStateKey}),
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := output.once(watch); err != nil {
				return err
			}
			matching, err := parseSelector(selector)
			if err != nil {
				return err
			}
			clusters, err := o.fleet(cmd)
			if err != nil {
				return err
			}
			ctx := cmd.Context()
			return o.show(ctx, watch, func(out, notes io.Writer, on terminal) (bool, error) {
				s, err := clusters.status(ctx, all, matching)
				if err != nil {
					return false, err
				}
				s.selector = selector
				s.only(names)
				if err := s.write(out, notes, on, output, all); err != nil || !watch {
					return false, cmp.Or(err, s.failed)
				}
				noteFailed(notes, s.failed)
				return false, nil
			})
		},
	}
	c.Flags().BoolVarP(&all, "all-namespaces", "A", false, "List the pods of all namespaces.")
	output = outputFlag(c, "wide", "name")
	c.Flags().BoolVarP(&watch, "watch", "w", false, "Refresh every second until you press Ctrl-C.")
	c.Flags().StringVarP(&selector, "selector", "l", "", "List only pods with these labels, such as app=web.")
	return c
}

// status is what the command shows.
type status struct {
	pods []Pod
	// unknown explains why it is not known what the manager knows, and leaderless that no manager leads.
	unknown    error
	leaderless string
	// failed is of those of several clusters that can't be asked.
	failed error
	// namespace and selector are what the person asked for, empty for all.
	namespace, selector string
	names               []string
}

// only leaves the pods that have one of the names, or whose workload has: all without a name. As for kubectl, a kind may come before it.
func (s *status) only(names []string) {
	if s.names = names; len(names) == 0 {
		return
	}
	s.pods = slices.DeleteFunc(s.pods, func(p Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			_, of, found := strings.Cut(name, "/")
			if !found {
				of = name
			}
			return of == p.Name || of == p.Workload
		})
	})
}

func (c *cluster) status(ctx context.Context, namespace string, matching client.ListOption) (*status, error) {
	w, err := c.world(ctx, namespace)
	if err != nil {
		return nil, err
	}
	watched := client.HasLabels{appspub.LifecycleStateKey} // by the manager
	pods, err := c.managed(ctx, w, client.InNamespace(namespace), matching, watched)
	if err != nil {
		return nil, err
	}
	return &status{pods: pods, unknown: w.unknown, leaderless: w.leaderlessIn(namespace), namespace: namespace}, nil
}

func (s *status) write(out, notes io.Writer, on terminal, output *form, all bool) error {
	sayFirst(notes, s.leaderless)
	if output.forScripts() {
		noEntries(notes, s.unknown)
		return output.print(out, list(s.pods))
	}
	if len(s.pods) == 0 {
		fmt.Fprintln(notes, s.nothing(all))
		return nil
	}
	if output.name == "name" {
		for _, p := range s.pods {
			fmt.Fprintln(out, "pod/"+p.Name)
		}
		return nil
	}
	if output.name == "wide" {
		on.width = 0 // a person asked for all of it
	}
	known := s.unknown == nil || slices.ContainsFunc(s.pods, func(p Pod) bool { return p.Context != "" && !p.facts.unasked })
	statusTable(s.pods, known, output.name == "wide", all || strings.Contains(s.namespace, " or ")).write(out, on)
	noteUnknown(notes, s.unknown, known)
	for _, left := range leftOver(s.pods) {
		fmt.Fprintln(notes, left)
	}
	return nil
}

// nothing explains that there is no pod to show.
func (s *status) nothing(all bool) string {
	where, otherwise := "in namespace "+s.namespace, "; use -A for all namespaces"
	if all {
		where, otherwise = "in the cluster", ": enroll a CloneSet, or add hooks with keys of rollcall.dev/ to it"
	}
	if s.selector != "" {
		where += " with the labels " + s.selector
	}
	if len(s.names) > 0 {
		where = "called " + strings.Join(s.names, " or ") + ", or of a workload of that name, " + where
	}
	return fmt.Sprintf("Rollcall manages no pods %s%s", where, otherwise)
}

// leftOver returns a line for each CloneSet whose shares of traffic an earlier update has left.
func leftOver(pods []Pod) (lines []string) {
	for _, p := range pods {
		if left := lifecycle.LeftOverTraffic(p.facts.workload); left != "" {
			lines = append(lines, fmt.Sprintf("%sCloneSet %s/%s: %s", prefix(p.Context), p.Namespace, p.Workload, left))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// noteUnknown prints why a table lacks what the manager knows, of all pods or, if known, of some.
func noteUnknown(notes io.Writer, unknown error, known bool) {
	if unknown != nil {
		shown := map[bool]string{true: "?", false: "not shown"}[known]
		fmt.Fprintf(notes, "REGISTRY is %s, and REASON is only what the pods show: %v\n", shown, unknown)
	}
}

// noteFailed prints which of several clusters could not be asked.
func noteFailed(notes io.Writer, failed error) {
	if failed != nil {
		fmt.Fprintln(notes, failed)
	}
}

// sayFirst prints that no manager leads, where that is so.
func sayFirst(notes io.Writer, leaderless string) {
	if leaderless != "" {
		fmt.Fprintln(notes, leaderless)
	}
}

// noEntries prints why a field for programs is missing, if it is.
func noEntries(notes io.Writer, unknown error) {
	if unknown != nil {
		fmt.Fprintf(notes, "The field entries is missing, and reason is only what the pods show: %v\n", unknown)
	}
}

// statusTable has a row for each pod, with what the registries have if that is known.
func statusTable(pods []Pod, known, wide, all bool) table {
	t := table{spare: []string{"READY", "IN STATE", "ROTATION", "WAITS AT"}, rows: make([]row, len(pods))}
	several := false
	for i, p := range pods {
		t.rows[i].tone, several = p.tone(), several || p.Context != ""
	}
	for _, column := range []struct {
		head string
		is   bool
		cell func(Pod) string
	}{
		{"CONTEXT", several, func(p Pod) string { return p.Context }},
		{"NAMESPACE", all, func(p Pod) string { return p.Namespace }},
		{"NAME", true, func(p Pod) string { return p.Name }},
		{"STATE", true, func(p Pod) string { return dash(p.State) }},
		{"IN STATE", true, func(p Pod) string { return p.inState() }},
		{"READY", true, func(p Pod) string { return strconv.FormatBool(p.Ready) }},
		{"ROTATION", true, func(p Pod) string { return string(p.Rotation) }},
		{"REGISTRY", known, registryOf},
		{"WAITS AT", true, func(p Pod) string { return dash(string(p.Hook)) }},
		{"REASON", true, func(p Pod) string { return dash(string(p.Reason)) }},
		{"WORKLOAD", wide, func(p Pod) string { return dash(p.Workload) }},
		{"INSTANCES", wide, func(p Pod) string { return strconv.Itoa(len(p.Instances)) }},
		{"MESSAGE", wide, func(p Pod) string { return dash(p.Message) }},
	} {
		if column.is {
			t.head = append(t.head, column.head)
			for i, p := range pods {
				t.rows[i].cells = append(t.rows[i].cells, column.cell(p))
			}
		}
	}
	return t
}

// inState is how long the pod has been in its state.
func (p Pod) inState() string {
	if p.Since == nil {
		return "-"
	}
	return short(p.facts.now.Sub(p.Since.Time))
}
