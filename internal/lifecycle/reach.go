package lifecycle

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Endpoint is an address and a port.
type Endpoint struct {
	Address string
	Port    int
}

// Reach is where clients can reach a pod: at its own IPs, and at its node's by a hostPort, which need not be the container's port. It is
// zero for a pod with one address.
type Reach struct {
	own, nodes []string
	ports      []mapping
}

// mapping is a container's port and the node's for it.
type mapping struct{ container, node int }

// ReachOf returns the pod's.
func ReachOf(pod *Pod) (r Reach) {
	others := OtherAddressesOf(pod)
	if len(others) == 0 {
		return r
	}
	r.own = []string{AddressOf(pod)}
	for _, other := range others {
		if slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == other }) {
			r.own = append(r.own, other)
		} else {
			r.nodes = append(r.nodes, other)
		}
	}
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort > 0 && reachable(p) {
				r.ports = append(r.ports, mapping{int(p.ContainerPort), int(p.HostPort)})
			}
		}
	}
	return r
}

// Others are the endpoints at which clients reach what they reach at this one. For example, with hostPort 31080 for containerPort 8080,
// 10.0.0.1:8080 for 192.0.2.1:31080. Others' ports of the node are others'.
func (r Reach) Others(at Endpoint) (others []Endpoint) {
	containers := []int{at.Port}
	if slices.Contains(r.nodes, at.Address) {
		containers = nil
		for _, m := range r.ports {
			if m.node == at.Port {
				containers = append(containers, m.container)
			}
		}
	}
	add := func(e Endpoint) {
		if e != at {
			others = append(others, e)
		}
	}
	for _, container := range containers {
		for _, own := range r.own {
			add(Endpoint{own, container})
		}
		for _, m := range r.ports {
			for _, node := range r.nodes {
				if m.container == container {
					add(Endpoint{node, m.node})
				}
			}
		}
	}
	return others
}
