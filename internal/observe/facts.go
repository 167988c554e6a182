// Package observe reads, once and before anything is decided, what a visit of a pod rests on: [Observer] makes [Facts], a value.
package observe

import (
	"cmp"
	"slices"
	"time"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
)

// Facts are what one visit of a pod rests on.
type Facts struct {
	Settings   *Settings
	clusterUID string
	// Tracked and Memory are what this process remembers of the pod, and change with each call.
	Tracked *tracker.Pod
	Memory  *memory.Pod
	// Input is the pod as it was read.
	Input lifecycle.Input

	// Targets are the pod's instances in its registries, the Sources. A Problem with their description only keeps it out of rotation.
	Targets []tracker.Target
	Sources []lifecycle.Source
	Problem waiting.Blocker
	// AddressUnknown: it can't be read which address the pod has, so nothing proves that it has left another.
	AddressUnknown bool
	// Unsteered is the Problem if its application may have registered the pod under a name that it may not use.
	Unsteered waiting.Blocker
	// Warning is for a person to check, and blocks nothing.
	Warning waiting.Blocker
	// Keeps are services that the pod may use only because it is registered under them.
	Keeps map[string]bool
	Drain drain.Policy
	// Changes is after how long the facts change without an event; zero for never.
	Changes time.Duration
	// Grows is after how long the pod's weight grows, while it is warming up; else zero.
	Grows time.Duration
	// Panic is the service with too many unready pods, if the pod has one.
	Panic clusterstate.Panic
	// Skip is what the skip annotation asks for, and hold what the hold annotation does.
	Skip lifecycle.Skip
	hold lifecycle.Hold
	// traffic is what its workload shares out.
	traffic traffic
	// PassedOn are applications' entries at former endpoints of the pod that another pod's application has now. No mark spares them.
	PassedOn map[lifecycle.Key]bool
	// Uncached: the pod is not in the cache.
	Uncached bool
	// Rollout is that of its workload, if Updated: the pod has the newer revision.
	Rollout lifecycle.Rollout
	Updated bool
}

// managed reports whether Rollcall drives the pod, or has made a call for it that must be undone some day.
func (f *Facts) managed() bool { return f.Input.Managed() || f.Tracked.Known().Any() }

// MayBeHeld reports whether OpenKruise or clients may wait for Rollcall at a pod whose workload could not be read: its hooks are not known.
func (f *Facts) MayBeHeld() bool {
	return f.managed() || clusterstate.OwnerOf(f.Input.Pod) != nil && lifecycle.AtAHook(f.Input.Pod)
}

// changeIn notes that the facts change without an event.
func (f *Facts) changeIn(after time.Duration) {
	if f.Changes == 0 || after < f.Changes {
		f.Changes = after
	}
}

// Gone reports whether only the pod's entries are left.
func (f *Facts) Gone() bool { return f.Uncached && !f.Memory.Lingers }

// Entries are the facts for the plan, with what is known now.
func (f *Facts) Entries(in lifecycle.Input, targets []tracker.Target) plan.Facts {
	return plan.Facts{
		Pod: in.Pod, Record: in.Record, Gone: f.Gone(), Targets: targets, Undescribed: f.Problem.Reason != "", PassedOn: f.PassedOn,
		AddressUnknown: f.AddressUnknown, Sources: f.Sources, Unsteered: f.Unsteered, CountsIn: f.countsIn(),
		Configuration: f.Settings, Known: f.Tracked.Known(),
		Owner: registry.Instance{
			Cluster: f.Settings.Cluster, ClusterUID: f.clusterUID, Namespace: in.Pod.Namespace, Pod: in.Pod.Name, UID: string(in.Pod.UID),
		},
	}
}

func (f *Facts) countsIn() time.Duration {
	if !f.Settings.Services.CountsAtEnd {
		return 0
	}
	return f.Grows
}

// targetsIn are all endpoints in all registries, but for those where the subject has none.
func (f *Facts) targetsIn(
	sources []lifecycle.Source, subject service.Subject, a service.Attributes, now time.Time,
) (targets []tracker.Target, err error) {
	since := f.Input.Record.InSince
	if f.Input.Record.Want != lifecycle.InService {
		since = now
	}
	entries := f.Entries(f.Input, nil)
	for _, s := range sources {
		endpoints, none := f.Settings.Services.EndpointsIn(s.Registry, subject)
		err = cmp.Or(none, err)
		for _, e := range endpoints {
			at := lifecycle.Key{Registry: s.Registry, Writer: s.Writer, Service: e.Service, Address: e.Address, Port: e.Port}
			if s.ByApp() && (!at.IsAt(f.Input.Pod) || f.Settings.CallsPods(s.Registry)) {
				at.Address = f.Input.Pod.Status.PodIP
			}
			t := entries.Target(entries.LastFound(at))
			if !s.ByApp() { // whose entry is as its application wrote it
				t.Instance.Registry, t.Instance.Zone = s.Registry, a.Zone
				t.Instance.Weight, f.Grows = a.Warmed(since, now)
				t.Instance.Tags, t.Instance.Metadata = a.Tags, a.Metadata
			}
			targets = append(targets, t)
		}
	}
	return targets, err
}

// Goal is what a row aims at.
func (f *Facts) Goal(row plan.Row) tracker.Goal {
	client := f.Settings.Client(row.Key().Source())
	return tracker.Goal{
		Want: row.Want, Told: row.Instance, Through: client, Gets: client.Gets(), MustBeSeen: row.Proof == plan.Sought,
		Given: len(f.GivenBy(row)) > 0, Late: f.late(row),
	}
}

// GivenBy are the entries by which clients are given the pod under the row's service, and should not be. What nobody tagged is the
// application's, which can be left to it or steered.
func (f *Facts) GivenBy(row plan.Row) []lifecycle.Foreign {
	found := f.Tracked.Foreign(row.Key())
	if len(found) == 0 || row.Want == lifecycle.Absent && !f.Entries(f.Input, nil).Has(row.Key()) { // nothing, or at an address it has lost
		return nil
	}
	toApp := row.ByApp() || row.LeftToApp || row.Want != lifecycle.InService && f.steersIn(row.Key())
	return slices.DeleteFunc(found, func(one lifecycle.Foreign) bool { return toApp && one.Tagged == "" })
}

// MayBeOut reports whether clients may lack the pod somewhere, whatever its record shows: a failed call may have taken it out.
func (f *Facts) MayBeOut() bool {
	known := f.Tracked.Known()
	return slices.ContainsFunc(f.Targets, func(t tracker.Target) bool { return !known.Of(t.Key()).Serves() })
}

// Certain reports whether the registry has acknowledged what the row wants, and nothing pending can undo it.
func (f *Facts) Certain(row plan.Row) bool { return f.Tracked.Standing(row.Key()).Certain(f.Goal(row)) }

// Use is the pod's use of an entry's service name.
func (f *Facts) Use(in lifecycle.Key, now time.Time) clusterstate.Use {
	return clusterstate.Use{
		Rules: &f.Settings.Rules, Pod: lifecycle.PodIDOf(f.Input.Pod), Registry: in.Registry, Service: in.Service, Now: now,
	}
}
