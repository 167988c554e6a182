package clusterstate

import (
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// sharedAtMost bounds what a Sharer remembers. Beyond it, it begins anew: what was shared stays so.
const sharedAtMost = 4096

// Sharer has the pods of the cache hold one copy of what is equal in many of them. It is safe for concurrent use.
type Sharer struct {
	mu    sync.Mutex
	texts map[string]string
	// alike holds, by workload, what its pods have in common.
	alike map[types.UID]*common
}

// common is never changed, but by another that takes its place.
type common struct {
	owners     []metav1.OwnerReference
	containers []corev1.Container
	gates      []corev1.PodReadinessGate
}

// NewSharer returns a Sharer that remembers nothing.
func NewSharer() *Sharer {
	return &Sharer{texts: map[string]string{}, alike: map[types.UID]*common{}}
}

// StripPod drops what Rollcall does not read from a pod before it is cached, has it share the rest where it can, and packs it.
// What it is given may be changed, and anything but a pod is left alone. It is a cache.TransformFunc for [NewInformer].
func (s *Sharer) StripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	stripMeta(&pod.ObjectMeta)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &packed{
		ObjectMeta: pod.ObjectMeta, node: pod.Spec.NodeName, phase: pod.Status.Phase, address: pod.Status.PodIP,
		elsewhere: elsewhereOf(pod), gated: lifecycle.AwaitsGates(pod), shut: lifecycle.ShutByLifecycle(pod),
		missing: lifecycle.NotReadyBecause(pod),
		// None is left out: a patch tests one by its index.
		conditions: make([]packedCondition, len(pod.Status.Conditions)),
		labels:     s.pack(pod.Labels, true), annotations: s.pack(pod.Annotations, false), // most values of annotations are one pod's
	}
	if pod.Status.StartTime != nil {
		p.started = pod.Status.StartTime.Unix()
	}
	p.common = s.shareCommon(&common{pod.OwnerReferences, stripContainers(pod.Spec.Containers), pod.Spec.ReadinessGates})
	p.OwnerReferences, p.Labels, p.Annotations = p.owners, nil, nil
	for i, c := range pod.Status.Conditions {
		p.conditions[i] = packedCondition{c.Type, c.Status, c.LastTransitionTime.Unix()}
		share(s, &p.conditions[i].kind)
		share(s, &p.conditions[i].status)
	}
	share(s, &p.Namespace, &p.node, &p.missing)
	share(s, &p.phase)
	for i := range p.Finalizers {
		share(s, &p.Finalizers[i])
	}
	return p, nil
}

// pack shares the keys, and the values where many pods have them.
func (s *Sharer) pack(values map[string]string, alike bool) pairs {
	packed := make(pairs, 0, len(values))
	for key, value := range values {
		if share(s, &key); alike {
			share(s, &value)
		}
		packed = append(packed, struct{ key, value string }{key, value})
	}
	return packed
}

// shareCommon returns what the last pod of the workload had, where that is equal.
func (s *Sharer) shareCommon(own *common) *common {
	i := slices.IndexFunc(own.owners, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	if i < 0 {
		return own
	}
	owner := own.owners[i].UID
	last := s.alike[owner]
	if last != nil && reflect.DeepEqual(last, own) {
		return last
	}
	if len(s.alike) >= sharedAtMost {
		clear(s.alike)
	}
	s.alike[owner] = own
	return own
}

// share puts the text in place of each that was seen before.
func share[T ~string](s *Sharer, texts ...*T) {
	for _, text := range texts {
		shared, found := s.texts[string(*text)]
		if !found {
			if len(s.texts) >= sharedAtMost {
				clear(s.texts)
			}
			shared, s.texts[string(*text)] = string(*text), string(*text)
		}
		*text = T(shared)
	}
}
