package controller

import (
	"fmt"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Reason says why a pod waits: a label of the metrics, and the reason of the Event where a person should look.
type Reason string

// The reasons. Their comments are also docs/reference/reasons.md (see hack/docs): what it means, and from "What to do:" on
// what a person should do.
const (
	// ReasonRegistryUnavailable: the registry could not be reached, or answered with an error that may pass. Retried
	// with a back-off of at most 30 s. Where the message says that the circuit breaker is open, the calls of several pods
	// failed, one call every 5 s tries whether the registry answers, and all go on as soon as it does.
	//
	// What to do: look at the registry.
	ReasonRegistryUnavailable Reason = "RegistryUnavailable"
	// ReasonRegistryTimeout: a call took longer than `registry.timeout`. Retried like RegistryUnavailable.
	//
	// What to do: look at the registry, or raise the timeout.
	ReasonRegistryTimeout Reason = "RegistryTimeout"
	// ReasonRegistryRefused: the registry refused, and will refuse again: credentials, or an instance that it does not
	// take. Retried every 30 s, and at once when the configuration changes.
	//
	// What to do: mend what the message says, in the registry's own words.
	ReasonRegistryRefused Reason = "RegistryRefused"
	// ReasonNotServing: the pod was registered, and the registry does not give it to clients yet: it checks it first,
	// say. Asked again with a back-off of at most 30 s.
	//
	// What to do: look in the registry at what the message says.
	ReasonNotServing Reason = "NotServing"
	// ReasonUnknownRegistry: the pod is still in a registry that the configuration no longer has.
	//
	// What to do: put the registry back into `registries` until its pods have left it.
	ReasonUnknownRegistry Reason = "UnknownRegistry"
	// ReasonInvalidPod: the pod has no port to register, or an annotation that does not parse.
	//
	// What to do: write what the message says.
	ReasonInvalidPod Reason = "InvalidPod"
	// ReasonServiceClaimed: another namespace has the service name: pods of it are registered under the name, or were until
	// five minutes ago, or it was created first among those whose workloads use the name.
	//
	// What to do: take another name, put `{namespace}` into `service.name`, set `service.sharedAcrossNamespaces: true`, or
	// say in `service.allowed` whose the name is.
	ReasonServiceClaimed Reason = "ServiceClaimed"
	// ReasonServiceNotAllowed: `service.allowed` in the configuration does not give the service name to the pod's namespace.
	// A pod that is registered under the name already stays in service, and shows the reason all the same.
	//
	// What to do: take another name, or add an entry to `service.allowed`.
	ReasonServiceNotAllowed Reason = "ServiceNotAllowed"
	// ReasonHandlerRefused: a handler of ours can't be used: its key is in the workload's selector, its value is empty,
	// two hooks want it at different values, or it is a newly-created mark too. What it blocks stays blocked.
	//
	// What to do: change in the CloneSet what the message says.
	ReasonHandlerRefused Reason = "HandlerRefused"
	// ReasonPatchRefused: the API server refuses our change of the pod: by its access control, an admission webhook, a policy or
	// its validation. Retried with a back-off of at most 30 s.
	//
	// What to do: allow what the message says, in the API server's own words.
	ReasonPatchRefused Reason = "PatchRefused"
	// ReasonUnsupportedWorkload: the pod has a finalizer or mark of ours and belongs to a workload that is no
	// CloneSet.
	//
	// What to do: take it out of the template, or the key out of `hooks.owned`.
	ReasonUnsupportedWorkload Reason = "UnsupportedWorkload"
	// ReasonUnknownState: a lifecycle state that this version does not know. The registry is left as it is.
	//
	// What to do: use a supported OpenKruise.
	ReasonUnknownState Reason = "UnknownState"
	// ReasonHeldNotReady: an in-place update with `markPodNotReady` was rolled back, and OpenKruise holds the pod not
	// ready for ever.
	//
	// What to do: delete the pod, or update it in place.
	ReasonHeldNotReady Reason = "HeldNotReady"
	// ReasonPanicThreshold: more than `panicThreshold` of a service's pods are not ready at once, which looks like a fault of
	// a node or the network. The pod stays in service although it is not ready; the last pod of a service always does, unless
	// `panicThreshold` is `100%`.
	//
	// What to do: look at the pods, their nodes and the network.
	ReasonPanicThreshold Reason = "PanicThreshold"
	// ReasonDraining: out of rotation; the drain has not passed.
	//
	// What to do: wait.
	ReasonDraining Reason = "Draining"
	// ReasonSettling: an earlier call timed out and may still be carried out.
	//
	// What to do: wait, at most twice `registry.timeout`.
	ReasonSettling Reason = "Settling"
	// ReasonNotConfirmed: a call failed or timed out, a later one was acknowledged, and the registry says something else of
	// the pod all the same. It is told again with a back-off of at most 30 s.
	//
	// What to do: look in the registry at who else writes the pod's entry.
	ReasonNotConfirmed Reason = "NotConfirmed"
	// ReasonAlsoRegistersItself: clients are given the pod's address by an entry that Rollcall has not written, most likely
	// since the application registers itself. What the registry acknowledges says nothing of that entry, so both directions
	// wait: it would stay in service while OpenKruise updates or deletes the pod. Looked at again every 30 s, and with each
	// list.
	//
	// What to do: turn off the application's own registration: [the application registers itself](../self-registration.md).
	ReasonAlsoRegistersItself Reason = "AlsoRegistersItself"
	// ReasonQueued: as many calls to the registry are under way as `maxInFlight` allows, or half of them for the same
	// service. The pod goes on when a slot is free.
	//
	// What to do: wait. Where it lasts, look at how long the registry's calls take.
	ReasonQueued Reason = "Queued"
	// ReasonNotPermitted: this manager may make no call now, so the registry was not asked: its lease was not renewed in
	// time, or the configuration has just changed. Retried with a back-off.
	//
	// What to do: where it stays, look at the API server, which answers too slowly.
	ReasonNotPermitted Reason = "NotPermitted"
	// ReasonNotReady: Kruise waits, and the pod is not ready yet.
	//
	// What to do: look at the pod.
	ReasonNotReady Reason = "NotReady"
	// ReasonNoAddress: the pod has no IP yet.
	//
	// What to do: wait.
	ReasonNoAddress Reason = "NoAddress"
	// ReasonStopping: the manager was asked to stop and makes no further calls.
	//
	// What to do: nothing, the next manager goes on.
	ReasonStopping Reason = "Stopping"
	// ReasonProceeded: no reason to wait but an Event: a hook was released although a registry had not acknowledged, since
	// `onRegistryFailure` says so. The registry is still told, as soon as it can be.
	//
	// What to do: look at the registry; clients may have been sent to a pod that was not there.
	ReasonProceeded Reason = "Proceeded"
	// ReasonSkipped: no reason to wait but an Event: a hook was released without the registry and the drain, since a person
	// wrote the annotation `rollcall.dev/skip`. The registry is still told, as soon as it can be.
	//
	// What to do: nothing, if it was you.
	ReasonSkipped Reason = "Skipped"
	// ReasonSkipRefused: no reason to wait but an Event: the annotation `rollcall.dev/skip` asks for what can't be done, or
	// comes from the workload's template, and then it was taken off the pod.
	//
	// What to do: write what the message says.
	ReasonSkipRefused Reason = "SkipRefused"
	// ReasonDryRun: the manager runs with `--dry-run` and has said what it would do.
	//
	// What to do: nothing.
	ReasonDryRun Reason = "DryRun"
	// ReasonResolved: no reason to wait but the Event after one: what asked a person to look has passed.
	//
	// What to do: nothing.
	ReasonResolved Reason = "Resolved"
)

// Event returns the type of the Event that shows the reason, or nothing for a reason that is part of any rollout.
func (r Reason) Event() string {
	switch r {
	case "", ReasonDraining, ReasonSettling, ReasonQueued, ReasonNotPermitted, ReasonNotReady, ReasonNoAddress, ReasonStopping,
		ReasonDryRun:
		return ""
	case ReasonResolved:
		return corev1.EventTypeNormal
	default:
		return corev1.EventTypeWarning
	}
}

func (r Reason) calm() bool { return r.Event() == "" }

// beforeTheCall reports whether the registry has yet to be asked, so that nothing is known of it but what was before.
func (r Reason) beforeTheCall() bool { return r == ReasonQueued || r == ReasonNotPermitted }

// registrys reports whether only another call can tell that the reason has passed.
func (r Reason) registrys() bool {
	switch r {
	case ReasonRegistryUnavailable, ReasonRegistryTimeout, ReasonRegistryRefused, ReasonNotConfirmed, ReasonNotServing:
		return true
	default:
		return false
	}
}

// wait is why a pod is not where it shall be; the zero wait is none.
type wait struct {
	hook    lifecycle.Hook
	reason  Reason
	message string
	since   time.Time
	// after is when to look again by ourselves; zero where an event will bring us back.
	after time.Duration
	// unasked: a registry that may well answer has yet to be asked, whatever else is missing.
	unasked bool
}

// and adds what else is missing: the first reason is shown that is more than a turn yet to come, and the sooner one says
// when to look again.
func (w wait) and(other wait) wait {
	unasked := w.unasked || other.unasked
	w.unasked, other.unasked = unasked, unasked
	switch {
	case w.reason == "":
		return other
	case w.reason == ReasonQueued && other.reason != "" && other.reason != ReasonQueued:
		return other.and(w)
	case other.reason != "" && other.after > 0 && (w.after == 0 || other.after < w.after):
		w.after = other.after
	}
	return w
}

// Wait is one pod that waits, as the metrics show it.
type Wait struct {
	// Hook is the one Kruise waits for; empty where Kruise waits for nothing and only the registry is behind.
	Hook   string
	Reason string
	// Since is when the pod came into its lifecycle state, or when the reason was first seen where no hook waits.
	Since time.Time
}

// Waits returns every pod that waits.
func (r *PodReconciler) Waits() []Wait {
	inner := r.ledger.waits()
	waits := make([]Wait, 0, len(inner))
	for _, w := range inner {
		waits = append(waits, Wait{Hook: string(w.hook), Reason: string(w.reason), Since: w.since})
	}
	return waits
}

// report shows why the pod waits, with an Event only when the reason changed, and says when to look again.
func (r *PodReconciler) report(seen *observation, d lifecycle.Decision, w wait) reconcile.Result {
	if w.reason == "" {
		r.backoff.Forget(seen.pod().UID)
		w = seen.explain(d)
	}
	if before := r.ledger.waitOf(seen.page); w.reason.beforeTheCall() && before.reason.registrys() {
		before.after = w.after
		w = before // it is to try again and has not yet
	}
	w.hook = d.Waiting
	if !w.reason.calm() && w.after == 0 {
		w.after = backoffCap
	}
	before := r.ledger.setWait(seen.page, r.dated(seen, w))
	switch {
	case w.reason == before.reason:
	case !w.reason.calm():
		r.event(seen, w.reason, w.sentence())
	case !before.reason.calm():
		r.event(seen, ReasonResolved, fmt.Sprintf("%s has passed", before.reason))
	}
	return reconcile.Result{RequeueAfter: w.after}
}

func (r *PodReconciler) event(seen *observation, reason Reason, note string) {
	r.recorder.Eventf(seen.pod(), nil, reason.Event(), string(reason), "Reconcile", "%s", note)
}

// sentence says what waits for what.
func (w wait) sentence() string {
	if w.hook == "" {
		return w.message
	}
	return fmt.Sprintf("hook %s waits: %s", w.hook, w.message)
}

// dated puts the beginning on a wait: when Kruise moved the pod to where it waits, else when we first saw the reason.
func (r *PodReconciler) dated(seen *observation, w wait) wait {
	if w.reason == "" {
		return wait{}
	}
	if w.hook != "" {
		if moved, err := time.Parse(time.RFC3339, seen.pod().Annotations[appspub.LifecycleTimestampKey]); err == nil {
			w.since = moved
			return w
		}
	}
	r.ledger.mu.Lock()
	defer r.ledger.mu.Unlock()
	if before := seen.page.wait; before.reason == w.reason {
		w.since = before.since
		return w
	}
	w.since = r.clock.Now()
	return w
}

// explain finds what keeps a pod waiting, or needs a person's look, although the registry says what it shall.
func (o *observation) explain(d lifecycle.Decision) wait {
	switch {
	case o.problem.reason != "" && d.Row.Serves():
		return o.problem
	case d.Row == lifecycle.RowUnknownState:
		return wait{reason: ReasonUnknownState, message: fmt.Sprintf(
			"lifecycle state %q is not one that Rollcall knows: the registry is left as it is; see the supported OpenKruise versions",
			o.pod().Labels[appspub.LifecycleStateKey])}
	case len(o.input.Hooks.Refused) > 0:
		return wait{reason: ReasonHandlerRefused, message: o.input.Hooks.Refused[0].Why}
	case o.heldNotReady(d):
		return wait{reason: ReasonHeldNotReady, message: "Kruise holds the pod not ready (markPodNotReady) and lets go only " +
			"after an in-place update, which was rolled back: delete the pod, or update it in place"}
	case o.keptInPanic(d):
		return wait{reason: ReasonPanicThreshold, message: o.panic.message(o.settings.PanicThreshold)}
	case d.Waiting != "" && !lifecycle.IsReady(o.pod()):
		return wait{reason: ReasonNotReady, message: "the pod is not ready"}
	case o.warning.reason != "":
		return o.warning
	}
	return wait{}
}

// heldNotReady recognizes a rollback in PreparingUpdate to Normal, after which Kruise never sets its own readiness gate
// again.
func (o *observation) heldNotReady(d lifecycle.Decision) bool {
	if d.Row != lifecycle.RowNormalNotReady || !o.input.Hooks.MarksNotReady {
		return false
	}
	for _, c := range o.pod().Status.Conditions {
		if c.Type == appspub.KruisePodReadyConditionType {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

// UnmatchedWorkloads returns how many workloads have hooks of which no handler is ours.
func (r *PodReconciler) UnmatchedWorkloads() int { return r.workloads.unmatchedCount() }
