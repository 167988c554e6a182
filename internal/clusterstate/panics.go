package clusterstate

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// Panics counts unready pods by service, from the cache's events. With panicThreshold 50, 3 unready pods of 4 are a
// panic; 2 are not.
//
//	record shows that it was in rotation   counts, even if taken out since
//	still starting                         does not count
//	in another namespace                   counts if both share the name: tenants can write records
type Panics struct {
	claims  *Claims
	records *Records
	// Revisions counts the same pods otherwise.
	Revisions *Revisions

	mu   sync.Mutex
	pods map[types.UID]*peer
	// services are by [claimKey] and namespace.
	services map[lifecycle.Service]map[string]*peerGroup
	// calmed are unready pods to take out, now that their service's panic is over.
	calmed []lifecycle.PodID
	signal chan struct{}
}

// serviceKey has the service by [claimKey], and its name for the policy.
type serviceKey struct {
	service   lifecycle.Service
	name      service.Name
	namespace string
}

func keyOf(in lifecycle.Key, namespace string, s *Rules) serviceKey {
	return serviceKey{claimKey(in.Service), s.Services.NameIn(in.Registry, in.Service), namespace}
}

type peer struct {
	id      lifecycle.PodID
	version string
	ready   bool
	// services are by [claimKey], each in one of its registries.
	services []lifecycle.Key
	counted  counted
	fate
}

// fate is known only once the pod is reconciled.
type fate struct{ lost, ending, shareless bool }

type peerGroup struct {
	all     int
	unready map[types.UID]lifecycle.PodID
}

func newPanics(claims *Claims, records *Records) *Panics {
	return &Panics{
		claims: claims, records: records, Revisions: newRevisions(), pods: map[types.UID]*peer{},
		services: map[lifecycle.Service]map[string]*peerGroup{}, signal: make(chan struct{}, 1),
	}
}

// Arrived counts a pod from an event.
func (p *Panics) Arrived(pod *lifecycle.Pod, s *Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, of := p.pods[pod.UID], fate{}
	if before != nil {
		if of = before.fate; pod.ResourceVersion == before.version || Behind(pod.ResourceVersion, before.version) {
			return
		}
	}
	p.replace(pod.UID, before, peerOf(pod, p.records.Of(pod), of), s)
}

// Refresh counts a pod again: its node may have changed. A forgotten one stays so.
func (p *Panics) Refresh(in lifecycle.Input, s *Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, of := p.pods[in.Pod.UID], fate{in.NodeLost, in.Ending != "", in.WithoutShare}
	if before == nil || Behind(in.Pod.ResourceVersion, before.version) || in.Pod.ResourceVersion == before.version && of == before.fate {
		return
	}
	p.replace(in.Pod.UID, before, peerOf(in.Pod, in.Record, of), s)
}

// Forget stops counting a pod.
func (p *Panics) Forget(uid types.UID, s *Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.pods[uid]; before != nil {
		p.replace(uid, before, nil, s)
	}
}

// ForgetIn stops counting the pods of a namespace.
func (p *Panics) ForgetIn(namespace string, s *Rules) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for uid, before := range p.pods {
		if before.id.Namespace == namespace {
			p.replace(uid, before, nil, s)
		}
	}
}

// replace accepts nil for both peers, and calms services whose panic ends.
func (p *Panics) replace(uid types.UID, before, now *peer, s *Rules) {
	inPanic := map[serviceKey]bool{}
	for _, one := range []*peer{before, now} {
		for _, in := range one.in() {
			key := keyOf(in, one.id.Namespace, s)
			inPanic[key] = p.of(key, s).Panic(s.PanicThreshold)
		}
	}
	for _, in := range before.in() {
		p.leave(keyOf(in, before.id.Namespace, s), uid)
	}
	for _, in := range now.in() {
		p.join(keyOf(in, now.id.Namespace, s), uid, now)
	}
	p.Revisions.moved(before.counts(), now.counts())
	if p.pods[uid] = now; now == nil {
		delete(p.pods, uid)
	}
	for key, was := range inPanic {
		if was && !p.of(key, s).Panic(s.PanicThreshold) {
			p.calm(key, s)
		}
	}
}

func (p *Panics) join(key serviceKey, uid types.UID, one *peer) {
	if p.services[key.service] == nil {
		p.services[key.service] = map[string]*peerGroup{}
	}
	group := p.services[key.service][key.namespace]
	if group == nil {
		group = &peerGroup{unready: map[types.UID]lifecycle.PodID{}}
		p.services[key.service][key.namespace] = group
	}
	group.all++
	if !one.ready {
		group.unready[uid] = one.id
	}
}

func (p *Panics) leave(key serviceKey, uid types.UID) {
	groups := p.services[key.service]
	group := groups[key.namespace]
	group.all--
	delete(group.unready, uid)
	if group.all > 0 {
		return
	}
	if delete(groups, key.namespace); len(groups) == 0 {
		delete(p.services, key.service)
	}
}

// together are the pods that count together: the namespace's and, if it shares the name, those of others that do.
func (p *Panics) together(key serviceKey, s *Rules) iter.Seq[*peerGroup] {
	return func(yield func(*peerGroup) bool) {
		shares := p.claims.Shares(s, key.namespace, key.name)
		for namespace, group := range p.services[key.service] {
			counts := namespace == key.namespace || shares && p.claims.Shares(s, namespace, key.name)
			if counts && !yield(group) {
				return
			}
		}
	}
}

func (p *Panics) of(key serviceKey, s *Rules) (peers lifecycle.Peers) {
	for group := range p.together(key, s) {
		peers.All += group.all
		peers.Unready += len(group.unready)
	}
	return peers
}

func (p *Panics) calm(key serviceKey, s *Rules) {
	for group := range p.together(key, s) {
		p.calmed = slices.AppendSeq(p.calmed, maps.Values(group.unready))
	}
	select {
	case p.signal <- struct{}{}:
	default: // a signal is waiting already
	}
}

// Signal receives when [Panics.TakeCalmed] has pods.
func (p *Panics) Signal() <-chan struct{} { return p.signal }

// TakeCalmed returns each unready pod once after its service's panic.
func (p *Panics) TakeCalmed() []lifecycle.PodID {
	p.mu.Lock()
	defer p.mu.Unlock()
	calmed := p.calmed
	p.calmed = nil
	return calmed
}

// Panic is a service with too many unready pods; zero means none.
type Panic struct {
	Service lifecycle.Service
	Peers   lifecycle.Peers
}

// Message includes what to check.
func (p Panic) Message(threshold int) string {
	return fmt.Sprintf("%d of the %d pods of service %q are not ready, more than panicThreshold (%d%%): "+
		"the pod is kept in rotation; check the pods, their nodes and the network", p.Peers.Unready, p.Peers.All, p.Service, threshold)
}

// Of returns the pod's first service in panic. A panic keeps no pod that was never in rotation.
func (p *Panics) Of(namespace string, record lifecycle.Record, s *Rules) Panic {
	if !record.WasInService() {
		return Panic{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range record.Instances {
		if of := p.of(keyOf(in, namespace, s), s); of.Panic(s.PanicThreshold) {
			return Panic{Service: in.Service, Peers: of}
		}
	}
	return Panic{}
}

// peerOf returns nil for a pod that counts nowhere. An ending pod has no services: it is out on purpose.
func peerOf(pod *lifecycle.Pod, record lifecycle.Record, of fate) *peer {
	in := lifecycle.Input{Pod: pod, Record: record, WithoutShare: of.shareless}
	in.NodeLost = of.lost
	one := &peer{id: lifecycle.PodIDOf(pod), version: pod.ResourceVersion, fate: of, ready: in.Ready()}
	if !of.ending || of.shareless {
		one.counted = countedAs(in)
	}
	counts := lifecycle.Counts(pod) && in.Record.WasInService() && len(in.Record.Instances) > 0
	switch {
	case !counts && one.counted == counted{}:
		return nil
	case counts && !of.ending:
		one.services = servicesOf(in.Record)
	}
	return one
}

func servicesOf(record lifecycle.Record) (services []lifecycle.Key) {
	seen := map[lifecycle.Service]bool{}
	for _, in := range record.Instances {
		if name := claimKey(in.Service); !seen[name] {
			seen[name] = true
			services = append(services, lifecycle.Key{Registry: in.Registry, Service: in.Service})
		}
	}
	return services
}

func (p *peer) counts() counted {
	if p == nil {
		return counted{}
	}
	return p.counted
}

func (p *peer) in() []lifecycle.Key {
	if p == nil {
		return nil
	}
	return p.services
}
