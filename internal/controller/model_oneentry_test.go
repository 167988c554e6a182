package controller

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// oneEntry is how several keys of a pod can be one entry of its application, in a walk in which all entries are applications'.
type oneEntry string

const (
	// oneServer has a name for each registry of the configuration.
	oneServer oneEntry = "one server"
	// oneCaller is a driver that calls pods: each has one application, whatever the service, the port and the section.
	oneCaller oneEntry = "pods are called"
)

// chooseOneEntry makes every second walk with such applications one in which keys are not entries.
func (m *model) chooseOneEntry() {
	if m.apps.by == nil || !m.chance(50) {
		return
	}
	m.apps.one = []oneEntry{oneServer, oneCaller}[m.rng.IntN(2)]
	for name := range m.apps.by {
		m.apps.by[name] = true
	}
	m.apps.remembers = m.apps.remembers && m.apps.one == oneServer
	m.logf("applications' entries: %s", m.apps.one)
}

// entryOf is what a key of a pod means.
func (m *model) entryOf(uid types.UID, in lifecycle.Key) entry {
	if in.ByApp() && m.apps.one != "" {
		in.Registry = m.manager.all[0]
	}
	if in.ByApp() && m.apps.one == oneCaller {
		in.Service, in.Port = "any", 1
	}
	return entry{uid, in}
}

// entriesOf are what the keys mean, each once.
func (m *model) entriesOf(uid types.UID, keys []lifecycle.Key) []lifecycle.Key {
	for i, in := range keys {
		keys[i] = m.entryOf(uid, in).in
	}
	slices.SortFunc(keys, lifecycle.Key.Compare)
	return slices.Compact(keys)
}

// reaches reports whether a manager can ask for the entry: the configuration has a name for its registry, and its application runs if it is
// asked itself.
func (m *model) reaches(e entry) bool {
	named := slices.Contains(m.manager.there, e.in.Registry) || m.apps.one != "" && len(m.manager.there) > 0
	return named && !m.isNoMore(m.podOf(e.uid), e)
}

// isNoMore reports whether it is the entry of an application that is not called any more: its pod ended, or has another address.
func (m *model) isNoMore(p *modelPod, e entry) bool {
	return m.apps.one == oneCaller && e.isByApp() && (p.api == nil || isFinished(p.last()) || p.last().Status.PodIP != e.in.Address)
}

const modelServiceNames = "web=8080,admin=9090"

// rename gives the pod's services other names, or other ports.
func (m *model) rename(p *modelPod, services string) {
	if p.api == nil || p.api.Annotations[service.AnnotationServices] == services {
		return
	}
	pod := p.api.DeepCopy()
	pod.Annotations[service.AnnotationServices] = services
	m.logf("someone: gives %s the services %s", p.uid, services)
	m.commit(p, pod)
	m.edited()
}

// callingDriver is one that calls pods.
type callingDriver struct{ steeredDriver }

// Traits implements registry.Describer.
func (callingDriver) Traits() registry.Traits { return registry.Traits{CallsPods: true} }

var _ registry.Describer = callingDriver{}
