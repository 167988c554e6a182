package controller

import (
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
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
	return m.claimed(p)
}

// namesStay is how long a namespace keeps the names after its last pod has left them.
const namesStay = 5*time.Minute + settleStep

// noteNames notes which namespaces have pods under the names. To be out gives no right to a name, except for an application's entry.
func (m *model) noteNames() {
	for e, says := range m.registry.entries {
		p := m.podOf(e.uid)
		if m.rivals && p.api != nil && (says == registry.InService || e.isByApp()) {
			m.named[modelName{p.namespace, e.in.Service}] = m.now
		}
	}
}

// modelName is a namespace's use of a name.
type modelName struct {
	namespace string
	service   lifecycle.Service
}

// claimed reports whether another namespace has one of the names: its pods have it, or had until a while ago, and none of the pod's own
// namespace has.
func (m *model) claimed(p *modelPod) bool {
	for name, last := range m.named {
		own := m.named[modelName{p.namespace, name.service}].Equal(m.now) && m.apps.by == nil // whose entries both namespaces may have
		if name.namespace != p.namespace && m.now.Before(last.Add(namesStay)) && !own {
			return true
		}
	}
	return false
}
