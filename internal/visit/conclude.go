package visit

import (
	"context"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// conclude writes what follows the acknowledgement, or what is released without it.
func (v *visit) conclude(ctx context.Context) error {
	before, d := v.pod(), v.decision
	edit, release := v.follows()
	if v.excuse = ""; release != nil {
		v.excuse = release.by
	}
	if v.Uncached {
		v.record = nil // it goes with the pod
	}
	if err := v.patch(ctx, edit, v.record); err != nil || v.pod() == before {
		return err // or there was nothing to write, or it is a dry run, which has reported what it would do
	}
	if release != nil {
		v.Releases.Count(string(d.Waiting), release.by)
		v.event(release.reason, release.message)
	}
	v.waited(d.Waiting)
	return nil
}

func (v *visit) follows() (edit lifecycle.Edit, release *release) {
	d := v.decision
	if v.done() {
		if edit = d.Then; len(v.held) == 0 && d.Want == lifecycle.InService {
			v.record = v.newRecord(v.rows)
		}
		edit.ClearSkip = v.skips()
		return edit, nil
	}
	missing := waiting.First(v.held...)
	edit, release = v.release(&missing)
	v.held = []waiting.Blocker{missing}
	switch {
	case release != nil:
		edit.ClearSkip = v.skips()
	case v.Tracked.Known().AskedOut():
		edit = d.Out
	}
	return edit, release
}

// waited measures how long OpenKruise waited for a hook.
func (v *visit) waited(hook lifecycle.Hook) {
	since, err := lifecycle.MovedAt(v.pod())
	if err == nil && hook != "" && v.decision.Waiting == "" {
		v.Releases.Waited(string(hook), max(v.Clock.Now().Sub(since), 0))
	}
}

// toRecord returns the instances that a record of the pod has.
func (v *visit) toRecord(p plan.Plan) []lifecycle.Key {
	instances := make([]lifecycle.Key, 0, len(p.Present))
	for _, row := range p.Present {
		instances = append(instances, row.Key())
	}
	for _, row := range slices.Concat(p.Former, p.Departing) {
		if len(p.Present) == 0 || row.Want != lifecycle.Absent || !v.Certain(row) {
			instances = append(instances, row.Key())
		}
	}
	return slices.Concat(instances, p.Spared, p.Unheard)
}

// newRecord has the pod's instances and those that it has yet to leave. Without a description that tells its instances, it has all that
// were taken out.
func (v *visit) newRecord(p plan.Plan) *lifecycle.Record {
	instances := v.toRecord(p)
	entries, was := v.entries(), v.input.Record
	record := lifecycle.NewRecord(v.pod(), v.input.Hooks, v.decision.Want, instances, was.OutSince)
	record.NeverInService = record.Want != lifecycle.InService && !was.WasInService() && !entries.Known.WasInService()
	switch now := v.Clock.Now().UTC().Truncate(time.Second); { // so the steps of a storm come together, in batches
	case v.Grows > 0 && record.Want == lifecycle.InService && was.Want != lifecycle.InService:
		record.InSince = now
	case v.Grows > 0 || !was.InSince.After(now): // else the clock was set back, and the pod must not warm up once that time comes
		record.InSince = was.InSince
	}
	for _, in := range record.Instances {
		if entries.Unseen(in) {
			record.Unfound = append(record.Unfound, in)
		}
	}
	return &record
}
