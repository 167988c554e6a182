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

// sharedAtMost bounds the memory; a full Sharer starts over.
const sharedAtMost = 4096

// Sharer deduplicates cached pods. It is safe for concurrent use.
type Sharer struct {
	mu    sync.Mutex
	texts map[string]string
	// alike is by the UID of the workload.
	alike map[types.UID]*common
}

// common is immutable.
type common struct {
	owners     []metav1.OwnerReference
	containers []corev1.Container
	gates      []corev1.PodReadinessGate
	subdomain  string // if the pods' names are their hostnames
}

// NewSharer returns an empty Sharer.
func NewSharer() *Sharer {
	return &Sharer{texts: map[string]string{}, alike: map[types.UID]*common{}}
}

// StripPod packs what Rollcall reads of a pod. It is a cache.TransformFunc for [NewInformer], and may modify its argument.
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
		hostIP: pod.Status.HostIP, elsewhere: elsewhereOf(pod), gated: lifecycle.AwaitsGates(pod), shut: lifecycle.ShutByLifecycle(pod),
		missing: lifecycle.NotReadyBecause(pod),
		// All of them: patches test conditions by index.
		conditions: make([]packedCondition, len(pod.Status.Conditions)),
		labels:     s.pack(pod.Labels, true), annotations: s.pack(pod.Annotations, false), // annotations mostly differ
	}
	if pod.Status.StartTime != nil {
		p.started = pod.Status.StartTime.Unix()
	}
	own := &common{pod.OwnerReferences, stripContainers(pod.Spec.Containers), pod.Spec.ReadinessGates, ""}
	if pod.Spec.Hostname == pod.Name {
		own.subdomain = pod.Spec.Subdomain
	}
	p.common = s.shareCommon(own)
	p.OwnerReferences, p.Labels, p.Annotations = p.owners, nil, nil
	for i, c := range pod.Status.Conditions {
		p.conditions[i] = packedCondition{c.Type, c.Status, c.LastTransitionTime.Unix()}
		share(s, &p.conditions[i].kind)
		share(s, &p.conditions[i].status)
	}
	share(s, &p.Namespace, &p.node, &p.hostIP, &p.missing)
	share(s, &p.phase)
	for i := range p.Finalizers {
		share(s, &p.Finalizers[i])
	}
	return p, nil
}

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

// shareCommon returns what the workload's last pod had, if equal.
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

// share replaces texts by equal ones seen before.
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
