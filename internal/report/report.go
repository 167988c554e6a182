// Package report shows people why pods wait, by Events and a metric.
package report

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/shorten"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Reporter reports visits.
type Reporter struct {
	Memory   *memory.Pods
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Calm is called if nothing is missing.
	Calm func(types.UID)
	// Common limits the Events of reasons that are [reason.Reason.Common], and Rollouts those about rollouts.
	Common, Rollouts flowcontrol.PassiveRateLimiter
}

// CommonEvents is the limit for [Reporter.Common]. Ten thousand pods of which the API server refuses the same have theirs in three hours.
func CommonEvents(c clock.PassiveClock) flowcontrol.PassiveRateLimiter {
	return flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(1, commonAtOnce, c)
}

const commonAtOnce = 50

type visited struct {
	*observe.Facts
	visit.Result
}

func (v visited) pod() *lifecycle.Pod { return v.Result.Input.Pod }

// workload is the name of the pod's controller, or empty.
func (v visited) workload() string {
	if owner := metav1.GetControllerOfNoCopy(v.pod()); owner != nil {
		return owner.Name
	}
	return ""
}

// Report shows why the pod waits, with an Event if that is new or lasts, and returns when to look again without an event.
func (r *Reporter) Report(ctx context.Context, f *observe.Facts, result visit.Result) (again time.Duration) {
	v := visited{f, result}
	b := waiting.First(slices.Concat(v.Held, v.Behind)...)
	if b.Reason == "" {
		r.Calm(v.pod().UID)
		b = v.explain()
	}
	before := v.Memory.Shown()
	b.Message = shorten.Message(b.Message) // it is kept, and shown on the status page again and again
	b = b.InPlaceOf(before)
	b.Hook = v.Decision.Waiting
	shown, due := r.dated(v, b, before).Say(v.Memory.Announced(), r.Clock.Now())
	if !shown.Said.IsZero() {
		shown.After = cmp.Or(shown.After, waiting.Longest)
	}
	r.Memory.Show(v.Memory, v.workload(), shown, v.Result.Input.Circumstances)
	r.tellWorkload(ctx, v, shown)
	r.tellRollout(v)
	r.announce(v, shown, due)
	again = sooner(shown.After, v.Changes)
	if v.Decision.Want == lifecycle.InService {
		again = sooner(again, v.Grows)
	}
	return again
}

// announce makes an Event of what is new, and of what has passed. What is wrong with the description of a pod that stays has not passed
// because the pod waits for something else, such as its update.
func (r *Reporter) announce(v visited, shown waiting.Blocker, due bool) {
	announced := v.Memory.Announced()
	still := v.Decision.Want != lifecycle.Absent && (announced.Same(v.Problem) || announced.Same(v.Warning))
	passed := shown.Said.IsZero() && announced.Reason != "" && !still
	common := due && shown.Reason.Common()
	if !due && !passed || !r.mayTell(v, common) {
		return // what is due is so at the next look too
	}
	if due {
		r.tell(v.pod(), shown.Reason, shown.Sentence())
		v.Memory.Announce(shown)
		return
	}
	r.tell(v.pod(), reason.Resolved, fmt.Sprintf("%s resolved", announced.Reason))
	v.Memory.Announce(waiting.Blocker{})
}

// mayTell bounds the Events of one pod, and the common ones of all pods.
func (r *Reporter) mayTell(v visited, common bool) bool {
	return (!common || r.Common.TryAccept()) && v.Memory.MayTell(r.Clock.Now())
}

// sooner returns the shorter of two times; zero stands for never.
func sooner(a, b time.Duration) time.Duration {
	if b > 0 && (a == 0 || b < a) {
		return b
	}
	return a
}

// Tell makes an Event on a pod, unless it has too many. A release without the registry's word always gets one.
func (r *Reporter) Tell(pod *lifecycle.Pod, why reason.Reason, note string) {
	if why.Releases() || r.Memory.Of(lifecycle.PodIDOf(pod)).MayTell(r.Clock.Now()) {
		r.tell(pod, why, note)
	}
}

func (r *Reporter) tell(pod *lifecycle.Pod, why reason.Reason, note string) {
	r.Recorder.Eventf(pod, nil, why.Event(), string(why), "Reconcile", "%s", shorten.Message(why.WithRemedy(note)))
}

// tellWorkload makes an Event where people look first, and logs.
func (r *Reporter) tellWorkload(ctx context.Context, v visited, b waiting.Blocker) {
	pod, now := v.pod(), r.Clock.Now()
	owner, waited := metav1.GetControllerOfNoCopy(pod), now.Sub(b.Since)
	willWait := v.Decision.Row == lifecycle.RowNormal && b.Reason.OfApp()
	if b.Hook == "" && !willWait || b.Said.IsZero() || waited < waiting.RolloutPatience || owner == nil {
		return
	}
	if !r.Memory.ClaimEvent(v.Memory, owner.UID, now) {
		return
	}
	workload := objectOf(owner, pod.Namespace)
	if willWait {
		r.Recorder.Eventf(workload, pod, corev1.EventTypeWarning, string(b.Reason), "Reconcile", "%s", b.Reason.WithRemedy(fmt.Sprintf(
			"pod %s: %s; kubectl rollcall status -n %s shows every such pod", pod.Name, b.Sentence(), pod.Namespace)))
		return
	}
	log.FromContext(ctx).Info("OpenKruise waits for a pod", "namespace", pod.Namespace, "pod", pod.Name, "kind", owner.Kind,
		"workload", owner.Name, "waited", waited.Round(time.Second), "reason", b.Reason, "message", b.Sentence())
	r.Recorder.Eventf(workload, pod, corev1.EventTypeWarning, string(reason.RolloutWaits), "Reconcile",
		"pod %s has waited for %s, reason %s: %s; its Events have the details, and kubectl rollcall status -n %s shows every pod that waits",
		pod.Name, waited.Round(time.Second), b.Reason, b.Sentence(), pod.Namespace)
}

// tellRollout makes an Event on a CloneSet when the first pod of an update is in rotation, and when the last one is.
func (r *Reporter) tellRollout(v visited) {
	owner := metav1.GetControllerOfNoCopy(v.pod())
	if !v.Updated || owner == nil || !r.Memory.Rolled(v.Rollout, r.Clock.Now()) || !r.Rollouts.TryAccept() {
		return
	}
	// An Event of the same action is only counted, and keeps the note of the one before.
	action := fmt.Sprintf("Update-%s-%d-of-%d", v.Rollout.Revision, v.Rollout.In, v.Rollout.ToUpdate)
	r.Recorder.Eventf(objectOf(owner, v.pod().Namespace), nil, reason.RolloutProgress.Event(), string(reason.RolloutProgress), action,
		"%d of %d pods are updated to revision %s and in rotation", v.Rollout.In, v.Rollout.ToUpdate, v.Rollout.Revision)
}

func objectOf(owner *metav1.OwnerReference, namespace string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owner.Name, UID: owner.UID},
	}
}

// dated sets Since to when OpenKruise moved the pod, it turned not ready, or the reason first appeared.
func (r *Reporter) dated(v visited, b, before waiting.Blocker) waiting.Blocker {
	if b.Reason == "" {
		return waiting.Blocker{}
	}
	b.Since = r.Clock.Now()
	if b.Same(before) {
		b.Since = before.Since
	}
	if b.Reason == reason.NotReady {
		if since := lifecycle.UnreadySince(v.pod()); !since.IsZero() && !since.After(r.Clock.Now()) {
			b.Since = since
		}
	}
	updating := b.Reason == reason.NotReady && v.Decision.Row == lifecycle.RowUpdating
	if moved, err := lifecycle.MovedAt(v.pod()); err == nil && (b.Hook != "" || updating) {
		b.Since = v.Memory.Read(moved, r.Clock.Now())
	}
	return b
}
