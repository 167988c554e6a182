package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/drain"
)

// Drain is how long a pod has been out of rotation, and must be. For example, with drain 30s a pod that was out at 10:00:00 goes at
// 10:00:30.
type Drain struct {
	drain.Policy

	// Last is what the pod last answered, if it is asked.
	Last drain.Answer
	// Out is when the last entry was taken out; zero if none was in rotation.
	Out time.Time
	// counts is since when Out counts here, which is later if another manager's clock may have been behind.
	counts time.Time
	// recorded is since when what the record shows counts, whatever this process knows.
	recorded time.Time
}

// DrainOf returns the drain of the rows. Ahead is how far this clock can be ahead of the last manager's, and read when this one first read
// the record's OutSince: a tenant can write it, so it counts for one drain at most, from then.
func DrainOf(f Facts, rows Plan, policy drain.Policy, ahead time.Duration, read time.Time) Drain {
	d := Drain{Policy: policy}
	for _, row := range rows.All() {
		out, counts := f.Known.Of(row.Key()).RemovedAt(ahead)
		d.Out, d.counts = later(d.Out, out), later(d.counts, counts)
	}
	d.Out = d.Out.Truncate(time.Millisecond) // with its monotonic reading: a step of the clock changes no drain
	if since := f.Record.OutSince; since != nil {
		d.recorded = slices.MinFunc([]time.Time{since.Add(ahead), read}, time.Time.Compare)
	}
	return d
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// begun reports whether there is something to record.
func (d Drain) begun() bool { return d.Max > 0 && !d.Out.IsZero() }

// begunAfter reports whether it has begun and the record is older, or has none: the pod may have been in rotation since.
func (d Drain) begunAfter(recorded *time.Time) bool {
	return d.begun() && (recorded == nil || d.Out.After(*recorded))
}

// state is how far it is, for the entries that this process knows.
func (d Drain) state(now time.Time) drain.State { return d.At(now, d.counts, d.Last) }

// ends is when it is over by all that anybody knows, at the latest if the pod is not idle yet; long ago without one.
func (d Drain) ends(now time.Time) time.Time {
	s := d.At(now, later(d.counts, d.recorded), d.Last)
	if s.By == drain.ByIdle {
		return d.Last.Asked
	}
	return s.Most
}
