package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// release is a hook that is released although something is missing.
type release struct {
	by string
	// waited is how long OpenKruise had waited, and missing what for.
	waited  time.Duration
	missing string
	// text is what the person wrote who skipped the hook.
	text string
}

// release returns what is released although b is still missing: at once where a person skips the hook, and by the failure
// policy not before its deadline; then b says to look again at that time. A drain that still runs holds the policy back, and
// so does a registry that has yet to be asked: only one that was lets it go.
func (r *PodReconciler) release(seen *observation, d lifecycle.Decision, b *blocker) (lifecycle.Edit, *release) {
	if seen.skips(d) {
		return d.Skip(), &release{by: metrics.BySkip, missing: seen.missing(d), text: seen.pod().Annotations[lifecycle.AnnotationSkip]}
	}
	policy := seen.settings.OnRegistryFailure
	deadline, set := policy.Deadline(seen.pod(), d)
	if !set || b.unasked || !b.reason.OfRegistry() {
		return lifecycle.Edit{}, nil
	}
	now, waited := r.Clock.Now(), deadline.Add(-policy.After)
	if _, out := r.removedAt(seen, seen.plan(d)); draining(d.Row) && !out.IsZero() && deadline.Before(out.Add(seen.drain)) {
		deadline = out.Add(seen.drain)
	}
	if remaining := deadline.Sub(now); remaining > 0 {
		if b.after == 0 || remaining < b.after {
			b.after = remaining
		}
		return lifecycle.Edit{}, nil
	}
	edit := d.Unacknowledged()
	if edit.Empty() {
		return edit, nil
	}
	return edit, &release{by: metrics.ByFailurePolicy, waited: now.Sub(waited).Round(time.Second), missing: b.message}
}

// skips reports whether a person lets the hook go that OpenKruise waits for.
func (o *observation) skips(d lifecycle.Decision) bool {
	return !d.Skip().Empty() && slices.Contains(o.skip.Hooks, d.Waiting)
}

// missing says what a release would have waited for.
func (o *observation) missing(d lifecycle.Decision) string {
	var all []string
	for _, c := range o.plan(d).all() {
		if standing := o.tracked.Standing(c.Key()); !standing.Says(c.want, c.Instance) || !standing.Settled() {
			all = append(all, c.String())
		}
	}
	if len(all) == 0 {
		return fmt.Sprintf("the drain of %s", o.drain)
	}
	return "the registry's word of " + strings.Join(all, ", ")
}

// released tells of what was released, once it was written.
func (r *PodReconciler) released(seen *observation, d lifecycle.Decision, done *release) {
	r.Releases.Count(string(d.Waiting), done.by)
	if done.by == metrics.BySkip {
		r.event(seen, reason.Skipped, fmt.Sprintf("hook %s was released by annotation %s: %q; not waited for: %s",
			d.Waiting, lifecycle.AnnotationSkip, done.text, done.missing))
		return
	}
	r.event(seen, reason.Proceeded, fmt.Sprintf("hook %s was released after %s, since onRegistryFailure.%s is Proceed after %s; "+
		"not waited for: %s", d.Waiting, done.waited, d.Waiting, seen.settings.OnRegistryFailure.After, done.missing))
}

// waited measures how long OpenKruise has waited for a hook that it no longer waits for.
func (r *PodReconciler) waited(seen *observation, d lifecycle.Decision) {
	since, err := time.Parse(time.RFC3339, seen.pod().Annotations[appspub.LifecycleTimestampKey])
	if d.Waiting != "" && seen.decide().Waiting == "" && err == nil {
		r.Releases.Waited(string(d.Waiting), r.Clock.Now().Sub(since))
	}
}

// refuseSkip shows once why the pod's annotation is not followed.
func (r *PodReconciler) refuseSkip(seen *observation, d lifecycle.Decision) {
	why := seen.skip.Refused
	updated := d.Row == lifecycle.RowUpdated || d.Row == lifecycle.RowUpdatedNotReady
	if updated && slices.Contains(seen.skip.Hooks, d.Waiting) {
		why = fmt.Sprintf("annotation %s: hook %s waits for the pod to be in service, and that can't be skipped: take the annotation off",
			lifecycle.AnnotationSkip, d.Waiting)
	}
	if why == seen.note.skipRefused {
		return
	}
	if seen.note.skipRefused = why; why != "" {
		r.event(seen, reason.SkipRefused, why)
	}
}
