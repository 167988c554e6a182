package clusterstate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// packed is a cached [lifecycle.Pod], at a fraction of the memory.
type packed struct {
	metav1.ObjectMeta

	*common

	// A map has room for 8 at least.
	labels, annotations pairs

	node       string
	phase      corev1.PodPhase
	address    string
	hostIP     string
	rare       *rare
	started    int64 // Unix seconds, or 0
	ownClaims  bool
	onlyGates  bool
	shutByHook bool
	notReady   string
	conditions []packedCondition
}

// rare is what few pods have.
type rare struct {
	podIPs     []corev1.PodIP
	hostIPs    []corev1.HostIP
	notRunning []string
	networks   lifecycle.Networks
	tooMany    string
}

func (r *rare) isZero() bool {
	return r.podIPs == nil && r.hostIPs == nil && r.notRunning == nil && r.networks.First == nil && r.networks.Unread == "" && r.tooMany == ""
}

type pairs []struct{ key, value string }

// into fills values, or a new map if that is nil.
func (p pairs) into(values map[string]string) map[string]string {
	if values == nil && len(p) > 0 {
		values = make(map[string]string, len(p))
	}
	clear(values)
	for _, one := range p {
		values[one.key] = one.value
	}
	return values
}

// Has implements labels.Labels.
func (p pairs) Has(key string) bool { _, has := p.Lookup(key); return has }

// Get implements labels.Labels.
func (p pairs) Get(key string) string { value, _ := p.Lookup(key); return value }

// Lookup implements labels.Labels.
func (p pairs) Lookup(key string) (value string, has bool) {
	for _, one := range p {
		if one.key == key {
			return one.value, true
		}
	}
	return "", false
}

type packedCondition struct {
	kind   corev1.PodConditionType
	status corev1.ConditionStatus
	since  int64 // Unix seconds
}

// GetObjectKind implements runtime.Object, as the cache's objects must.
func (*packed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject need not copy: nothing modifies a packed pod.
func (p *packed) DeepCopyObject() runtime.Object { return p }

func (p *packed) unpack() *lifecycle.Pod {
	pod := &lifecycle.Pod{}
	pod.Status.Conditions = make([]lifecycle.PodCondition, 0, len(p.conditions))
	p.unpackInto(pod)
	return pod
}

// unpackInto replaces all of the pod, whose maps and lists it uses again.
func (p *packed) unpackInto(pod *lifecycle.Pod) {
	labels, annotations, conditions, started := pod.Labels, pod.Annotations, pod.Status.Conditions[:0], pod.Status.StartTime
	*pod = lifecycle.Pod{
		ObjectMeta: p.ObjectMeta,
		Spec: lifecycle.PodSpec{
			NodeName: p.node, HostNetwork: p.hostNetwork, Hostname: p.hostname, Subdomain: p.subdomain, Containers: p.containers,
			ReadinessGates: p.gates, OwnClaims: p.ownClaims,
		},
		Status: lifecycle.PodStatus{
			Phase: p.phase, PodIP: p.address, HostIP: p.hostIP, NotReady: p.notReady, OnlyGates: p.onlyGates, ShutByHook: p.shutByHook,
		},
	}
	if p.rare != nil {
		pod.Status.PodIPs, pod.Status.HostIPs, pod.Status.NotRunning = p.rare.podIPs, p.rare.hostIPs, p.rare.notRunning
		pod.Networks, pod.TooMany = p.rare.networks, p.rare.tooMany
	}
	if p.hostnameIsName {
		pod.Spec.Hostname = p.Name
	}
	if p.started != 0 {
		if started == nil {
			started = &metav1.Time{}
		}
		*started = metav1.Unix(p.started, 0)
		pod.Status.StartTime = started
	}
	pod.Labels, pod.Annotations = p.labels.into(labels), p.annotations.into(annotations)
	for _, c := range p.conditions {
		conditions = append(conditions, lifecycle.PodCondition{
			Type: c.kind, Status: c.status, LastTransitionTime: metav1.NewTime(time.Unix(c.since, 0)),
		})
	}
	pod.Status.Conditions = conditions
}

// buckets are those of [bucketOf] that the pod is in.
func (p *packed) buckets() (buckets []string) {
	addresses := []string{p.address}
	if p.rare != nil || p.onNode {
		addresses = append(addresses, lifecycle.ReachOf(p.unpack()).Addresses()...)
	}
	for _, address := range addresses {
		if bucket := bucketOf(address); address != "" && !slices.Contains(buckets, bucket) {
			buckets = append(buckets, bucket)
		}
	}
	return buckets
}

// unpacking is an informer whose handlers are given what was packed.
type unpacking struct{ toolscache.SharedIndexInformer }

func (u unpacking) AddEventHandler(
	handler toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandler(unpackingHandler{handler})
}

func (u unpacking) AddEventHandlerWithResyncPeriod(
	handler toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandlerWithResyncPeriod(unpackingHandler{handler}, resync)
}

func (u unpacking) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return u.SharedIndexInformer.AddEventHandlerWithOptions(unpackingHandler{handler}, options)
}

type unpackingHandler struct {
	to toolscache.ResourceEventHandler
}

func (h unpackingHandler) OnAdd(object any, first bool) { h.to.OnAdd(unpacked(object), first) }
func (h unpackingHandler) OnUpdate(old, now any)        { h.to.OnUpdate(unpacked(old), unpacked(now)) }
func (h unpackingHandler) OnDelete(object any)          { h.to.OnDelete(unpacked(object)) }

func unpacked(object any) any {
	switch o := object.(type) {
	case *packed:
		return o.unpack()
	case toolscache.DeletedFinalStateUnknown:
		o.Obj = unpacked(o.Obj)
		return o
	default:
		return object
	}
}
