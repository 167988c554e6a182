package visit

import (
	"context"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// drain holds OpenKruise until clients had time to notice. For example, with drain 30s a pod that was out at 10:00:00 goes at 10:00:30.
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
	return waiting.Draining(removedAt, v.Drain, remaining)
}

// remember records a drain that has begun in one registry while another fails: the next leader may reach neither.
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

// removedAt returns when the last entry was taken out, and from when its drain counts, which is later if the last leader's clock may
// have been behind. Both are zero if none was in service.
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

// unsteered holds a pod whose application may have registered it under a name that it may not use. Once taken out, it could not be put
// back.
func (v *visit) unsteered(context.Context) waiting.Blocker {
	if !v.Unsteered || !v.decision.Releases {
		return waiting.Blocker{}
	}
	return v.Problem
}

// unlisted holds a pod of which neither this process nor a record knows where it was in service, until each registry was listed, or the
// pod's place in it. Its annotations may have changed since the last leader registered it.
func (v *visit) unlisted(context.Context) waiting.Blocker {
	known := v.Tracked.Known()
	if v.input.Record.WasInService() || known.Born() || !v.decision.Releases {
		return waiting.Blocker{}
	}
	for _, s := range v.Sources {
		if name := s.Registry; v.Settings.Registries[name].Lists() && !v.listed(name, known) {
			return waiting.NotYetListed(name, v.backOff())
		}
	}
	return waiting.Blocker{}
}

func (v *visit) listed(registry string, known tracker.Known) bool {
	return known.Listed(registry) && !slices.ContainsFunc(v.targets, func(t tracker.Target) bool {
		return t.Registry == registry && !t.Key().ByApp() && !known.Shown(t.Key())
	})
}
