package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// proceed returns what is released although w is still missing, by the failure policy: nothing before its deadline, and
// then w says to look again at that time. A drain that still runs holds it back, and so does a registry that has yet to be
// asked; nothing but a registry that was lets it go.
func (r *PodReconciler) proceed(seen *observation, d lifecycle.Decision, w *wait) lifecycle.Edit {
	deadline, set := seen.settings.OnRegistryFailure.Deadline(seen.pod(), d)
	if !set || w.unasked || !w.reason.ofRegistry() {
		return lifecycle.Edit{}
	}
	if _, out := seen.outSince(seen.course(d).all()); draining(d.Row) && !out.IsZero() && deadline.Before(out.Add(seen.drain)) {
		deadline = out.Add(seen.drain)
	}
	left := deadline.Sub(r.clock.Now())
	if left <= 0 {
		return d.Unacknowledged()
	}
	if w.after == 0 || left < w.after {
		w.after = left
	}
	return lifecycle.Edit{}
}

// ofRegistry reports whether a registry that was asked is what is missing. A turn that has not come is none of its faults:
// after a start, most pods of a storm would be let go before anybody was asked.
func (r Reason) ofRegistry() bool {
	return slices.Contains([]Reason{
		ReasonRegistryUnavailable, ReasonRegistryTimeout, ReasonRegistryRefused, ReasonUnknownRegistry, ReasonSettling,
		ReasonNotConfirmed, ReasonAlsoRegistersItself,
	}, r)
}

// proceeded tells of what the failure policy released.
func (r *PodReconciler) proceeded(seen *observation, d lifecycle.Decision, w wait) {
	policy := seen.settings.OnRegistryFailure
	deadline, _ := policy.Deadline(seen.pod(), d)
	waited := r.clock.Now().Sub(deadline.Add(-policy.After)).Round(time.Second)
	r.releases.count(d.Waiting, byFailurePolicy)
	r.event(seen, ReasonProceeded, fmt.Sprintf("hook %s was released after %s, since onRegistryFailure.%s is Proceed after %s; "+
		"not waited for: %s", d.Waiting, waited, d.Waiting, policy.After, w.message))
}

// skip releases the hook that a person lets go, once, and takes the annotation off. The registry is told after that, as
// ever. An annotation that came with the template is only taken off.
func (r *PodReconciler) skip(ctx context.Context, seen *observation, d lifecycle.Decision) (moved bool, err error) {
	edit := lifecycle.Edit{ClearSkip: true}
	switch {
	case d.Skipped != "":
		edit.Clear = d.Skip().Clear
	case !seen.skip.FromTemplate || seen.pod().DeletionTimestamp != nil:
		return false, nil
	}
	outstanding, written := seen.outstanding(d), seen.pod().Annotations[lifecycle.AnnotationSkip]
	if moved, err = r.patch(ctx, seen, edit, nil); moved || err != nil {
		return moved, err
	}
	if _, left := seen.pod().Annotations[lifecycle.AnnotationSkip]; left {
		return false, nil // a dry run has told what it would do
	}
	seen.input.Skips, seen.skip = nil, lifecycle.Skip{}
	if d.Skipped != "" {
		r.releases.count(d.Skipped, bySkip)
		r.event(seen, ReasonSkipped, fmt.Sprintf("hook %s was released by annotation %s: %q; not waited for: %s",
			d.Skipped, lifecycle.AnnotationSkip, written, outstanding))
	}
	return false, nil
}

// outstanding says what a release would have waited for.
func (o *observation) outstanding(d lifecycle.Decision) string {
	var all []string
	for _, s := range o.course(d).all() {
		if c := o.page.calls[s.key()]; !c.said(s) || !c.settled() {
			all = append(all, s.String())
		}
	}
	if len(all) == 0 {
		return fmt.Sprintf("the drain of %s", o.drain)
	}
	return "the registry's word of " + strings.Join(all, ", ")
}

// refuseSkip tells once why the pod's annotation is not followed.
func (r *PodReconciler) refuseSkip(seen *observation, d lifecycle.Decision) {
	why := seen.skip.Refused
	updated := d.Row == lifecycle.RowUpdated || d.Row == lifecycle.RowUpdatedNotReady
	if updated && slices.Contains(seen.skip.Hooks, d.Waiting) {
		why = fmt.Sprintf("annotation %s: hook %s waits for the pod to be in service, and that can't be skipped: take the annotation off",
			lifecycle.AnnotationSkip, d.Waiting)
	}
	if why == seen.page.skipRefused {
		return
	}
	if seen.page.skipRefused = why; why != "" {
		r.event(seen, ReasonSkipRefused, why)
	}
}

// What releases a hook without an acknowledgement.
const (
	byFailurePolicy = "failurePolicy"
	bySkip          = "skip"
)

// Release counts how often a hook was released although a registry had not acknowledged.
type Release struct {
	// Hook is preDelete or inPlaceUpdate.
	Hook string
	// By is failurePolicy or skip.
	By    string
	Count int
}

// releases counts. Its zero value has none.
type releases struct {
	mu     sync.Mutex
	counts map[Release]int
}

func (r *releases) count(hook lifecycle.Hook, by string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[Release]int{}
	}
	r.counts[Release{Hook: string(hook), By: by}]++
}

// Releases returns the count of each hook and each cause, those that never were included. It may be called at any time.
func (r *PodReconciler) Releases() []Release {
	r.releases.mu.Lock()
	defer r.releases.mu.Unlock()
	var all []Release
	for _, hook := range []lifecycle.Hook{lifecycle.PreDelete, lifecycle.InPlaceUpdate} {
		for _, by := range []string{byFailurePolicy, bySkip} {
			release := Release{Hook: string(hook), By: by}
			release.Count = r.releases.counts[release]
			all = append(all, release)
		}
	}
	return all
}
