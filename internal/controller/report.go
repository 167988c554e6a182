package controller

import (
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
)

// blocker is why a pod is not yet where it must be; the zero blocker is none.
type blocker struct {
	hook    lifecycle.Hook
	reason  reason.Reason
	message string
	since   time.Time
	// after is when to look again by ourselves; zero where an event will bring us back.
	after time.Duration
	// unasked: a registry that may well answer has yet to be asked, whatever else is missing.
	unasked bool
}

// and adds what else is missing: the first reason is shown that is more than a turn yet to come, and the sooner one says
// when to look again.
func (b blocker) and(other blocker) blocker {
	unasked := b.unasked || other.unasked
	b.unasked, other.unasked = unasked, unasked
	switch {
	case b.reason == "":
		return other
	case b.reason == reason.Queued && other.reason != "" && other.reason != reason.Queued:
		return other.and(b)
	case other.reason != "" && other.after > 0 && (b.after == 0 || other.after < b.after):
		b.after = other.after
	}
	return b
}

// Waits returns every pod that waits.
func (r *PodReconciler) Waits() (waits []metrics.Wait) {
	r.notes.mu.Lock()
	defer r.notes.mu.Unlock()
	for _, one := range r.notes.pods {
		if b := one.shown; b.reason != "" {
			waits = append(waits, metrics.Wait{
				Hook: string(b.hook), Reason: string(b.reason), Message: b.message, Warning: !b.reason.Calm(),
				Namespace: one.pod.Namespace, Pod: one.pod.Name, UID: string(one.pod.UID), Since: b.since,
			})
		}
	}
	return waits
}

// report shows why the pod waits, with an Event only when the reason changed, and says when to look again.
func (r *PodReconciler) report(seen *observation, b blocker) reconcile.Result {
	if b.reason == "" {
		r.backoff.Forget(seen.pod().UID)
		b = seen.explain()
	}
	before := seen.note.shown // only this pod's reconciler changes it
	if b.reason.BeforeTheCall() && before.reason.NeedsAnotherCall() {
		after := b.after
		b = before // it is to try again and has not yet
		b.after = after
	}
	b.hook = seen.decision.Waiting
	if !b.reason.Calm() && b.after == 0 {
		b.after = backoffCap
	}
	shown := r.dated(seen, b, before)
	r.auditWait(seen, shown, before)
	r.notes.show(seen.note, shown)
	r.tellWorkload(seen, shown)
	switch {
	case b.reason == before.reason:
	case !b.reason.Calm():
		r.event(seen, b.reason, b.sentence())
	case !before.reason.Calm():
		r.event(seen, reason.Resolved, fmt.Sprintf("%s has passed", before.reason))
	}
	return reconcile.Result{RequeueAfter: b.after}
}

// rolloutPatience is how long a rollout waits for one pod before its CloneSet gets an Event.
const rolloutPatience = time.Minute

// tellWorkload makes the Event where a person looks first whose rollout does not go on.
func (r *PodReconciler) tellWorkload(seen *observation, b blocker) {
	pod := seen.pod()
	owner, waited := metav1.GetControllerOf(pod), r.Clock.Now().Sub(b.since)
	if b.hook == "" || b.reason.Calm() || waited < rolloutPatience || owner == nil || !r.notes.tells(seen.note, owner.UID) {
		return
	}
	workload := &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: owner.Name, UID: owner.UID},
	}
	r.Recorder.Eventf(workload, pod, corev1.EventTypeWarning, string(reason.RolloutWaits), "Reconcile",
		"pod %s has waited for %s, reason %s: %s; its Events say more, and kubectl rollcall status shows every pod that waits",
		pod.Name, waited.Round(time.Second), b.reason, b.sentence())
}

func (r *PodReconciler) event(seen *observation, why reason.Reason, note string) {
	r.Recorder.Eventf(seen.pod(), nil, why.Event(), string(why), "Reconcile", "%s", note)
}

// sentence says what waits for what.
func (b blocker) sentence() string {
	if b.hook == "" {
		return b.message
	}
	return fmt.Sprintf("hook %s waits: %s", b.hook, b.message)
}

// dated puts the beginning on a blocker: when OpenKruise moved the pod to where it waits, else when the reason was first seen.
func (r *PodReconciler) dated(seen *observation, b, before blocker) blocker {
	if b.reason == "" {
		return blocker{}
	}
	b.since = r.Clock.Now()
	if before.reason == b.reason {
		b.since = before.since
	}
	if moved, err := lifecycle.MovedAt(seen.pod()); err == nil && b.hook != "" {
		b.since = moved
	}
	return b
}

// explain finds what keeps a pod waiting, or needs a person's look, although the registry says what it must.
func (o *observation) explain() blocker {
	d := o.decision
	switch {
	case o.problem.reason != "" && d.Row.Serves():
		return o.problem
	case d.Row == lifecycle.RowUnknownState:
		return blocker{reason: reason.UnknownState, message: fmt.Sprintf(
			"lifecycle state %q is not one that Rollcall knows: the registry is left as it is; see the supported OpenKruise versions",
			lifecycle.State(o.pod()))}
	case len(o.input.Hooks.Refused) > 0:
		return blocker{reason: reason.HandlerRefused, message: o.input.Hooks.Refused[0].Why}
	case o.input.HeldNotReady(d):
		return blocker{reason: reason.HeldNotReady, message: "Kruise holds the pod not ready (markPodNotReady) and lets go only " +
			"after an in-place update, which was rolled back: delete the pod, or update it in place"}
	case o.input.KeptInPanic(d):
		return blocker{reason: reason.PanicThreshold, message: o.panic.Message(o.settings.PanicThreshold)}
	case d.Waiting != "" && !lifecycle.IsReady(o.pod()):
		return blocker{reason: reason.NotReady, message: "the pod is not ready"}
	case o.warning.reason != "":
		return o.warning
	case o.input.Released(d):
		return blocker{reason: reason.AwaitingOpenKruise, message: "the pod is out of the registry and its hook is released; " +
			"OpenKruise has neither updated nor deleted it yet"}
	}
	return blocker{}
}

// notes are what the reconciler remembers of pods from one look to the next.
type notes struct {
	mu   sync.Mutex
	pods map[types.UID]*note
}

// note is of one pod. Its reconciler is the only one to use it, but for shown and told, which are under the lock of all notes.
type note struct {
	pod lifecycle.PodID
	// calls is held while a call writes to the note: several may be made at once.
	calls sync.Mutex
	// written is the resource version of our last write. A cache that is behind it has not seen our own change.
	written string
	// skipRefused is why the pod's annotation to skip a hook was last refused: an Event of it came.
	skipRefused string
	// lingers: the pod is dying and has lost the label that the cache selects by, so no event tells whether it was freed.
	lingers bool
	// clears are the entries of the application of a pod that is gone, and since when they were taken out after that.
	clears map[lifecycle.Recorded]time.Time
	// returned: an Event came of the application's entry that came back while the pod had to be out.
	returned bool
	// several: an Event came of several entries of the pod's application.
	several bool
	// postponed are the changes that a registry told to come back for later.
	postponed map[lifecycle.Recorded]postponement

	shown blocker
	// told is the workload that has an Event since this pod waits.
	told types.UID
}

// postponement is a registry's word when to come back with a change. An event must not bring it sooner.
type postponement struct {
	want    lifecycle.Want
	client  *registryclient.Client
	until   time.Time
	blocker blocker
}

func (n *notes) of(pod lifecycle.PodID) *note {
	n.mu.Lock()
	defer n.mu.Unlock()
	one := n.pods[pod.UID]
	if one == nil {
		one = &note{pod: pod}
		n.pods[pod.UID] = one
	}
	return one
}

func (n *notes) forget(uid types.UID) (forgotten *note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	forgotten = n.pods[uid]
	delete(n.pods, uid)
	return forgotten
}

// show notes why the pod waits.
func (n *notes) show(of *note, now blocker) {
	n.mu.Lock()
	defer n.mu.Unlock()
	of.shown = now
	if now.reason.Calm() {
		of.told = ""
	}
}

// tells reports whether the workload gets an Event since the pod waits: one for all of its pods, until this one goes on.
func (n *notes) tells(of *note, workload types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, one := range n.pods {
		if one.told == workload {
			return false
		}
	}
	of.told = workload
	return true
}

// postponedNow returns why the change must not be made yet, by the registry's own word; nothing where it may. What it said of
// another change does not count: a registry that takes no more instances must not keep a deleted pod in. Nor does what it said
// to another client, whose credentials may have been the reason.
func (n *note) postponedNow(c change, client *registryclient.Client, now time.Time) blocker {
	n.calls.Lock()
	p, postponed := n.postponed[c.Key()]
	n.calls.Unlock()
	if !postponed || p.want != c.want || p.client != client || !now.Before(p.until) {
		return blocker{}
	}
	p.blocker.after = p.until.Sub(now)
	return p.blocker
}
