package plugin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/statuspage/entries"
)

// Rotation is what the record on a pod shows of its place in the registry.
type Rotation string

// What a record shows. Without one nothing was acknowledged yet.
const (
	In      Rotation = "In"
	Out     Rotation = "Out"
	Unknown Rotation = "Unknown"
)

// Pod is what the plugin shows of a pod.
type Pod struct {
	// Context is the kubeconfig's of the pod's cluster, if a person asked for several.
	Context   string `json:"context,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Workload  string `json:"workload,omitempty"`
	// State is Kruise's lifecycle state, or Terminating.
	State string `json:"state"`
	// Since is when the pod came into that state; nil where Kruise has not written it.
	Since *metav1.Time `json:"since,omitempty"`
	Ready bool         `json:"ready"`
	// Rotation is the last acknowledgement that the pod's record has.
	Rotation Rotation `json:"rotation"`
	// Hook is the one that Kruise waits at for Rollcall; empty if it waits for nothing.
	Hook lifecycle.Hook `json:"hook,omitempty"`
	// Reason and Message explain why the pod waits, or what else a person should check.
	Reason  reason.Reason `json:"reason,omitempty"`
	Message string        `json:"message,omitempty"`
	// Instances are those that the record names, as service at address in registry.
	Instances []lifecycle.Key `json:"instances,omitempty"`
	// Entries are what the registries say now, as far as the manager knows and answers.
	Entries []entries.Entry `json:"entries,omitempty"`

	facts facts
}

// facts are what the view was made from, for the commands that say more.
type facts struct {
	pod      *lifecycle.Pod
	input    lifecycle.Input
	decision lifecycle.Decision
	// workload is the pod's workload; nil if it is gone.
	workload *lifecycle.Workload
	// set is that workload if it is a CloneSet.
	set *kruisev1alpha1.CloneSet
	// now is when the view was made. drains: the registry has acknowledged that the pod is out, and drainLeft is how long the drain takes
	// from now on, at most if it is untilIdle, unless it is undated: the manager refuses drain.
	now       time.Time
	drains    bool
	undated   bool
	untilIdle bool
	drainLeft time.Duration
	// warned: the manager has a Warning for the pod. waits: the pod itself shows that it waits.
	warned, waits bool
	// unasked: of several managers, the pod's has not answered.
	unasked bool
	// leaderless shows that no manager leads, if that is so.
	leaderless string
}

const terminating = "Terminating"

// world is what a view is made from in addition to the pod.
type world struct {
	config *config.Config
	// watches reports whether the manager watches a namespace.
	watches func(namespace string) bool
	// workloads are those of OpenKruise, by UID.
	workloads map[types.UID]*clusterstate.Workload
	// forbidden has the kinds of which a person may list none.
	forbidden map[string]error
	// known is what the manager knows of the pods, and unknown why that can't be had.
	known   entries.Answer
	unknown error
	// events are the manager's, the latest last, by the UID of their pod, for a manager that has not answered.
	events map[types.UID][]eventsv1.Event
	now    time.Time
	// lease is that of the manager that leads, and unled is why none is known to.
	lease *coordinationv1.Lease
	unled error
	// leads is since when the manager leads that does, if that is known, and leaderless shows that none does.
	leads      time.Time
	leaderless string
}

// view returns what there is to show of a pod, and whether Rollcall manages it.
func (w *world) view(pod *lifecycle.Pod) (Pod, bool) {
	workload := w.workloadOf(pod)
	owner := workload.ForDecision()
	input := lifecycle.Input{
		Pod: pod, Hooks: lifecycle.HooksOf(owner, w.config.Hooks), Record: lifecycle.RecordOf(pod), Ownership: w.config.Hooks,
	}
	input.KeepUnready = w.config.PanicThreshold == 0
	switch {
	case w.known.Circumstances != nil:
		input.Circumstances = w.known.Circumstances[pod.UID]
	case input.Record.Detached && lifecycle.MayBeDetached(pod):
		input = input.Detach()
	case lifecycle.HoldOf(pod, owner).Left(w.now) > 0:
		input = input.HoldOut(lifecycle.HoldOf(pod, owner))
	case trafficOf(owner).Excludes(pod) && input.Record.Want != lifecycle.InService:
		input = input.LeaveOut(trafficOf(owner))
	}
	decision := lifecycle.Decide(input) // as the manager did, if that has answered
	p := Pod{
		Namespace: pod.Namespace, Name: pod.Name, State: pod.Labels[appspub.LifecycleStateKey], Ready: lifecycle.IsReady(pod),
		Rotation: rotationOf(input.Record), Hook: decision.Waiting, Instances: input.Record.Instances, Entries: w.known.Pods[pod.UID],
		facts: facts{pod: pod, input: input, decision: decision, workload: owner, now: w.now, leaderless: w.leaderlessIn(pod.Namespace)},
	}
	if workload != nil {
		p.Workload = workload.GetName()
		p.facts.set = cloneSetOf(workload)
	}
	if moved, err := lifecycle.MovedAt(pod); err == nil {
		p.Since = &metav1.Time{Time: moved}
	}
	if pod.DeletionTimestamp != nil {
		p.State, p.Since = terminating, pod.DeletionTimestamp
	}
	w.drainOf(&p)
	w.reasoned(&p)
	return p, input.Managed()
}

// cloneSetOf is nil for a workload of another kind.
func cloneSetOf(w *clusterstate.Workload) *kruisev1alpha1.CloneSet {
	set, _ := w.Object.(*kruisev1alpha1.CloneSet)
	return set
}

// trafficOf is zero for shares that the manager refuses.
func trafficOf(w *lifecycle.Workload) lifecycle.Traffic {
	t, _ := lifecycle.TrafficOf(w)
	return t
}

func (w *world) workloadOf(pod *lifecycle.Pod) *clusterstate.Workload {
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return nil
	}
	return w.workloads[owner.UID]
}

func rotationOf(r lifecycle.Record) Rotation {
	switch r.Want {
	case lifecycle.InService:
		return In
	case lifecycle.OutOfService, lifecycle.Absent:
		return Out
	case lifecycle.Keep:
	}
	return Unknown
}

// drainOf adds how far the pod's drain is, by its record.
func (w *world) drainOf(p *Pod) {
	record := p.facts.input.Record
	if d := p.facts.decision; !d.Releases || !d.Row.Drains() || record.OutSince == nil || !record.Fresh(p.facts.pod) {
		return
	}
	policy, err := service.DrainOf(p.facts.pod.Annotations, w.config.Drain)
	if err != nil {
		policy = w.config.Drain
	}
	p.facts.drains, p.facts.undated, p.facts.untilIdle = true, policy.IsRefused(), policy.Asks()
	if !p.facts.undated {
		p.facts.drainLeft = record.OutSince.Add(policy.Max).Sub(w.now)
	}
}

// reasoned has the pod show why it waits: because the manager does not watch its namespace, else what the manager knows, else what can be
// seen on the pod. If both have the same reason, the pod's words are newer, but only the manager knows whether a pod is idle.
func (w *world) reasoned(p *Pod) {
	if !w.watches(p.Namespace) {
		p.Reason, p.Message = reason.NotWatched, notWatched(w.config, p.Namespace).Error()
		p.facts.warned = p.Hook != "" // another manager may watch a pod that does not wait
		return
	}
	p.Reason, p.Message = reasonOn(*p)
	p.facts.waits = p.Reason != ""
	said := w.saidOf(*p)
	p.facts.warned = said.Warning
	if of := reason.Reason(said.Reason); of != "" && (of != p.Reason || p.facts.undated || p.facts.untilIdle) {
		p.Reason, p.Message = of, said.Message
	}
}

// saidOf is why the pod waits by the manager's answer, unless that is of a moment at which the pod waited elsewhere; without an answer, by
// the manager's last Event.
func (w *world) saidOf(p Pod) entries.Wait {
	uid := p.facts.pod.UID
	if w.known.Waits == nil {
		return w.lastWarning(p)
	}
	said := w.known.Waits[uid]
	if said.Hook == string(p.Hook) || said.Hook == "" && reason.Reason(said.Reason) == reason.APIServerFailed {
		return said // perhaps about the workload, with its hooks
	}
	return entries.Wait{}
}

// lastWarning is what the manager's last Event about the pod's wait shows, if that is a Warning, and of the hook at which the pod waits, if
// it does. A manager makes the Event Resolved only for its own Warnings: those of an earlier leader may have passed.
func (w *world) lastWarning(p Pod) entries.Wait {
	for _, e := range slices.Backward(w.events[p.facts.pod.UID]) {
		switch {
		case reason.Reason(e.Reason).Momentary():
		case e.Type != corev1.EventTypeWarning, lastSeen(e).Before(w.leads), p.Hook != "" && !aboutHook(e, p.Hook):
			return entries.Wait{}
		default:
			return entries.Wait{Reason: e.Reason, Message: withoutHook(e.Note), Warning: true}
		}
	}
	return entries.Wait{}
}

// aboutHook reports whether a Warning is about the hook, or perhaps about the workload, with its hooks.
func aboutHook(e eventsv1.Event, hook lifecycle.Hook) bool {
	unread := reason.Reason(e.Reason) == reason.APIServerFailed && !strings.HasPrefix(e.Note, "hook ")
	return unread || strings.HasPrefix(e.Note, fmt.Sprintf("hook %s waits: ", hook))
}

// reasonOn explains why the pod waits by what can be seen on it.
func reasonOn(p Pod) (why reason.Reason, message string) {
	switch {
	case p.facts.input.Released(p.facts.decision):
		return reason.AwaitingOpenKruise, "its hook is released, and OpenKruise has neither updated nor deleted it yet" + leftBy(p)
	case p.facts.input.Detached:
		return reason.Orphaned, p.facts.input.Ending
	case p.facts.input.HeldOut:
		return reason.HeldOut, p.facts.input.Ending
	case p.facts.decision.Row == lifecycle.RowUpdating:
		return reason.NotReady, lifecycle.NotUpdatedBecause(p.facts.pod)
	case p.facts.input.AwaitsReadiness(p.facts.decision):
		return reason.NotReady, p.facts.pod.Status.NotReady
	case p.Hook == "" && !p.joins():
		return "", ""
	}
	return drainOn(p)
}

// drainOn is for a pod that waits for registries or the drain.
func drainOn(p Pod) (why reason.Reason, message string) {
	switch {
	case p.facts.drainLeft > 0 && p.facts.untilIdle:
		return reason.Draining, "out of rotation; drains until the pod is idle, for another " + short(p.facts.drainLeft) + " at most"
	case p.facts.drainLeft > 0:
		return reason.Draining, "out of rotation; clients have " + short(p.facts.drainLeft) + " left to notice"
	case p.facts.undated:
		return reason.Draining, "out of rotation; how long the drain takes is not known, since the manager refuses drain in its configuration"
	case p.facts.drains:
		return reason.Acknowledgement, "the registry has acknowledged and the drain is over; the manager has yet to release the hook"
	default:
		return reason.Acknowledgement, "the pod does not show yet that every registry has acknowledged"
	}
}

// leftBy returns what in the pod's CloneSet keeps OpenKruise from updating it, if the CloneSet shows that.
func leftBy(p Pod) string {
	set := p.facts.set
	if set == nil || p.State != string(appspub.LifecycleStatePreparingUpdate) {
		return ""
	}
	switch now := set.Status; {
	case set.Spec.UpdateStrategy.Paused:
		return fmt.Sprintf(": CloneSet %s is paused", set.Name)
	case now.ObservedGeneration == set.Generation && now.UpdatedReplicas >= now.ExpectedUpdatedReplicas:
		return fmt.Sprintf(": CloneSet %s has %d updated pods, and its partition allows %d; lower the partition, or delete the pod, "+
			"which OpenKruise replaces by one of the old revision", set.Name, now.UpdatedReplicas, now.ExpectedUpdatedReplicas)
	default:
		return ""
	}
}

// withoutHook leaves out of an Event's note what the view has in a field of its own.
func withoutHook(note string) string {
	note = strings.TrimSpace(reason.WithoutRemedy(note))
	if hook, rest, found := strings.Cut(note, " waits: "); found && strings.HasPrefix(hook, "hook ") {
		return rest
	}
	return note
}

// joins reports whether the pod is to be in rotation, and has no acknowledgement of that.
func (p Pod) joins() bool { return p.facts.decision.Row.Serves() && p.Rotation != In }

// waits reports whether a rollout waits for something at the pod, or the pod is out of rotation.
func (p Pod) waits() bool {
	return p.Hook != "" || p.facts.waits || p.Reason.Late() || p.joins()
}

// tone is how the pod looks in a list.
func (p Pod) tone() tone {
	switch {
	case p.facts.warned:
		return bad
	case p.waits():
		return waits
	default:
		return plain
	}
}

// sortPods puts those that wait first, the longest wait before the others, and then those with a Warning.
func sortPods(pods []Pod) {
	order := func(p Pod) int {
		switch {
		case p.waits():
			return 0
		case p.facts.warned:
			return 1
		default:
			return 2
		}
	}
	since := func(p Pod) time.Time {
		if !p.waits() || p.Since == nil {
			return time.Time{}
		}
		return p.Since.Time
	}
	slices.SortFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), since(a).Compare(since(b)),
			cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name), cmp.Compare(a.Context, b.Context))
	})
}
