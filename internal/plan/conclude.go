package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Outcome is what a visit has come to.
type Outcome struct {
	Facts    Facts
	Input    lifecycle.Input
	Decision lifecycle.Decision
	Rows     Plan
	// Certain reports whether the registry has acknowledged what a row wants, and nothing pending can undo it.
	Certain func(Row) bool
	// Held is what OpenKruise waits for. Joining is that of it for which the pod is not in rotation.
	Held    []waiting.Blocker
	Joining waiting.Blocker
	Drain   Drain
	// Grows: the pod's weight does.
	Grows bool
	Skip  lifecycle.Skip
	// Since is since when OpenKruise waits, and ProceedAfter for how long, at most; 0 is without an end.
	Since        time.Time
	ProceedAfter time.Duration
	// Stops: this process ends.
	Stops bool
	Now   time.Time
}

// Write is what a visit writes on the pod.
type Write struct {
	Edit lifecycle.Edit
	// Record is nil to leave it alone.
	Record *lifecycle.Record
	// Released is set if the edit releases a hook without the registry's word.
	Released Released
	// Held is what OpenKruise still waits for.
	Held []waiting.Blocker
	// Ask: the pod is to be asked whether it is idle.
	Ask bool
	// Drains: all that is missing is the drain, or it has ended just now, by Drained.
	Drains  bool
	Drained drain.By
}

// Conclude decides every write that follows from what registries have acknowledged, or have not:
//
//	nothing is missing, and the drain is over   Then
//	skip annotation, or proceedAfter has passed what can be released without the registry's word
//	the pod was asked to be out                 Out
//	else                                        the record alone
func Conclude(o Outcome) Write {
	w := Write{Held: o.Held}
	switch o.Decision.Want {
	case lifecycle.InService:
		w.Record = o.recordIn()
	case lifecycle.OutOfService, lifecycle.Absent:
		w.Record = o.recordOut()
		o.drain(&w)
	case lifecycle.Keep:
	}
	if waiting.Done(w.Held) {
		w.Edit = o.Decision.Then
		w.Edit.ClearSkip = o.skips()
		return w
	}
	missing := waiting.First(w.Held...)
	w.Edit, w.Released = o.release(&missing)
	w.Held = []waiting.Blocker{missing}
	if w.Released.By == Acknowledged && o.Facts.Known.AskedOut() {
		w.Edit = o.Decision.Out
	}
	return w
}

// recordIn records a pod once it is in rotation, or only has to warm up. If one registry keeps failing, those that have acknowledged are
// recorded: the next leader must not wait for a registry that was never asked.
func (o Outcome) recordIn() *lifecycle.Record {
	warms := func(b waiting.Blocker) bool { return b.Reason == reason.WarmingUp }
	if len(o.Held) == 0 || slices.ContainsFunc(o.Held, warms) {
		return o.record(o.Rows)
	}
	unrecorded := func(row Row) bool { return o.Certain(row) && o.Input.Record.Lacks(o.Input.Pod, row.Key()) }
	if !o.Joining.Lasts(o.Stops) || !slices.ContainsFunc(o.Rows.Present, unrecorded) {
		return nil
	}
	known := o.Facts.Instances()
	return o.record(o.Rows.Without(func(row Row) bool { return !slices.Contains(known, row.Key()) }))
}

// recordOut records a pod once it is out everywhere. If one registry keeps failing, the drain that has begun in the others is recorded:
// the next leader may reach none of them.
func (o Outcome) recordOut() *lifecycle.Record {
	was := o.Input.Record
	switch {
	case was.Exists() && o.Drain.begunAfter(was.OutSince) && waiting.First(o.Held...).Lasts(o.Stops):
		was.OutSince, was.Detached = &o.Drain.Out, o.Input.Detached
		return &was
	case len(o.Held) > 0, !o.Facts.Known.Any() && !was.Exists(): // no registry ever knew the pod, so there is nothing to write down
		return nil
	}
	record := o.record(o.Rows)
	// Also if no hook waits: for the one that may wait next, and the manager that leads then.
	if o.Drain.begunAfter(record.OutSince) {
		record.OutSince = &o.Drain.Out
	}
	return record
}

// drain holds the hook until the drain is over. While a registry holds it, the pod is asked only if it may be released all the same.
func (o Outcome) drain(w *Write) {
	if !o.Drain.begun() || !o.Decision.Row.Drains() {
		return
	}
	s := o.Drain.state(o.Now)
	w.Ask = s.Ask && (len(o.Held) == 0 || o.ProceedAfter > 0)
	if len(o.Held) > 0 {
		return
	}
	w.Drains, w.Drained = true, s.By
	if s.By == "" {
		w.Held = []waiting.Blocker{waiting.Draining(o.Drain.Out, o.Drain.Policy, s, o.Drain.Last, o.Now)}
	}
}

// record has the pod's instances and those that it has yet to leave.
func (o Outcome) record(rows Plan) *lifecycle.Record {
	was := o.Input.Record
	record := lifecycle.NewRecord(o.Input.Pod, o.Input.Hooks, o.Decision.Want, o.recorded(rows), was.OutSince)
	record.Detached = o.Input.Detached
	record.NeverInService = record.Want != lifecycle.InService && !was.WasInService() && !o.Facts.Known.WasInService()
	switch now := o.Now.UTC().Truncate(time.Second); { // so the steps of a storm come together, in batches
	case o.Grows && record.Want == lifecycle.InService && was.Want != lifecycle.InService:
		record.InSince = now
	case o.Grows || !was.InSince.After(now): // else the clock was set back, and the pod must not warm up once that time comes
		record.InSince = was.InSince
	}
	for _, in := range record.Instances {
		if o.Facts.Unseen(in) {
			record.Unfound = append(record.Unfound, in)
		}
	}
	return &record
}

// recorded returns the instances that a record of the pod has. Without a description that tells its instances, those are all that were
// taken out.
func (o Outcome) recorded(rows Plan) []lifecycle.Key {
	instances := make([]lifecycle.Key, 0, len(rows.Present))
	for _, row := range rows.Present {
		instances = append(instances, row.Key())
	}
	for _, row := range slices.Concat(rows.Former, rows.Departing) {
		if len(rows.Present) == 0 || row.Want != lifecycle.Absent || !o.Certain(row) {
			instances = append(instances, row.Key())
		}
	}
	return slices.Concat(instances, rows.Spared, rows.Unheard)
}
