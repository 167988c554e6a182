package controller

import (
	"cmp"
	"maps"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// targetsIn are all of the pod's: each endpoint in each of its registries.
func (o *observation) targetsIn(sources []lifecycle.Source, endpoints []service.Endpoint, attributes service.Attributes) []tracker.Target {
	targets := make([]tracker.Target, 0, len(sources)*len(endpoints))
	for _, s := range sources {
		for _, e := range endpoints {
			t := o.target(o.placeOf(lifecycle.Recorded{
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

// target marks an instance as this pod's, whatever a record says. It names no registry: what takes the instance out holds
// for the pod's entry under whichever name of the registry that was written.
func (o *observation) target(in lifecycle.Recorded) tracker.Target {
	pod := o.pod()
	return tracker.Target{Registry: in.Registry, Writer: in.Writer, Instance: registry.Instance{
		Service: in.Service, Address: in.Address, Port: in.Port,
		Cluster: o.settings.Cluster, ClusterUID: o.clusterUID, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	}}
}

func (o *observation) plan() plan.Plan {
	return plan.Of(plan.Facts{
		Row: o.decision.Row, Want: o.decision.Want, Address: o.pod().Status.PodIP, Others: lifecycle.OtherAddressesOf(o.pod()),
		Targets: o.targets, Instances: o.instances(), Target: o.target, Arrived: o.arrived, Tracked: o.tracked,
	})
}

// arrived reports whether the pod is known to be in service everywhere that it belongs.
func (o *observation) arrived() bool {
	return o.problem.Reason == "" && !slices.ContainsFunc(plan.Present(o.targets, lifecycle.InService), o.unacknowledged)
}

// unacknowledged reports whether a change is still to be made.
func (o *observation) unacknowledged(c plan.Change) bool {
	return !o.tracked.Standing(c.Key()).Says(c.Want, c.Instance)
}

// goal is what has to become of an instance, as far as the configuration and its change tell.
func (o *observation) goal(c plan.Change) tracker.Goal {
	client := o.settings.client(c.Key().Source())
	return tracker.Goal{Want: c.Want, Told: c.Instance, Through: client, Gets: client.Gets()}
}

// certain reports whether the registry has acknowledged the change, and nothing can have undone it or still will.
func (o *observation) certain(c plan.Change) bool {
	return o.tracked.Standing(c.Key()).Certain(o.goal(c))
}

// wasInService reports whether clients were given the instance once, by what this process or the record knows.
func (o *observation) wasInService(in lifecycle.Recorded) bool {
	record := o.input.Record
	return o.tracked.Standing(in).WasInService() || record.WasInService() && slices.ContainsFunc(record.Instances,
		func(r lifecycle.Recorded) bool { return o.underItsName(r) == in })
}

// mayBeOut reports whether a registry was asked to take out an instance of the pod, and may have done so.
func (o *observation) mayBeOut() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(o.tracked.Known())), tracker.Instance.AskedOut)
}

// instances are those that this process knows of, or that the record names. A tenant can write a record, and what an
// application wrote carries no mark that would spare it: there the record counts for the pod's addresses alone.
func (o *observation) instances() map[lifecycle.Recorded]bool {
	instances := map[lifecycle.Recorded]bool{}
	for in := range o.tracked.Known() {
		instances[o.underItsName(in)] = true
	}
	for _, in := range o.input.Record.Instances {
		if !in.ByApp() || o.reaches(in) {
			instances[o.underItsName(in)] = true
		}
	}
	return instances
}

// underItsName returns the instance under the name that the configuration has for the registry by now, by what the
// configurations or the entries that were found say.
func (o *observation) underItsName(in lifecycle.Recorded) lifecycle.Recorded {
	in = o.settings.UnderItsName(in)
	if _, has := o.settings.Registries[in.Registry]; has {
		return in
	}
	in.Registry = cmp.Or(o.tracked.Renamed(in.Registry), in.Registry)
	return in
}

// recorded are the targets that the record says to be in a registry, with their weight and metadata where the pod still has
// them.
func (o *observation) recorded() []tracker.Target {
	if o.input.Record.Want == lifecycle.Absent {
		return nil
	}
	var recorded []tracker.Target
	for _, in := range o.input.Record.Instances {
		in = o.underItsName(in)
		t := o.target(in)
		if i := slices.IndexFunc(o.targets, func(t tracker.Target) bool { return t.Key() == in }); i >= 0 {
			t = o.targets[i]
		}
		recorded = append(recorded, t)
	}
	return recorded
}

// newRecord names the pod's instances and those that it has yet to leave, or all that were taken out where its
// description does not tell which those are.
func (o *observation) newRecord(p plan.Plan) *lifecycle.Record {
	instances := make([]lifecycle.Recorded, 0, len(p.Present))
	for _, c := range p.Present {
		instances = append(instances, c.Key())
	}
	for _, c := range slices.Concat(p.FormerAddresses, p.Departing) {
		if len(p.Present) == 0 || c.Want != lifecycle.Absent || !o.certain(c) {
			instances = append(instances, c.Key())
		}
	}
	record := lifecycle.NewRecord(o.pod(), o.input.Hooks, o.decision.Want, instances, o.input.Record.OutSince)
	record.NeverInService = record.Want != lifecycle.InService && !o.input.Record.WasInService() && !o.tracked.WasInService()
	for _, in := range record.Instances {
		if o.unseen(in) {
			record.Unfound = append(record.Unfound, in)
		}
	}
	return &record
}
