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

// appEntry is an application's entry: it can be at each of the pod's addresses, and comes and goes without Rollcall.
type appEntry struct{ *entry }

// bring brings it to rest, wherever it is.
func (e appEntry) bring(ctx context.Context) waiting.Blocker {
	if e.Proof == plan.Remains {
		return e.clear(ctx)
	}
	missing := e.agree(ctx)
	if (missing.Reason.OfApp() || missing.Reason == reason.DryRun) && e.belongs() {
		return e.lookElsewhere(ctx, missing)
	}
	return missing
}

// lookElsewhere looks for a missing entry at the pod's other addresses, for example its IPv6 address, and steers it there from then on.
func (e appEntry) lookElsewhere(ctx context.Context, missing waiting.Blocker) waiting.Blocker {
	rehearsed, addresses := missing.Reason == reason.DryRun, e.plan().AddressesOf(e.in)
	if rehearsed && !e.plan().Unseen(e.in) {
		return missing
	}
	if rehearsed || len(addresses) > 1 {
		found, failed := e.find(ctx, addresses)
		if found || failed.Reason != "" {
			return cmp.Or(failed, missing)
		}
		missing = missing.LookedForAt(addresses)
	}
	switch {
	case !e.mustFind():
		return waiting.Blocker{}
	case rehearsed:
		return e.awaitsApp(waiting.AppMissing(e.Row, nil), nil)
	}
	return missing
}

// mustFind reports whether the pod waits until its application's entry is found. kubelet waits for nothing, and a pod that never was
// ready, or of which nothing runs, has no clients.
func (e appEntry) mustFind() bool {
	if e.Want == lifecycle.InService {
		return true
	}
	hasClients := lifecycle.WasReady(e.pod()) && lifecycle.Runs(e.pod(), e.Instance.Port)
	return e.decision.Row.Drains() && hasClients && e.plan().Unseen(e.in)
}

// at is the row at another of the pod's addresses.
func (e appEntry) at(address string) *entry {
	at := *e.entry
	at.Instance.Address, at.in.Address = address, address
	return &at
}

// unacknowledged reports whether the row needs a change.
func (e appEntry) unacknowledged() bool {
	return !e.facts.Tracked.Standing(e.in).Says(e.Want, e.Instance)
}

// find remembers the first of the addresses at which there is an entry.
func (e appEntry) find(ctx context.Context, addresses []string) (found bool, failed waiting.Blocker) {
	for _, address := range addresses {
		at, asked := e.at(address), e.Clock.Now()
		if address != e.Instance.Address {
			another, err := e.State.AnotherHas(ctx, e.facts.Use(at.in, asked), at.in)
			if err != nil { // it may be that pod's
				failed = waiting.UnreadOther(at.Row, err, e.backOff())
			}
			if another || err != nil {
				continue
			}
		}
		state, err := e.client.Get(ctx, e.caller(), at.Instance)
		switch {
		case err != nil:
			return false, at.failed(ctx, err)
		case state == registry.Absent:
			continue
		}
		if state == registry.InService && e.Want != lifecycle.InService {
			e.facts.Tracked.Contradicted(at.in, state) // where it was looked for before, that there was none stood for being out
		}
		e.facts.Tracked.Saw(at.in, asked)
		if address != e.Instance.Address {
			if e.facts.Tracked.Standing(e.in).SeenAt.IsZero() {
				e.facts.Tracked.PassedOn(e.in, asked) // there was nothing that the calls could have changed
			}
			e.relocated.Store(true)
		}
		return true, waiting.Blocker{}
	}
	return false, failed
}

// clear keeps a gone pod's entry out until it has gone too, and then removes what the registry remembers of it (Nacos, for a minute): the
// next pod at the address must not start out of rotation. One that is back in rotation is another application's.
func (e appEntry) clear(ctx context.Context) waiting.Blocker {
	asked, state := e.Clock.Now(), registry.Absent
	if e.client.Gets() {
		var err error
		state, err = e.client.Get(ctx, e.caller(), e.Instance)
		if err != nil {
			return e.failed(ctx, err)
		}
	}
	since := e.facts.Tracked.Standing(e.in).OutAfterGone
	again := !since.IsZero()
	over := again && isOver(state, asked.Sub(since))
	if !over && (!again || state == registry.Absent || e.unacknowledged()) {
		missing := e.call(ctx)
		if isOut(state, missing) {
			e.facts.Tracked.OutAfterGone(e.in, asked)
		}
		if missing.Reason != "" {
			return missing
		}
	}
	if over || state == registry.Absent {
		e.State.Claims.Removed(e.pod().UID, e.in, asked)
		return waiting.Blocker{}
	}
	return waiting.AppEntryRemains(e.Row, e.backOff())
}

func isOver(state registry.State, ago time.Duration) bool {
	return state == registry.InService || state == registry.OutOfService && ago >= AppOutlives
}

// isOut also counts an entry that was out before its agent went away together with the node.
func isOut(state registry.State, missing waiting.Blocker) bool {
	agentIsAway := missing.Case == waiting.OfAnAgent && missing.Reason == reason.RegistryUnavailable
	return missing.Reason == "" || state == registry.OutOfService && agentIsAway
}

// awaitsApp reports that the application has no entry. Soon after the pod is ready, that is part of its start.
func (e *entry) awaitsApp(b waiting.Blocker, err error) waiting.Blocker {
	b.After = min(e.backOff(), AppRecheck)
	if names := e.otherNames(registry.OtherNamesOf(err)); len(names) > 0 {
		b = b.Under(e.Instance.Endpoint(), names, service.AnnotationServices, string(e.facts.Settings.Services.NameIn(e.Registry, e.in.Service)))
	}
	if e.Want == lifecycle.InService && e.decision.Waiting == "" && e.plan().Unseen(e.in) {
		b = b.WillHold()
	}
	// By kubelet's clock, which may be a little ahead.
	if starting := AppStarts - e.Clock.Since(lifecycle.ReadySince(e.pod())); starting > 0 && starting <= 2*AppStarts {
		b.Calm, b.After = true, min(b.After, starting)
	}
	return b
}

// otherNames are names, not the pod's, under which the registry has its address and port, without their places.
func (e *entry) otherNames(said []string) (others []string) {
	found := e.facts.Tracked.ForeignNames(e.in)
	for _, one := range said {
		found = append(slices.Clip(found), lifecycle.Service(one))
	}
	for _, one := range found {
		if !slices.ContainsFunc(e.targets, func(t tracker.Target) bool { return t.Key().Service == one }) {
			others = append(others, string(e.facts.Settings.Services.NameIn(e.Registry, one)))
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(others)))
}

// belongs reports whether the row is one of the pod's targets.
func (e *entry) belongs() bool { return plan.Facts{Targets: e.targets}.IsTarget(e.in) }

// saySeveral records once for a pod that it has more than one entry.
func (e *entry) saySeveral(which string) {
	if e.ByApp() && e.facts.Memory.NoteSeveral() {
		e.event(reason.OtherWriter, fmt.Sprintf("%s: there are several, which are taken out and put back together: %s; "+
			"remove what the application did not write, or give its instances an ID that stays the same", e.Row, which))
	}
}

func (e *entry) lookForSeveral() {
	names, own := e.facts.Tracked.ForeignNames(e.in), e.in.Service
	if one := slices.Index(names, own); one >= 0 && slices.Contains(names[one+1:], own) {
		e.saySeveral("its list has more than one")
	}
	if !e.ByApp() || !e.belongs() { // what the pod leaves may be at another address meanwhile
		return
	}
	for _, one := range e.facts.Tracked.Foreign(e.in.By(lifecycle.Rollcall)) {
		at := registry.Instance{Address: one.Endpoint.Address, Port: one.Endpoint.Port}.Endpoint()
		if at != e.Instance.Endpoint() && e.facts.Memory.NoteSeveral() {
			e.event(reason.OtherWriter, fmt.Sprintf("%s: the application has an entry at %s too, which Rollcall does not take out: "+
				"clients are given the pod by it while the pod is updated or deleted; have the application register at one address",
				e.Row, at))
		}
	}
}

// sayReturned records that the application put itself back, once while the pod is out. A container that OpenKruise has restarted
// registers again, which is expected.
func (e *entry) sayReturned(returned bool) {
	if at := lifecycle.State(e.pod()); at == appspub.LifecycleStateUpdating || at == appspub.LifecycleStateUpdated {
		return
	}
	switch {
	case e.Want == lifecycle.InService:
		e.facts.Memory.NoteJoined()
	case returned && e.facts.Memory.NoteReturned():
		e.event(reason.OtherWriter, e.String()+" came back into rotation while the pod must be out of it, and was taken out "+
			"again: something other than Rollcall puts it back")
	}
}
