package visit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// An application's entry and Rollcall's at the same endpoint count as two, so a pod that changes hands moves from one to the other.
const (
	// AppStarts is how long after its pod is ready an application may register without a Warning.
	AppStarts = 30 * time.Second
	// AppRecheck is how often, at the least, a missing entry is looked for.
	AppRecheck = 5 * time.Second
	// AppOutlives is how long a gone pod's entry is kept out: longer than any registry keeps one that is not renewed.
	AppOutlives = 3 * time.Minute
)

// mustFind reports whether the pod waits until its application's entry is found. kubelet waits for nothing, and a pod that never was
// ready, or of which nothing runs, has no clients.
func (v *visit) mustFind(c plan.Row) bool {
	if c.Want == lifecycle.InService {
		return true
	}
	hasClients := lifecycle.WasReady(v.pod()) && lifecycle.Runs(v.pod(), c.Instance.Port)
	return v.decision.Row.Drains() && hasClients && v.entries().Unseen(c.Key())
}

// lookElsewhere looks for a missing entry at the pod's other addresses, for example its IPv6 address, and steers it there from then on.
func (v *visit) lookElsewhere(ctx context.Context, c plan.Row, missing waiting.Blocker) waiting.Blocker {
	rehearsed, addresses := missing.Reason == reason.DryRun, v.entries().AddressesOf(c.Key())
	if rehearsed && !v.entries().Unseen(c.Key()) {
		return missing
	}
	if rehearsed || len(addresses) > 1 {
		found, failed := v.find(ctx, c, addresses)
		if found || failed.Reason != "" {
			return cmp.Or(failed, missing)
		}
		missing = missing.LookedForAt(addresses)
	}
	switch {
	case !v.mustFind(c):
		return waiting.Blocker{}
	case rehearsed:
		return v.awaitsApp(c, waiting.AppMissing(c, nil), nil)
	}
	return missing
}

// find remembers the first of the addresses at which there is an entry.
func (v *visit) find(ctx context.Context, c plan.Row, addresses []string) (found bool, failed waiting.Blocker) {
	reg := v.Settings.Client(c.Key().Source())
	for _, address := range addresses {
		at, asked := c, v.Clock.Now()
		at.Instance.Address = address
		if address != c.Instance.Address {
			another, err := v.State.AnotherHas(ctx, v.Settings.Services, at.Key(), v.pod().UID)
			if err != nil { // it may be that pod's
				failed = waiting.UnreadOther(at, err, v.backOff())
			}
			if another || err != nil {
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
	return false, failed
}

// clear keeps a gone pod's entry out until it has gone too, and then removes what the registry remembers of it (Nacos, for a minute): the
// next pod at the address must not start out of rotation. One that is back in service is another application's.
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
	return waiting.AppEntryRemains(c, v.backOff())
}

func isOver(state registry.State, ago time.Duration) bool {
	return state == registry.InService || state == registry.OutOfService && ago >= AppOutlives
}

// isOut also counts an entry that was out before its agent went away together with the node.
func isOut(state registry.State, missing waiting.Blocker) bool {
	return missing.Reason == "" || state == registry.OutOfService && missing.Reason == reason.AgentUnavailable
}

// awaitsApp says that the application has no entry. Soon after the pod is ready, that is part of its start.
func (v *visit) awaitsApp(c plan.Row, b waiting.Blocker, err error) waiting.Blocker {
	b.After = min(v.backOff(), AppRecheck)
	if names := v.otherNames(c, registry.OtherNamesOf(err)); len(names) > 0 {
		b = b.Under(c.Instance.Endpoint(), names, service.AnnotationServices, string(v.Settings.Services.NameIn(c.Registry, c.Key().Service)))
	}
	if c.Want == lifecycle.InService && v.decision.Waiting == "" && v.entries().Unseen(c.Key()) {
		b = b.WillHold()
	}
	// By kubelet's clock, which may be a little ahead.
	if starting := AppStarts - v.Clock.Since(lifecycle.ReadySince(v.pod())); starting > 0 && starting <= 2*AppStarts {
		b.Reason, b.After = reason.AppStarting, min(b.After, starting)
	}
	return b
}

// otherNames are names, not the pod's, under which the registry has its address and port, without their places.
func (v *visit) otherNames(c plan.Row, said []string) (others []string) {
	found := v.Tracked.ForeignNames(c.Key())
	for _, one := range said {
		found = append(slices.Clip(found), lifecycle.Service(one))
	}
	for _, one := range found {
		if !slices.ContainsFunc(v.targets, func(t tracker.Target) bool { return t.Key().Service == one }) {
			others = append(others, string(v.Settings.Services.NameIn(c.Registry, one)))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(others)))
}

// saySeveral records once for a pod that it has more than one entry.
func (v *visit) saySeveral(c plan.Row, which string) {
	if c.ByApp() && v.Memory.NoteSeveral() {
		v.event(reason.AppSeveralEntries, fmt.Sprintf("%s: there are several, which are taken out and put back together: %s; "+
			"remove what the application did not write, or give its instances an ID that stays the same", c, which))
	}
}

func (v *visit) lookForSeveral(c plan.Row) {
	names, own := v.Tracked.ForeignNames(c.Key()), c.Key().Service
	if one := slices.Index(names, own); one >= 0 && slices.Contains(names[one+1:], own) {
		v.saySeveral(c, "its list has more than one")
	}
	if !c.ByApp() || !v.belongs(c) { // what the pod leaves may be at another address by now
		return
	}
	for _, one := range v.Tracked.Foreign(c.Key().By(lifecycle.Rollcall)) {
		at := registry.Instance{Address: one.Endpoint.Address, Port: one.Endpoint.Port}.Endpoint()
		if at != c.Instance.Endpoint() && v.Memory.NoteSeveral() {
			v.event(reason.AppSeveralEntries, fmt.Sprintf("%s: the application has an entry at %s too, which Rollcall does not take out: "+
				"clients are given the pod by it while the pod is updated or deleted; have the application register at one address",
				c, at))
		}
	}
}

// sayReturned records that the application put itself back, once while the pod is out. A container that OpenKruise has restarted
// registers again, which is expected.
func (v *visit) sayReturned(c plan.Row, returned bool) {
	if at := lifecycle.State(v.pod()); at == appspub.LifecycleStateUpdating || at == appspub.LifecycleStateUpdated {
		return
	}
	switch {
	case c.Want == lifecycle.InService:
		v.Memory.NoteJoined()
	case returned && v.Memory.NoteReturned():
		v.event(reason.AppCameBack, c.String()+" came back into rotation while the pod must be out of it, and was taken out "+
			"again: something other than Rollcall puts it back")
	}
}
