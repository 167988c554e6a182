package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/notes"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// leaveFormer takes the pod out where its address was once, which may be another pod's soon.
func (r *PodReconciler) leaveFormer(ctx context.Context, v *visit) notes.Blocker {
	return r.ensureAll(ctx, v.observation, v.changes.Former)
}

func (r *PodReconciler) leaveDeparting(ctx context.Context, v *visit) notes.Blocker {
	return r.ensureAll(ctx, v.observation, v.changes.Departing)
}

func (r *PodReconciler) leavePresent(ctx context.Context, v *visit) notes.Blocker {
	return r.ensureAll(ctx, v.observation, v.changes.Present)
}

// join registers the pod. A registry that was never asked is not to hold it later, so what has acknowledged is written down where
// another lasts to be missing. One that has the pod by the former record is named by this one too.
func (r *PodReconciler) join(ctx context.Context, v *visit) notes.Blocker {
	missing := r.ensureAll(ctx, v.observation, v.changes.Present)
	unrecorded := func(c plan.Row) bool { return v.certain(c) && v.input.Unrecorded(c.Key()) }
	if missing.Lasts(ctx.Err() != nil) && slices.ContainsFunc(v.changes.Present, unrecorded) {
		known := v.facts().Instances()
		v.record = v.newRecord(v.changes.Without(func(c plan.Row) bool { return !slices.Contains(known, c.Key()) }))
	}
	return missing
}

// probe asks whether clients are given the pod, where a hook hangs on it, or where the pod departs from what clients are given it by now.
func (r *PodReconciler) probe(ctx context.Context, v *visit) notes.Blocker {
	if len(v.decision.Then.Set) == 0 && !slices.ContainsFunc(v.changes.Departing, v.unacknowledged) {
		return notes.Blocker{}
	}
	return r.probeAll(ctx, v.observation, v.changes.Present)
}

// awaitReaders holds OpenKruise back until clients know the pod.
func (r *PodReconciler) awaitReaders(_ context.Context, v *visit) notes.Blocker {
	if v.decision.Waiting == "" {
		return notes.Blocker{}
	}
	return r.readersLag(v.observation, v.changes.Present)
}

// depart takes a pod that is in service everywhere that it belongs out of where it departs from, once clients are given it there.
func (r *PodReconciler) depart(ctx context.Context, v *visit) notes.Blocker {
	if slices.ContainsFunc(v.changes.Departing, v.unacknowledged) {
		present := v.facts().Present(lifecycle.InService)
		missing := r.readersLag(v.observation, present)
		if missing.Reason == "" && v.decision.Want == lifecycle.Keep { // one that joins was asked for already
			missing = r.probeAll(ctx, v.observation, present)
		}
		if missing.Reason != "" {
			return missing
		}
	}
	return r.leaveDeparting(ctx, v)
}

// readersLag waits until clients know the pod that was put in service, so that OpenKruise counts on no pod before.
func (r *PodReconciler) readersLag(seen *observation, changes []plan.Row) (latest notes.Blocker) {
	for _, c := range changes {
		lag := seen.settings.ReaderLag[c.Registry]
		known := seen.tracked.Standing(c.Key()).AcknowledgedAt().Add(lag)
		if remaining := known.Sub(r.Clock.Now()); lag > 0 && remaining > latest.After {
			latest = notes.Blocker{Reason: reason.ReadersLag, After: remaining, Message: fmt.Sprintf(
				"%s is registered; its clients may not know it before %s", c, known.Format(time.RFC3339))}
		}
	}
	return latest
}

// manyChanges are made at once, and those of several registries: one after the other takes long, above all where one does not answer.
const manyChanges = 8

// ensureAll makes all changes. What is missing in one registry keeps the pod out of no other.
func (r *PodReconciler) ensureAll(ctx context.Context, seen *observation, changes []plan.Row) (missing notes.Blocker) {
	each := make([]notes.Blocker, len(changes))
	var calls sync.WaitGroup
	alike := !slices.ContainsFunc(changes, func(c plan.Row) bool { return c.Key().Source() != changes[0].Key().Source() })
	for i, c := range changes {
		if alike && len(changes) < manyChanges {
			each[i] = r.ensure(ctx, seen, c)
			continue
		}
		calls.Go(func() { each[i] = r.ensure(ctx, seen, c) })
	}
	calls.Wait()
	for _, b := range each {
		missing = notes.First(missing, b)
	}
	return missing
}

// ensure returns no blocker once the registry is known to say what is wanted of one instance.
func (r *PodReconciler) ensure(ctx context.Context, seen *observation, c plan.Row) notes.Blocker {
	switch {
	case c.NeverThere:
		return notes.Blocker{}
	case c.PassedOn:
		if now := r.Clock.Now(); seen.tracked.PassedOn(c.Key(), now) {
			r.auditTold(seen, c.Target, registry.Absent, now)
		}
		return notes.Blocker{}
	case c.ByApp() && seen.gone():
		return r.clear(ctx, seen, c)
	}
	missing := r.agree(ctx, seen, c)
	if c.ByApp() && seen.facts().IsTarget(c.Key()) && (missing.Reason.OfApp() || missing.Reason == reason.DryRun) {
		return r.lookElsewhere(ctx, seen, c, missing)
	}
	return missing
}

// agree takes the steps of an instance until nothing is left to do, or it has to wait.
func (r *PodReconciler) agree(ctx context.Context, seen *observation, c plan.Row) notes.Blocker {
	in, goal := c.Key(), seen.goal(c)
	seen.tracked.RecallRemoval(in, c.OutSince)
	for {
		if c.Want == lifecycle.Absent {
			seen.tracked.LetGo(in) // whether the registry can be asked or not
		}
		var missing notes.Blocker
		switch step := seen.tracked.Standing(in).Next(goal, r.Clock.Now()); step.Act {
		case tracker.Change:
			missing = r.call(ctx, seen, c)
		case tracker.Ask:
			missing = r.ask(ctx, seen, c, &goal)
		case tracker.Wait:
			return r.waitsFor(seen, c, goal, step)
		default:
			r.agreed(seen, c)
			return notes.Blocker{}
		}
		if missing.Reason != "" {
			return missing
		}
	}
}

// agreed is called once nothing is left to do about an instance.
func (r *PodReconciler) agreed(seen *observation, c plan.Row) {
	seen.tracked.GivenNoMore(c.Key(), r.Clock.Now())
	r.lookForSeveral(seen, c)
	if c.Want == lifecycle.Absent {
		r.State.Claims.Removed(seen.pod().UID, c.Key(), r.Clock.Now())
	}
}

// waitsFor says what an instance waits for.
func (r *PodReconciler) waitsFor(seen *observation, c plan.Row, goal tracker.Goal, step tracker.Step) notes.Blocker {
	switch step.Cause {
	case tracker.Postponed:
		return notes.Blocker{Reason: step.Said.Reason, Message: step.Said.Message, After: step.After}
	case tracker.Settling:
		return notes.Blocker{Reason: reason.Settling, After: max(step.After, backoffBase),
			Message: c.String() + ": an earlier call failed, and may still be carried out"}
	case tracker.GivenByAnother:
		return seen.alsoRegistersItself(c, "its list has an entry of another writer")
	case tracker.Unseen:
		seen.tracked.GivenNoMore(c.Key(), r.Clock.Now())
		return r.awaitsApp(seen, c, notes.Blocker{Message: c.String() + ": the registry has no such entry and never showed one, so " +
			"clients may be given the pod by an entry at another address"}, nil)
	default:
		return notes.Blocker{Reason: reason.NotConfirmed, After: r.backOff(seen), Message: fmt.Sprintf(
			"%s: the registry has acknowledged that it is %s, and says %s", c, c.Want, goal.Said)}
	}
}

// call makes one call. Nothing is known of its outcome until it has returned without an error.
func (r *PodReconciler) call(ctx context.Context, seen *observation, c plan.Row) notes.Blocker {
	in, now := c.Key(), r.Clock.Now()
	reg := seen.settings.client(c.Key().Source())
	if reg == nil {
		return notes.Blocker{Reason: reason.UnknownRegistry, Message: fmt.Sprintf(
			"%s: the configuration no longer has this registry: put it back until its pods have left it", c)}
	}
	lands := now.Add(reg.MayLandFor())
	if refused := r.claim(seen, c, lands); refused.Reason != "" {
		return refused
	}
	by := r.caller(seen.pod())
	by.Begin = func() { seen.tracked.Begin(in, c.Want, c.Instance, now) }
	returned := seen.tracked.Standing(in).Returned()
	err := reg.Change(ctx, by, c.Asked())
	switch outcome := registryclient.Classify(err); {
	case outcome == registryclient.Acknowledged, outcome == registryclient.Foreign && c.LeftToApp:
		if r.acknowledged(seen, c); outcome == registryclient.Foreign {
			r.auditTold(seen, c.Target, registry.Absent, now)
		}
		r.sayReturned(seen, c, returned)
		if err != nil {
			r.saySeveral(seen, c, err.Error())
		}
		return notes.Blocker{}
	case registryclient.MayLand(err):
		seen.tracked.Failed(in, lands)
	case outcome == registryclient.NotRegistered: // there is nothing that could have been changed
		r.State.Claims.Missed(seen.pod().UID, in, now)
	case outcome.Asked():
		seen.tracked.Failed(in, time.Time{})
	}
	return r.failed(ctx, seen, c, reg, err)
}

// claim takes the name for the pod's namespace before a Register, which may be carried out until lands, or says why the pod
// may not use the name.
func (r *PodReconciler) claim(seen *observation, c plan.Row, lands time.Time) notes.Blocker {
	if c.Want != lifecycle.InService {
		return notes.Blocker{}
	}
	return nameRefused(r.State.Claims.Take(r.use(seen, c.Instance.Service), seen.keeps[c.Instance.Service], c.Key(), lands))
}

func (r *PodReconciler) acknowledged(seen *observation, c plan.Row) {
	seen.tracked.Acknowledged(c.Key(), r.Clock.Now())
	if c.Want != lifecycle.Absent && seen.facts().WasInService(c.Key()) { // to be out gives no right to a name
		r.State.Claims.Acknowledged(lifecycle.PodIDOf(seen.pod()), c.Key())
	}
}

// caller is the pod, for whom a call is made: it is woken where that has to wait, and holds no worker until then.
func (r *PodReconciler) caller(pod *corev1.Pod) registryclient.Caller {
	id, urgent := lifecycle.PodIDOf(pod), lifecycle.RolloutWaits(pod)
	return registryclient.Caller{ID: string(pod.UID), Urgent: urgent, Wake: func() { r.wake(id, urgent) }}
}

// ask asks the registry whether it says what it has acknowledged. An answer from before nothing could be carried out any more would prove
// nothing; see [tracker.Instance.Next].
func (r *PodReconciler) ask(ctx context.Context, seen *observation, c plan.Row, goal *tracker.Goal) notes.Blocker {
	reg, asked := seen.settings.client(c.Key().Source()), r.Clock.Now()
	state, err := reg.Get(ctx, r.caller(seen.pod()), c.Instance)
	if err != nil {
		return r.failed(ctx, seen, c, reg, err)
	}
	r.auditTold(seen, c.Target, state, asked)
	switch {
	case c.Confirms(state):
		seen.tracked.Confirmed(c.Key(), asked)
		goal.Asked = true
	case state == registry.Foreign:
		return seen.alsoRegistersItself(c, "the registry was asked for it")
	default:
		seen.tracked.Contradicted(c.Key(), state)
		goal.Contradicted, goal.Said = goal.Contradicted+1, state
	}
	if state != registry.Absent {
		seen.tracked.Saw(c.Key(), asked)
	}
	return notes.Blocker{}
}

// probeAll returns why clients are not given the pod yet although it was registered everywhere.
func (r *PodReconciler) probeAll(ctx context.Context, seen *observation, changes []plan.Row) notes.Blocker {
	for _, c := range changes {
		reg := seen.settings.client(c.Key().Source())
		if !reg.Probes() {
			continue
		}
		if err := reg.Probe(ctx, r.caller(seen.pod()), c.Instance); err != nil {
			return r.notServing(ctx, seen, c, reg, err)
		}
	}
	return notes.Blocker{}
}

// drain holds OpenKruise back until the clients had time to notice, once everything is acknowledged.
func (r *PodReconciler) drain(_ context.Context, v *visit) notes.Blocker {
	if !v.tracked.Known().Any() && !v.input.Record.Exists() {
		return notes.Blocker{} // no registry ever knew the pod, and so there is nothing to write down
	}
	v.record = v.newRecord(v.changes)
	removedAt, counted := r.removedAt(v)
	drains := v.decision.Row.Drains()
	known := v.record.OutSince != nil && v.input.Record.Want != lifecycle.InService // of all instances
	if v.drain == 0 || removedAt.IsZero() || !drains && known {
		return notes.Blocker{}
	}
	if v.record.OutSince = &removedAt; !drains {
		return notes.Blocker{} // for the hook that may wait next, and the manager that leads then
	}
	remaining := counted.Add(v.drain).Sub(r.Clock.Now())
	if remaining <= 0 {
		return notes.Blocker{}
	}
	return notes.Blocker{Reason: reason.Draining, After: remaining,
		Message: fmt.Sprintf("out of rotation since %s, drains for %s", removedAt.Format(time.RFC3339), v.drain)}
}

// remember writes down since when one registry has the pod out while another holds it: the next leader may reach neither, and has to
// know of the drain that has begun.
func (r *PodReconciler) remember(ctx context.Context, v *visit) notes.Blocker {
	record := v.input.Record
	removedAt, _ := r.removedAt(v)
	known := !record.Exists() || record.OutSince != nil && !removedAt.After(*record.OutSince)
	if v.drain > 0 && !removedAt.IsZero() && !known && notes.First(v.held...).Lasts(ctx.Err() != nil) {
		record.OutSince = &removedAt
		v.record = &record
	}
	return notes.Blocker{}
}

// removedAt is when the last instance that may have been in service was taken out, and from when its drain counts; zero where
// none was. No pod drains for less than its drain because another manager's clock reads otherwise.
func (r *PodReconciler) removedAt(v *visit) (latest, counted time.Time) {
	ahead := r.Ahead()
	for _, c := range v.changes.All() {
		recorded, from := v.tracked.Standing(c.Key()).RemovedAt(ahead)
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
func (r *PodReconciler) unlisted(_ context.Context, v *visit) notes.Blocker {
	known := v.tracked.Known()
	if v.input.Record.WasInService() || known.Born() || !v.decision.Releases {
		return notes.Blocker{}
	}
	for _, s := range v.sources {
		if name := s.Registry; v.settings.Registries[name].Lists() && !known.Shown(name) {
			return notes.Blocker{Reason: reason.RegistryUnavailable, After: r.backOff(v.observation), Message: fmt.Sprintf(
				"registry %q has yet to list what the manager before this one has registered: no record tells where the pod was in service", name)}
		}
	}
	return notes.Blocker{}
}

// alsoRegistersItself is why a hook waits while clients are given the pod by an entry that no Rollcall has written: what the
// registry acknowledges says nothing of that one.
func (o *observation) alsoRegistersItself(c plan.Row, why string) notes.Blocker {
	o.tracked.Given(c.Key())
	return notes.Blocker{Reason: reason.AlsoRegistersItself, After: backoffCap, Message: fmt.Sprintf(
		"%s: clients are given this address by an entry that Rollcall has not written (%s): turn off the application's own "+
			"registration, or let Rollcall steer that entry, as docs/self-registration.md says", c, why)}
}

// nameRefused is why the pod may not use a service name.
func nameRefused(r *clusterstate.Refusal) notes.Blocker {
	if r == nil {
		return notes.Blocker{}
	}
	return notes.Blocker{Reason: r.Reason, Message: r.Message, After: min(r.After, backoffCap)}
}

// failed says why a call did not end well, and when to come back. What is not known to be final is worth another try.
func (r *PodReconciler) failed(ctx context.Context, seen *observation, c plan.Row, reg *registryclient.Client, err error) notes.Blocker {
	b := notes.Blocker{Reason: reason.RegistryUnavailable, Message: fmt.Sprintf("%s: %v", c, err)}
	if stops(ctx, err) {
		return notes.Blocker{Reason: reason.Stopping, Unasked: true, Message: "the manager stops, the next one goes on"}
	}
	after, told := registry.RetryAfterOf(err)
	switch registryclient.Classify(err) {
	case registryclient.DryRun:
		b.Reason = reason.DryRun // an event brings the next step
	case registryclient.Fenced:
		b.Reason, b.After, b.Unasked = reason.NotPermitted, r.backOff(seen), true
	case registryclient.Queued:
		b.Reason, b.After, b.Unasked = reason.Queued, wokenRecheck, true
	case registryclient.Outage:
		b.After = wokenRecheck
	case registryclient.Foreign:
		return seen.alsoRegistersItself(c, err.Error())
	case registryclient.NotRegistered:
		return r.awaitsApp(seen, c, b, err)
	case registryclient.Refused:
		b.Reason, b.After = reason.RegistryRefused, backoffCap
	case registryclient.TimedOut:
		b.Reason, b.After = reason.RegistryTimeout, max(after, r.backOff(seen))
	default:
		b.After = max(after, r.backOff(seen))
	}
	b = b.OfAgent(err)
	if told {
		seen.tracked.Postpone(c.Key(), tracker.Postponement{
			Want: c.Want, Through: reg, Until: r.Clock.Now().Add(after), Reason: b.Reason, Message: b.Message,
		})
	}
	return b
}

// stops reports whether a call was cut off since the manager stops. A driver may cancel what is its own, and that passes.
func stops(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}

// notServing says why clients are not given a pod that is registered.
func (r *PodReconciler) notServing(
	ctx context.Context, seen *observation, c plan.Row, reg *registryclient.Client, err error,
) notes.Blocker {
	if !registryclient.Classify(err).Asked() || stops(ctx, err) {
		return r.failed(ctx, seen, c, reg, err)
	}
	after, _ := registry.RetryAfterOf(err)
	b := notes.Blocker{Reason: reason.NotServing, After: max(after, r.backOff(seen)),
		Message: fmt.Sprintf("%s is registered and not given to clients yet: %v", c, err)}
	if registry.IsTerminal(err) {
		b.After = backoffCap
	}
	return b
}
