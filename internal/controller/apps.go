package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// An application that registers itself writes and removes its entry; Rollcall takes it out of rotation and puts it back. Its entry and
// Rollcall's at the same place are two, so that a pod whose entries change hands moves between them.
const (
	// appStarts is how long after a pod became ready its application may take to register before a Warning says that it has not.
	appStarts = 30 * time.Second
	// appRecheck is how long, at most, an application's entry that was missing stays unnoticed when it comes.
	appRecheck = 5 * time.Second
	// appOutlives is for how long the entry of a pod that is gone is looked after: longer than the registries keep one that its
	// application does not renew.
	appOutlives = 3 * time.Minute
)

func (o *observation) gone() bool { return o.departed && !o.note.Lingers }

// mustFind reports whether nothing may go on before the application's entry is found. What takes out a pod whose application may be
// given to clients elsewhere waits while OpenKruise does: kubelet does not, and no client is sent to what never was ready.
func (o *observation) mustFind(c plan.Row) bool {
	return c.Want == lifecycle.InService || o.decision.Row.Drains() && lifecycle.WasReady(o.pod())
}

// lookElsewhere is called where an application's entry is missing, or where a dry run has not looked for it. Where it is at another
// address of the pod, it is steered there from then on.
func (r *PodReconciler) lookElsewhere(ctx context.Context, seen *observation, c plan.Row, missing notes.Blocker) notes.Blocker {
	rehearsed, addresses := missing.Reason == reason.DryRun, lifecycle.AddressesOf(seen.pod(), c.Instance.Port)
	if rehearsed && !seen.facts().Unseen(c.Key()) {
		return missing
	}
	if rehearsed || len(addresses) > 1 {
		found, failed := r.find(ctx, seen, c, addresses)
		if found || failed.Reason != "" {
			return cmp.Or(failed, missing)
		}
		missing.Message += fmt.Sprintf("; it was looked for at %s", strings.Join(addresses, ", "))
	}
	switch {
	case !seen.mustFind(c):
		return notes.Blocker{}
	case rehearsed:
		return r.awaitsApp(seen, c, notes.Blocker{Message: c.String() + ": the registry has none"}, nil)
	}
	return missing
}

// find asks for an application's entry at the addresses, and remembers the first at which there is one.
func (r *PodReconciler) find(ctx context.Context, seen *observation, c plan.Row, addresses []string) (found bool, failed notes.Blocker) {
	reg := seen.settings.client(c.Key().Source())
	for _, address := range addresses {
		at, asked := c, r.Clock.Now()
		at.Instance.Address = address
		if address != c.Instance.Address {
			another, err := clusterstate.AnotherHas(ctx, r.Client, seen.settings.Services, at.Key(), seen.pod().UID)
			if another || err != nil { // it may be that pod's, and is looked for again
				continue
			}
		}
		state, err := reg.Get(ctx, r.caller(seen.pod()), at.Instance)
		switch {
		case err != nil:
			return false, r.failed(ctx, seen, at, reg, err)
		case state == registry.Absent:
			continue
		}
		if seen.tracked.Saw(at.Key(), asked); address != c.Instance.Address {
			if seen.tracked.Standing(c.Key()).SeenAt().IsZero() {
				seen.tracked.PassedOn(c.Key(), asked) // there was nothing that the calls could have changed
			}
			seen.relocated.Store(true)
		}
		return true, notes.Blocker{}
	}
	return false, notes.Blocker{}
}

// observePassedOn says which entries belong to the applications of other pods by now. Those of the host's network share an address,
// where this one has its targets, or all that it ever had while its description does not tell.
func (r *PodReconciler) observePassedOn(ctx context.Context, seen *observation) error {
	if !seen.settings.steers() {
		return nil
	}
	seen.passedOn = map[lifecycle.Recorded]bool{}
	facts := seen.facts()
	instances := facts.Instances()
	for _, t := range seen.targets {
		instances = append(instances, t.Key())
	}
	for _, in := range instances {
		if _, asked := seen.passedOn[in]; asked || !in.ByApp() || facts.Has(in) && (facts.IsTarget(in) || facts.Undescribed) {
			continue
		}
		var err error
		if seen.passedOn[in], err = clusterstate.AnotherHas(ctx, r.Client, seen.settings.Services, in, seen.pod().UID); err != nil {
			return err
		}
	}
	return nil
}

// clear has a registry forget what it remembers of the application of a pod that is gone, once its entry has gone too: the
// next pod at that address is to start in rotation. Until then the entry stays out of it. One that is found in service after it
// was taken out is another application's.
func (r *PodReconciler) clear(ctx context.Context, seen *observation, c plan.Row) notes.Blocker {
	reg, asked, state := seen.settings.client(c.Key().Source()), r.Clock.Now(), registry.Absent
	if reg.Gets() {
		var err error
		if state, err = reg.Get(ctx, r.caller(seen.pod()), c.Instance); err != nil {
			return r.failed(ctx, seen, c, reg, err)
		}
	}
	since := seen.tracked.Standing(c.Key()).OutAfterGone()
	again := !since.IsZero()
	over := again && isOver(state, asked.Sub(since))
	if !over && (!again || state == registry.Absent || seen.unacknowledged(c)) {
		missing := r.call(ctx, seen, c)
		if isOut(state, missing) {
			seen.tracked.OutAfterGone(c.Key(), asked)
		}
		if missing.Reason != "" {
			return missing
		}
	}
	if over || state == registry.Absent {
		r.State.Claims.Removed(seen.pod().UID, c.Key(), asked)
		return notes.Blocker{}
	}
	return notes.Blocker{Reason: reason.AppEntryRemains, After: r.backOff(seen),
		Message: c.String() + ": the pod is gone, and its application's entry is not yet; it is out of rotation"}
}

// isOver reports whether nothing is left to do where an entry was taken out so long ago.
func isOver(state registry.State, ago time.Duration) bool {
	return state == registry.InService || state == registry.OutOfService && ago >= appOutlives
}

// isOut reports whether an entry is out of rotation after a call, also where no agent answers, since its node is gone with the pod.
func isOut(state registry.State, missing notes.Blocker) bool {
	return missing.Reason == "" || state == registry.OutOfService && missing.Reason == reason.AgentUnavailable
}

// awaitsApp says that the application has no entry that could be put in rotation. Soon after the pod became ready that is part
// of its start.
func (r *PodReconciler) awaitsApp(seen *observation, c plan.Row, b notes.Blocker, err error) notes.Blocker {
	b.Reason, b.After = reason.AppNotRegistered, min(r.backOff(seen), appRecheck)
	if names := seen.otherNames(c, registry.OtherNamesOf(err)); len(names) > 0 {
		b.Reason = reason.AppOtherName
		b.Message += fmt.Sprintf("; the registry has %s under %q: name that in the annotation %s or in service.name, or have the "+
			"application register as %q", c.Instance.Endpoint(), names, service.AnnotationServices, c.Instance.Service)
	}
	if c.Want == lifecycle.InService && seen.decision.Waiting == "" && seen.facts().Unseen(c.Key()) {
		b.Message += "; until it is found, OpenKruise will wait before it deletes the pod or updates it in place"
	}
	if starting := appStarts - r.Clock.Since(lifecycle.ReadySince(seen.pod())); starting > 0 {
		b.Reason, b.After = reason.AppStarting, min(b.After, starting)
	}
	return b
}

// otherNames are the names, by the driver and by the last list, under which the registry has an instance's address and port, but for
// those that the pod has besides.
func (o *observation) otherNames(c plan.Row, said []string) []string {
	names := slices.Compact(slices.Sorted(slices.Values(slices.Concat(said, o.tracked.ForeignNames(c.Key())))))
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(o.targets, func(t tracker.Target) bool { return t.Instance.Service == name })
	})
}

// saySeveral says, once for the pod, that there are several entries where one is expected.
func (r *PodReconciler) saySeveral(seen *observation, c plan.Row, which string) {
	if c.ByApp() && seen.note.NoteSeveral() {
		r.event(seen, reason.AppSeveralEntries, fmt.Sprintf("%s: there are several, which are taken out and put back together: %s; "+
			"remove what the application did not write, or give its instances an ID that stays the same", c, which))
	}
}

func (r *PodReconciler) lookForSeveral(seen *observation, c plan.Row) {
	names, own := seen.tracked.ForeignNames(c.Key()), c.Instance.Service
	if one := slices.Index(names, own); one >= 0 && slices.Contains(names[one+1:], own) {
		r.saySeveral(seen, c, "its list has more than one")
	}
}

// sayReturned says, once for as long as the pod is out, that its application put itself back. One that Kruise has restarted
// registers anew, and that is no more than its start.
func (r *PodReconciler) sayReturned(seen *observation, c plan.Row, returned bool) {
	if at := lifecycle.State(seen.pod()); at == appspub.LifecycleStateUpdating || at == appspub.LifecycleStateUpdated {
		return
	}
	switch {
	case c.Want == lifecycle.InService:
		seen.note.NoteJoined()
	case returned && seen.note.NoteReturned():
		r.event(seen, reason.AppCameBack, c.String()+" came back into rotation while the pod has to be out of it, and was taken out "+
			"again: something other than Rollcall puts it back")
	}
}
