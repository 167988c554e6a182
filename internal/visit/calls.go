package visit

import (
	"context"
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// call makes one call. Whatever it returns but success, the change may have been made or may still be.
func (v *visit) call(ctx context.Context, c plan.Row) waiting.Blocker {
	in, now := c.Key(), v.Clock.Now()
	reg := v.Settings.Client(c.Key().Source())
	if reg == nil {
		return waiting.UnknownRegistry(c)
	}
	lands := now.Add(reg.MayLandFor())
	if refused := v.claim(c, lands); refused.Reason != "" {
		return refused
	}
	by := v.caller()
	by.Yields = c.Want == lifecycle.InService && v.Tracked.Standing(in).Stands(c.Want)
	by.Begin = func() { v.Tracked.Begin(in, c.Want, c.Instance, now) }
	by.End = func(err error) {
		if registryclient.MayLand(err) {
			v.Tracked.Failed(in, lands)
		}
	}
	returned := v.Tracked.Standing(in).Returned()
	err := reg.Change(ctx, by, c.Asked())
	switch outcome := registryclient.Classify(err); {
	case outcome == registryclient.Acknowledged, outcome == registryclient.Foreign && c.LeftToApp:
		if v.acknowledged(c); outcome == registryclient.Foreign {
			v.told(c.Target, registry.Absent, now)
		}
		v.sayReturned(c, returned)
		if err != nil {
			v.saySeveral(c, err.Error())
		}
		return waiting.Blocker{}
	case registryclient.MayLand(err): // which is noted by then
	case outcome == registryclient.NotRegistered: // there is nothing that could have been changed
		v.State.Claims.Missed(v.pod().UID, in, now)
	case outcome.Asked():
		v.Tracked.Failed(in, time.Time{})
	}
	return v.failed(ctx, c, reg, err)
}

// claim reserves the service name for the namespace until a Register has landed, or says whose it is.
func (v *visit) claim(c plan.Row, lands time.Time) waiting.Blocker {
	if c.Want != lifecycle.InService {
		return waiting.Blocker{}
	}
	return observe.NameRefused(v.State.Claims.Take(v.Use(c.Key(), v.Clock.Now()), v.Keeps[c.Instance.Service], c.Key(), lands))
}

func (v *visit) acknowledged(c plan.Row) {
	v.Tracked.Acknowledged(c.Key(), v.Clock.Now())
	if c.Want != lifecycle.Absent && v.entries().WasInService(c.Key()) { // to be out gives no right to a name
		v.State.Claims.Acknowledged(lifecycle.PodIDOf(v.pod()), c.Key())
	}
}

// caller lets a call that has to queue give its worker back: the pod is woken once there is a slot.
func (v *visit) caller() registryclient.Caller {
	id, urgent := lifecycle.PodIDOf(v.pod()), lifecycle.RolloutWaits(v.pod())
	return registryclient.Caller{ID: string(id.UID), Urgent: urgent, Wake: func() { v.Wake(id, urgent) }}
}

// ask reads back what the registry says of the entry.
func (v *visit) ask(ctx context.Context, c plan.Row, goal *tracker.Goal) waiting.Blocker {
	reg, asked := v.Settings.Client(c.Key().Source()), v.Clock.Now()
	state, err := reg.Get(ctx, v.caller(), c.Instance)
	if err != nil {
		return v.failed(ctx, c, reg, err)
	}
	v.told(c.Target, state, asked)
	switch {
	case c.Confirms(state):
		v.Tracked.Confirmed(c.Key(), asked)
		goal.Asked = true
	case state == registry.Foreign:
		return v.alsoRegistersItself(c, "the registry was asked for it")
	default:
		v.Tracked.Contradicted(c.Key(), state)
		goal.Contradicted, goal.Said = goal.Contradicted+1, state
	}
	if state != registry.Absent {
		v.Tracked.Saw(c.Key(), asked)
	}
	return waiting.Blocker{}
}

// probeAll says why clients are not given a registered pod yet.
func (v *visit) probeAll(ctx context.Context, changes []plan.Row) waiting.Blocker {
	for _, c := range changes {
		reg := v.Settings.Client(c.Key().Source())
		if !reg.Probes() {
			continue
		}
		if err := reg.Probe(ctx, v.caller(), c.Instance); err != nil {
			return v.notServing(ctx, c, reg, err)
		}
	}
	return waiting.Blocker{}
}

// alsoRegistersItself holds the hook while clients are given the pod by an entry that this configuration does not manage. What a list shows
// of it is more than what a call does.
func (v *visit) alsoRegistersItself(c plan.Row, said string) waiting.Blocker {
	v.Tracked.Given(c.Key())
	var others []waiting.Other
	for _, one := range v.GivenBy(c) {
		others = append(others, waiting.Other{Address: one.Endpoint.Address, Port: one.Endpoint.Port, Tagged: one.Tagged})
	}
	return waiting.AlsoRegistersItself(c, c.Instance.Endpoint(), said, others)
}

// failed classifies a failure. An unknown one is tried again.
func (v *visit) failed(ctx context.Context, c plan.Row, reg *registryclient.Client, err error) waiting.Blocker {
	b := waiting.Failed(c, err)
	if stops(ctx, err) {
		return waiting.Stopping()
	}
	after, told := registry.RetryAfterOf(err)
	switch registryclient.Classify(err) {
	case registryclient.DryRun:
		b.Reason = reason.DryRun // an event brings the next step
	case registryclient.Fenced:
		b.Reason, b.After, b.Unasked = reason.NotPermitted, v.backOff(), true
	case registryclient.Queued:
		b.Reason, b.After, b.Unasked = reason.Queued, WokenRecheck, true
	case registryclient.Outage:
		b.After = WokenRecheck
	case registryclient.Foreign:
		return v.alsoRegistersItself(c, err.Error())
	case registryclient.NotRegistered:
		return v.awaitsApp(c, waiting.AppMissing(c, err), err)
	case registryclient.NotYet:
		b = v.awaitsFollower(b, reg)
	case registryclient.Refused:
		b.Reason, b.After = reason.RegistryRefused, waiting.Longest
	case registryclient.TimedOut:
		b.Reason, b.After = reason.RegistryTimeout, max(after, v.backOff())
	default:
		b.After = max(after, v.backOff())
	}
	b = b.OfAgent(err)
	if told {
		v.Tracked.Postpone(c.Key(), tracker.Postponement{
			Want: c.Want, Through: reg, Until: v.Clock.Now().Add(after), Reason: b.Reason, Message: b.Message,
		})
	}
	return b
}

// awaitsFollower says why a registry that follows the pod's condition has not done so.
func (v *visit) awaitsFollower(b waiting.Blocker, reg *registryclient.Client) waiting.Blocker {
	b.Reason, b.After = reason.Following, v.backOff()
	if !reg.Follows() || v.NoCondition == nil {
		return b
	}
	if why := v.NoCondition(); why != "" {
		return b.NoCondition(why)
	}
	return b
}

// stops reports whether the manager's end cut the call off. A driver's own cancellation is an ordinary failure.
func stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// notServing says why clients are not given a registered pod.
func (v *visit) notServing(
	ctx context.Context, c plan.Row, reg *registryclient.Client, err error,
) waiting.Blocker {
	if !registryclient.Classify(err).Asked() || stops(ctx, err) {
		return v.failed(ctx, c, reg, err)
	}
	after, _ := registry.RetryAfterOf(err)
	b := waiting.NotServing(c, err, max(after, v.backOff()))
	if registry.IsTerminal(err) {
		b.After = waiting.Longest
	}
	return b
}
