package clusterstate

import (
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// packed is a cached pod, at a quarter of the memory. Readers get a [corev1.Pod].
type packed struct {
	metav1.ObjectMeta

	*common

	// A map has room for 8 at least.
	labels, annotations pairs

	node       string
	phase      corev1.PodPhase
	address    string
	hostIP     string
	elsewhere  *elsewhere
	started    int64  // Unix seconds, or 0
	gated      bool   // see lifecycle.AwaitsGates
	shut       bool   // see lifecycle.ShutByLifecycle
	missing    string // see lifecycle.NotReadyBecause
	conditions []packedCondition
}

// elsewhere are a pod's other addresses; few have any.
type elsewhere struct {
	podIPs  []corev1.PodIP
	hostIPs []corev1.HostIP
}

func elsewhereOf(pod *corev1.Pod) *elsewhere {
	if len(lifecycle.OtherAddressesOf(pod)) == 0 {
		return nil
	}
	return &elsewhere{pod.Status.PodIPs, pod.Status.HostIPs}
}

type pairs []struct{ key, value string }

func (p pairs) unpack() map[string]string {
	if len(p) == 0 {
		return nil
	}
	values := make(map[string]string, len(p))
	for _, one := range p {
		values[one.key] = one.value
	}
	return values
}

type packedCondition struct {
	kind   corev1.PodConditionType
	status corev1.ConditionStatus
	since  int64 // Unix seconds
}

// GetObjectKind implements runtime.Object, for indexes.
func (*packed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject need not copy: nothing modifies a packed pod.
func (p *packed) DeepCopyObject() runtime.Object { return p }

func (p *packed) unpack() *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: p.ObjectMeta,
		Spec:       corev1.PodSpec{NodeName: p.node, Containers: p.containers, ReadinessGates: p.gates},
		Status: corev1.PodStatus{
			Phase: p.phase, PodIP: p.address, HostIP: p.hostIP, Message: p.missing, Conditions: make([]corev1.PodCondition, len(p.conditions)),
		},
	}
	if at := p.elsewhere; at != nil {
		pod.Status.PodIPs, pod.Status.HostIPs = at.podIPs, at.hostIPs
	}
	if p.subdomain != "" {
		pod.Spec.Hostname, pod.Spec.Subdomain = p.Name, p.subdomain
	}
	if p.started != 0 {
		pod.Status.StartTime = new(metav1.Unix(p.started, 0))
	}
	pod.Labels, pod.Annotations = p.labels.unpack(), p.annotations.unpack()
	for i, c := range p.conditions {
		pod.Status.Conditions[i] = corev1.PodCondition{
			Type: c.kind, Status: c.status, LastTransitionTime: metav1.NewTime(time.Unix(c.since, 0)),
		}
		switch {
		case p.gated && c.kind == corev1.PodReady:
			pod.Status.Conditions[i].Reason = lifecycle.GatesNotReady
		case p.shut && c.kind == appspub.KruisePodReadyConditionType:
			pod.Status.Conditions[i].Message = lifecycle.LifecycleKey
		}
	}
	return pod
}

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

func allUnpacked(objects []any) []any {
	for i, object := range objects {
		objects[i] = unpacked(object)
	}
	return objects
}

// NewInformer returns an informer that unpacks the pods of [Sharer.StripPod].
func NewInformer(
	source toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	informer := toolscache.NewSharedIndexInformer(source, example, resync, indexers)
	if _, pods := example.(*corev1.Pod); pods {
		return unpacking{informer}
	}
	return informer
}

type unpacking struct{ toolscache.SharedIndexInformer }

func (u unpacking) GetStore() toolscache.Store { return u.GetIndexer() }
func (u unpacking) GetIndexer() toolscache.Indexer {
	return unpackingIndexer{u.SharedIndexInformer.GetIndexer()}
}

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

type unpackingIndexer struct{ toolscache.Indexer }

func (i unpackingIndexer) List() []any { return allUnpacked(i.Indexer.List()) }

func (i unpackingIndexer) Get(object any) (found any, exists bool, err error) {
	found, exists, err = i.Indexer.Get(object)
	return unpacked(found), exists, err
}

func (i unpackingIndexer) GetByKey(key string) (found any, exists bool, err error) {
	found, exists, err = i.Indexer.GetByKey(key)
	return unpacked(found), exists, err
}

func (i unpackingIndexer) Index(name string, object any) ([]any, error) {
	found, err := i.Indexer.Index(name, object)
	return allUnpacked(found), err
}

func (i unpackingIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, value)
	return allUnpacked(found), err
}
