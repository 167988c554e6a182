package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

// progress is how far the registry has come.
type progress struct {
	// record is what to write down; nil leaves the record as it is.
	record *lifecycle.Record
	// wait is what is still missing; empty once Kruise may go on.
	wait wait
	// behind is what the pod could not leave, which holds no hook that waits for the pod to be in service.
	behind wait
	// left are the steps that are taken only once such a hook is asserted.
	left []step
}

// released reports whether Kruise may go on: the registry has acknowledged everything, and the drain has passed.
func (p progress) released() bool { return p.wait.reason == "" }

// rehearsed reports a dry run: nothing was acknowledged, and what would follow is told too, since nothing is written.
func (p progress) rehearsed() bool { return p.wait.reason == ReasonDryRun }

// converge makes every registry of the pod say what it shall of every instance.
func (r *PodReconciler) converge(ctx context.Context, seen *observation, d lifecycle.Decision) progress {
	c := seen.course(d)
	behind := r.ensureAll(ctx, seen, c.elsewhere)
	switch d.Want {
	case lifecycle.InService:
		return r.join(ctx, seen, d, c, behind)
	case lifecycle.Keep:
		return progress{behind: behind.and(r.ensureAll(ctx, seen, c.left))}
	case lifecycle.OutOfService, lifecycle.Absent:
	}
	missing := behind.and(r.ensureAll(ctx, seen, c.present)).and(r.ensureAll(ctx, seen, c.left))
	if missing.reason != "" {
		return progress{wait: missing}
	}
	return r.drained(seen, d, c)
}

// join puts the pod in service, and takes it out of what it has left once clients are given it. A hook that waits is
// asserted before that.
func (r *PodReconciler) join(
	ctx context.Context, seen *observation, d lifecycle.Decision, c course, behind wait,
) progress {
	missing := r.ensureAll(ctx, seen, c.present)
	if missing.reason == "" {
		missing = r.probed(ctx, seen, d, c.left)
	}
	if missing.reason != "" {
		return progress{wait: missing, behind: behind}
	}
	p := progress{behind: behind, left: c.left}
	if d.Waiting == "" {
		p.behind, p.left = behind.and(r.ensureAll(ctx, seen, c.left)), nil
	}
	p.record = seen.newRecord(d.Want, c)
	return p
}

// leave takes the steps that waited for a hook to be asserted, and writes down what came of them.
func (r *PodReconciler) leave(ctx context.Context, seen *observation, p *progress) (moved bool, err error) {
	if len(p.left) == 0 {
		return false, nil
	}
	p.behind = p.behind.and(r.ensureAll(ctx, seen, p.left))
	d := lifecycle.Decide(seen.input)
	if d.Want != lifecycle.InService {
		return false, nil // it has moved on, and the next look at it says where to
	}
	return r.patch(ctx, seen, lifecycle.Edit{}, seen.newRecord(d.Want, seen.course(d)))
}

// ensureAll takes all steps. What is missing in one registry keeps the pod out of no other.
func (r *PodReconciler) ensureAll(ctx context.Context, seen *observation, steps []step) (missing wait) {
	for _, s := range steps {
		missing = missing.and(r.ensure(ctx, seen, s))
	}
	return missing
}

// ensure returns an empty wait once the registry is known to say what is wanted of one instance.
func (r *PodReconciler) ensure(ctx context.Context, seen *observation, s step) wait {
	in := s.key()
	if s.want != lifecycle.InService && seen.neverIn(s) {
		return wait{}
	}
	if seen.recordStands(s) {
		r.adopt(seen, s)
	}
	c := seen.page.calls[in]
	if !c.said(s) || !c.settled() && r.settles(c) <= 0 && !seen.page.asks(in) {
		if w := r.call(ctx, seen, s); w.reason != "" {
			return w
		}
	}
	w := r.settle(ctx, seen, s)
	if w.reason == "" && s.want == lifecycle.Absent {
		r.claims.left(seen.pod().UID, in, r.clock.Now())
	}
	return w
}

// settles returns how long a call that timed out may still be carried out.
func (r *PodReconciler) settles(c *call) time.Duration {
	return c.unsettledUntil().Sub(r.clock.Now())
}

// call makes one call. Nothing is known of its outcome until it has returned without an error.
func (r *PodReconciler) call(ctx context.Context, seen *observation, s step) wait {
	if ctx.Err() != nil {
		return stopping()
	}
	if s.want == lifecycle.Absent {
		r.letGo(seen, s.key()) // whether the call can be made or not
	}
	client, known := seen.settings.Registries[s.registry]
	if !known {
		return wait{reason: ReasonUnknownRegistry, message: fmt.Sprintf(
			"%s: the configuration no longer has this registry: put it back until its pods have left it", s)}
	}
	started := r.clock.Now()
	if told := seen.page.toldToWait(s, started); told.reason != "" {
		return told
	}
	lands := started.Add(client.MayLandFor())
	if refused := r.claim(seen, s, lands); refused.reason != "" {
		return refused
	}
	err := client.Change(ctx, r.caller(seen, func() { seen.page.begun(s, started) }), s.change())
	c := seen.page.calls[s.key()]
	if err == nil {
		r.acknowledged(seen, s, c)
		return wait{}
	}
	outcome := registryclient.Classify(err)
	if outcome.Asked() {
		c.doubtful = true
	}
	if outcome == registryclient.TimedOut {
		c.timedOut(lands)
	}
	return r.unanswered(seen, s, err)
}

// unanswered says when to come back, which an event must not change where the registry has said so.
func (r *PodReconciler) unanswered(seen *observation, s step, err error) wait {
	w := r.failed(seen.pod().UID, s.target, err)
	if after, told := registry.RetryAfterOf(err); told {
		c := seen.page.calls[s.key()]
		c.told, c.notBefore = w, r.clock.Now().Add(after)
	}
	return w
}

// stopping is why nothing more is asked of a registry once the manager was asked to stop.
func stopping() wait {
	return wait{reason: ReasonStopping, message: "the manager stops, the next one goes on"}
}

func (r *PodReconciler) acknowledged(seen *observation, s step, c *call) {
	now := r.clock.Now()
	c.succeeded(now)
	if s.want == lifecycle.Absent {
		r.ledger.leave(seen.page, s.key(), now)
	} else {
		r.ledger.hold(seen.page, s, now)
		r.claims.acknowledged(s.target)
	}
}

// change is what makes the registry say what the step wants.
func (s step) change() registry.Change {
	states := map[lifecycle.Want]registry.State{
		lifecycle.InService: registry.InService, lifecycle.OutOfService: registry.OutOfService, lifecycle.Absent: registry.Absent,
	}
	return registry.Change{Instance: s.instance, State: states[s.want]}
}

// failed says why a call was not acknowledged, and when to look again.
func (r *PodReconciler) failed(uid types.UID, t target, err error) wait {
	w := wait{reason: ReasonRegistryUnavailable, message: fmt.Sprintf("%s: %v", t, err)}
	switch registryclient.Classify(err) {
	case registryclient.DryRun:
		w.reason = ReasonDryRun // an event brings the next step
		return w
	case registryclient.Queued:
		w.reason, w.after, w.unasked = ReasonQueued, turnRecheck, true
		return w
	case registryclient.Outage:
		w.after = turnRecheck
		return w
	case registryclient.Foreign:
		return alsoRegistersItself(t, err.Error())
	case registryclient.Refused:
		w.reason, w.after = ReasonRegistryRefused, backoffCap
		return w
	case registryclient.Fenced:
		w.reason, w.unasked = ReasonNotPermitted, true
	case registryclient.TimedOut:
		w.reason = ReasonRegistryTimeout
	case registryclient.Retryable, registryclient.NotRegistered, registryclient.Acknowledged:
	}
	after, _ := registry.RetryAfterOf(err)
	w.after = max(after, r.backoff.When(uid))
	return w
}

// drained is called once everything is acknowledged, and holds Kruise back until the clients had time to notice.
func (r *PodReconciler) drained(seen *observation, d lifecycle.Decision, c course) progress {
	if len(seen.page.calls) == 0 && !seen.input.Record.Exists() {
		return progress{} // nothing was ever said of the pod, and so there is nothing to write down
	}
	record := seen.newRecord(d.Want, c)
	out, counted := seen.outSince(c.all())
	if !draining(d.Row) || seen.drain == 0 || out.IsZero() {
		return progress{record: record}
	}
	record.OutSince = &out
	left := counted.Add(seen.drain).Sub(r.clock.Now())
	if left <= 0 {
		return progress{record: record}
	}
	return progress{record: record, wait: wait{reason: ReasonDraining, after: left,
		message: fmt.Sprintf("out of rotation since %s, drains for %s", out.Format(time.RFC3339), seen.drain)}}
}

// askedOut reports whether a registry was asked to take out an instance of the pod, whatever it answered.
func (o *observation) askedOut() bool {
	for _, c := range o.page.calls {
		if (c.want == lifecycle.OutOfService || c.want == lifecycle.Absent) && (c.acknowledged || c.doubtful) {
			return true
		}
	}
	return false
}

// draining reports whether a drain counts in the row. kubelet does not wait with a pod that is being deleted already.
func draining(row lifecycle.Row) bool {
	return row == lifecycle.RowPreparingDelete || row == lifecycle.RowPreparingUpdate
}

// newRecord names the pod's instances and those that it has yet to leave, or all that were taken out where its
// description does not tell which those are.
func (o *observation) newRecord(want lifecycle.Want, c course) *lifecycle.Record {
	named := c.present
	for _, s := range slices.Concat(c.elsewhere, c.left) {
		if len(c.present) == 0 || !o.page.certain(s) {
			named = append(slices.Clip(named), s)
		}
	}
	instances := make([]lifecycle.Recorded, 0, len(named))
	for _, s := range named {
		instances = append(instances, s.key())
	}
	outSince := o.input.Record.OutSince
	if want == lifecycle.InService {
		outSince = nil
	}
	record := lifecycle.NewRecord(o.pod(), o.input.Hooks, want, instances, outSince)
	return &record
}

// outSince is when the last instance that may have been in service was taken out, and from when its drain counts; zero where
// none was.
func (o *observation) outSince(steps []step) (latest, counted time.Time) {
	for _, s := range steps {
		c := o.page.calls[s.key()]
		if c == nil || c.outSince.IsZero() {
			continue
		}
		from := c.outSince
		if from.Equal(c.adopted.outSince) {
			from = c.adopted.counted
		}
		if c.outSince.After(latest) {
			latest = c.outSince
		}
		if from.After(counted) {
			counted = from
		}
	}
	return latest.Truncate(time.Millisecond), counted.Truncate(time.Millisecond)
}

// neverIn reports whether the instance can't have been put in service: the pod came under our eyes, we made no call for
// it, and no record speaks of it. Where a hook is to be released, a list must have shown besides that no leader before us
// has registered it: our watch may have lagged when we began to lead.
func (o *observation) neverIn(s step) bool {
	releases := s.want == lifecycle.Absent || outStay(o)
	return o.page.fromBirth && o.page.calls[s.key()] == nil && !o.input.Record.Exists() && (!releases || o.shown(s.key()))
}

// shown reports whether what leaders before us have left in the instance's registry was listed.
func (o *observation) shown(in lifecycle.Recorded) bool {
	from, listed := o.page.shown[in.Registry]
	return listed && from == o.settings.Registries[in.Registry]
}

// recordStands reports whether the record may be taken for an acknowledgement: this process made no call for the
// instance, no list says otherwise, and the pod has stayed, since the record was written, where only "out" is ever wanted.
// Anywhere else another process may have made a call after the record was written.
func (o *observation) recordStands(s step) bool {
	record := o.input.Record
	return record.Fresh(o.pod()) && record.Says(s.want, s.key()) && outStay(o) && !o.page.calls[s.key()].disproves(record)
}

func outStay(o *observation) bool {
	if o.pod().DeletionTimestamp != nil {
		return true
	}
	return slices.Contains([]appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete,
	}, appspub.LifecycleStateType(o.pod().Labels[appspub.LifecycleStateKey]))
}

// adopt takes the record's word for an acknowledgement, with the drain that it began. The time was read from another
// manager's clock, so the drain counts from the latest that it may have been by this one: no pod drains for less, and none
// for longer than a drain from now on.
func (r *PodReconciler) adopt(seen *observation, s step) {
	now, since := r.clock.Now(), seen.input.Record.OutSince
	c := seen.page.begun(s, now)
	c.acknowledged = true
	if since == nil {
		return
	}
	c.outSince = *since
	c.adopted.outSince, c.adopted.counted = *since, *since
	if r.ahead != nil {
		c.adopted.counted = since.Add(r.ahead())
	}
	if c.adopted.counted.After(now) {
		c.adopted.counted = now
	}
}
