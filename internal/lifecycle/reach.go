package lifecycle

import "slices"

// Endpoint is an address and a port.
type Endpoint struct {
	Address string
	Port    int
}

// Foreign is an entry of a service by which clients are given an endpoint, and which this configuration does not manage.
type Foreign struct {
	Endpoint Endpoint
	// Tagged is what the registry calls it if it has this cluster's ownership tag, where the driver does not write one: the options were
	// others, or somebody copied it. Empty if somebody else wrote it.
	Tagged string
}

// Reach is where clients can reach a pod: at its own IPs, and at its node's by a hostPort, which need not be the container's port.
type Reach struct {
	// address is [AddressOf].
	address string
	// others is nil for a pod with one address, as most have.
	others *others
}

// others are a pod's addresses but the first.
type others struct {
	own, nodes []string
	ports      []mapping
}

// mapping is a container's port and the node's for it.
type mapping struct{ container, node int }

// ReachOf returns the pod's. It is zero while the pod has no address.
func ReachOf(pod *Pod) Reach {
	r := Reach{address: AddressOf(pod)}
	if r.address == "" {
		return r
	}
	var o others
	add := func(to *[]string, address string) {
		if address != "" && address != r.address && !o.has(address) {
			*to = append(*to, address)
		}
	}
	for _, ip := range pod.Status.PodIPs {
		add(&o.own, ip.IP)
	}
	o.ports = mappingsOf(pod)
	if len(o.ports) > 0 {
		add(&o.nodes, pod.Status.HostIP)
		for _, ip := range pod.Status.HostIPs {
			add(&o.nodes, ip.IP)
		}
	}
	if len(o.own)+len(o.nodes) > 0 {
		r.others = &o
	}
	return r
}

func mappingsOf(pod *Pod) (all []mapping) {
	for i := range pod.Spec.Containers {
		for _, p := range pod.Spec.Containers[i].Ports {
			if p.HostPort > 0 && reachable(p) {
				all = append(all, mapping{int(p.ContainerPort), int(p.HostPort)})
			}
		}
	}
	return all
}

func (o *others) has(address string) bool {
	return slices.Contains(o.own, address) || slices.Contains(o.nodes, address)
}

// Has reports whether the address is the pod's.
func (r Reach) Has(address string) bool {
	return address != "" && (address == r.address || r.Several() && r.others.has(address))
}

// Several reports whether the pod has more than one address.
func (r Reach) Several() bool { return r.others != nil }

// Addresses are all of them, the pod's IP first.
func (r Reach) Addresses() []string {
	switch {
	case r.address == "":
		return nil
	case !r.Several():
		return []string{r.address}
	}
	return slices.Concat([]string{r.address}, r.others.own, r.others.nodes)
}

// Others are the endpoints at which clients reach what they reach at this one. For example, with hostPort 31080 for containerPort 8080,
// 10.0.0.1:8080 for 192.0.2.1:31080. Others' ports of the node are others'.
func (r Reach) Others(at Endpoint) (found []Endpoint) {
	var o others
	if r.Several() {
		o = *r.others
	}
	containers := []int{at.Port}
	if slices.Contains(o.nodes, at.Address) {
		containers = nil
		for _, m := range o.ports {
			if m.node == at.Port {
				containers = append(containers, m.container)
			}
		}
	}
	add := func(address string, port int) {
		if e := (Endpoint{address, port}); e != at {
			found = append(found, e)
		}
	}
	for _, container := range containers {
		if r.address != "" {
			add(r.address, container)
		}
		for _, own := range o.own {
			add(own, container)
		}
		for _, m := range o.ports {
			for _, node := range o.nodes {
				if m.container == container {
					add(node, m.node)
				}
			}
		}
	}
	return found
}
