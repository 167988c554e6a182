package visit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// leaveFormer takes the pod out where its address was once, which may be another pod's soon.
func (v *visit) leaveFormer(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Former)
}

func (v *visit) leaveDeparting(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Departing)
}

func (v *visit) leavePresent(ctx context.Context) waiting.Blocker {
	return v.ensureAll(ctx, v.rows.Present)
}

// join registers the pod. A registry that was never asked is not to hold it later, so what has acknowledged is written down where
// another lasts to be missing. One that has the pod by the former record is named by this one too.
func (v *visit) join(ctx context.Context) waiting.Blocker {
	missing := v.ensureAll(ctx, v.rows.Present)
	unrecorded := func(c plan.Row) bool { return v.Certain(c) && v.input.Unrecorded(c.Key()) }
	if missing.Lasts(ctx.Err() != nil) && slices.ContainsFunc(v.rows.Present, unrecorded) {
		known := v.entries().Instances()
		v.record = v.newRecord(v.rows.Without(func(c plan.Row) bool { return !slices.Contains(known, c.Key()) }))
	}
	return missing
}

// probe asks whether clients are given the pod, where a hook hangs on it, or where the pod departs from what clients are given it by now.
func (v *visit) probe(ctx context.Context) waiting.Blocker {
	if len(v.decision.Then.Set) == 0 && !slices.ContainsFunc(v.rows.Departing, v.unacknowledged) {
		return waiting.Blocker{}
	}
	return v.probeAll(ctx, v.rows.Present)
}

// awaitReaders holds OpenKruise back until clients know the pod.
func (v *visit) awaitReaders(context.Context) waiting.Blocker {
	if v.decision.Waiting == "" {
		return waiting.Blocker{}
	}
	return v.readersLag(v.rows.Present)
}

// depart takes a pod that is in service everywhere that it belongs out of where it departs from, once clients are given it there.
func (v *visit) depart(ctx context.Context) waiting.Blocker {
	if slices.ContainsFunc(v.rows.Departing, v.unacknowledged) {
		present := v.entries().Present(lifecycle.InService)
		missing := v.readersLag(present)
		if missing.Reason == "" && v.decision.Want == lifecycle.Keep { // one that joins was asked for already
			missing = v.probeAll(ctx, present)
		}
		if missing.Reason != "" {
			return missing
		}
	}
	return v.leaveDeparting(ctx)
}

// readersLag waits until clients know the pod that was put in service, so that OpenKruise counts on no pod before.
func (v *visit) readersLag(changes []plan.Row) (latest waiting.Blocker) {
	for _, c := range changes {
		lag := v.Settings.ReaderLag[c.Registry]
		known := v.Tracked.Standing(c.Key()).AcknowledgedAt().Add(lag)
		if remaining := known.Sub(v.Clock.Now()); lag > 0 && remaining > latest.After {
			latest = waiting.Blocker{Reason: reason.ReadersLag, After: remaining, Message: fmt.Sprintf(
				"%s is registered; its clients may not know it before %s", c, known.Format(time.RFC3339))}
		}
	}
	return latest
}

// firstPause is how soon, at the least, something is looked at again that fails.
const firstPause = 100 * time.Millisecond

// WokenRecheck is for a pod that waits for a slot and is not woken, which would be an error of Rollcall's.
const WokenRecheck = time.Minute

// manyChanges are made at once, and those of several registries: one after the other takes long, above all where one does not answer.
const manyChanges = 8

// ensureAll makes all changes. What is missing in one registry keeps the pod out of no other.
func (v *visit) ensureAll(ctx context.Context, changes []plan.Row) waiting.Blocker {
	each := make([]waiting.Blocker, len(changes))
	var calls sync.WaitGroup
	alike := !slices.ContainsFunc(changes, func(c plan.Row) bool { return c.Key().Source() != changes[0].Key().Source() })
	for i, c := range changes {
		if alike && len(changes) < manyChanges {
			each[i] = v.ensure(ctx, c)
			continue
		}
		calls.Go(func() { each[i] = v.ensure(ctx, c) })
	}
	calls.Wait()
	return waiting.First(each...)
}

// ensure returns no blocker once the registry is known to say what is wanted of one instance.
func (v *visit) ensure(ctx context.Context, c plan.Row) waiting.Blocker {
	switch {
	case c.NeverThere && !(v.decision.Releases && v.Goal(c).Given): // whoever else gives it to clients
		return waiting.Blocker{}
	case c.PassedOn:
		if now := v.Clock.Now(); v.Tracked.PassedOn(c.Key(), now) {
			v.told(c.Target, registry.Absent, now)
		}
		return waiting.Blocker{}
	case c.ByApp() && v.Gone():
		return v.clear(ctx, c)
	}
	missing := v.agree(ctx, c)
	if (missing.Reason.OfApp() || missing.Reason == reason.DryRun) && c.ByApp() && v.belongs(c) {
		return v.lookElsewhere(ctx, c, missing)
	}
	return missing
}

// agree takes the steps of an instance until nothing is left to do, or it has to wait.
func (v *visit) agree(ctx context.Context, c plan.Row) waiting.Blocker {
	in, goal := c.Key(), v.Goal(c)
	v.Tracked.RecallRemoval(in, c.OutSince)
	for {
		if c.Want == lifecycle.Absent {
			v.Tracked.LetGo(in) // whether the registry can be asked or not
		}
		var missing waiting.Blocker
		switch step := v.Tracked.Standing(in).Next(goal, v.Clock.Now()); step.Act {
		case tracker.Change:
			missing = v.call(ctx, c)
		case tracker.Ask:
			missing = v.ask(ctx, c, &goal)
		case tracker.Wait:
			return v.waitsFor(c, goal, step)
		default:
			v.agreed(c)
			return waiting.Blocker{}
		}
		if missing.Reason != "" {
			return missing
		}
	}
}

// agreed is called once nothing is left to do about an instance.
func (v *visit) agreed(c plan.Row) {
	v.Tracked.GivenNoMore(c.Key(), v.Clock.Now())
	v.lookForSeveral(c)
	if c.Want == lifecycle.Absent {
		v.State.Claims.Removed(v.pod().UID, c.Key(), v.Clock.Now())
	}
}

// waitsFor says what an instance waits for.
func (v *visit) waitsFor(c plan.Row, goal tracker.Goal, step tracker.Step) waiting.Blocker {
	switch step.Cause {
	case tracker.Postponed:
		return waiting.Blocker{Reason: step.Said.Reason, Message: step.Said.Message, After: step.After}
	case tracker.Settling:
		return waiting.Blocker{Reason: reason.Settling, After: max(step.After, firstPause),
			Message: c.String() + ": an earlier call failed, and may still be carried out"}
	case tracker.GivenByAnother:
		return v.alsoRegistersItself(c, "its list has an entry of another writer")
	case tracker.Unseen:
		v.Tracked.GivenNoMore(c.Key(), v.Clock.Now())
		return v.awaitsApp(c, waiting.Blocker{Message: c.String() + ": the registry has no such entry and never showed one, so " +
			"clients may be given the pod by an entry at another address"}, nil)
	default:
		return waiting.Blocker{Reason: reason.NotConfirmed, After: v.backOff(), Message: fmt.Sprintf(
			"%s: the registry has acknowledged that it is %s, and says %s", c, c.Want, goal.Said)}
	}
}

// call makes one call. Nothing is known of its outcome until it has returned without an error.
func (v *visit) call(ctx context.Context, c plan.Row) waiting.Blocker {
	in, now := c.Key(), v.Clock.Now()
	reg := v.Settings.Client(c.Key().Source())
	if reg == nil {
		return waiting.Blocker{Reason: reason.UnknownRegistry, Message: fmt.Sprintf(
			"%s: the configuration no longer has this registry: put it back until its pods have left it", c)}
	}
	lands := now.Add(reg.MayLandFor())
	if refused := v.claim(c, lands); refused.Reason != "" {
		return refused
	}
	by := v.caller()
	by.Begin = func() { v.Tracked.Begin(in, c.Want, c.Instance, now) }
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
	case registryclient.MayLand(err):
		v.Tracked.Failed(in, lands)
	case outcome == registryclient.NotRegistered: // there is nothing that could have been changed
		v.State.Claims.Missed(v.pod().UID, in, now)
	case outcome.Asked():
		v.Tracked.Failed(in, time.Time{})
	}
	return v.failed(ctx, c, reg, err)
}

// claim takes the name for the pod's namespace before a Register, which may be carried out until lands, or says why the pod
// may not use the name.
func (v *visit) claim(c plan.Row, lands time.Time) waiting.Blocker {
	if c.Want != lifecycle.InService {
		return waiting.Blocker{}
	}
	return observe.NameRefused(v.State.Claims.Take(v.Use(c.Instance.Service, v.Clock.Now()), v.Keeps[c.Instance.Service], c.Key(), lands))
}

func (v *visit) acknowledged(c plan.Row) {
	v.Tracked.Acknowledged(c.Key(), v.Clock.Now())
	if c.Want != lifecycle.Absent && v.entries().WasInService(c.Key()) { // to be out gives no right to a name
		v.State.Claims.Acknowledged(lifecycle.PodIDOf(v.pod()), c.Key())
	}
}

// caller is the pod, for whom a call is made: it is woken where that has to wait, and holds no worker until then.
func (v *visit) caller() registryclient.Caller {
	id, urgent := lifecycle.PodIDOf(v.pod()), lifecycle.RolloutWaits(v.pod())
	return registryclient.Caller{ID: string(id.UID), Urgent: urgent, Wake: func() { v.Wake(id, urgent) }}
}

// ask asks the registry whether it says what it has acknowledged. An answer from before nothing could be carried out any more would prove
// nothing; see [tracker.Instance.Next].
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

// probeAll returns why clients are not given the pod yet although it was registered everywhere.
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

// drain holds OpenKruise back until the clients had time to notice, once everything is acknowledged.
func (v *visit) drain(context.Context) waiting.Blocker {
	if !v.Tracked.Known().Any() && !v.input.Record.Exists() {
		return waiting.Blocker{} // no registry ever knew the pod, and so there is nothing to write down
	}
	v.record = v.newRecord(v.rows)
	removedAt, counted := v.removedAt()
	drains := v.decision.Row.Drains()
	known := v.record.OutSince != nil && !removedAt.After(*v.record.OutSince) // else it may have been in service since
	if v.Drain == 0 || removedAt.IsZero() || !drains && known {
		return waiting.Blocker{}
	}
	if v.record.OutSince = &removedAt; !drains {
		return waiting.Blocker{} // for the hook that may wait next, and the manager that leads then
	}
	remaining := counted.Add(v.Drain).Sub(v.Clock.Now())
	if remaining <= 0 {
		return waiting.Blocker{}
	}
	return waiting.Blocker{Reason: reason.Draining, After: remaining,
		Message: fmt.Sprintf("out of rotation since %s, drains for %s", removedAt.Format(time.RFC3339), v.Drain)}
}

// remember writes down since when one registry has the pod out while another holds it: the next leader may reach neither, and has to
// know of the drain that has begun.
func (v *visit) remember(ctx context.Context) waiting.Blocker {
	record := v.input.Record
	removedAt, _ := v.removedAt()
	known := !record.Exists() || record.OutSince != nil && !removedAt.After(*record.OutSince)
	if v.Drain > 0 && !removedAt.IsZero() && !known && waiting.First(v.held...).Lasts(ctx.Err() != nil) {
		record.OutSince = &removedAt
		v.record = &record
	}
	return waiting.Blocker{}
}

// removedAt is when the last instance that may have been in service was taken out, and from when its drain counts; zero where
// none was. No pod drains for less than its drain because another manager's clock reads otherwise.
func (v *visit) removedAt() (latest, counted time.Time) {
	ahead := v.Ahead()
	for _, c := range v.rows.All() {
		recorded, from := v.Tracked.Standing(c.Key()).RemovedAt(ahead)
		if recorded.After(latest) {
			latest = recorded
		}
		if from.After(counted) {
			counted = from
		}
	}
	return latest.Truncate(time.Millisecond), counted // with its monotonic reading: a step of the clock changes no drain
}

// unlisted is why no hook is released of a pod that came before this process watched, and of which no record tells that it was in
// service: its description may be another than when the leader before this one put it there, and only a list tells where that was.
func (v *visit) unlisted(context.Context) waiting.Blocker {
	known := v.Tracked.Known()
	if v.input.Record.WasInService() || known.Born() || !v.decision.Releases {
		return waiting.Blocker{}
	}
	for _, s := range v.Sources {
		if name := s.Registry; v.Settings.Registries[name].Lists() && !known.Shown(name) {
			return waiting.Blocker{Reason: reason.RegistryUnavailable, After: v.backOff(), Message: fmt.Sprintf(
				"registry %q has yet to list what the manager before this one has registered: no record tells where the pod was in service", name)}
		}
	}
	return waiting.Blocker{}
}

// alsoRegistersItself is why a hook waits while clients are given the pod by an entry that no Rollcall has written: what the
// registry acknowledges says nothing of that one.
func (v *visit) alsoRegistersItself(c plan.Row, why string) waiting.Blocker {
	v.Tracked.Given(c.Key())
	return waiting.Blocker{Reason: reason.AlsoRegistersItself, After: waiting.Longest, Message: fmt.Sprintf(
		"%s: clients are given this address by an entry that Rollcall has not written (%s): turn off the application's own "+
			"registration, or let Rollcall steer that entry, as docs/self-registration.md says", c, why)}
}

// failed says why a call did not end well, and when to come back. What is not known to be final is worth another try.
func (v *visit) failed(ctx context.Context, c plan.Row, reg *registryclient.Client, err error) waiting.Blocker {
	b := waiting.Blocker{Reason: reason.RegistryUnavailable, Message: fmt.Sprintf("%s: %v", c, err)}
	if stops(ctx, err) {
		return waiting.Blocker{Reason: reason.Stopping, Unasked: true, Message: "the manager stops, the next one goes on"}
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
		return v.awaitsApp(c, b, err)
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

// stops reports whether a call was cut off since the manager stops. A driver may cancel what is its own, and that passes.
func stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// notServing says why clients are not given a pod that is registered.
func (v *visit) notServing(
	ctx context.Context, c plan.Row, reg *registryclient.Client, err error,
) waiting.Blocker {
	if !registryclient.Classify(err).Asked() || stops(ctx, err) {
		return v.failed(ctx, c, reg, err)
	}
	after, _ := registry.RetryAfterOf(err)
	b := waiting.Blocker{Reason: reason.NotServing, After: max(after, v.backOff()),
		Message: fmt.Sprintf("%s is registered and not given to clients yet: %v", c, err)}
	if registry.IsTerminal(err) {
		b.After = waiting.Longest
	}
	return b
}
