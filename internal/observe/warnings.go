package observe

import (
	"cmp"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// warn is for what a person should check, and blocks nothing: the first that is found, in the order of [Observer.Look].
func (f *Facts) warn(why string, of func(string) waiting.Blocker) {
	if why != "" {
		f.Warning = cmp.Or(f.Warning, of(why))
	}
}

// warnOf: clients are given an address of vCluster's as the node's, an annotation has no effect, or clients drop the pod for what it lacks.
func (f *Facts) warnOf(node *lifecycle.Node) {
	if node != nil {
		given := func(t tracker.Target) bool { return t.Instance.Address == node.VirtualIP }
		if node.VirtualIP != "" && slices.ContainsFunc(f.Targets, given) {
			f.Warning = cmp.Or(f.Warning, waiting.VirtualNodeIP(node.VirtualIP, node.Name))
		}
	}
	f.warn(lifecycle.UnreadableEnd(f.Input.Pod, node), waiting.UnreadableEnd)
	f.warn(f.Input.UnknownName(service.Annotations()), waiting.UnknownName)
	f.warn(f.ipv4Only(), waiting.IPv6Missing)
}

// warnOfTraffic: clients are given a port of another container than the author of the template meant, or a balancer sends requests to the
// pod while Rollcall and the pod's condition show it out of rotation.
func (f *Facts) warnOfTraffic(workload *clusterstate.Workload) {
	if pod := f.Input.Pod; workload != nil && len(pod.Spec.Containers) > 1 {
		f.warn(f.Settings.Services.Injected(service.SubjectOf(pod), new(workload.Template.Spec())), waiting.InjectedPort)
	}
	f.warn(string(lifecycle.KeptAsTarget(f.Input.Pod.Spec.ReadinessGates)), waiting.UnreadyTarget)
}
