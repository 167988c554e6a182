package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/history"
)

// logsWithin bounds how long the logs of all managers may take.
const logsWithin = time.Minute

func (o *options) historyCommand() *cobra.Command {
	var files []string
	var output *form
	c := &cobra.Command{
		Use:   "history POD|WORKLOAD",
		Short: "Show what Rollcall did to a pod or the pods of a workload",
		Long: "Show from the managers' logs what became of the pod's entries, drains and hooks, in order, and whether a hook was released " +
			"before the registry acknowledged, a drain was cut short, or an entry was left in rotation. The logs of all managers are read " +
			"through the API server, also those before a container's last restart, or from the files of --file.",
		Example: "  kubectl rollcall history web -n prod\n" +
			"  logcli query '{app=\"rollcall\"}' -o raw | kubectl rollcall history web -n prod --file -",
		Args: oneName("pod or workload"),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			logs, until, unread, err := o.logs(cmd.Context(), files)
			if err != nil {
				return err
			}
			all := history.Read(logs...)
			all.AsOf(until)
			told, err := historyOf(all, namespace, arguments[0])
			if err != nil {
				return err
			}
			found := told.Findings()
			if output.forScripts() {
				err = output.print(o.Out, historyFor(told, found, unread == nil))
			} else {
				o.printHistory(told, found)
			}
			return errors.Join(err, verdict(found, unread))
		},
	}
	output = outputFlag(c)
	c.Flags().StringArrayVarP(&files, "file", "f", nil,
		"Read the log from this file, or from standard input with -: a manager's own, or an export of Loki or Elasticsearch. Can be repeated.")
	return c
}

// logs are those of the files, or of the managers as they are at a time, and why not all could be read.
func (o *options) logs(ctx context.Context, files []string) (logs [][]byte, until time.Time, unread, err error) {
	for _, path := range files {
		text, err := readInput(o.In, path, "the log")
		if err != nil {
			return nil, until, nil, err
		}
		logs = append(logs, text)
	}
	if len(files) > 0 {
		return logs, until, nil, nil
	}
	c, err := o.cluster()
	if err != nil {
		return nil, until, nil, err
	}
	if lease, err := c.lease(ctx); err == nil && lease.Spec.RenewTime != nil { // by a manager's clock
		until = lease.Spec.RenewTime.Time
	}
	logs, unread, err = c.managersLogs(ctx)
	return logs, until, unread, err
}

// readInput reads a file, or the standard input where its path is -.
func readInput(in io.Reader, path, what string) (text []byte, err error) {
	if path == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", what, err)
	}
	return text, nil
}

// managersLogs are those of all managers' containers.
func (c *cluster) managersLogs(ctx context.Context) (logs [][]byte, unread, err error) {
	ctx, cancel := context.WithTimeout(ctx, logsWithin)
	defer cancel()
	pods, err := c.managerPods(ctx)
	if err != nil {
		return nil, nil, err
	}
	for i := range pods {
		unread = errors.Join(unread, c.eachLog(ctx, &pods[i], 0, func(_ string, _ bool, text []byte) {
			if text != nil {
				logs = append(logs, text)
			}
		}))
	}
	switch {
	case len(logs) > 0:
		return logs, unread, nil
	case unread != nil:
		return nil, nil, unread
	}
	return nil, nil, &exitError{exitNoManager, fmt.Errorf("namespace %s has no pods of a manager: set --rollcall-namespace to where "+
		"Rollcall is installed, or read a copy of the log with --file", c.installation)}
}

// managerPods returns the managers' pods, by the labels that the manifests and the chart set.
func (c *cluster) managerPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	labels := client.MatchingLabels{"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager"}
	if err := c.List(ctx, &pods, client.InNamespace(c.installation), labels); err != nil {
		return nil, reading("the managers' pods", err)
	}
	return pods.Items, nil
}

// eachLog reads the logs of a manager's containers, and those of the containers before if they were restarted: the last lines, or all. Of
// one that can't be read the text is nil.
func (c *cluster) eachLog(ctx context.Context, pod *corev1.Pod, last int64, do func(container string, previous bool, text []byte)) error {
	var all []error
	for _, container := range pod.Status.ContainerStatuses {
		for _, previous := range []bool{true, false} {
			if previous && container.RestartCount == 0 {
				continue
			}
			options := &corev1.PodLogOptions{Container: container.Name, Previous: previous}
			if last > 0 {
				options.TailLines = &last
			}
			text, err := c.pods.Pods(c.installation).GetLogs(pod.Name, options).DoRaw(ctx)
			switch {
			case apierrors.IsForbidden(err):
				all = append(all, c.lacks("pods/log"))
			case err != nil:
				all = append(all, reading("the log of "+pod.Name, err))
			}
			if err != nil {
				text = nil // it is the error's
			}
			do(container.Name, previous, text)
		}
	}
	return errors.Join(all...)
}

// historyOf is about a pod, or about the pods of a workload: NAME or KIND/NAME.
func historyOf(all *history.History, namespace, name string) (*history.History, error) {
	kind, workload, hasKind := strings.Cut(name, "/")
	if !hasKind {
		kind, workload = "", name
	}
	uids := map[string]bool{}
	for _, l := range all.Lines() {
		ofKind, own, _ := strings.Cut(l.Workload, "/")
		isPod := l.Pod.Name == workload && (kind == "" || strings.EqualFold(kind, "pod"))
		isWorkload := own == workload && (kind == "" || strings.EqualFold(kind, ofKind))
		if l.Namespace == namespace && (isPod || isWorkload) {
			uids[l.UID] = true
		}
	}
	if len(uids) > 0 {
		return all.Of(func(pod history.Pod) bool { return uids[pod.UID] }), nil
	}
	if all.Begin().IsZero() { // the end may be the lease's
		return nil, &exitError{exitNotFound, errors.New("the logs have no line that a manager wrote in JSON")}
	}
	return nil, &exitError{exitNotFound, fmt.Errorf("the logs have no line about a pod or a workload %s in namespace %s. "+
		"They are from %s to %s", name, namespace, moment(all.Begin()), moment(all.Until()))}
}

// verdict is the error of a history with findings, or of one that may lack lines.
func verdict(found []history.Finding, unread error) error {
	switch {
	case len(found) == 1:
		return &exitError{exitFindings, errors.New("the logs show that something went wrong: see the line above")}
	case len(found) > 0:
		return &exitError{exitFindings, fmt.Errorf("the logs show that %d things went wrong: see the lines above", len(found))}
	case unread != nil:
		return &exitError{exitUnread, fmt.Errorf("not every log could be read: %w", unread)}
	}
	return nil
}

func (o *options) printHistory(told *history.History, found []history.Finding) {
	on, pods := terminalOf(o.Out), map[string]bool{}
	shown := table{head: []string{"TIME", "POD", "CHANGE", "DETAILS"}}
	for _, l := range told.Lines() {
		look := plain
		if slices.ContainsFunc(found, func(f history.Finding) bool { return f.UID == l.UID && f.At.Equal(l.At) }) {
			look = bad
		}
		if l.UID != "" {
			pods[l.UID] = true
		}
		shown.rows = append(shown.rows, row{look, []string{moment(l.At), dash(l.Pod.Name), string(l.Kind), details(l)}})
	}
	shown.write(o.Out, on)
	fmt.Fprintln(o.Out)
	for _, f := range found {
		fmt.Fprintln(o.Out, on.paint(on.wrap(printable(fmt.Sprintf("%s: %s %s: %s", f.Rule, moment(f.At), f.Pod.Name, f.Text))), bad))
	}
	if len(found) == 0 {
		fmt.Fprintln(o.Out, on.paint(on.wrap(fmt.Sprintf("The lines of %s show no hook that was released before the registry "+
			"acknowledged, no drain that was cut short, and no entry that was left in rotation.", counted(len(pods), "pod"))), good))
	}
	fmt.Fprintln(o.ErrOut, on.wrap(fmt.Sprintf("From logs between %s and %s. What came before is not known.",
		moment(told.Begin()), moment(told.Until()))))
}

// counted returns a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// details are what a line has besides.
func details(l history.Line) string {
	switch l.Kind {
	case history.Released:
		text := fmt.Sprintf("%s by %s after %s", l.Hook, l.By, lasted(l.Took))
		if len(l.Entries) > 0 {
			text += fmt.Sprintf(", %s: %s", l.Rotation, strings.Join(l.Entries, ", "))
		}
		return text
	case history.DrainBegun:
		if l.DrainMin == l.DrainMax {
			return "for " + lasted(l.DrainMax)
		}
		return fmt.Sprintf("for %s to %s", lasted(l.DrainMin), lasted(l.DrainMax))
	case history.DrainEnded:
		text := fmt.Sprintf("%s, after %s", l.By, lasted(l.Took))
		if l.Answer != "" && l.Answer != l.By {
			text += ": " + l.Answer
		}
		return text
	case history.Renamed:
		return l.Former + " is " + l.Registry
	default:
		text := l.Listed()
		if l.By != "" {
			text += ", by " + l.By
		}
		if l.Took > 0 {
			text += ", in " + lasted(l.Took)
		}
		return text
	}
}

func lasted(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d > time.Second {
		return d.Round(time.Second / 10).String()
	}
	return d.Round(time.Millisecond / 10).String()
}

// History is what a program reads.
type History struct {
	// Since and Until are between which times the logs are.
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
	// Complete reports whether every manager's log could be read.
	Complete bool             `json:"complete"`
	Lines    []HistoryLine    `json:"lines"`
	Findings []HistoryFinding `json:"findings"`
}

// HistoryLine is a line as it was logged.
type HistoryLine struct {
	At     time.Time `json:"at"`
	Change string    `json:"change"`

	history.Line
}

// HistoryFinding is what must not have happened.
type HistoryFinding struct {
	At   time.Time `json:"at"`
	Rule string    `json:"rule"`
	Pod  string    `json:"pod"`
	UID  string    `json:"uid"`
	Text string    `json:"text"`
}

func historyFor(told *history.History, found []history.Finding, complete bool) History {
	shown := History{Since: told.Begin(), Until: told.Until(), Complete: complete, Lines: []HistoryLine{}, Findings: []HistoryFinding{}}
	for _, l := range told.Lines() {
		shown.Lines = append(shown.Lines, HistoryLine{l.At, string(l.Kind), l})
	}
	for _, f := range found {
		shown.Findings = append(shown.Findings, HistoryFinding{f.At, f.Rule, f.Pod.Name, f.UID, f.Text})
	}
	return shown
}
