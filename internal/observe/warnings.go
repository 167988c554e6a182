package observe

import (
	"slices"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// What a person should check, and blocks nothing: the first that is found, in the order of [Observer.Look].

// warnOfNames: an annotation has no effect, or clients drop the pod for what it lacks.
func (f *Facts) warnOfNames(node *lifecycle.Node) {
	if why := lifecycle.UnreadableEnd(f.Input.Pod, node); why != "" && f.Warning.Reason == "" {
		f.Warning = waiting.UnreadableEnd(why)
	}
	if unknown := f.Input.UnknownName(service.Annotations()); unknown != "" && f.Warning.Reason == "" {
		f.Warning = waiting.UnknownName(unknown)
	}
	if t := f.ipv4Only(); t != "" && f.Warning.Reason == "" {
		f.Warning = waiting.IPv6Missing(t)
	}
}

// warnOfInjected: clients are given a port of another container than the author of the template meant.
func (f *Facts) warnOfInjected(workload *clusterstate.Workload) {
	if pod := f.Input.Pod; workload == nil || f.Warning.Reason != "" || len(pod.Spec.Containers) < 2 {
		return
	}
	if why := f.Settings.Services.Injected(service.SubjectOf(f.Input.Pod), new(workload.Template.Spec())); why != "" {
		f.Warning = waiting.InjectedPort(why)
	}
}

// warnOfBalancer: it sends requests to the pod while Rollcall and the pod's condition show it out of rotation.
func (f *Facts) warnOfBalancer() {
	if gate := lifecycle.KeptAsTarget(f.Input.Pod.Spec.ReadinessGates); gate != "" && f.Warning.Reason == "" {
		f.Warning = waiting.UnreadyTarget(string(gate))
	}
}

// warnOfVirtualNode: clients are given an address of vCluster's as the node's.
func (f *Facts) warnOfVirtualNode(node *lifecycle.Node) {
	given := func(t tracker.Target) bool { return t.Instance.Address == node.VirtualIP }
	if node == nil || node.VirtualIP == "" || f.Warning.Reason != "" || !slices.ContainsFunc(f.Targets, given) {
		return
	}
	f.Warning = waiting.VirtualNodeIP(node.VirtualIP, node.Name)
}
