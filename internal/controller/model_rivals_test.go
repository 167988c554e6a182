package controller

import (
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// In a walk with rivals, two namespaces have a CloneSet of the same shape each, whose pods want the same service names. Which namespace
// a pod is in is random.
const rivalNamespace = "rivals"

func (m *model) namespaces() []string {
	if m.rivals {
		return []string{rivalNamespace, testNamespace}
	}
	return []string{testNamespace}
}

func (m *model) anyNamespace() string {
	if all := m.namespaces(); len(all) > 1 {
		return all[m.rng.IntN(len(all))]
	}
	return testNamespace
}

func (m *model) workloadIn(namespace string) *kruisev1alpha1.CloneSet {
	w := m.workload.DeepCopy()
	if namespace == rivalNamespace {
		w.Namespace, w.UID = namespace, w.UID+"-of-rivals"
	}
	return w
}

// listClaims tells the manager which names a list shows as used.
func (m *model) listClaims(l tracker.Listing) {
	var standing []clusterstate.Entry
	for _, e := range l.Entries {
		p := m.podOf(types.UID(e.UID))
		if e.State == registry.InService && p.view >= 0 && p.versions[p.view] != nil {
			t := tracker.Target{Registry: l.Registry, Instance: e.Instance}
			standing = append(standing, clusterstate.Entry{Key: t.Key(), Pod: lifecycle.PodIDOf(lifecycle.PodOf(p.versions[p.view]))})
		}
	}
	m.manager.State.Claims.Listed(clusterstate.List{Registry: l.Registry, Entries: standing, AsOf: l.Asked}, m.now)
}

// checkNames: clients of a service are given the pods of one namespace. What a pod left that is gone gives no right to a name.
func (m *model) checkNames() {
	owner := map[lifecycle.Service]*modelPod{}
	for e, says := range m.registry.entries {
		if says != registry.InService || e.isByApp() {
			continue
		}
		p := m.podOf(e.uid)
		if p.api == nil {
			continue
		}
		if other := owner[e.in.Service]; other != nil && other.namespace != p.namespace {
			m.violatef("service %q has %s of %s and %s of %s", e.in.Service, p.uid, p.namespace, other.uid, other.namespace)
		}
		owner[e.in.Service] = p
	}
}

// refused reports whether the pod may not use a name that another namespace has. Where nothing waits, no reason is shown, and what its
// application wrote stays as it is.
func (m *model) refused(p *modelPod) bool {
	others := m.rivals && m.registry.count(func(e entry) bool { return m.podOf(e.uid).namespace != p.namespace }) > 0
	return others && m.apps.by != nil || m.claimed(p) != ""
}

// claimed is what is shown of a pod while another namespace has its name.
func (m *model) claimed(p *modelPod) string {
	for _, w := range m.manager.Waits() {
		if w.UID == string(p.uid) && w.Reason == string(reason.ServiceClaimed) {
			return w.Message
		}
	}
	return ""
}

// checkOwners: one of the namespaces has the names, all of them. A pod that is registered under a name keeps it, with a Warning.
func (m *model) checkOwners() {
	refused := map[string]string{}
	for _, p := range m.pods {
		if why := m.claimed(p); why != "" && p.api != nil && !m.registry.inService(p.uid) {
			refused[p.namespace] = why
		}
	}
	if len(refused) == len(m.namespaces()) {
		m.violatef("no namespace has the names: %v", refused)
	}
}
