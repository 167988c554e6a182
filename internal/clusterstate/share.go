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
	owners         []metav1.OwnerReference
	containers     []lifecycle.Container
	gates          []corev1.PodReadinessGate
	subdomain      string
	hostname       string // unless it is the pod's name
	hostnameIsName bool
	hostNetwork    bool
	onNode         bool // has hostPorts
}

// NewSharer returns an empty Sharer.
func NewSharer() *Sharer {
	return &Sharer{texts: map[string]string{}, alike: map[types.UID]*common{}}
}

// StripPod packs what Rollcall reads of a pod. It is a cache.TransformFunc for [PodCache.NewInformer].
func (s *Sharer) StripPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return s.strip(pod), nil
}

func (s *Sharer) strip(pod *corev1.Pod) *packed { return s.packed(lifecycle.PodOf(pod)) }

func (s *Sharer) packed(pod *lifecycle.Pod) *packed {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &packed{
		ObjectMeta: pod.ObjectMeta, common: s.shareCommon(commonOf(pod)),
		labels: s.pack(pod.Labels, true), annotations: s.pack(pod.Annotations, false), // annotations mostly differ
		node: pod.Spec.NodeName, phase: pod.Status.Phase, address: pod.Status.PodIP, hostIP: pod.Status.HostIP,
		ownClaims: pod.Spec.OwnClaims, onlyGates: pod.Status.OnlyGates, shutByHook: pod.Status.ShutByHook, notReady: pod.Status.NotReady,
		conditions: make([]packedCondition, len(pod.Status.Conditions)),
	}
	many := rare{pod.Status.PodIPs, pod.Status.HostIPs, pod.Status.NotRunning, pod.Networks, pod.TooMany}
	if !many.isZero() {
		p.rare = &many
	}
	if pod.Status.StartTime != nil {
		p.started = pod.Status.StartTime.Unix()
	}
	p.OwnerReferences, p.Labels, p.Annotations = p.owners, nil, nil
	for i, c := range pod.Status.Conditions {
		p.conditions[i] = packedCondition{c.Type, c.Status, c.LastTransitionTime.Unix()}
		share(s, &p.conditions[i].kind)
		share(s, &p.conditions[i].status)
	}
	share(s, &p.Namespace, &p.node, &p.hostIP, &p.notReady)
	share(s, &p.phase)
	for i := range p.Finalizers {
		share(s, &p.Finalizers[i])
	}
	return p
}

func commonOf(pod *lifecycle.Pod) *common {
	own := &common{
		owners: pod.OwnerReferences, containers: pod.Spec.Containers, gates: pod.Spec.ReadinessGates, subdomain: pod.Spec.Subdomain,
		hostname: pod.Spec.Hostname, hostNetwork: pod.Spec.HostNetwork, onNode: lifecycle.HasHostPort(pod),
	}
	if own.hostname != "" && own.hostname == pod.Name {
		own.hostname, own.hostnameIsName = "", true
	}
	return own
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
