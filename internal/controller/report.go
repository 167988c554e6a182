package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// Waits returns every pod that waits.
func (r *PodReconciler) Waits() []metrics.Wait { return r.notes.Waits() }

// report shows why the pod waits, with an Event when the reason changed or has stayed for long, and says when to look again.
func (r *PodReconciler) report(ctx context.Context, seen *observation, b notes.Blocker) reconcile.Result {
	if b.Reason == "" {
		r.backoff.Forget(seen.pod().UID)
		b = seen.explain()
	}
	before := seen.note.Shown()
	b = b.InPlaceOf(before)
	b.Hook = seen.decision.Waiting
	shown, due := r.dated(seen, b, before).Say(before, r.Clock.Now())
	if !shown.Said.IsZero() {
		shown.After = cmp.Or(shown.After, backoffCap)
	}
	r.auditWait(seen, shown, before)
	r.notes.Show(seen.note, shown)
	r.tellWorkload(ctx, seen, shown)
	switch {
	case due:
		r.event(seen, shown.Reason, shown.Sentence())
	case shown.Said.IsZero() && !before.Said.IsZero():
		r.event(seen, reason.Resolved, fmt.Sprintf("%s has passed", before.Reason))
	}
	again := shown.After
	if seen.endChanges > 0 && (again == 0 || seen.endChanges < again) {
		again = seen.endChanges
	}
	return reconcile.Result{RequeueAfter: again}
}

// rolloutPatience is how long a rollout waits for one pod before its CloneSet gets an Event, and how long writes of a pod fail
// before the pod shows it.
const rolloutPatience = time.Minute

// tellWorkload makes the Event where a person looks first whose rollout waits or will wait, and logs a line.
func (r *PodReconciler) tellWorkload(ctx context.Context, seen *observation, b notes.Blocker) {
	pod, now := seen.pod(), r.Clock.Now()
	owner, waited := metav1.GetControllerOf(pod), now.Sub(b.Since)
	willWait := seen.decision.Row == lifecycle.RowNormal && b.Reason.OfApp()
	if b.Hook == "" && !willWait || b.Said.IsZero() || waited < rolloutPatience || owner == nil {
		return
	}
	if !r.notes.ClaimEvent(seen.note, owner.UID, now) {
		return
	}
	workload := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID},
	}
	if willWait {
		r.Recorder.Eventf(workload, pod, corev1.EventTypeWarning, string(b.Reason), "Reconcile",
			"pod %s: %s; kubectl rollcall status -n %s shows every such pod", pod.Name, b.Sentence(), pod.Namespace)
		return
	}
	log.FromContext(ctx).Info("OpenKruise waits for a pod", "namespace", pod.Namespace, "pod", pod.Name, "kind", owner.Kind,
		"workload", owner.Name, "waited", waited.Round(time.Second), "reason", b.Reason, "message", b.Sentence())
	r.Recorder.Eventf(workload, pod, corev1.EventTypeWarning, string(reason.RolloutWaits), "Reconcile",
		"pod %s has waited for %s, reason %s: %s; its Events say more, and kubectl rollcall status -n %s shows every pod that waits",
		pod.Name, waited.Round(time.Second), b.Reason, b.Sentence(), pod.Namespace)
}

func (r *PodReconciler) event(seen *observation, why reason.Reason, note string) {
	r.Recorder.Eventf(seen.pod(), nil, why.Event(), string(why), "Reconcile", "%s", note)
}

// dated puts the beginning on a blocker: when OpenKruise moved the pod to where it waits, or when it turned unready, else when the
// reason was first seen.
func (r *PodReconciler) dated(seen *observation, b, before notes.Blocker) notes.Blocker {
	if b.Reason == "" {
		return notes.Blocker{}
	}
	b.Since = r.Clock.Now()
	if before.Reason == b.Reason {
		b.Since = before.Since
	}
	if b.Reason == reason.NotReady {
		if since := lifecycle.UnreadySince(seen.pod()); !since.IsZero() {
			b.Since = since
		}
	}
	if moved, err := lifecycle.MovedAt(seen.pod()); err == nil && (b.Hook != "" || b.Reason == reason.Updating) {
		b.Since = moved
	}
	return b
}

// explain finds what keeps a pod waiting, or needs a person's look, although the registry says what it must.
func (o *observation) explain() notes.Blocker {
	d := o.decision
	switch {
	case o.problem.Reason != "" && d.Row.Serves():
		return o.problem
	case d.Row == lifecycle.RowUnknownState:
		return notes.Blocker{Reason: reason.UnknownState, Message: fmt.Sprintf(
			"lifecycle state %q is not one that Rollcall knows: the registry is left as it is; see the supported OpenKruise versions",
			lifecycle.State(o.pod()))}
	case len(o.input.Hooks.Refused) > 0:
		return notes.Blocker{Reason: reason.HandlerRefused, Message: o.input.Hooks.Refused[0].Why}
	case o.input.HeldNotReady(d):
		return notes.Blocker{Reason: reason.HeldNotReady, Message: "OpenKruise holds the pod not ready (markPodNotReady) and lets go only " +
			"after an in-place update, which was rolled back: delete the pod, or update it in place"}
	case o.input.OutForItsEnd(d):
		return notes.Blocker{Reason: reason.Ending, Message: "the pod is out of rotation before it ends: " + o.input.Ending}
	case o.input.KeptInPanic(d):
		return notes.Blocker{Reason: reason.PanicThreshold, Message: o.panic.Message(o.settings.PanicThreshold)}
	case d.Row == lifecycle.RowUpdating:
		return notes.Blocker{Reason: reason.Updating, Message: lifecycle.NotUpdatedBecause(o.pod())}
	case o.input.AwaitsReadiness(d):
		return notes.Blocker{Reason: reason.NotReady, Message: cmp.Or(lifecycle.NotReadyBecause(o.pod()), "its node is not Ready")}
	case o.warning.Reason != "":
		return o.warning
	case o.input.Released(d):
		return notes.Blocker{Reason: reason.AwaitingOpenKruise, Message: "the pod is out of the registry and its hook is released; " +
			"OpenKruise has neither updated nor deleted it yet"}
	}
	return notes.Blocker{}
}
