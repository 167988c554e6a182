package service

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/suggest"
)

// Address is which of a pod's addresses clients are given: PodIP, HostIP, IPv4, IPv6 or network/NAME. The zero value is PodIP.
type Address string

const (
	podIP  Address = "PodIP"
	hostIP Address = "HostIP"
	ipv4   Address = "IPv4"
	ipv6   Address = "IPv6"

	networkPrefix = "network/"
)

// ParseAddress parses "HostIP" and "network/storage".
func ParseAddress(s string) (Address, error) {
	known := []string{string(podIP), string(hostIP), string(ipv4), string(ipv6)}
	if name, isNetwork := strings.CutPrefix(s, networkPrefix); isNetwork && name != "" || slices.Contains(known, s) {
		return Address(s), nil
	}
	meant := suggest.Nearest(s, known)
	if meant != "" {
		meant = fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return "", fmt.Errorf("%q is not an address%s: use PodIP, HostIP, IPv4, IPv6 or network/NAME", s, meant)
}

// addressOf returns [AnnotationAddress], else the configuration's. Tenants can write which address a pod has on a network, so only the
// configuration says which networks count.
func (r Rules) addressOf(s Subject) (Address, error) {
	written, ok := s.Annotations[AnnotationAddress]
	if !ok {
		return cmp.Or(r.Address, podIP), nil
	}
	a, err := ParseAddress(strings.TrimSpace(written))
	if name, is := strings.CutPrefix(string(a), networkPrefix); is && a != r.Address && !slices.Contains(r.Networks, name) {
		err = fmt.Errorf("service.networks in the configuration does not have %q: use PodIP, HostIP, IPv4 or IPv6, or have it added there",
			name)
	}
	if err != nil {
		return "", fmt.Errorf("annotation %s: %w", AnnotationAddress, err)
	}
	return a, nil
}

// of returns nothing while the pod has no IP.
func (a Address) of(s Subject) string {
	if s.Status == nil || s.Status.PodIP == "" {
		return ""
	}
	switch name, isNetwork := strings.CutPrefix(string(a), networkPrefix); {
	case a == podIP:
		return s.Status.PodIP
	case a == hostIP:
		return s.Status.HostIP
	case isNetwork:
		networks, _ := lifecycle.NetworksOf(s.Namespace, s.Annotations) // see [Address.unknown]
		return networks[name]
	}
	for _, own := range append([]corev1.PodIP{{IP: s.Status.PodIP}}, s.Status.PodIPs...) {
		if strings.Contains(own.IP, ":") == (a == ipv6) {
			return own.IP
		}
	}
	return ""
}

// unknown returns why it is not known whether the pod has the address.
func (a Address) unknown(s Subject) error {
	if podIP.of(s) == "" {
		return errors.New("the pod has no IP yet")
	}
	if !strings.HasPrefix(string(a), networkPrefix) {
		return nil
	}
	if _, has := s.Annotations[lifecycle.AnnotationNetworks]; !has {
		return fmt.Errorf("the pod is to be registered at the address %s, and its annotation %s is missing: Multus writes it", a,
			lifecycle.AnnotationNetworks)
	}
	if _, err := lifecycle.NetworksOf(s.Namespace, s.Annotations); err != nil {
		return fmt.Errorf("the pod is to be registered at the address %s: %w; Multus writes it", a, err)
	}
	return nil
}

// NoAddress returns what was looked for and what the pod has, if it lacks the address; unknown if it may have it, as far as can be read.
func (r Rules) NoAddress(s Subject) (missing string, unknown bool) {
	a, err := r.addressOf(s)
	if why := a.unknown(s); why != nil {
		return why.Error(), true
	}
	if err != nil || a.of(s) != "" {
		return "", false
	}
	has := []string{"PodIP " + podIP.of(s)}
	for _, other := range []Address{ipv4, ipv6, hostIP} {
		if address := other.of(s); address != "" {
			has = append(has, fmt.Sprintf("%s %s", other, address))
		}
	}
	networks, _ := lifecycle.NetworksOf(s.Namespace, s.Annotations)
	for name, address := range networks {
		has = append(has, networkPrefix+name+" "+address)
	}
	slices.Sort(has)
	return fmt.Sprintf("the pod is to be registered at the address %s, by annotation %s or service.address, and has only %s",
		a, AnnotationAddress, strings.Join(has, ", ")), false
}

// hostPort returns the node's port for a container's. With hostNetwork, the API server sets it on pods, and not in all templates.
func hostPort(s Subject, port int) (int, error) {
	if s.Spec != nil {
		for _, c := range s.Spec.Containers {
			for _, p := range c.Ports {
				if int(p.ContainerPort) == port && p.HostPort > 0 && p.HostIP == "" && isTCP(p) {
					return int(p.HostPort), nil
				}
			}
		}
		if s.Spec.HostNetwork {
			return port, nil
		}
	}
	return 0, fmt.Errorf("the pod is to be registered at its node's address, by annotation %s or service.address, and no container has a "+
		"hostPort for its containerPort %d: set ports[].hostPort, without hostIP, or choose another address", AnnotationAddress, port)
}
