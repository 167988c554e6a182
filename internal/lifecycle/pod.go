package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
)

// MovedAt returns when OpenKruise moved the pod into its state.
func MovedAt(pod *Pod) (time.Time, error) {
	return time.Parse(time.RFC3339, pod.Annotations[appspub.LifecycleTimestampKey])
}

// State is OpenKruise's lifecycle state, if any.
func State(pod *Pod) appspub.LifecycleStateType {
	return appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey])
}

// RolloutWaits reports whether an update or deletion waits for the pod.
func RolloutWaits(pod *Pod) bool {
	return Leaves(pod) || State(pod) == appspub.LifecycleStatePreparingUpdate
}

// AtAHook reports whether OpenKruise waits at a hook, whosever it is.
func AtAHook(pod *Pod) bool {
	return slices.Contains([]appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingNormal, appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdated,
		appspub.LifecycleStatePreparingDelete,
	}, State(pod))
}

// Leaves reports whether a deletion has begun, or waits for the pod.
func Leaves(pod *Pod) bool {
	return pod.DeletionTimestamp != nil || State(pod) == appspub.LifecycleStatePreparingDelete
}

// MustStayOut reports whether the state rules out rotation.
func MustStayOut(pod *Pod) bool {
	return RolloutWaits(pod) || State(pod) == appspub.LifecycleStateUpdating
}

// MayBeNew reports whether the pod may be new. A DaemonSet's pods have a state only once they are to be deleted.
func MayBeNew(pod *Pod) bool {
	at := State(pod)
	return at == appspub.LifecycleStatePreparingNormal || at == appspub.LifecycleStateNormal
}

// Finished reports whether all containers have ended for good. Before Kubernetes 1.27, a deleted pod stays Running for as long as it
// exists, and only its containers show it.
func Finished(pod *Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		pod.DeletionTimestamp != nil && len(pod.Spec.Containers) > 0 && !slices.ContainsFunc(pod.Spec.Containers, pod.mayRun)
}

// mayRun is true until kubelet has reported that the container does not run.
func (p *Pod) mayRun(c Container) bool { return !slices.Contains(p.Status.NotRunning, c.Name) }

// Runs reports whether a container with the port runs, or any container but a sidecar if none has it. At the node's address, the port is a
// hostPort. It is true until kubelet has reported.
func Runs(pod *Pod, port int) bool {
	has := func(p corev1.ContainerPort) bool { return int(p.ContainerPort) == port }
	declares := func(c Container) bool { return slices.ContainsFunc(c.Ports, has) }
	declared := slices.ContainsFunc(pod.Spec.Containers, declares)
	if !declared {
		has = func(p corev1.ContainerPort) bool { return int(p.HostPort) == port }
		declared = slices.ContainsFunc(pod.Spec.Containers, declares)
	}
	runs, counts := false, false
	for _, c := range pod.Spec.Containers {
		if declares(c) || !declared && !c.Sidecar {
			runs, counts = runs || pod.mayRun(c), true
		}
	}
	return !Finished(pod) && (runs || !counts)
}

// Ends reports whether the pod will never serve again.
func Ends(pod *Pod) bool { return pod.DeletionTimestamp != nil || Finished(pod) }

// AddressOf returns the pod's IP, unless it finished: another pod may have it.
func AddressOf(pod *Pod) string {
	if Finished(pod) {
		return ""
	}
	return pod.Status.PodIP
}

// AddressesOf returns all addresses of a port, [AddressOf] first. A hostPort is on the node's too.
func AddressesOf(pod *Pod, port int) []string {
	address := AddressOf(pod)
	if address == "" {
		return nil
	}
	return append([]string{address}, othersOf(pod, func(p corev1.ContainerPort) bool { return int(p.HostPort) == port })...)
}

// HasHostPort reports whether the pod has addresses of its node.
func HasHostPort(pod *Pod) bool {
	return onNode(pod, func(p corev1.ContainerPort) bool { return p.HostPort > 0 })
}

func othersOf(pod *Pod, counts func(corev1.ContainerPort) bool) (others []string) {
	if AddressOf(pod) == "" {
		return nil
	}
	for _, own := range pod.Status.PodIPs {
		others = append(others, own.IP)
	}
	if onNode(pod, counts) {
		for _, nodes := range append(slices.Clip(pod.Status.HostIPs), corev1.HostIP{IP: pod.Status.HostIP}) {
			others = append(others, nodes.IP)
		}
	}
	others = slices.DeleteFunc(others, func(address string) bool { return address == "" || address == pod.Status.PodIP })
	slices.Sort(others)
	return slices.Compact(others)
}

func onNode(pod *Pod, such func(corev1.ContainerPort) bool) bool {
	for i := range pod.Spec.Containers {
		if slices.ContainsFunc(pod.Spec.Containers[i].Ports, func(p corev1.ContainerPort) bool { return such(p) && reachable(p) }) {
			return true
		}
	}
	return false
}

// reachable reports whether the port, if it is on the node, is at all of the node's addresses. Registries know no protocols, and have ports
// of game servers, which are UDP.
func reachable(p corev1.ContainerPort) bool { return p.HostIP == "" }

// AnnotationNetworks is where Multus writes the pod's addresses on other networks. Tenants can write it too.
const AnnotationNetworks = "k8s.v1.cni.cncf.io/network-status"

// Networks are a pod's addresses on other networks.
type Networks struct {
	// First is the first address on each network, by the network's name in its namespace or NAMESPACE/NAME; nil without the annotation.
	First map[string]string
	// Unread is why it is not known on which networks the pod is.
	Unread string
}

// NetworksOf reads [AnnotationNetworks]. It is read once for a pod: see [Pod].
func NetworksOf(namespace string, annotations map[string]string) (n Networks) {
	text, has, err := Written(annotations, AnnotationNetworks)
	if err != nil {
		return Networks{Unread: err.Error()}
	}
	if !has {
		return n
	}
	var written []struct {
		Name string   `json:"name"`
		IPs  []string `json:"ips"`
	}
	if err := json.Unmarshal([]byte(text), &written); err != nil {
		return Networks{Unread: registry.Excerpt(fmt.Sprintf("annotation %s is not a list of networks: %v", AnnotationNetworks, err))}
	}
	n.First = make(map[string]string, len(written))
	for _, one := range written {
		if name := strings.TrimPrefix(one.Name, namespace+"/"); len(one.IPs) > 0 && n.First[name] == "" {
			n.First[name] = one.IPs[0]
		}
	}
	return n
}

// has reports whether the pod has the address on a network, or may have.
func (n Networks) has(address string) bool {
	for _, own := range n.First {
		if own == address {
			return true
		}
	}
	return n.Unread != ""
}

// IsAt reports whether the entry is at an address that the pod has now, or may be, if its networks can't be read. On networks, an
// application's is not: a tenant can write what the pod has there, and the entry carries no ownership tag.
func (i Key) IsAt(pod *Pod) bool {
	if i.Address == pod.Status.PodIP || slices.Contains(AddressesOf(pod, i.Port), i.Address) {
		return true
	}
	return !i.ByApp() && pod.Networks.has(i.Address)
}

// marked counts only "true"; examples use other values for done.
func marked(pod *Pod, key string) bool {
	return pod.Labels[key] == isMarked || pod.Annotations[key] == isMarked
}

// PodID has the UID, because the next pod of that name is another.
type PodID struct {
	types.NamespacedName
	UID types.UID
}

// PodIDOf returns the pod's ID.
func PodIDOf(pod *Pod) PodID {
	return PodID{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, UID: pod.UID}
}
