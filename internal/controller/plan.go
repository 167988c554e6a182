package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// targetsIn are all of the pod's: each endpoint in each of its registries.
func (o *observation) targetsIn(registries []string, endpoints []service.Endpoint, attributes service.Attributes) []tracker.Target {
	targets := make([]tracker.Target, 0, len(registries)*len(endpoints))
	for _, name := range registries {
		for _, e := range endpoints {
			t := o.target(lifecycle.Recorded{Registry: name, Service: e.Service, Address: o.pod().Status.PodIP, Port: e.Port})
			if !byApp(t.Key()) { // whose entry says what it says
				t.Instance.Registry = name
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
	return tracker.Target{Registry: in.Registry, Instance: registry.Instance{
		Service: in.Service, Address: in.Address, Port: in.Port,
		Cluster: o.settings.Cluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	}}
}

// defaultRegistry is the name of a registry that is the only one, which messages leave out.
const defaultRegistry = "default"

// change is one target and what its registry must say of it.
type change struct {
	tracker.Target
	want lifecycle.Want
}

func (c change) String() string {
	text := fmt.Sprintf("service %q at %s", c.Instance.Service, c.Instance.Endpoint())
	name, apps := registryclient.CutAppEntries(c.Registry)
	if apps {
		text = "the application's own entry of " + text
	}
	if name == defaultRegistry {
		return text
	}
	return fmt.Sprintf("%s in registry %q", text, name)
}

// asked is the change in the registry's words.
func (c change) asked() registry.Change {
	return registry.Change{Instance: c.Instance, State: map[lifecycle.Want]registry.State{
		lifecycle.InService: registry.InService, lifecycle.OutOfService: registry.OutOfService, lifecycle.Absent: registry.Absent,
	}[c.want]}
}

// plan is a pod's changes in their order. An address that is no longer the pod's goes first, since it may be another pod's
// soon. A service or a registry that the pod departs from goes last, when clients are given the pod in all others, so that
// there is no moment at which they find it nowhere.
type plan struct {
	formerAddresses, present, departing []change
}

func (p plan) all() []change { return slices.Concat(p.formerAddresses, p.present, p.departing) }

// plan of a pod that stays as it is takes out only an address that it no longer has, and where it departs from once it is in
// service everywhere that it belongs.
func (o *observation) plan() plan {
	var p plan
	d := o.decision
	others, address, keeps := o.instances(), o.pod().Status.PodIP, d.Want == lifecycle.Keep
	if keeps && (d.Row == lifecycle.RowUnknownState || address == "") {
		return p
	}
	for _, t := range o.targets {
		delete(others, t.Key())
	}
	if !keeps {
		p.present = o.present(d.Want)
	}
	for _, in := range slices.SortedFunc(maps.Keys(others), lifecycle.Recorded.Compare) {
		c := change{Target: o.target(in), want: lifecycle.Absent}
		switch {
		case in.Address != address:
			p.formerAddresses = append(p.formerAddresses, c)
		case !keeps || o.arrived():
			if d.Want != lifecycle.Absent && o.staysUnderAnotherName(in) {
				c.Instance.Registry = in.Registry
			}
			p.departing = append(p.departing, c)
		}
	}
	return p
}

// present are the changes for the places where the pod belongs. What takes it out holds under whichever name of the registry
// the entry was written.
func (o *observation) present(want lifecycle.Want) []change {
	changes := make([]change, 0, len(o.targets))
	for _, t := range o.targets {
		if want != lifecycle.InService {
			t.Instance.Registry = ""
		}
		changes = append(changes, change{Target: t, want: want})
	}
	return changes
}

// staysUnderAnotherName reports whether the pod departs from a registry and keeps the same instance in another, which may be
// the same server: its entry must be spared if it is the other's by now.
func (o *observation) staysUnderAnotherName(in lifecycle.Recorded) bool {
	return slices.ContainsFunc(o.targets, func(t tracker.Target) bool {
		other := t.Key()
		other.Registry = in.Registry
		return other == in && t.Registry != in.Registry
	})
}

// arrived reports whether the pod is known to be in service everywhere that it belongs.
func (o *observation) arrived() bool {
	return o.problem.reason == "" && !slices.ContainsFunc(o.present(lifecycle.InService), o.unacknowledged)
}

// unacknowledged reports whether a change is still to be made.
func (o *observation) unacknowledged(c change) bool {
	return !o.tracked.Standing(c.Key()).Says(c.want, c.Instance)
}

// certain reports whether the registry has acknowledged the change, and nothing can have undone it or still will.
func (o *observation) certain(c change) bool {
	standing := o.tracked.Standing(c.Key())
	return standing.Says(c.want, c.Instance) && standing.Settled() && !o.asksAbout(c)
}

// mayBeOut reports whether a registry was asked to take out an instance of the pod, and may have done so.
func (o *observation) mayBeOut() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(o.tracked.Known())), tracker.Instance.AskedOut)
}

// instances are those that this process knows of, or that the record names. A tenant can write a record, and what an
// application wrote carries no mark that would spare it: there the record counts for the pod's own address alone.
func (o *observation) instances() map[lifecycle.Recorded]bool {
	instances := map[lifecycle.Recorded]bool{}
	for in := range o.tracked.Known() {
		instances[o.underItsName(in)] = true
	}
	for _, in := range o.input.Record.Instances {
		if !byApp(in) || in.Address == o.pod().Status.PodIP {
			instances[o.underItsName(in)] = true
		}
	}
	return instances
}

// underItsName returns the instance under the name that the configuration has for the registry by now.
func (o *observation) underItsName(in lifecycle.Recorded) lifecycle.Recorded {
	name, apps := registryclient.CutAppEntries(in.Registry)
	if _, has := o.settings.Registries[name]; has {
		return in
	}
	now := cmp.Or(o.settings.Renamed[name], o.tracked.Renamed(name))
	switch {
	case now != "" && apps:
		in.Registry = registryclient.AppEntries(now)
	case now != "":
		in.Registry = now
	}
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
func (o *observation) newRecord(p plan) *lifecycle.Record {
	named := p.present
	for _, c := range slices.Concat(p.formerAddresses, p.departing) {
		if len(p.present) == 0 || !o.certain(c) {
			named = append(slices.Clip(named), c)
		}
	}
	instances := make([]lifecycle.Recorded, 0, len(named))
	for _, c := range named {
		instances = append(instances, c.Key())
	}
	record := lifecycle.NewRecord(o.pod(), o.input.Hooks, o.decision.Want, instances, o.input.Record.OutSince)
	if record.Want == lifecycle.InService {
		record.OutSince = nil
	}
	return &record
}
