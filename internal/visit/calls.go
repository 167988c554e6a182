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
func (e *entry) call(ctx context.Context) waiting.Blocker {
	if e.client == nil {
		return waiting.UnknownRegistry(e.Row)
	}
	now, tracked := e.Clock.Now(), e.facts.Tracked
	lands := now.Add(e.client.MayLandFor())
	if refused := e.claim(lands); refused.Reason != "" {
		return refused
	}
	by := e.caller()
	by.Yields = e.Want == lifecycle.InService && tracked.Standing(e.in).Stands(e.Want)
	by.Begin = func() { tracked.Begin(e.in, e.Want, e.Instance, now) }
	by.End = func(err error) {
		if registryclient.MayLand(err) {
			tracked.Failed(e.in, lands)
		}
	}
	before := tracked.Standing(e.in)
	err := e.client.Change(ctx, by, e.Asked())
	switch outcome := registryclient.Classify(err); {
	case outcome == registryclient.Acknowledged, outcome == registryclient.Foreign && e.LeftToApp:
		e.changed(before.Stands(e.Want), e.Clock.Since(now))
		e.acknowledged()
		e.sayReturned(before.Returned)
		if err != nil {
			e.saySeveral(err.Error())
		}
		return waiting.Blocker{}
	case registryclient.MayLand(err): // which is noted by then
	case outcome == registryclient.NotRegistered: // there is nothing that could have been changed
		e.State.Claims.Missed(e.pod().UID, e.in, now)
	case outcome.Asked():
		tracked.Failed(e.in, time.Time{})
	}
	return e.failed(ctx, err)
}

// claim reserves the service name for the namespace until a Register has landed, or returns whose it is.
func (e *entry) claim(lands time.Time) waiting.Blocker {
	if e.Want != lifecycle.InService {
		return waiting.Blocker{}
	}
	use, keeps := e.facts.Use(e.in, e.Clock.Now()), e.facts.Keeps[e.Instance.Service]
	return observe.NameRefused(e.State.Claims.Take(use, keeps, e.in, lands))
}

func (e *entry) acknowledged() {
	e.facts.Tracked.Acknowledged(e.in, e.Clock.Now())
	if e.Want != lifecycle.Absent && e.plan().WasInService(e.in) { // to be out gives no right to a name
		e.State.Claims.Acknowledged(lifecycle.PodIDOf(e.pod()), e.in)
	}
}

// caller lets a call that has to queue give its worker back: the pod is woken once there is a slot.
func (e *entry) caller() registryclient.Caller {
	id, urgent := lifecycle.PodIDOf(e.pod()), lifecycle.RolloutWaits(e.pod())
	return registryclient.Caller{ID: string(id.UID), Urgent: urgent, Wake: func() { e.Wake(id, urgent) }}
}

// ask reads back what the registry shows of the entry.
func (e *entry) ask(ctx context.Context, goal *tracker.Goal) waiting.Blocker {
	asked, tracked := e.Clock.Now(), e.facts.Tracked
	state, err := e.client.Get(ctx, e.caller(), e.Instance)
	if err != nil {
		return e.failed(ctx, err)
	}
	switch {
	case e.Confirms(state):
		tracked.Confirmed(e.in, asked)
		goal.Asked = true
	case state == registry.Foreign:
		return e.alsoRegistersItself("the registry was asked for it")
	default:
		tracked.Contradicted(e.in, state)
		goal.Contradicted, goal.Said = goal.Contradicted+1, state
	}
	if state != registry.Absent {
		tracked.Saw(e.in, asked)
	}
	return waiting.Blocker{}
}

// probe returns why clients are not given the pods of these rows yet, although they are registered.
func (m *moment) probe(ctx context.Context, rows []plan.Row) waiting.Blocker {
	for _, row := range rows {
		e := m.of(row)
		if !e.client.Probes() {
			continue
		}
		if err := e.client.Probe(ctx, e.caller(), e.Instance); err != nil {
			return e.notServing(ctx, err)
		}
	}
	return waiting.Blocker{}
}

// alsoRegistersItself holds the hook while clients are given the pod by an entry that this configuration does not manage. What a list shows
// of it is more than what a call does.
func (e *entry) alsoRegistersItself(said string) waiting.Blocker {
	e.facts.Tracked.Given(e.in)
	return waiting.AlsoRegistersItself(e.Row, e.Instance.Endpoint(), said, e.facts.GivenBy(e.Row))
}

// failed classifies a failure. An unknown one is tried again.
func (e *entry) failed(ctx context.Context, err error) waiting.Blocker {
	b := waiting.Failed(e.Row, err)
	if stops(ctx, err) {
		return waiting.Stopping()
	}
	after, told := registry.RetryAfterOf(err)
	switch registryclient.Classify(err) {
	case registryclient.DryRun:
		b.Reason = reason.DryRun // an event brings the next step
	case registryclient.Fenced:
		b.Reason, b.After, b.Unasked, b.Calm = reason.ManagerNotReady, e.backOff(), true, true
	case registryclient.Queued:
		b.Reason, b.After, b.Unasked = reason.Queued, WokenRecheck, true
	case registryclient.Outage:
		b.After = WokenRecheck
	case registryclient.Foreign:
		return e.alsoRegistersItself(err.Error())
	case registryclient.NotRegistered:
		return e.awaitsApp(waiting.AppMissing(e.Row, err), err)
	case registryclient.NotYet:
		b = e.awaitsFollower(b)
	case registryclient.Refused:
		b.Reason, b.After = reason.RegistryRefused, waiting.Longest
	default:
		b.After = max(after, e.backOff())
	}
	b = b.OfAgent(err)
	if told {
		e.facts.Tracked.Postpone(e.in, tracker.Postponement{
			Want: e.Want, Through: e.client, Until: e.Clock.Now().Add(after),
			Reason: b.Reason, Case: string(b.Case), Message: b.Message, Late: b.Late,
		})
	}
	return b
}

// awaitsFollower returns why a registry that follows the pod's condition has not done so.
func (e *entry) awaitsFollower(b waiting.Blocker) waiting.Blocker {
	b.Reason, b.After, b.Late = reason.NotEffective, e.backOff(), true
	if why := e.NoCondition(); why != "" && e.client.Follows() {
		return b.NoCondition(why)
	}
	return b
}

// stops reports whether the manager's end cut the call off. A driver's own cancellation is an ordinary failure.
func stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// notServing returns why clients are not given a registered pod.
func (e *entry) notServing(ctx context.Context, err error) waiting.Blocker {
	if !registryclient.Classify(err).Asked() || stops(ctx, err) {
		return e.failed(ctx, err)
	}
	after, _ := registry.RetryAfterOf(err)
	b := waiting.NotServing(e.Row, err, max(after, e.backOff()))
	if registry.CodeOf(err) == registry.CodeTerminal {
		b.After = waiting.Longest
	}
	return b
}
