package controller

import (
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// facts are what the pod's rows rest on, with what is known now.
func (o *observation) facts() plan.Facts {
	pod := o.pod()
	return plan.Facts{
		Pod: pod, Record: o.input.Record, Gone: o.gone(), Targets: o.targets, Undescribed: o.problem.Reason != "", PassedOn: o.passedOn,
		Owner: registry.Instance{
			Cluster: o.settings.Cluster, ClusterUID: o.clusterUID, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		},
		Names: o.settings, Known: o.tracked.Known(),
	}
}

// targetsIn are all of the pod's: each endpoint in each of its registries.
func (o *observation) targetsIn(sources []lifecycle.Source, endpoints []service.Endpoint, attributes service.Attributes) []tracker.Target {
	facts, targets := o.facts(), make([]tracker.Target, 0, len(sources)*len(endpoints))
	for _, s := range sources {
		for _, e := range endpoints {
			t := facts.Target(facts.PlaceOf(lifecycle.Recorded{
				Registry: s.Registry, Writer: s.Writer, Service: e.Service, Address: o.pod().Status.PodIP, Port: e.Port,
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

// unacknowledged reports whether a change is still to be made.
func (o *observation) unacknowledged(row plan.Row) bool {
	return !o.tracked.Standing(row.Key()).Says(row.Want, row.Instance)
}

// goal is what has to become of a row's entry.
func (o *observation) goal(row plan.Row) tracker.Goal {
	client := o.settings.client(row.Key().Source())
	return tracker.Goal{
		Want: row.Want, Told: row.Instance, Through: client, Gets: client.Gets(), MustBeSeen: row.MustBeSeen,
		Given: !row.ByApp() && !row.LeftToApp && o.tracked.Foreign(row.Key()),
	}
}

// certain reports whether the registry has acknowledged what the row wants, and nothing can have undone it or still will.
func (o *observation) certain(row plan.Row) bool {
	return o.tracked.Standing(row.Key()).Certain(o.goal(row))
}

// newRecord has the pod's instances and those that it has yet to leave, or all that were taken out where its
// description does not tell which those are.
func (o *observation) newRecord(p plan.Plan) *lifecycle.Record {
	instances := make([]lifecycle.Recorded, 0, len(p.Present))
	for _, row := range p.Present {
		instances = append(instances, row.Key())
	}
	for _, row := range slices.Concat(p.Former, p.Departing) {
		if len(p.Present) == 0 || row.Want != lifecycle.Absent || !o.certain(row) {
			instances = append(instances, row.Key())
		}
	}
	facts := o.facts()
	record := lifecycle.NewRecord(o.pod(), o.input.Hooks, o.decision.Want, instances, o.input.Record.OutSince)
	record.NeverInService = record.Want != lifecycle.InService && !o.input.Record.WasInService() && !facts.Known.WasInService()
	for _, in := range record.Instances {
		if facts.Unseen(in) {
			record.Unfound = append(record.Unfound, in)
		}
	}
	return &record
}
