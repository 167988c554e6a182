package plugin

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// explain tells in sentences why a pod is in rotation or not, what has to happen next, whose each handler is, and what a
// person can do.
func (o *options) explain(p Pod, unknown error) {
	on := terminalOf(o.Out)
	var paragraphs []string
	wait := waitSentence(p)
	for _, lines := range [][]string{sentences(p, unknown), handlerLines(p), remedyLines(o.remedies(p))} {
		lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
		for i, line := range lines {
			look := plain
			switch line {
			case p.facts.leaderless:
				look = bad
			case wait:
				look = p.tone()
			}
			lines[i] = on.paint(on.wrap(printable(line)), look)
		}
		if len(lines) > 0 {
			paragraphs = append(paragraphs, strings.Join(lines, "\n")+"\n")
		}
	}
	fmt.Fprint(o.Out, strings.Join(paragraphs, "\n"))
}

// sentences are those about the pod, of which some may be empty.
func sentences(p Pod, unknown error) []string {
	return slices.Concat([]string{p.facts.leaderless, rotationSentence(p, unknown == nil)}, registrySentences(p, unknown),
		[]string{stateSentence(p), waitSentence(p), nextSentence(p), skipSentence(p), leftOverSentence(p)})
}

// leftOverSentence is about the CloneSet, not the pod.
func leftOverSentence(p Pod) string {
	left := lifecycle.LeftOverTraffic(p.facts.workload)
	if left == "" {
		return ""
	}
	return fmt.Sprintf("Mind that %s.", left)
}

// rotationSentence has what the registries acknowledged, and what the manager knows to be otherwise by now, if it has answered.
func rotationSentence(p Pod, answered bool) string {
	place, recorded := map[Rotation]string{In: "in", Out: "out of"}[p.Rotation]
	switch {
	case recorded:
		return fmt.Sprintf("%s/%s is %s rotation: %s.", p.Namespace, p.Name, place, instances(p, answered))
	case slices.ContainsFunc(p.Entries, func(e entries.Entry) bool { return e.State == entries.In }):
		return fmt.Sprintf("%s/%s does not count as in rotation: no acknowledgement is on the pod yet.", p.Namespace, p.Name)
	default:
		return fmt.Sprintf("%s/%s is not in rotation: no registry has acknowledged it yet.", p.Namespace, p.Name)
	}
}

func instances(p Pod, answered bool) string {
	if len(p.Instances) == 0 {
		return "no registry has an entry for it"
	}
	said := map[Rotation]string{In: "acknowledged", Out: "acknowledged that it does not send clients to"}[p.Rotation]
	var all []string
	for _, in := range p.Instances {
		one := fmt.Sprintf("registry %s %s %s at %s", in.Source(), said, in.Service, net.JoinHostPort(in.Address, strconv.Itoa(in.Port)))
		if answered {
			one += byNow(p, in)
		}
		all = append(all, one)
	}
	return strings.Join(all, "; ")
}

func stateSentence(p Pod) string {
	since := ""
	if p.Since != nil {
		since = " for " + p.inState()
	}
	switch p.State {
	case terminating:
		if slices.Contains(p.facts.pod.Finalizers, lifecycle.GuardFinalizer) {
			return "The pod is being deleted. The finalizer " + lifecycle.GuardFinalizer +
				" holds it until the registry has acknowledged that its entry is gone."
		}
		return "The pod is being deleted."
	case "":
		return "OpenKruise has given the pod no lifecycle state."
	}
	meaning := cmp.Or(map[appspub.LifecycleStateType]string{
		appspub.LifecycleStatePreparingNormal: "it is new or returning, and does not count as available yet",
		appspub.LifecycleStateNormal:          "it counts as available once it is ready",
		appspub.LifecycleStatePreparingUpdate: "OpenKruise wants to update it in place",
		appspub.LifecycleStateUpdating:        "its containers restart",
		appspub.LifecycleStateUpdated:         "it was updated in place",
		appspub.LifecycleStatePreparingDelete: "OpenKruise wants to delete it",
	}[appspub.LifecycleStateType(p.State)], "a state that this version does not know")
	ready := "not ready"
	if p.Ready {
		ready = "ready"
	}
	return fmt.Sprintf("It has been %s%s: %s. It is %s.", p.State, since, meaning, ready)
}

func waitSentence(p Pod) string {
	switch {
	case p.Reason == "" && p.Hook == "":
		return "Nothing waits for Rollcall."
	case p.Reason == reason.AwaitingOpenKruise:
		return fmt.Sprintf("Nothing waits for Rollcall: %s.", p.Message)
	case p.Hook == "":
		return unhookedSentence(p)
	}
	who := fmt.Sprintf("OpenKruise waits at the hook %s", p.Hook)
	if p.State == terminating { // whose finalizers hold it, and OpenKruise waits no longer
		who = "Its deletion waits"
	}
	return fmt.Sprintf("%s, reason %s: %s.", who, p.Reason, strings.TrimSuffix(p.Message, "."))
}

// unhookedSentence is about a pod that waits at no hook, and has a reason all the same.
func unhookedSentence(p Pod) string {
	why := strings.TrimSuffix(p.Message, ".")
	switch {
	case p.Reason == reason.NotWatched:
		return fmt.Sprintf("No hook waits. The manager does not see the pod: %s.", why)
	case p.Reason.Late():
		return fmt.Sprintf("Nothing waits for Rollcall. The pod is out of rotation, reason %s: %s.", p.Reason, why)
	case p.joins():
		return fmt.Sprintf("No hook waits, but the pod is not in rotation, reason %s: %s.", p.Reason, why)
	default:
		return fmt.Sprintf("No hook waits, but there is a warning, %s: %s.", p.Reason, why)
	}
}

// stuck reports whether the pod continues only after a person has acted, whatever the registry acknowledges.
func (p Pod) stuck() bool {
	switch p.Reason {
	case reason.InvalidPod, reason.ServiceNotAllowed:
		return !p.facts.decision.Releases // a pod may leave all the same
	case reason.APIServerFailed, reason.NotWatched, reason.Ending, reason.HeldOut, reason.RightsMissing:
		return true
	case reason.Orphaned:
		return p.facts.input.Detached
	case reason.ManagerNotReady:
		return p.facts.warned // the cache hangs
	default:
		return false
	}
}

// settled reports whether nothing is left to be done.
func (p Pod) settled() bool { return p.Hook == "" && p.facts.decision.Then.Empty() && !p.joins() }

// nextSentence is what Rollcall does next, as the decision table has it.
func nextSentence(p Pod) string {
	d := p.facts.decision
	if p.stuck() || p.settled() {
		return ""
	}
	if p.Hook != "" && !d.Releases && !p.Ready {
		return "Next, the pod becomes ready; then Rollcall registers it, and sets the handler once the registry has acknowledged."
	}
	first, then := firstStep(p), edits(d.Then)
	switch {
	case first == "" && (p.facts.warned || !p.facts.drains): // something else keeps it, or nothing does
		return ""
	case first == "":
		return fmt.Sprintf("Next, Rollcall %s.", then)
	case then == "":
		return fmt.Sprintf("Next, %s.", first)
	default:
		return fmt.Sprintf("Next, %s; then Rollcall %s.", first, then)
	}
}

// firstStep is what has to happen before Rollcall writes; nothing once that is done.
func firstStep(p Pod) string {
	d := p.facts.decision
	switch {
	case p.Reason == reason.AlsoRegistersItself && d.Releases: // the drain counts since
		return "the entry that Rollcall has not written leaves the rotation, and the drain passes"
	case p.Reason == reason.AlsoRegistersItself:
		return "the entry that Rollcall has not written leaves the rotation"
	case p.Reason.OfApp() && d.Releases:
		return "Rollcall finds the application's entry and takes it out"
	case p.facts.drainLeft > 0 && p.facts.untilIdle:
		return "the pod becomes idle, or the drain ends in " + short(p.facts.drainLeft)
	case p.facts.drainLeft > 0:
		return "the drain ends in " + short(p.facts.drainLeft)
	case p.facts.undated:
		return "the drain ends"
	case p.facts.drains:
		return ""
	}
	return map[lifecycle.Want]string{
		lifecycle.InService:    "every registry of the pod acknowledges that it is in rotation",
		lifecycle.OutOfService: "every registry of the pod acknowledges that it is out of rotation",
		lifecycle.Absent:       "every registry of the pod acknowledges that it is removed",
	}[d.Want]
}

// edits shows what Rollcall writes.
func edits(e lifecycle.Edit) string {
	var all []string
	if set := handlers(e.Set); set != "" {
		all = append(all, "sets "+set)
	}
	if clears := handlers(e.Clear); clears != "" {
		all = append(all, "clears "+clears)
	}
	return strings.Join(all, " and ")
}

// skipSentence shows what becomes of the annotation by which a person skips the pod's wait.
func skipSentence(p Pod) string {
	text, found := p.facts.pod.Annotations[lifecycle.AnnotationSkip]
	if !found || p.Reason == reason.NotWatched {
		return ""
	}
	skip, annotation := lifecycle.SkipOf(p.facts.pod, p.facts.workload), lifecycle.AnnotationSkip+"="+text
	if refused := skip.RefusedIn(p.facts.decision); refused != "" {
		return fmt.Sprintf("Rollcall skips no hook: %s.", refused)
	}
	if !slices.Contains(skip.Hooks, p.Hook) {
		return fmt.Sprintf("The annotation %s stays on the pod until the pod waits at a hook that it lists.", annotation)
	}
	if p.facts.leaderless != "" {
		return fmt.Sprintf("The annotation %s is on the pod: the next manager that leads releases %s.", annotation, p.Hook)
	}
	return fmt.Sprintf("The annotation %s is on the pod: the manager releases %s when it next reconciles the pod.", annotation, p.Hook)
}

func handlers(list []lifecycle.Handler) string {
	var all []string
	for _, h := range list {
		all = append(all, h.String())
	}
	return strings.Join(all, ", ")
}

// foreignOwner shows to what a pod belongs if Rollcall does not drive that.
func foreignOwner(pod *lifecycle.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner == nil:
		return "belongs to no workload"
	case clusterstate.OwnerOf(pod) != nil:
		return ""
	case owner.Kind == "ReplicaSet" && pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] != "":
		owner.Kind = "Deployment"
	}
	return fmt.Sprintf("belongs to a %s (%s), which Rollcall does not drive", owner.Kind, owner.APIVersion)
}

// handlerLines shows of each handler of the workload whose it is and whether the pod has it.
func handlerLines(p Pod) []string {
	if p.facts.workload == nil {
		if foreign := foreignOwner(p.facts.pod); foreign != "" {
			return []string{"The pod " + foreign + "."}
		}
		return []string{"The pod's workload is gone, so it has no hooks."}
	}
	lines := []string{"Handlers:"}
	for _, h := range handlersOf(p) {
		set := "not set"
		if h.Set {
			set = "set"
		}
		lines = append(lines, h.line(set))
	}
	if len(lines) == 1 {
		return []string{"The workload has no lifecycle hooks."}
	}
	return lines
}

// line shows a handler, whether it is set, and whose it is.
func (h *Handler) line(set string) string {
	whose := "another controller's: hooks.owned does not list its key"
	switch {
	case h.Refused != "":
		whose = "not used, " + h.Refused
	case h.Owned:
		whose = "Rollcall's"
	}
	handler := lifecycle.Handler{Label: h.Label, Value: h.Value, Finalizer: h.Finalizer}
	return fmt.Sprintf("  %-13s  %s: %s; %s", h.Hook, handler, set, whose)
}

// handlersOf are those of the pod's workload, none if that is gone.
func handlersOf(p Pod) []Handler {
	if p.facts.workload == nil {
		return []Handler{}
	}
	return handlersIn(p.facts.workload, p.facts.input.Hooks, p.facts.input.Ownership, p.facts.pod)
}

// handlersIn are those of a workload, and whether the pod has them, which may be nil.
func handlersIn(w *lifecycle.Workload, hooks lifecycle.Hooks, by lifecycle.Ownership, pod *lifecycle.Pod) []Handler {
	all := []Handler{}
	for _, n := range lifecycle.HandlersOf(w.Lifecycle) {
		h := Handler{
			Hook: n.Hook, Label: n.Label, Value: n.Value, Finalizer: n.Finalizer, Set: pod != nil && n.SetOn(pod), Owned: by.Owns(n.Key()),
		}
		for _, refused := range hooks.Refused {
			if refused.Hook == n.Hook && refused.Handler == n.Handler {
				h.Refused = refused.Why
			}
		}
		all = append(all, h)
	}
	return all
}

func (o *options) remedies(p Pod) []Remedy {
	all := []Remedy{}
	if p.Reason != "" {
		all = append(all, Remedy{"about the reason", p.Reason.Page(o.version)})
	}
	if p.facts.decision.Releases && !p.stuck() {
		what, how := "skip the registry's acknowledgement", o.again("skip %s -n %s", p.Name, p.Namespace)
		switch {
		case p.facts.leaderless != "":
			what, how = "free it by hand", reason.Docs(o.version, freePage)
		case p.facts.drainLeft > 0:
			what = "skip the rest of the drain"
		}
		all = append(all, Remedy{what, how})
	}
	return all
}

func remedyLines(all []Remedy) []string {
	if len(all) == 0 {
		return nil
	}
	lines := []string{"What you can do:"}
	for _, r := range all {
		lines = append(lines, "  "+r.What+": "+r.How)
	}
	return lines
}
