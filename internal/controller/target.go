package controller

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// target is one instance in one registry.
type target struct {
	// registry is its name in the configuration.
	registry string
	instance registry.Instance
}

// key tells a target from the pod's others.
func (t target) key() lifecycle.Recorded {
	in := t.instance
	return lifecycle.Recorded{Registry: t.registry, Service: in.Service, Address: in.Address, Port: in.Port}
}

func (t target) String() string {
	text := fmt.Sprintf("service %q at %s", t.instance.Service, t.instance.Endpoint())
	if t.registry == defaultRegistry {
		return text
	}
	return fmt.Sprintf("%s in registry %q", text, t.registry)
}

// defaultRegistry is the name of a registry that is the only one, which nobody needs to be told.
const defaultRegistry = "default"

// targetsOf are all of the pod's: each endpoint in each of its registries.
func targetsOf(
	cluster string, pod *corev1.Pod, registries []string, endpoints []service.Endpoint, attributes service.Attributes,
) []target {
	targets := make([]target, 0, len(registries)*len(endpoints))
	for _, name := range registries {
		for _, e := range endpoints {
			t := targetOf(cluster, pod, lifecycle.Recorded{
				Registry: name, Service: e.Service, Address: pod.Status.PodIP, Port: e.Port,
			})
			t.instance.Registry = name
			t.instance.Weight, t.instance.Zone, t.instance.Metadata = attributes.Weight, attributes.Zone, attributes.Metadata
			targets = append(targets, t)
		}
	}
	return targets
}

// targetOf marks an instance as this pod's, whatever a record says. It names no registry: what takes the instance out holds
// for the pod's entry under whichever name of the registry that was written.
func targetOf(cluster string, pod *corev1.Pod, in lifecycle.Recorded) target {
	return target{registry: in.Registry, instance: registry.Instance{
		Service: in.Service, Address: in.Address, Port: in.Port,
		Cluster: cluster, Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
	}}
}

// step is one target and what its registry shall say of it.
type step struct {
	target
	want lifecycle.Want
}

// course are the steps in their order. An address that is no longer the pod's goes first, since it may be another pod's
// soon. A service or a registry that the pod has left goes last, when clients are given the pod in all others, so that
// there is no moment at which they find it nowhere.
type course struct {
	elsewhere, present, left []step
}

func (c course) all() []step { return slices.Concat(c.elsewhere, c.present, c.left) }

// course of a pod that stays as it is takes out only an address that it no longer has, and what it has left for where it
// is in service by now.
func (o *observation) course(d lifecycle.Decision) course {
	var c course
	known, address, keeps := o.known(), o.pod().Status.PodIP, d.Want == lifecycle.Keep
	if keeps && (d.Row == lifecycle.RowUnknownState || address == "") {
		return c
	}
	for _, t := range o.targets {
		delete(known, t.key())
	}
	if !keeps {
		c.present = o.present(d.Want)
	}
	for _, in := range slices.SortedFunc(maps.Keys(known), lifecycle.Recorded.Compare) {
		s := step{target: targetOf(o.settings.Cluster, o.pod(), in), want: lifecycle.Absent}
		switch {
		case in.Address != address:
			c.elsewhere = append(c.elsewhere, s)
		case !keeps || o.arrived():
			if d.Want != lifecycle.Absent && o.staysUnderAnotherName(in) {
				s.instance.Registry = in.Registry
			}
			c.left = append(c.left, s)
		}
	}
	return c
}

// present are the steps for the places where the pod belongs. What takes it out holds under whichever name of the registry
// the entry was written.
func (o *observation) present(want lifecycle.Want) []step {
	steps := make([]step, 0, len(o.targets))
	for _, t := range o.targets {
		if want != lifecycle.InService {
			t.instance.Registry = ""
		}
		steps = append(steps, step{target: t, want: want})
	}
	return steps
}

// staysUnderAnotherName reports whether the pod leaves a registry and keeps the same instance in another, which may be the
// same server: its entry must be spared if it is the other's by now.
func (o *observation) staysUnderAnotherName(in lifecycle.Recorded) bool {
	return slices.ContainsFunc(o.targets, func(t target) bool {
		other := t.key()
		other.Registry = in.Registry
		return other == in && t.registry != in.Registry
	})
}

// arrived reports whether the pod is known to be in service everywhere that it belongs.
func (o *observation) arrived() bool {
	away := func(t target) bool { return o.unsaid(step{target: t, want: lifecycle.InService}) }
	return o.problem.reason == "" && !slices.ContainsFunc(o.targets, away)
}
