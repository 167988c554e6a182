package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// staleRecheck is for a cache that has not seen our own write yet: the event of that write brings the pod back sooner.
const staleRecheck = time.Second

// observation is all that one reconcile rests on.
type observation struct {
	settings   *Settings
	clusterUID string
	tracked    *tracker.Pod
	note       *notes.Note
	input      lifecycle.Input
	// decision is on the input as it is now; see decide.
	decision lifecycle.Decision

	// targets are those that the pod has now in its registries, as far as its description tells. A problem with it keeps the pod from being
	// put in service, and nothing else.
	targets []tracker.Target
	sources []lifecycle.Source
	problem notes.Blocker
	// warning is what a person should look at although it keeps the pod from nothing.
	warning notes.Blocker
	// keeps are the service names that the pod is registered under and may not use otherwise.
	keeps map[string]bool
	drain time.Duration
	// endChanges is after how long [lifecycle.Input.Ending] changes; zero where it does not by itself.
	endChanges time.Duration
	// panic is the service of the pod of which too many pods are not ready at once; the zero value where none is.
	panic clusterstate.Panic
	// skip is what a person asks for.
	skip lifecycle.Skip
	// passedOn are applications' entries at places that the pod no longer has, and another pod's application has now. They carry no
	// mark that would spare them.
	passedOn map[lifecycle.Recorded]bool

	// relocated: an application's entry was found at another of the pod's addresses than its target has.
	relocated atomic.Bool
	// excuse is why a hook is released although something is missing.
	excuse string
	// departed: the cache no longer has the pod.
	departed bool

	// tries has the pod's back-off grow once, however many of its instances fail; see backOff.
	tries sync.Once
	after time.Duration
}

func (o *observation) pod() *corev1.Pod { return o.input.Pod }

// managed reports whether Rollcall has anything to do with the pod. A call that was made has to be undone one day, also
// where the record of it got lost and the workload names no handler of Rollcall's any more.
func (o *observation) managed() bool { return o.input.Managed() || o.tracked.Known().Any() }

// observe gathers what the decision rests on. It returns nothing where there is nothing to decide, and when to look again.
func (r *PodReconciler) observe(ctx context.Context, id lifecycle.PodID) (seen *observation, again time.Duration, err error) {
	settings := r.settings.Load()
	// Before the cache is read: the tracker notes the departure of a pod that is found in it then.
	tracked := r.Tracker.Open(id, settings.server, settings.UnderItsName)
	seen = &observation{settings: settings, clusterUID: r.Identity.UID(), tracked: tracked, note: r.notes.Of(id)}
	pod := &corev1.Pod{}
	err = r.Client.Get(ctx, id.NamespacedName, pod, client.UnsafeDisableDeepCopy) // nothing below changes what it reads
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != id.UID:
		return r.observeDeparted(ctx, id, seen)
	case err != nil:
		return nil, 0, fmt.Errorf("reading the pod: %w", err)
	}
	seen.tracked.Found(lifecycle.AddressOf(pod), lifecycle.OtherAddressesOf(pod))
	if again, err := r.awaitOwnWrite(ctx, seen, pod); again > 0 || err != nil {
		return nil, again, err
	}
	if err := r.State.Workloads.Refresh(ctx, &settings.Rules, settings.everywhere, r.Clock.Now()); err != nil {
		return nil, 0, err
	}
	workload, err := r.observePod(ctx, seen, pod)
	if err != nil {
		return nil, 0, err
	}
	if !seen.managed() {
		r.forget(id.UID)
		return nil, 0, nil
	}
	seen.note.ReadOut(seen.input.Record.OutSince, r.Clock.Now())
	node, err := clusterstate.NodeOf(ctx, r.Client, pod)
	if err != nil {
		return nil, 0, err
	}
	r.observeTargets(seen, clusterstate.Topology(node))
	if err := r.observePassedOn(ctx, seen); err != nil {
		return nil, 0, err
	}
	seen.input.Blocked = seen.problem.Reason != ""
	now := r.Clock.Now()
	seen.input.NodeLost = lifecycle.NodeLost(node)
	if why := lifecycle.UnreadableEnd(pod, node); why != "" && seen.warning.Reason == "" {
		seen.warning = notes.Blocker{Reason: reason.InvalidEnd, Message: why}
	}
	seen.input.Ending, seen.endChanges = lifecycle.EndOf(pod, node, now).Ending(now, seen.drain)
	// The pod itself is counted as it was just read: so no more than the threshold are ever taken out for being not ready.
	r.State.Panics.Refresh(seen.input, &settings.Rules)
	seen.panic = r.State.Panics.Of(pod.Namespace, seen.input.Record, &settings.Rules)
	seen.input.Panic = seen.panic.Service != ""
	seen.observeGuard(workload != nil)
	seen.tracked.Recall(seen.input.Record.Want, seen.facts().Recorded, r.Clock.Now())
	r.adoptListed(seen)
	seen.decide()
	return seen, 0, nil
}

// observePod reads what the pod itself and its workload show.
func (r *PodReconciler) observePod(ctx context.Context, seen *observation, pod *corev1.Pod) (*clusterstate.Workload, error) {
	workload, err := r.workloadOf(ctx, pod)
	if err != nil {
		return nil, err
	}
	owner, settings := workload.ForDecision(), seen.settings
	seen.skip = lifecycle.SkipOf(pod, owner)
	seen.input = lifecycle.Input{
		Pod: pod, Hooks: lifecycle.HooksOf(owner, settings.Ownership), Record: lifecycle.RecordOf(pod), Ownership: settings.Ownership,
		Unready: settings.Unready,
	}
	return workload, nil
}

// awaitOwnWrite returns when to look again at a pod whose last write of this process the cache does not have; zero once it has. If that
// takes long, the API server is asked. A write that it does not have either was lost when its store was restored from a backup, and
// the cache counts; otherwise the cache does not follow the API server, which a person has to see.
func (r *PodReconciler) awaitOwnWrite(ctx context.Context, seen *observation, pod *corev1.Pod) (again time.Duration, err error) {
	behind := clusterstate.Behind(pod.ResourceVersion, seen.note.Written)
	lasts := seen.note.BehindFor(behind, r.Clock.Now())
	switch {
	case !behind:
		return 0, nil
	case lasts < rolloutPatience:
		return staleRecheck, nil
	}
	live, err := clusterstate.Live(ctx, r.APIReader, lifecycle.PodIDOf(pod))
	switch {
	case err != nil:
		return 0, err
	case live != nil && clusterstate.Behind(live.ResourceVersion, seen.note.Written):
		log.FromContext(ctx).Info("The API server no longer has a change of a pod that it had accepted: it was restored from a backup",
			"namespace", pod.Namespace, "pod", pod.Name, "written", seen.note.Written, "now", live.ResourceVersion)
		seen.note.Written = ""
		return 0, nil
	}
	if _, err := r.observePod(ctx, seen, pod); err != nil {
		return 0, err
	}
	seen.decide()
	return r.report(ctx, seen, notes.Blocker{Reason: reason.CacheBehind, After: backoffCap, Message: fmt.Sprintf(
		"the manager's cache has not shown the manager's own last change of the pod for %s, and the API server is ahead of it: if this "+
			"stays, restart the manager", lasts.Round(time.Second))}).RequeueAfter, nil
}

// decide has the decision rest on the input as it is now. Nothing is left to be freed of a pod that is gone.
func (o *observation) decide() {
	if o.gone() {
		o.decision = lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
		return
	}
	o.decision = lifecycle.Decide(o.input)
}

// observeDeparted gathers what it takes to undo what is left of a pod that is no longer in the cache: the pod as it was last
// seen, or as it is where it lingers without the label that the cache selects by. It knows the pod by its UID: another may have
// its name and its address by now.
func (r *PodReconciler) observeDeparted(
	ctx context.Context, id lifecycle.PodID, seen *observation,
) (*observation, time.Duration, error) {
	last := seen.tracked.Departed()
	switch {
	case last == nil && seen.tracked.CloseUnlessFound():
		r.auditGone(r.notes.Forget(id.UID))
		return nil, 0, nil
	case last == nil:
		return nil, staleRecheck, nil // the event that says so is on its way
	}
	seen.departed = true
	seen.input = lifecycle.Input{Pod: last, Record: lifecycle.RecordOf(last), Ownership: seen.settings.Ownership}
	nothingLeft := seen.nothingLeft()
	if nothingLeft && (last.DeletionTimestamp != nil || !seen.input.HasFinalizer()) {
		r.forget(id.UID)
		return nil, 0, nil
	}
	live, err := clusterstate.Live(ctx, r.APIReader, id)
	switch {
	case err != nil:
		return nil, 0, err
	case live == nil && nothingLeft:
		r.forget(id.UID)
		return nil, 0, nil
	case live != nil && !lifecycle.Ends(live):
		return nil, backoffCap, nil // no event will say when it is gone
	}
	if seen.note.Lingers = live != nil; seen.note.Lingers {
		seen.input.Pod, seen.input.Record = live, lifecycle.RecordOf(live)
	}
	r.observeTargets(seen, service.Node{})
	if err := r.observePassedOn(ctx, seen); err != nil {
		return nil, 0, err
	}
	if seen.note.Lingers {
		workload, err := r.workloadOf(ctx, live)
		if err != nil {
			return nil, 0, err
		}
		seen.skip = lifecycle.SkipOf(live, workload.ForDecision())
		seen.observeGuard(workload != nil)
	}
	seen.decide()
	return seen, 0, nil
}

// nothingLeft reports whether a registry has nothing of a pod that is gone: all of its instances are known to be absent, or it never had
// any. What a registry remembers of its application can be cleared only now. One that was not being deleted when it was last seen may have
// lost the label alone, and be held by a finalizer of Rollcall's once it is deleted.
func (o *observation) nothingLeft() bool {
	facts := o.facts()
	instances := facts.Instances()
	for _, in := range instances {
		if in.ByApp() || !o.certain(plan.Row{Target: facts.Target(in), Want: lifecycle.Absent}) {
			return false
		}
	}
	return !o.note.Lingers && (len(instances) > 0 || facts.Known.Born())
}

// observeTargets says which instances the pod has in which registries, or what is wrong with how it is described.
func (r *PodReconciler) observeTargets(seen *observation, node service.Node) {
	pod, settings := seen.pod(), seen.settings
	var drainErr error
	if seen.drain, drainErr = service.DrainOf(pod.Annotations, settings.Drain); drainErr != nil {
		seen.drain = settings.Drain
	}
	subject := service.SubjectOf(pod)
	subject.Node = node
	endpoints, err := settings.Services.EndpointsOf(subject)
	attributes, attributesErr := settings.Services.AttributesOf(subject)
	sources, sourcesErr := settings.sourcesOf(pod.Annotations)
	if sourcesErr != nil && len(seen.facts().Instances()) == 0 {
		sources = settings.everywhere // nothing tells which of them it is in
	}
	if seen.sources = sources; sourcesErr != nil {
		seen.sources = settings.everywhere
	}
	err = errors.Join(err, drainErr, attributesErr, sourcesErr)
	refused := r.observeNames(seen, endpoints)
	if pod.Status.PodIP != "" {
		seen.targets = slices.DeleteFunc(seen.targetsIn(sources, endpoints, attributes), func(t tracker.Target) bool {
			// To take out for good what its application registered, a pod needs no right to the name, and gets none.
			return refused.Reason != "" && (!t.Key().ByApp() || !lifecycle.Leaves(pod))
		})
	}
	switch {
	case err != nil:
		seen.problem = notes.Blocker{Reason: reason.InvalidPod, Message: err.Error()}
	case pod.Status.PodIP == "":
		seen.problem = notes.Blocker{Reason: reason.NoAddress, Message: "the pod has no IP yet"}
	case refused.Reason != "":
		seen.problem = refused
	}
}

// observeNames says why the pod may not use one of its service names. A name that it is registered under stays its own, and
// only the warning is shown.
func (r *PodReconciler) observeNames(seen *observation, endpoints []service.Endpoint) notes.Blocker {
	seen.keeps = map[string]bool{}
	for _, e := range endpoints {
		refusal, registered := r.State.Claims.Ask(r.use(seen, e.Service))
		refused := nameRefused(refusal)
		switch {
		case refused.Reason == "":
		case !registered:
			return refused
		default:
			refused.Message += "; the pod stays, since it is registered under that name already"
			seen.warning, seen.keeps[e.Service] = refused, true
		}
	}
	return notes.Blocker{}
}

func (r *PodReconciler) use(seen *observation, name string) clusterstate.Use {
	return clusterstate.Use{
		Rules: &seen.settings.Rules, Pod: lifecycle.PodIDOf(seen.pod()), Service: name, Now: r.Clock.Now(),
	}
}

func (o *observation) observeGuard(hasWorkload bool) {
	ownerGone := !hasWorkload && clusterstate.OwnerOf(o.pod()) != nil
	o.input.Guard = lifecycle.GuardOf(o.pod(), o.input.Hooks, o.settings.Guard, ownerGone)
}

// adoptListed takes what is listed in service for an acknowledgement of Register, only in Normal, where no hook hangs on
// it: a pod that OpenKruise waits for costs the call.
func (r *PodReconciler) adoptListed(seen *observation) {
	if !lifecycle.Counts(seen.pod()) {
		return
	}
	for _, t := range seen.targets {
		if seen.tracked.Adopt(t) {
			r.State.Claims.Acknowledged(lifecycle.PodIDOf(seen.pod()), t.Key())
			r.auditTold(seen, t, registry.InService, seen.tracked.Standing(t.Key()).AcknowledgedAt())
		}
	}
}

// refused says why Rollcall does not drive the pod; empty where it does.
func (o *observation) refused() notes.Blocker {
	owner := metav1.GetControllerOfNoCopy(o.pod())
	if owner == nil || clusterstate.OwnerOf(o.pod()) != nil || o.decision.Row == lifecycle.RowGone {
		return notes.Blocker{}
	}
	return notes.Blocker{Reason: reason.UnsupportedWorkload, Message: fmt.Sprintf(
		"the pod has a finalizer or mark that hooks.owned or hooks.newlyCreated claims, and belongs to a %s; Rollcall drives only "+
			"OpenKruise's CloneSets, StatefulSets and DaemonSets: take it out of the template, or the key out of the configuration", owner.Kind)}
}

// workloadOf returns the workload that owns the pod, or nil. The cache may not have seen a new one yet, and a workload
// that is taken for gone has its handlers released, so the API server is asked before that. Nothing hangs on it for a pod
// that is being deleted, and there may be many at once.
func (r *PodReconciler) workloadOf(ctx context.Context, pod *corev1.Pod) (*clusterstate.Workload, error) {
	if pod.DeletionTimestamp != nil {
		return clusterstate.WorkloadOf(ctx, pod, r.Client)
	}
	return clusterstate.WorkloadOf(ctx, pod, r.Client, r.APIReader)
}
