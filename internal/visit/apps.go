package visit

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
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// An application that registers itself writes and removes its entry; Rollcall takes it out of rotation and puts it back. Its entry and
// Rollcall's at the same place are two, so that a pod whose entries change hands moves between them.
const (
	// AppStarts is how long after a pod became ready its application may take to register before a Warning says that it has not.
	AppStarts = 30 * time.Second
	// AppRecheck is how long, at most, an application's entry that was missing stays unnoticed when it comes.
	AppRecheck = 5 * time.Second
	// AppOutlives is for how long the entry of a pod that is gone is looked after: longer than the registries keep one that its
	// application does not renew.
	AppOutlives = 3 * time.Minute
)

// mustFind reports whether nothing may go on before the application's entry is found. What takes out a pod whose application may be
// given to clients elsewhere waits while OpenKruise does: kubelet does not, and no client is sent to what never was ready.
func (v *visit) mustFind(c plan.Row) bool {
	return c.Want == lifecycle.InService || v.decision.Row.Drains() && lifecycle.WasReady(v.pod()) && v.entries().Unseen(c.Key())
}

// lookElsewhere is called where an application's entry is missing, or where a dry run has not looked for it. Where it is at another
// address of the pod, it is steered there from then on.
func (v *visit) lookElsewhere(ctx context.Context, c plan.Row, missing waiting.Blocker) waiting.Blocker {
	rehearsed, addresses := missing.Reason == reason.DryRun, lifecycle.AddressesOf(v.pod(), c.Instance.Port)
	if rehearsed && !v.entries().Unseen(c.Key()) {
		return missing
	}
	if rehearsed || len(addresses) > 1 {
		found, failed := v.find(ctx, c, addresses)
		if found || failed.Reason != "" {
			return cmp.Or(failed, missing)
		}
		missing.Message += fmt.Sprintf("; it was looked for at %s", strings.Join(addresses, ", "))
	}
	switch {
	case !v.mustFind(c):
		return waiting.Blocker{}
	case rehearsed:
		return v.awaitsApp(c, waiting.Blocker{Message: c.String() + ": the registry has none"}, nil)
	}
	return missing
}

// find asks for an application's entry at the addresses, and remembers the first at which there is one.
func (v *visit) find(ctx context.Context, c plan.Row, addresses []string) (found bool, failed waiting.Blocker) {
	reg := v.Settings.Client(c.Key().Source())
	for _, address := range addresses {
		at, asked := c, v.Clock.Now()
		at.Instance.Address = address
		if address != c.Instance.Address {
			another, err := clusterstate.AnotherHas(ctx, v.Client, v.Settings.Services, at.Key(), v.pod().UID)
			if another || err != nil { // it may be that pod's, and is looked for again
				continue
			}
		}
		state, err := reg.Get(ctx, v.caller(), at.Instance)
		switch {
		case err != nil:
			return false, v.failed(ctx, at, reg, err)
		case state == registry.Absent:
			continue
		}
		if state == registry.InService && c.Want != lifecycle.InService {
			v.Tracked.Contradicted(at.Key(), state) // where it was looked for before, that there was none stood for being out
		}
		if v.Tracked.Saw(at.Key(), asked); address != c.Instance.Address {
			if v.Tracked.Standing(c.Key()).SeenAt().IsZero() {
				v.Tracked.PassedOn(c.Key(), asked) // there was nothing that the calls could have changed
			}
			v.relocated.Store(true)
		}
		return true, waiting.Blocker{}
	}
	return false, waiting.Blocker{}
}

// clear has a registry forget what it remembers of the application of a pod that is gone, once its entry has gone too: the
// next pod at that address is to start in rotation. Until then the entry stays out of it. One that is found in service after it
// was taken out is another application's.
func (v *visit) clear(ctx context.Context, c plan.Row) waiting.Blocker {
	reg, asked, state := v.Settings.Client(c.Key().Source()), v.Clock.Now(), registry.Absent
	if reg.Gets() {
		var err error
		if state, err = reg.Get(ctx, v.caller(), c.Instance); err != nil {
			return v.failed(ctx, c, reg, err)
		}
	}
	since := v.Tracked.Standing(c.Key()).OutAfterGone()
	again := !since.IsZero()
	over := again && isOver(state, asked.Sub(since))
	if !over && (!again || state == registry.Absent || v.unacknowledged(c)) {
		missing := v.call(ctx, c)
		if isOut(state, missing) {
			v.Tracked.OutAfterGone(c.Key(), asked)
		}
		if missing.Reason != "" {
			return missing
		}
	}
	if over || state == registry.Absent {
		v.State.Claims.Removed(v.pod().UID, c.Key(), asked)
		return waiting.Blocker{}
	}
	return waiting.Blocker{Reason: reason.AppEntryRemains, After: v.backOff(),
		Message: c.String() + ": the pod is gone, and its application's entry is not yet; it is out of rotation"}
}

// isOver reports whether nothing is left to do where an entry was taken out so long ago.
func isOver(state registry.State, ago time.Duration) bool {
	return state == registry.InService || state == registry.OutOfService && ago >= AppOutlives
}

// isOut reports whether an entry is out of rotation after a call, also where no agent answers, since its node is gone with the pod.
func isOut(state registry.State, missing waiting.Blocker) bool {
	return missing.Reason == "" || state == registry.OutOfService && missing.Reason == reason.AgentUnavailable
}

// awaitsApp says that the application has no entry that could be put in rotation. Soon after the pod became ready that is part
// of its start.
func (v *visit) awaitsApp(c plan.Row, b waiting.Blocker, err error) waiting.Blocker {
	b.Reason, b.After = reason.AppNotRegistered, min(v.backOff(), AppRecheck)
	if names := v.otherNames(c, registry.OtherNamesOf(err)); len(names) > 0 {
		b.Reason = reason.AppOtherName
		b.Message += fmt.Sprintf("; the registry has %s under %q: name that in the annotation %s or in service.name, or have the "+
			"application register as %q", c.Instance.Endpoint(), names, service.AnnotationServices, c.Instance.Service)
	}
	if c.Want == lifecycle.InService && v.decision.Waiting == "" && v.entries().Unseen(c.Key()) {
		b.Message += "; until it is found, OpenKruise will wait before it deletes the pod or updates it in place"
	}
	if starting := AppStarts - v.Clock.Since(lifecycle.ReadySince(v.pod())); starting > 0 {
		b.Reason, b.After = reason.AppStarting, min(b.After, starting)
	}
	return b
}

// otherNames are the names, by the driver and by the last list, under which the registry has an instance's address and port, but for
// those that the pod has besides.
func (v *visit) otherNames(c plan.Row, said []string) []string {
	names := slices.Compact(slices.Sorted(slices.Values(slices.Concat(said, v.Tracked.ForeignNames(c.Key())))))
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(v.targets, func(t tracker.Target) bool { return t.Instance.Service == name })
	})
}

// saySeveral says, once for the pod, that there are several entries where one is expected.
func (v *visit) saySeveral(c plan.Row, which string) {
	if c.ByApp() && v.Memory.NoteSeveral() {
		v.event(reason.AppSeveralEntries, fmt.Sprintf("%s: there are several, which are taken out and put back together: %s; "+
			"remove what the application did not write, or give its instances an ID that stays the same", c, which))
	}
}

func (v *visit) lookForSeveral(c plan.Row) {
	names, own := v.Tracked.ForeignNames(c.Key()), c.Instance.Service
	if one := slices.Index(names, own); one >= 0 && slices.Contains(names[one+1:], own) {
		v.saySeveral(c, "its list has more than one")
	}
	if !c.ByApp() || !v.belongs(c) { // what the pod leaves may be at another address by now
		return
	}
	elsewhere := c.Key().By(lifecycle.Rollcall)
	for _, elsewhere.Address = range lifecycle.AddressesOf(v.pod(), c.Instance.Port) {
		if elsewhere.Address != c.Instance.Address && v.Tracked.Foreign(elsewhere) && v.Memory.NoteSeveral() {
			v.event(reason.AppSeveralEntries, fmt.Sprintf("%s: the application has an entry at %s too, which Rollcall does not take out: "+
				"clients are given the pod by it while the pod is updated or deleted; have the application register at one address",
				c, elsewhere.Address))
		}
	}
}

// sayReturned says, once for as long as the pod is out, that its application put itself back. One that Kruise has restarted
// registers anew, and that is no more than its start.
func (v *visit) sayReturned(c plan.Row, returned bool) {
	if at := lifecycle.State(v.pod()); at == appspub.LifecycleStateUpdating || at == appspub.LifecycleStateUpdated {
		return
	}
	switch {
	case c.Want == lifecycle.InService:
		v.Memory.NoteJoined()
	case returned && v.Memory.NoteReturned():
		v.event(reason.AppCameBack, c.String()+" came back into rotation while the pod has to be out of it, and was taken out "+
			"again: something other than Rollcall puts it back")
	}
}
