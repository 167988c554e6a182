package lifecycle

import (
	"iter"
	"maps"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pod is all that Rollcall reads of a pod, under the names of [corev1.Pod]. [PodOf] makes it, wherever the pod comes from, and the cache
// keeps nothing else: a rule that needs more adds a field here. It shares memory with others, and must not be modified.
type Pod struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec   PodSpec   `json:"spec"`
	Status PodStatus `json:"status"`

	// Networks are what [AnnotationNetworks] shows.
	Networks Networks
	// TooMany is what the pod has more of than is kept, with the remedy, if anything.
	TooMany string
}

// PodSpec is also that of a workload's template.
type PodSpec struct {
	NodeName            string
	HostNetwork         bool
	Hostname, Subdomain string
	Containers          []Container
	ReadinessGates      []corev1.PodReadinessGate
	// OwnClaims: it has claims that OpenKruise deletes with it, from the volumeClaimTemplates of its CloneSet.
	OwnClaims bool
}

// Container is one that stays for as long as the pod: see [staying].
type Container struct {
	Name  string
	Ports []corev1.ContainerPort
	// Injected: a SidecarSet has added it.
	Injected bool
	// Sidecar: it is one of spec.initContainers.
	Sidecar bool
}

// PodStatus is what kubelet and OpenKruise say.
type PodStatus struct {
	Phase  corev1.PodPhase `json:"phase,omitempty"`
	PodIP  string          `json:"podIP,omitempty"`  //nolint:tagliatelle // as Kubernetes writes it
	HostIP string          `json:"hostIP,omitempty"` //nolint:tagliatelle // as Kubernetes writes it
	// PodIPs and HostIPs are nil if they are only the one above.
	PodIPs     []corev1.PodIP  `json:"podIPs,omitempty"`
	HostIPs    []corev1.HostIP `json:"hostIPs,omitempty"`
	StartTime  *metav1.Time    `json:"startTime,omitempty"`
	Conditions []PodCondition  `json:"conditions,omitempty"`
	// NotRunning are containers of the spec that kubelet has reported as not running.
	NotRunning []string
	// NotReady is what keeps the pod from being ready, see [IsReady], for a person.
	NotReady string
	// OnlyGates: the pod is not ready, and kubelet misses only readiness gates.
	OnlyGates bool
	// ShutByHook: a hook with markPodNotReady keeps OpenKruise's readiness gate shut.
	ShutByHook bool
}

// PodCondition has no reason and no message: what is read of them are fields of [PodStatus].
type PodCondition struct {
	Type               corev1.PodConditionType `json:"type"`
	Status             corev1.ConditionStatus  `json:"status"`
	LastTransitionTime metav1.Time             `json:"lastTransitionTime"`
}

// GetObjectKind has the pod pass for what it is made of, for Events and the cache.
func (*Pod) GetObjectKind() schema.ObjectKind {
	return &metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod"}
}

// DeepCopyObject implements runtime.Object.
func (p *Pod) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopy returns a pod that may be modified.
func (p *Pod) DeepCopy() *Pod {
	pod := *p
	p.ObjectMeta.DeepCopyInto(&pod.ObjectMeta)
	pod.Networks.First = maps.Clone(p.Networks.First)
	pod.Spec.Containers = slices.Clone(p.Spec.Containers)
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Ports = slices.Clone(pod.Spec.Containers[i].Ports)
	}
	pod.Spec.ReadinessGates = slices.Clone(p.Spec.ReadinessGates)
	pod.Status.PodIPs, pod.Status.HostIPs = slices.Clone(p.Status.PodIPs), slices.Clone(p.Status.HostIPs)
	pod.Status.StartTime = p.Status.StartTime.DeepCopy()
	pod.Status.Conditions, pod.Status.NotRunning = slices.Clone(p.Status.Conditions), slices.Clone(p.Status.NotRunning)
	return &pod
}

// PodOf takes what is kept of a pod, and leaves the pod as it is.
func PodOf(pod *corev1.Pod) *Pod {
	kept := &Pod{
		ObjectMeta: metaOf(pod.ObjectMeta),
		TooMany:    tooMany(pod),
		Spec:       PodSpecOf(&pod.Spec),
		Status: PodStatus{
			Phase: pod.Status.Phase, PodIP: pod.Status.PodIP, HostIP: pod.Status.HostIP, StartTime: pod.Status.StartTime,
			// All of them: patches test conditions by index.
			Conditions: make([]PodCondition, len(pod.Status.Conditions)),
			NotRunning: notRunning(pod), OnlyGates: onlyGates(pod), ShutByHook: shutByHook(pod),
		},
	}
	kept.Networks = NetworksOf(pod.Namespace, kept.Annotations)
	kept.Spec.OwnClaims = ownClaims(pod)
	if ips := pod.Status.PodIPs; len(ips) > 1 || len(ips) == 1 && ips[0].IP != pod.Status.PodIP {
		kept.Status.PodIPs = ips
	}
	if ips := pod.Status.HostIPs; len(ips) > 1 || len(ips) == 1 && ips[0].IP != pod.Status.HostIP {
		kept.Status.HostIPs = ips
	}
	for i, c := range pod.Status.Conditions {
		kept.Status.Conditions[i] = PodCondition{c.Type, c.Status, c.LastTransitionTime}
	}
	if !IsReady(kept) {
		kept.Status.NotReady = notReadyBecause(pod)
	}
	return kept
}

// Updated returns the pod with the metadata that a write has left it.
func (p *Pod) Updated(meta metav1.ObjectMeta) *Pod {
	pod := *p
	pod.ObjectMeta = metaOf(meta)
	if pod.Annotations[AnnotationNetworks] != p.Annotations[AnnotationNetworks] {
		pod.Networks = NetworksOf(pod.Namespace, pod.Annotations)
	}
	return &pod
}

// metaOf leaves out what is not read, and bounds what a tenant can write.
func metaOf(meta metav1.ObjectMeta) metav1.ObjectMeta {
	meta.ManagedFields = nil
	meta.Labels, meta.Annotations = KeptLabels(meta.Labels), KeptAnnotations(meta.Annotations)
	meta.Finalizers = KeptFinalizers(meta.Finalizers)
	if len(meta.OwnerReferences) > 1 {
		owners := meta.OwnerReferences
		meta.OwnerReferences = nil
		if i := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }); i >= 0 {
			meta.OwnerReferences = []metav1.OwnerReference{owners[i]}
		}
	}
	return meta
}

// PodSpecOf is [PodOf] for a pod's spec or a template's.
func PodSpecOf(spec *corev1.PodSpec) PodSpec {
	kept := PodSpec{
		NodeName: spec.NodeName, HostNetwork: spec.HostNetwork, Hostname: spec.Hostname, Subdomain: spec.Subdomain,
		Containers: make([]Container, 0, min(count(staying(spec)), MaxContainers)), ReadinessGates: atMost(spec.ReadinessGates, MaxGates),
	}
	left := MaxPorts
	for c, sidecar := range staying(spec) {
		if len(kept.Containers) == MaxContainers {
			break
		}
		ports := atMost(c.Ports, left)
		left -= len(ports)
		kept.Containers = append(kept.Containers, Container{
			Name: c.Name, Ports: ports, Injected: slices.Contains(c.Env, injectedMark()), Sidecar: sidecar,
		})
	}
	return kept
}

// staying are the containers that run for as long as the pod does, and whether each is a sidecar: one of spec.initContainers with
// restartPolicy Always. An application can be in one, and so can what others injected, so they come last.
// https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
func staying(spec *corev1.PodSpec) iter.Seq2[*corev1.Container, bool] {
	return func(yield func(*corev1.Container, bool) bool) {
		for i := range spec.Containers {
			if !yield(&spec.Containers[i], false) {
				return
			}
		}
		for i := range spec.InitContainers {
			if c := &spec.InitContainers[i]; isSidecar(c) && !yield(c, true) {
				return
			}
		}
	}
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func count(containers iter.Seq2[*corev1.Container, bool]) (n int) {
	for range containers {
		n++
	}
	return n
}

// TemplateSpec returns what [PodSpecOf] reads of a template, in the template's own type.
func TemplateSpec(spec *corev1.PodSpec) corev1.PodSpec {
	read := PodSpecOf(spec)
	kept := corev1.PodSpec{
		NodeName: read.NodeName, HostNetwork: read.HostNetwork, Hostname: read.Hostname, Subdomain: read.Subdomain,
		Containers: make([]corev1.Container, 0, len(read.Containers)), ReadinessGates: read.ReadinessGates,
	}
	for _, c := range read.Containers { // new ones: a part of the old would keep them in memory
		one := corev1.Container{Name: c.Name, Ports: c.Ports}
		if c.Injected {
			one.Env = []corev1.EnvVar{injectedMark()}
		}
		if c.Sidecar {
			one.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			kept.InitContainers = append(kept.InitContainers, one)
			continue
		}
		kept.Containers = append(kept.Containers, one)
	}
	return kept
}

// injectedMark is the environment variable of a container that a SidecarSet has injected.
// https://github.com/openkruise/kruise/blob/v1.8.3/pkg/control/sidecarcontrol/util.go#L59
func injectedMark() corev1.EnvVar { return corev1.EnvVar{Name: "IS_INJECTED", Value: "true"} }

// notRunning are the names of [staying] containers: kubelet has the sidecars in another list than the others.
func notRunning(pod *corev1.Pod) (names []string) {
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.State.Running == nil {
			names = append(names, s.Name)
		}
	}
	for i := range pod.Status.InitContainerStatuses {
		s := &pod.Status.InitContainerStatuses[i]
		if s.State.Running == nil && slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
			return c.Name == s.Name && isSidecar(&c)
		}) {
			names = append(names, s.Name)
		}
	}
	return atMost(names, MaxContainers)
}

// ownClaims: OpenKruise names such claims after the instance. The CloneSet may have other templates since. In an Advanced StatefulSet
// the claims outlive a pod that OpenKruise replaces.
func ownClaims(pod *corev1.Pod) bool {
	instance := pod.Labels[kruisev1alpha1.CloneSetInstanceID]
	return instance != "" && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && strings.HasSuffix(v.PersistentVolumeClaim.ClaimName, "-"+instance)
	})
}

// onlyGates: on a lost node Kubernetes sets Ready to false and nothing else, so only [Input.NodeLost] tells such a pod.
func onlyGates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Reason == gatesNotReady
	})
}

// gatesNotReady is kubelet's reason if only gates are missing.
// https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/status/generate.go#L40
const gatesNotReady = "ReadinessGatesNotReady"

func shutByHook(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == appspub.KruisePodReadyConditionType && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, lifecycleKey)
	})
}

// lifecycleKey is in the gate's message if markPodNotReady shut it. Others, such as a ContainerRecreateRequest, open it again.
// https://github.com/openkruise/kruise/blob/v1.8.3/pkg/util/lifecycle/lifecycle_utils.go#L241
const lifecycleKey = `"userAgent":"Lifecycle"`
