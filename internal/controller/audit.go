package controller

import (
	"context"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/receipt"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// lineOf describes the pod, as it is given, in a line of the audit log.
func (o *observation) lineOf(pod *corev1.Pod) receipt.Line {
	in := o.input
	in.Pod = pod
	line := receipt.Line{
		Entry: podEntry(lifecycle.PodIDOf(pod)), Seconds: o.drain.Seconds(),
		Revision: pod.Labels[appsv1.ControllerRevisionHashLabelKey], State: pod.Labels[appspub.LifecycleStateKey],
		Ready: in.Ready(), Deleting: lifecycle.Ends(pod) || o.gone(),
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		line.Workload = owner.Name
	}
	if moved, err := lifecycle.MovedAt(pod); err == nil {
		line.Since = moved
	}
	for _, t := range o.targets {
		line.Instances = append(line.Instances, receipt.EntryOf(t.Registry, t.Instance).By(string(t.Writer)))
	}
	return line
}

// podEntry names a pod and none of its instances.
func podEntry(id lifecycle.PodID) receipt.Entry {
	return receipt.Entry{Namespace: id.Namespace, Pod: id.Name, UID: string(id.UID)}
}

// about has the changes that are made for the pod say what they rest on.
func (r *PodReconciler) about(ctx context.Context, seen *observation) context.Context {
	if r.Audit == nil {
		return ctx
	}
	line := seen.lineOf(seen.pod())
	return audit.About(ctx, &line)
}

// auditTold writes down what a registry said of an instance, or what is known of it for certain, where that may stand for an
// acknowledgement.
func (r *PodReconciler) auditTold(seen *observation, of tracker.Target, state registry.State, asked time.Time) {
	if r.Audit == nil {
		return
	}
	if state == registry.Foreign { // it has no entry that Rollcall has written
		state = registry.Absent
	}
	line := seen.lineOf(seen.pod())
	line.Kind, line.Entry, line.Instances = receipt.Told, receipt.EntryOf(of.Registry, of.Instance).By(string(of.Writer)), nil
	line.Says, line.Asked = string(state), asked
	r.Audit.Write(line)
}

// auditFlip writes down the handlers that a patch changed, with the pod's state from the API server's answer: what the manager
// decided on may be older.
func (r *PodReconciler) auditFlip(seen *observation, before, after *corev1.Pod, asked time.Time) {
	if r.Audit == nil {
		return
	}
	line := seen.lineOf(after)
	line.Kind, line.Asked, line.Excuse, line.Hooks = receipt.Flip, asked, seen.excuse, receipt.Hooks{}
	for hook, handlers := range map[string][]lifecycle.Handler{
		receipt.PreNormal: seen.input.Hooks.PreNormal, receipt.InPlaceUpdate: seen.input.Hooks.InPlaceUpdate,
		receipt.PreDelete: seen.input.Hooks.PreDelete,
	} {
		for _, h := range handlers {
			line.Hooks[hook] = append(line.Hooks[hook], h.String())
			switch was, is := h.SetOn(before), h.SetOn(after); {
			case is && !was:
				line.Set = append(line.Set, h.String())
			case was && !is:
				line.Cleared = append(line.Cleared, h.String())
			}
		}
	}
	if len(line.Set)+len(line.Cleared) > 0 {
		r.Audit.Write(line)
	}
}

// auditGone writes down that a pod waits for nothing any more since it is gone.
func (r *PodReconciler) auditGone(n *notes.Note) {
	if n != nil && n.Shown().Hook != "" {
		r.Audit.Write(receipt.Line{Kind: receipt.Waits, Deleting: true, Entry: podEntry(n.Pod)})
	}
}

// auditWait writes down why the pod waits from now on, where it did not wait like that before.
func (r *PodReconciler) auditWait(seen *observation, now, before notes.Blocker) {
	if r.Audit == nil || now.WaitsLike(before) || now.Hook == "" && before.Hook == "" {
		return
	}
	line := seen.lineOf(seen.pod())
	line.Kind, line.Hook, line.Reason, line.Instances = receipt.Waits, string(now.Hook), string(now.Reason), nil
	r.Audit.Write(line)
}
