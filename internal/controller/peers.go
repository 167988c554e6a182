package controller

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// peers counts, for each service, the pods that should be in service and those of them that are not ready. It follows the
// cache's events, each at a cost that does not grow with the number of pods, and holds all pods before the first one is
// worked on.
//
// A pod counts for the services in its record: those are the pods that were put in service, so one that is still starting
// does not count. A tenant can write a record, so it counts only among the pods of its own namespace, unless services are
// shared across namespaces.
type peers struct {
	mu   sync.Mutex
	pods map[types.UID]*peer
	// services are by name, as [claimKey] has it, and by namespace.
	services map[string]map[string]*peerGroup
	// calmed are the unready pods of services that are no longer in panic: they are to be taken out now.
	calmed []Request
	wake   chan struct{}
}

// peer is one pod as it was last counted.
type peer struct {
	request  Request
	version  string
	ready    bool
	services []string
}

// peerGroup is one service in one namespace.
type peerGroup struct {
	all     int
	unready map[types.UID]Request
}

func newPeers() *peers {
	return &peers{
		pods: map[types.UID]*peer{}, services: map[string]map[string]*peerGroup{}, wake: make(chan struct{}, 1),
	}
}

// arrived counts a pod as the cache's event shows it.
func (p *peers) arrived(pod *corev1.Pod, s *Settings) { p.count(pod, s, true) }

// refresh counts a pod anew that the cache has newer than its last event. One that an event has said to be gone stays so.
func (p *peers) refresh(pod *corev1.Pod, s *Settings) { p.count(pod, s, false) }

func (p *peers) count(pod *corev1.Pod, s *Settings, add bool) {
	now := peerOf(pod)
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.pods[pod.UID]
	if before == nil && !add || before != nil && behind(now.version, before.version) {
		return
	}
	if len(now.services) == 0 {
		now = nil
	}
	p.replace(pod.UID, before, now, s)
}

// departed counts a pod no more.
func (p *peers) departed(pod *corev1.Pod, s *Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before := p.pods[pod.UID]; before != nil {
		p.replace(pod.UID, before, nil, s)
	}
}

// replace puts now in the place of before, either of which may be nil, and notes whom a service's calm brings up.
func (p *peers) replace(uid types.UID, before, now *peer, s *Settings) {
	inPanic, namespace := map[string]bool{}, ""
	for _, one := range []*peer{before, now} {
		for _, service := range one.names() {
			namespace = one.request.Namespace
			inPanic[service] = p.of(service, namespace, s).Panic(s.PanicThreshold)
		}
	}
	for _, service := range before.names() {
		p.leave(service, uid, before)
	}
	for _, service := range now.names() {
		p.join(service, uid, now)
	}
	if p.pods[uid] = now; now == nil {
		delete(p.pods, uid)
	}
	for service, was := range inPanic {
		if was && !p.of(service, namespace, s).Panic(s.PanicThreshold) {
			p.calm(service, namespace, s)
		}
	}
}

func (p *peers) join(service string, uid types.UID, one *peer) {
	namespaces := p.services[service]
	if namespaces == nil {
		namespaces = map[string]*peerGroup{}
		p.services[service] = namespaces
	}
	group := namespaces[one.request.Namespace]
	if group == nil {
		group = &peerGroup{unready: map[types.UID]Request{}}
		namespaces[one.request.Namespace] = group
	}
	group.all++
	if !one.ready {
		group.unready[uid] = one.request
	}
}

func (p *peers) leave(service string, uid types.UID, one *peer) {
	namespaces := p.services[service]
	group := namespaces[one.request.Namespace]
	group.all--
	delete(group.unready, uid)
	if group.all > 0 {
		return
	}
	if delete(namespaces, one.request.Namespace); len(namespaces) == 0 {
		delete(p.services, service)
	}
}

// groups are those that count together.
func (p *peers) groups(service, namespace string, s *Settings) map[string]*peerGroup {
	namespaces := p.services[service]
	if s.SharedAcrossNamespaces {
		return namespaces
	}
	if group := namespaces[namespace]; group != nil {
		return map[string]*peerGroup{namespace: group}
	}
	return nil
}

func (p *peers) of(service, namespace string, s *Settings) lifecycle.Peers {
	var sum lifecycle.Peers
	for _, group := range p.groups(service, namespace, s) {
		sum.All += group.all
		sum.Unready += len(group.unready)
	}
	return sum
}

// calm notes the service's unready pods, which the panic kept.
func (p *peers) calm(service, namespace string, s *Settings) {
	if s.Unready != lifecycle.UnreadyFailOver {
		return
	}
	for _, group := range p.groups(service, namespace, s) {
		for _, request := range group.unready {
			p.calmed = append(p.calmed, request)
		}
	}
	select {
	case p.wake <- struct{}{}:
	default: // somebody is on the way already
	}
}

func (p *peers) takeCalmed() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	calmed := p.calmed
	p.calmed = nil
	return calmed
}

// panicking is a service of which too many pods are not ready at once.
type panicking struct {
	service string
	peers   lifecycle.Peers
}

func (p panicking) message(threshold int) string {
	return fmt.Sprintf("%d of the %d pods of service %q are not ready, more than panicThreshold (%d%%): "+
		"the pod is kept in service; look at the pods, their nodes and the network", p.peers.Unready, p.peers.All, p.service, threshold)
}

// panicOf returns the first service of the pod that is in panic, or the zero value.
func (p *peers) panicOf(pod *corev1.Pod, s *Settings) panicking {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, in := range lifecycle.RecordOf(pod).Instances {
		if of := p.of(claimKey(in.Service), pod.Namespace, s); of.Panic(s.PanicThreshold) {
			return panicking{service: in.Service, peers: of}
		}
	}
	return panicking{}
}

func peerOf(pod *corev1.Pod) *peer {
	one := &peer{request: requestFor(pod), version: pod.ResourceVersion, ready: lifecycle.IsReady(pod)}
	if !lifecycle.Counts(pod) {
		return one
	}
	seen := map[string]bool{}
	for _, in := range lifecycle.RecordOf(pod).Instances {
		if service := claimKey(in.Service); !seen[service] {
			seen[service] = true
			one.services = append(one.services, service)
		}
	}
	return one
}

func (p *peer) names() []string {
	if p == nil {
		return nil
	}
	return p.services
}

// observePeers says whether a panic keeps the pod where it is, should it be not ready. The pod itself is counted as it was
// just read: so no more than the threshold are ever taken out for being not ready.
func (r *PodReconciler) observePeers(seen *observation) {
	r.peers.refresh(seen.pod(), seen.settings)
	seen.panic = r.peers.panicOf(seen.pod(), seen.settings)
	seen.input.Unready, seen.input.Panic = seen.settings.Unready, seen.panic.service != ""
}

// keptInPanic reports whether the pod is in service only because of the panic. One that was taken out before stays out,
// and waits for nothing but its own readiness.
func (o *observation) keptInPanic(d lifecycle.Decision) bool {
	return d.Row == lifecycle.RowNormalNotReady && d.Want == lifecycle.Keep && o.input.Unready == lifecycle.UnreadyFailOver &&
		o.input.Record.Want == lifecycle.InService
}

// calmedServices looks again at the pods that a panic kept, once it has passed.
func (r *PodReconciler) calmedServices(ctx context.Context, q requestQueue) error {
	return whenever(ctx, r.peers.wake, func() {
		for _, req := range r.peers.takeCalmed() {
			q.Add(req)
		}
	})
}
