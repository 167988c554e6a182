package plan

import (
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Stage is a part of a visit: a value, which the visit's loop carries out. First it waits, then it probes, then it brings its rows to rest.
type Stage struct {
	Name string
	// Waits returns what has to pass first.
	Waits func(Now) waiting.Blocker
	// Probes returns the rows of which clients must be given the pod first.
	Probes func(Now) []Row
	Rows   []Row
	// Joins: while its rows are not at rest, the pod is not in rotation.
	Joins bool
	// Writes: what follows so far is written then, and not only at the end.
	Writes bool

	// Holds: OpenKruise waits for what this stage misses.
	Holds bool
	// After: it is skipped while OpenKruise waits for an earlier stage.
	After bool
	// Armed: it is skipped if the API server refused the handlers that protect its calls.
	Armed bool
}

// Now is what is known at a moment of a visit.
type Now struct {
	Facts    Facts
	Decision lifecycle.Decision
	Rows     Plan
	Time     time.Time
}

// Stages returns the stages of a visit in their order. For example, a pod that moves from Consul to Nacos: join registers it in Nacos,
// probe and readers wait until clients are given it there, assert lets OpenKruise count on it, and only then depart takes it out of Consul.
// So a Consul that is down holds no new pod.
func Stages(p Plan, want lifecycle.Want) []Stage {
	former := Stage{Name: "former", Rows: p.Former} // which other pods may get
	depart := Stage{Name: "depart", Waits: departs, Rows: p.Departing, After: true, Armed: true}
	unheard := Stage{Name: "unheard", Waits: unheardOf}
	switch want {
	case lifecycle.InService:
		return []Stage{
			former,
			{Name: "join", Rows: p.Present, Joins: true, Holds: true, Armed: true},
			{Name: "probe", Probes: probes, Holds: true, After: true, Armed: true},
			{Name: "readers", Waits: awaitsReaders, Holds: true, After: true, Armed: true},
			{Name: "assert", Writes: true, After: true, Armed: true},
			depart,
			unheard,
		}
	case lifecycle.Keep:
		depart.Probes = probesToDepart // one that joins was asked for already
		return []Stage{former, depart, unheard}
	default:
		former.Holds, unheard.Holds = true, true
		return []Stage{
			former,
			// First, since the application's own entry at the same endpoint may show only once Rollcall's is gone.
			{Name: "departing", Rows: p.Departing, Holds: true},
			{Name: "leave", Rows: p.Present, Holds: true},
			unheard,
			{Name: "unsteered", Waits: unsteered, Holds: true},
			{Name: "listed", Waits: unlisted, Holds: true},
		}
	}
}

// probes asks whether clients are given the pod, if a hook or a departure depends on it.
func probes(now Now) []Row {
	if len(now.Decision.Then.Set) == 0 && !now.needsChange(now.Rows.Departing) {
		return nil
	}
	return now.Rows.Present
}

// probesToDepart asks so for a pod that is kept.
func probesToDepart(now Now) []Row {
	if !now.needsChange(now.Rows.Departing) {
		return nil
	}
	return now.Facts.Present(lifecycle.InService)
}

// departs: a pod leaves a service or registry once clients find it where it belongs.
func departs(now Now) waiting.Blocker {
	if !now.needsChange(now.Rows.Departing) {
		return waiting.Blocker{}
	}
	return now.readersLag(now.Facts.Present(lifecycle.InService))
}

// awaitsReaders gives clients the time to learn of the pod, and the pod to warm up if it counts only then, if OpenKruise waits.
func awaitsReaders(now Now) waiting.Blocker {
	switch {
	case now.Decision.Waiting == "":
		return waiting.Blocker{}
	case now.Facts.CountsIn > 0:
		return waiting.WarmingUp(now.Facts.CountsIn)
	}
	return now.readersLag(now.Rows.Present)
}

// unheardOf waits for the entries that only the record shows, of which each visit deals with some.
func unheardOf(now Now) waiting.Blocker {
	if len(now.Rows.Unheard) == 0 {
		return waiting.Blocker{}
	}
	return waiting.Unheard(len(now.Rows.Unheard))
}

// unsteered holds a pod whose application may have registered it under a name that it may not use. Once taken out, it could not be put
// back.
func unsteered(now Now) waiting.Blocker {
	if !now.Decision.Releases {
		return waiting.Blocker{}
	}
	return now.Facts.Unsteered
}

// unlisted holds a pod of which neither this process nor a record knows where it was in rotation, until each registry was listed, or the
// pod's place in it. Its annotations may have changed since the last leader registered it.
func unlisted(now Now) waiting.Blocker {
	f := now.Facts
	if f.Record.WasInService() || f.Known.Born() || !now.Decision.Releases {
		return waiting.Blocker{}
	}
	for _, s := range f.Sources {
		if f.Configuration.Lists(s.Registry) && !f.listed(s.Registry) {
			return waiting.NotYetListed(s.Registry)
		}
	}
	return waiting.Blocker{}
}

func (f Facts) listed(registry string) bool {
	return f.Known.Listed(registry) && !slices.ContainsFunc(f.Targets, func(t tracker.Target) bool {
		return t.Registry == registry && !t.Key().ByApp() && !f.Known.Shown(t.Key())
	})
}

// needsChange reports whether one of the rows has yet to be acknowledged.
func (n Now) needsChange(rows []Row) bool {
	return slices.ContainsFunc(rows, func(row Row) bool { return !n.Facts.Known.Of(row.Key()).Says(row.Want, row.Instance) })
}

// readersLag is what is left of the slowest registry's readerLag.
func (n Now) readersLag(rows []Row) (latest waiting.Blocker) {
	for _, row := range rows {
		known := n.Facts.Known.Of(row.Key()).AcknowledgedAt.Add(n.Facts.Configuration.ReaderLag(row.Registry))
		if remaining := known.Sub(n.Time); remaining > latest.After {
			latest = waiting.ReadersLag(row, known, remaining)
		}
	}
	return latest
}
