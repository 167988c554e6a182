package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// logWithin bounds how long the logs of all managers may take.
const logWithin = time.Minute

func (o *options) receiptCommand() *cobra.Command {
	var files []string
	var output *form
	c := &cobra.Command{
		Use:   "receipt CLONESET",
		Short: "Check in the audit logs whether a hook was released before the registry acknowledged",
		Long: "Replay the managers' audit logs and judge each rollout of the CloneSet: PASS or FAIL. Set audit.path in the configuration " +
			"to turn the logs on. They are read from the managers through the API server, or from the files of --file.",
		Example: "  kubectl rollcall receipt web -n prod\n  cat audit.jsonl.1 audit.jsonl | kubectl rollcall receipt web -n prod --file -",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, arguments []string) error {
			namespace, err := o.namespace()
			if err != nil {
				return err
			}
			lines, until, unread, err := o.auditLines(cmd.Context(), files)
			if err != nil {
				return err
			}
			if unread != nil {
				fmt.Fprintf(o.ErrOut, "The receipt is incomplete: %v\n", unread)
			}
			history, numbers := receipt.NewHistory(lines, until), o.revisions(cmd.Context(), namespace, files)
			rollouts, err := rolloutsOf(history, namespace, arguments[0])
			if err != nil {
				return err
			}
			if output.forScripts() {
				err = output.print(o.Out, receiptOf(history, namespace, arguments[0], rollouts, numbers, unread == nil))
			} else {
				o.printReceipt(history, rollouts, numbers)
			}
			if err == nil {
				err = verdict(rollouts)
			}
			if err == nil && unread != nil {
				return &exitError{exitDamaged, errors.New("not every manager's log could be read: see the lines above")}
			}
			return err
		},
	}
	output = outputFlag(c)
	c.Flags().StringArrayVarP(&files, "file", "f", nil, "Read the audit log from this file, or from standard input with -. Can be repeated.")
	return c
}

// auditLines reads the files, or the logs of the managers as they are at a time, and says which of those it can't read.
func (o *options) auditLines(ctx context.Context, files []string) (lines []receipt.Line, until time.Time, unread, err error) {
	var logs []written
	if len(files) == 0 {
		if logs, until, unread, err = o.managersLogs(ctx); err != nil {
			return nil, until, nil, err
		}
	}
	named := strings.Join(files, ", ")
	if len(files) > 0 {
		all, err := o.joined(files)
		if err != nil {
			return nil, until, nil, err
		}
		logs = []written{{named, all}}
	}
	for _, log := range logs {
		more, err := receipt.Read(log.text)
		if err != nil {
			return nil, until, nil, provesNothing(log.name, err)
		}
		lines = append(lines, more...)
	}
	if len(files) > 0 && len(lines) == 0 {
		return nil, until, nil, &exitError{exitDamaged, fmt.Errorf(
			"%s has no line of an audit log: pass the file that audit.path specifies", named)}
	}
	return lines, until, unread, nil
}

// joined reads files one behind the other, as a collector has split a log.
func (o *options) joined(files []string) (all []byte, err error) {
	for _, path := range files {
		text, err := readInput(o.In, path, "the audit log")
		if err != nil {
			return nil, err
		}
		if all, err = receipt.Join(all, text); err != nil {
			return nil, provesNothing(strings.Join(files, ", "), err)
		}
	}
	return all, nil
}

func provesNothing(log string, err error) error {
	return &exitError{exitDamaged, fmt.Errorf("the audit log %s proves nothing: %w", log, err)}
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

// managersLogs asks each manager that there is.
func (o *options) managersLogs(ctx context.Context) (logs []written, until time.Time, unread, err error) {
	cluster, err := o.cluster()
	if err != nil {
		return nil, until, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, logWithin)
	defer cancel()
	pods, err := cluster.managers(ctx)
	if err != nil {
		return nil, until, nil, err
	}
	until = cluster.managersTime(ctx)
	for i := range pods {
		text, err := cluster.auditLog(ctx, &pods[i])
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		logs = append(logs, written{"of manager " + pods[i].Name, text})
	}
	switch {
	case len(logs) > 0:
		return logs, until, unread, nil
	case errors.As(unread, new(*exitError)):
		return nil, until, nil, unread // what is missing is a right
	}
	return nil, until, nil, &exitError{exitNoManager, errors.Join(unread, fmt.Errorf("no manager in namespace %s serves an audit log: "+
		"set --rollcall-namespace to where Rollcall is installed, or read a copy with --file", o.installation))}
}

// managersTime is when the leader renewed its Lease last, by its own clock, as that of the lines: the local one may be ahead. It is the
// local one where no manager leads, or the Lease can't be read.
func (c *cluster) managersTime(ctx context.Context) time.Time {
	if lease, err := c.renewed(ctx); err == nil {
		return lease.Spec.RenewTime.Time
	}
	return c.now()
}

// managers returns the managers' pods that run and have a port to ask, by the labels that the manifests and the chart set.
func (c *cluster) managers(ctx context.Context) ([]corev1.Pod, error) {
	all, err := c.managerPods(ctx)
	return slices.DeleteFunc(all, func(pod corev1.Pod) bool {
		return portOf(&pod) == "" || lifecycle.AddressOf(lifecycle.PodOf(&pod)) == ""
	}), err
}

// managerPods returns the managers' pods, whatever their state.
func (c *cluster) managerPods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	labels := client.MatchingLabels{"app.kubernetes.io/name": "rollcall", "app.kubernetes.io/component": "manager"}
	if err := c.List(ctx, &pods, client.InNamespace(c.installation), labels); err != nil {
		return nil, reading("the managers' pods", err)
	}
	return pods.Items, nil
}

func (c *cluster) auditLog(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
	log, err := c.pods.Pods(pod.Namespace).ProxyGet("http", pod.Name, portOf(pod), entries.LogPath, nil).DoRaw(ctx)
	if apierrors.ReasonForError(err) != "" && strings.Contains(err.Error(), "audit.path") {
		return nil, fmt.Errorf("the manager %s writes no audit log: its configuration has no audit.path, or it is a dry run", pod.Name)
	}
	return log, c.proxyError(err, pod.Name)
}

// revisions returns the numbers of the revisions, by their hashes, as far as a person may read them.
func (o *options) revisions(ctx context.Context, namespace string, files []string) map[string]string {
	if len(files) > 0 {
		return nil // the copies may be of another cluster
	}
	cluster, err := o.cluster()
	if err != nil {
		return nil
	}
	var list appsv1.ControllerRevisionList
	if err := cluster.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil
	}
	numbers := map[string]string{}
	for i := range list.Items {
		numbers[shortRevision(list.Items[i].Name)] = strconv.FormatInt(list.Items[i].Revision, 10)
	}
	return numbers
}

func rolloutsOf(h *receipt.History, namespace, name string) ([]receipt.Rollout, error) {
	rollouts := h.Rollouts(namespace, name)
	if len(rollouts) == 0 {
		return nil, &exitError{exitNotFound, fmt.Errorf("the audit logs have no rollout of CloneSet %s in namespace %s: they begin %s",
			name, namespace, h.Since().UTC().Format(time.RFC3339))}
	}
	return rollouts, nil
}

// verdict is the error of rollouts that FAIL.
func verdict(rollouts []receipt.Rollout) error {
	failed := 0
	for _, r := range rollouts {
		if len(r.Faults) > 0 {
			failed++
		}
	}
	if failed > 0 {
		return &exitError{exitReceiptFails, fmt.Errorf("%d of %d rollouts FAIL: the lines above show pod and time", failed, len(rollouts))}
	}
	return nil
}

// printReceipt names revisions by their numbers, and by their hashes where it has none.
func (o *options) printReceipt(h *receipt.History, rollouts []receipt.Rollout, numbers map[string]string) {
	on := terminalOf(o.Out)
	revision := func(name string) string { return cmp.Or(numbers[shortRevision(name)], shortRevision(name)) }
	for _, r := range rollouts {
		look := good
		if len(r.Faults) > 0 {
			look = bad
		}
		fmt.Fprintln(o.Out, on.paint(on.wrap(r.String(revision)), look))
		for _, f := range r.Faults {
			fmt.Fprintln(o.Out, on.wrap(printable(fmt.Sprintf("- %s %s: %s", f.At.UTC().Format("15:04:05.000"), dash(f.Pod), f.Text))))
		}
	}
	fmt.Fprintln(o.ErrOut, on.wrap(h.Scope()))
}

// Receipt is what a program reads.
type Receipt struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Since is when the lines begin, and Scope what the receipt rests on, for a person.
	Since time.Time `json:"since"`
	Scope string    `json:"scope"`
	// Complete reports whether every manager's log could be read.
	Complete bool             `json:"complete"`
	Pass     bool             `json:"pass"`
	Rollouts []ReceiptRollout `json:"rollouts"`
}

// ReceiptRollout is what the lines show of one revision.
type ReceiptRollout struct {
	// From and To are hashes of revisions, of which the former may not be known; Number is that of To, if it may be read.
	From   string    `json:"from,omitempty"`
	To     string    `json:"to"`
	Number string    `json:"number,omitempty"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	// Pods, Transitions, Early and Excused are counted: Early are flips before the acknowledgement, Excused hooks that a person or the
	// failure policy released.
	Pods        int `json:"pods"`
	Transitions int `json:"transitions"`
	Early       int `json:"early"`
	Excused     int `json:"excused"`
	// Least is the lowest number of pods in rotation, of the Most that there were. They are not known without From.
	Least *int `json:"least,omitempty"`
	Most  *int `json:"most,omitempty"`
	// LongestWait is in seconds.
	LongestWait float64        `json:"longestWaitSeconds"`
	Pass        bool           `json:"pass"`
	Faults      []ReceiptFault `json:"faults"`
}

// ReceiptFault is what must not have happened. Pod is NAMESPACE/NAME, and empty if it is about no pod.
type ReceiptFault struct {
	At    time.Time `json:"at"`
	Pod   string    `json:"pod,omitempty"`
	Text  string    `json:"text"`
	Early bool      `json:"early"`
}

func receiptOf(
	h *receipt.History, namespace, name string, rollouts []receipt.Rollout, numbers map[string]string, complete bool,
) Receipt {
	shown := Receipt{
		Namespace: namespace, Name: name, Since: h.Since().UTC(), Scope: h.Scope(), Complete: complete, Pass: verdict(rollouts) == nil,
	}
	for _, r := range rollouts {
		one := ReceiptRollout{
			From: shortRevision(r.From), To: shortRevision(r.To), Number: numbers[shortRevision(r.To)], Began: r.Began.UTC(), Ended: r.Ended.UTC(),
			Pods: r.Pods, Transitions: r.Transitions, Early: r.Early(), Excused: r.Excused, LongestWait: r.Longest.Seconds(),
			Pass: len(r.Faults) == 0, Faults: []ReceiptFault{},
		}
		if r.From != "" {
			one.Least, one.Most = &r.Least, &r.Most
		}
		for _, f := range r.Faults {
			one.Faults = append(one.Faults, ReceiptFault{f.At.UTC(), f.Pod, f.Text, f.Early})
		}
		shown.Rollouts = append(shown.Rollouts, one)
	}
	return shown
}

// shortRevision is the hash at the end of a revision's name.
func shortRevision(name string) string { return name[strings.LastIndex(name, "-")+1:] }
