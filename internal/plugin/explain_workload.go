package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// The kinds that explain takes in addition to those of workloads.
const (
	kindPod  = "Pod"
	kindNode = "Node"
)

// subjectOf reads NAME or KIND/NAME, with kubectl's names of kinds. Without a kind, it is a pod's name or a workload's.
func subjectOf(argument string) (kind, name string, err error) {
	before, name, found := strings.Cut(argument, "/")
	if !found {
		return "", argument, nil
	}
	resource, _, _ := strings.Cut(strings.ToLower(before), ".")
	for kind, names := range map[string]string{
		kindPod: "pod pods po", kindNode: "node nodes no", clusterstate.KindCloneSet: "cloneset clonesets clone",
		clusterstate.KindStatefulSet: "statefulset statefulsets sts asts", clusterstate.KindDaemonSet: "daemonset daemonsets ds ads daemon",
	} {
		if slices.Contains(strings.Fields(names), resource) && name != "" {
			return kind, name, nil
		}
	}
	return "", "", fmt.Errorf("%s: set a pod, cloneset/NAME, statefulset/NAME, daemonset/NAME or node/NAME", argument)
}

// ExplainedWorkload is what a program reads of a workload.
type ExplainedWorkload struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Waits has the pods that wait, by what they wait for, the longest wait first.
	Waits []Waits `json:"waits"`
	// Handlers are those of the hooks; Set is whether all pods have it.
	Handlers    []Handler `json:"handlers"`
	Explanation []string  `json:"explanation"`
	Remedies    []Remedy  `json:"remedies"`
	// Pods are all, waiting pods first.
	Pods []Pod `json:"pods"`
}

// Waits are the pods that wait for the same at the same hook. Message is that of the first.
type Waits struct {
	Hook    lifecycle.Hook `json:"hook,omitempty"`
	Reason  reason.Reason  `json:"reason"`
	Message string         `json:"message,omitempty"`
	Since   *metav1.Time   `json:"since,omitempty"`
	Pods    []string       `json:"pods"`

	first Pod
}

// explainWorkload shows what the workload as a whole waits for.
func (c *cluster) explainWorkload(ctx context.Context, kind, name string, output *form) error {
	w, err := c.world(ctx, c.namespace)
	if err != nil {
		return err
	}
	workload, err := w.named(kind, name, c.namespace)
	if err != nil {
		return err
	}
	pods, err := c.managed(ctx, w, client.InNamespace(c.namespace), client.HasLabels{appspub.LifecycleStateKey})
	if err != nil {
		return err
	}
	pods = slices.DeleteFunc(pods, func(p Pod) bool { return !metav1.IsControlledBy(p.facts.pod, workload.Object) })
	if !lifecycle.HooksOf(workload.ForDecision(), w.config.Hooks).Any() && len(pods) == 0 {
		return w.notManaged(c.options, workload)
	}
	e := w.explained(c.options, workload, pods)
	if output.forScripts() {
		noEntries(c.ErrOut, w.unknown)
		return output.print(c.Out, e)
	}
	c.printWorkload(e, w.unknown)
	return nil
}

// named finds a workload, of any kind if none is given.
func (w *world) named(kind, name, namespace string) (found *clusterstate.Workload, err error) {
	if err := w.forbidden[kind]; err != nil {
		return nil, err
	}
	var kinds []string
	for _, one := range w.workloads {
		if one.GetNamespace() == namespace && one.GetName() == name && (kind == "" || one.Kind == kind) {
			found, kinds = one, append(kinds, strings.ToLower(one.Kind)+"/"+name)
		}
	}
	switch {
	case len(kinds) > 1:
		slices.Sort(kinds)
		return nil, fmt.Errorf("several workloads are called %s: set %s", name, strings.Join(kinds, " or "))
	case found == nil:
		return nil, w.notFound(kind, name, namespace)
	}
	return found, nil
}

// notFound is the error of a workload that there is not, or that may be of a kind which the person may not list.
func (w *world) notFound(kind, name, namespace string) error {
	switch {
	case kind != "":
		return &exitError{exitNotFound, fmt.Errorf("namespace %s has no %s %s of OpenKruise's", namespace, kind, name)}
	case len(w.forbidden) > 0:
		return w.forbidden[slices.Min(slices.Collect(maps.Keys(w.forbidden)))]
	}
	return &exitError{exitNotFound, fmt.Errorf("namespace %s has no pod and no workload %s", namespace, name)}
}

// notManaged is the error of a workload whose pods Rollcall leaves alone.
func (w *world) notManaged(o *options, workload *clusterstate.Workload) error {
	if !w.watches(workload.GetNamespace()) {
		return notWatched(w.config, workload.GetNamespace())
	}
	how := "add hooks with keys that Rollcall owns"
	if set := cloneSetOf(workload); set != nil {
		how = o.again("enroll %s -n %s", set.Name, set.Namespace) + " gives it hooks"
		if obstacle := enroll.Obstacle(set, w.config, nil); obstacle != "" {
			how = "it can't be enrolled: " + obstacle
		}
	}
	return &exitError{exitNotManaged, fmt.Errorf("%s %s/%s is not managed by Rollcall: it has no hook with a handler that "+
		"Rollcall owns (%s); %s", workload.Kind, workload.GetNamespace(), workload.GetName(), w.config.Hooks, how)}
}

// explained groups the pods by what the manager knows that they wait for.
func (w *world) explained(o *options, workload *clusterstate.Workload, pods []Pod) ExplainedWorkload {
	e := ExplainedWorkload{
		Kind: workload.Kind, Namespace: workload.GetNamespace(), Name: workload.GetName(), Pods: list(pods), Waits: waitsOf(pods),
		Handlers: w.handlersOfAll(workload, pods),
	}
	in := 0
	for _, p := range pods {
		if p.Rotation == In {
			in++
		}
	}
	say := func(format string, arguments ...any) {
		e.Explanation = append(e.Explanation, fmt.Sprintf(format, arguments...))
	}
	if none := w.leaderlessIn(e.Namespace); none != "" {
		say("%s", none)
	}
	say("%s %s/%s: %s managed by Rollcall, %d in rotation.", e.Kind, e.Namespace, e.Name, counted(len(pods), "pod"), in)
	for _, wait := range e.Waits {
		say("%s", wait.sentence())
	}
	if len(e.Waits) == 0 {
		say("No pod waits for Rollcall.")
	}
	if set := cloneSetOf(workload); set != nil {
		e.Explanation = append(e.Explanation, rolloutSentences(rolloutOf(set, pods))...)
	}
	if left := lifecycle.LeftOverTraffic(workload.ForDecision()); left != "" {
		say("Mind that %s.", left)
	}
	e.Remedies = w.remediesOfAll(o, e)
	return e
}

// waitsOf groups the pods, which are in order of waiting.
func waitsOf(pods []Pod) []Waits {
	all := []Waits{}
	for _, p := range pods {
		if !p.waits() {
			continue
		}
		i := slices.IndexFunc(all, func(w Waits) bool { return w.Hook == p.Hook && w.Reason == p.Reason })
		if i < 0 {
			i = len(all)
			all = append(all, Waits{Hook: p.Hook, Reason: p.Reason, Message: p.Message, Since: p.Since, first: p})
		}
		all[i].Pods = append(all[i].Pods, p.Name)
	}
	return all
}

func (w *Waits) sentence() string {
	at := "at no hook"
	if w.Hook != "" {
		at = "at the hook " + string(w.Hook)
	}
	who := "1 pod waits"
	if n := len(w.Pods); n > 1 {
		who = fmt.Sprintf("%d pods wait", n)
	}
	if len(w.Pods) > 1 && w.Since != nil {
		at += ", the longest for " + w.first.inState()
	} else if w.Since != nil {
		at += " for " + w.first.inState()
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s, reason %s: pod %s: %s", who, at, dash(string(w.Reason)), w.first.Name,
		strings.TrimSuffix(w.Message, ".")), ": ") + "."
}

// rolloutSentences are what the waits mean for the rollout of a CloneSet.
func rolloutSentences(r *rollout) []string {
	status, replicas := r.cloneSet.Status, ptr.Deref(r.cloneSet.Spec.Replicas, 1)
	all := []string{fmt.Sprintf("%d of %d pods are updated and %d available%s.",
		status.UpdatedReplicas, replicas, status.AvailableReplicas, held(r.cloneSet.Spec.UpdateStrategy))}
	left := r.left()
	if left == "" {
		return append(all, "The rollout is done.")
	}
	all = append(all, fmt.Sprintf("The rollout is not done: %s.", left))
	strategy := r.cloneSet.Spec.UpdateStrategy
	waits := status.UpdatedReplicas < replicas && !strategy.Paused && strategy.MaxSurge == nil
	if missing := int(replicas - status.AvailableReplicas); waits && missing > 0 {
		if most := sparesOf(r.cloneSet, int(replicas)); missing >= most {
			all = append(all, fmt.Sprintf("OpenKruise updates no further pod meanwhile: %s not available, and maxUnavailable is %d.",
				counted(missing, "pod"), most))
		}
	}
	return all
}

// handlersOfAll are those of the workload, and whether all of its pods have them.
func (w *world) handlersOfAll(workload *clusterstate.Workload, pods []Pod) []Handler {
	of := workload.ForDecision()
	all := handlersIn(of, lifecycle.HooksOf(of, w.config.Hooks), w.config.Hooks, nil)
	for i, n := range lifecycle.HandlersOf(of.Lifecycle) {
		for _, p := range pods {
			if n.SetOn(p.facts.pod) {
				all[i].on++
			}
		}
		all[i].Set = len(pods) > 0 && all[i].on == len(pods)
	}
	return all
}

func (w *world) remediesOfAll(o *options, e ExplainedWorkload) []Remedy {
	all := []Remedy{}
	for _, wait := range e.Waits {
		about := Remedy{"about " + string(wait.Reason), wait.Reason.Page(o.version)}
		if wait.Reason != "" && !slices.Contains(all, about) {
			all = append(all, about)
		}
	}
	if len(e.Waits) > 0 {
		all = append(all, Remedy{"explain one pod", o.again("explain %s -n %s", e.Waits[0].Pods[0], e.Namespace)})
	}
	if e.Kind == clusterstate.KindCloneSet {
		all = append(all, Remedy{"follow the rollout", o.again("rollout %s -n %s --watch", e.Name, e.Namespace)})
	}
	return append(all, Remedy{"see what was done", o.again("history %s/%s -n %s", strings.ToLower(e.Kind), e.Name, e.Namespace)})
}

// printWorkload prints what explain has for a person.
func (c *cluster) printWorkload(e ExplainedWorkload, unknown error) {
	on := terminalOf(c.Out)
	c.paragraph(on, e.Explanation)
	if len(e.Pods) > 0 {
		fmt.Fprintln(c.Out)
		statusTable(e.Pods, unknown == nil, false, false).write(c.Out, on)
	}
	lines := []string{"Handlers:"}
	if len(e.Handlers) == 0 {
		lines = []string{"The workload has no lifecycle hooks."}
	}
	for _, h := range e.Handlers {
		lines = append(lines, h.line(fmt.Sprintf("on %d of %d pods", h.on, len(e.Pods))))
	}
	fmt.Fprintln(c.Out)
	c.paragraph(on, lines)
	fmt.Fprintln(c.Out)
	c.paragraph(on, remedyLines(e.Remedies))
	noteUnknown(c.ErrOut, unknown, false)
}

func (o *options) paragraph(on terminal, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(o.Out, on.wrap(printable(line)))
	}
}

// explainNamed is for a name without a kind: a pod's, else a workload's.
func (c *cluster) explainNamed(ctx context.Context, name string, output *form) error {
	err := c.explainPod(ctx, name, output)
	if statusOf(err) == exitNotFound {
		return c.explainWorkload(ctx, "", name, output)
	}
	return err
}
