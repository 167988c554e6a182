// Package observe gathers what a visit of a pod rests on, once and before anything is decided. Its reads are in [Observer]; what comes of
// them is [Facts], a value that nothing changes afterwards.
package observe

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
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
	// Tracked and Memory are what this process remembers of the pod. They change with each call.
	Tracked *tracker.Pod
	Memory  *memory.Pod
	// Input is that of the decision, as the pod was read.
	Input lifecycle.Input

	// Targets are those that the pod has now in its registries, as far as its description tells, and Sources are these registries. A
	// problem with the description keeps the pod from being put in service, and nothing else.
	Targets []tracker.Target
	Sources []lifecycle.Source
	Problem waiting.Blocker
	// Unsteered: clients may be given the pod by its application's entry under a name that the pod may not use.
	Unsteered bool
	// Warning is what a person should look at although it keeps the pod from nothing.
	Warning waiting.Blocker
	// Keeps are the service names that the pod is registered under and may not use otherwise.
	Keeps map[string]bool
	Drain time.Duration
	// EndChanges is after how long [lifecycle.Input.Ending] changes; zero where it does not by itself.
	EndChanges time.Duration
	// Panic is the service of the pod of which too many pods are not ready at once; the zero value where none is.
	Panic clusterstate.Panic
	// Skip is what a person asks for.
	Skip lifecycle.Skip
	// PassedOn are applications' entries at places that the pod no longer has, and another pod's application has now. They carry no
	// mark that would spare them.
	PassedOn map[lifecycle.Key]bool
	// Departed: the cache no longer has the pod.
	Departed bool
}

// managed reports whether Rollcall has anything to do with the pod. A call that was made has to be undone one day, also
// where the record of it got lost and the workload names no handler of Rollcall's any more.
func (f *Facts) managed() bool { return f.Input.Managed() || f.Tracked.Known().Any() }

// Gone reports whether nothing is left of the pod but its entries.
func (f *Facts) Gone() bool { return f.Departed && !f.Memory.Lingers }

// Entries are what the pod's rows rest on, with what is known now.
func (f *Facts) Entries(in lifecycle.Input, targets []tracker.Target) plan.Facts {
	return plan.Facts{
		Pod: in.Pod, Record: in.Record, Gone: f.Gone(), Targets: targets, Undescribed: f.Problem.Reason != "", PassedOn: f.PassedOn,
		Owner: f.owner(in.Pod), Configuration: f.Settings, Known: f.Tracked.Known(),
	}
}

func (f *Facts) owner(pod *corev1.Pod) registry.Instance {
	return registry.Instance{
		Cluster: f.Settings.Cluster, ClusterUID: f.clusterUID, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	}
}

// targetsIn are all of the pod's: each endpoint in each of its registries.
func (f *Facts) targetsIn(sources []lifecycle.Source, endpoints []service.Endpoint, attributes service.Attributes) []tracker.Target {
	entries, targets := f.Entries(f.Input, nil), make([]tracker.Target, 0, len(sources)*len(endpoints))
	for _, s := range sources {
		for _, e := range endpoints {
			t := entries.Target(entries.PlaceOf(lifecycle.Key{
				Registry: s.Registry, Writer: s.Writer, Service: e.Service, Address: f.Input.Pod.Status.PodIP, Port: e.Port,
			}))
			if !s.ByApp() { // whose entry says what it says
				t.Instance.Registry = s.Registry
				t.Instance.Weight, t.Instance.Zone = attributes.Weight, attributes.Zone
				t.Instance.Tags, t.Instance.Metadata = attributes.Tags, attributes.Metadata
			}
			targets = append(targets, t)
		}
	}
	return targets
}

// Goal is what has to become of a row's entry.
func (f *Facts) Goal(row plan.Row) tracker.Goal {
	client := f.Settings.Client(row.Key().Source())
	return tracker.Goal{
		Want: row.Want, Told: row.Instance, Through: client, Gets: client.Gets(), MustBeSeen: row.MustBeSeen,
		Given: !row.ByApp() && !row.LeftToApp && f.Tracked.Foreign(row.Key()),
	}
}

// MayBeOut reports whether clients may not be given the pod somewhere where it belongs, whatever its record says: a call that failed can
// have taken it out, or the registry has lost it.
func (f *Facts) MayBeOut() bool {
	known := f.Tracked.Known()
	return slices.ContainsFunc(f.Targets, func(t tracker.Target) bool { return !known.Of(t.Key()).Serves() })
}

// Certain reports whether the registry has acknowledged what the row wants, and nothing can have undone it or still will.
func (f *Facts) Certain(row plan.Row) bool { return f.Tracked.Standing(row.Key()).Certain(f.Goal(row)) }

// Use is the pod's use of a service name.
func (f *Facts) Use(name string, now time.Time) clusterstate.Use {
	return clusterstate.Use{Rules: &f.Settings.Rules, Pod: lifecycle.PodIDOf(f.Input.Pod), Service: name, Now: now}
}
