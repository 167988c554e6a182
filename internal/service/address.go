package service

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/shorten"
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
	return "", fmt.Errorf("%s is not an address%s: use PodIP, HostIP, IPv4, IPv6 or network/NAME", shorten.Quote(s), meant)
}

// Range is a range of IP addresses.
type Range struct{ prefix netip.Prefix }

// ParseRange parses "172.16.0.0/12".
func ParseRange(s string) (Range, error) {
	prefix, err := netip.ParsePrefix(s)
	if err != nil || prefix != prefix.Masked() {
		return Range{}, errors.New("set a range of addresses such as 172.16.0.0/12 or fd00::/8")
	}
	return Range{prefix}, nil
}

func (r Range) String() string { return r.prefix.String() }

// Equal is for tests.
func (r Range) Equal(other Range) bool { return r == other }

// PrivateRanges are the addresses that nobody has on the Internet (RFC 1918, 6598 and 4193), and no one's link-local or loopback ones.
func PrivateRanges() []Range {
	var all []Range
	for _, text := range []string{"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} {
		all = append(all, Range{netip.MustParsePrefix(text)})
	}
	return all
}

// onNetwork checks a pod's address on a network. A tenant can write it, so it must be one that the configuration expects there.
func (r Rules) onNetwork(a Address, address string) error {
	ranges := r.NetworkAddresses
	if ranges == nil {
		ranges = PrivateRanges()
	}
	ip, err := netip.ParseAddr(address)
	has := func(r Range) bool { return r.prefix.Contains(ip) }
	switch {
	case err != nil || ip.String() != address:
		return fmt.Errorf("annotation %s gives the pod the address %s on %s: that is not an IP address as Kubernetes writes it",
			lifecycle.AnnotationNetworks, shorten.Quote(address), a)
	case !slices.ContainsFunc(ranges, has):
		return fmt.Errorf("annotation %s gives the pod the address %s on %s, which is outside service.networkAddresses (%s): correct the "+
			"annotation, or have the network's range added there", lifecycle.AnnotationNetworks, address, a, texts(ranges))
	}
	return nil
}

func texts(ranges []Range) string {
	all := make([]string, len(ranges))
	for i, r := range ranges {
		all[i] = r.String()
	}
	return strings.Join(all, ", ")
}

// addressOf returns [AnnotationAddress], else the configuration's. Tenants can write which address a pod has on a network, so only the
// configuration decides which networks count.
func (r Rules) addressOf(s Subject) (Address, error) {
	written, ok, err := lifecycle.Written(s.Annotations, AnnotationAddress)
	switch {
	case err != nil:
		return "", err
	case !ok:
		return cmp.Or(r.Address, podIP), nil
	}
	a, err := ParseAddress(strings.TrimSpace(written))
	if name, is := strings.CutPrefix(string(a), networkPrefix); is && a != r.Address && !slices.Contains(r.Networks, name) {
		err = fmt.Errorf("service.networks in the configuration does not have %s: use PodIP, HostIP, IPv4 or IPv6, or ask for it to be added",
			shorten.Quote(name))
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
		return s.Networks.First[name] // see [Address.unknown]
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
	switch {
	case s.Networks.Unread != "":
		return fmt.Errorf("the pod is to be registered at the address %s: %s; Multus writes it", a, s.Networks.Unread)
	case s.Networks.First == nil:
		return fmt.Errorf("the pod is to be registered at the address %s, and its annotation %s is missing: Multus writes it", a,
			lifecycle.AnnotationNetworks)
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
	for name, address := range s.Networks.First {
		has = append(has, networkPrefix+name+" "+address)
	}
	slices.Sort(has)
	return fmt.Sprintf("the pod is to be registered at the address %s, by annotation %s or service.address, and has only %s",
		a, AnnotationAddress, strings.Join(has, ", ")), false
}

// hostPort returns the node's port for a container's: of several the TCP port's. With hostNetwork, the API server sets it on pods, and not
// in all templates.
func hostPort(s Subject, port int) (found int, err error) {
	if s.Spec == nil {
		return 0, noHostPort(port)
	}
	for _, c := range s.Spec.Containers {
		for _, p := range c.Ports {
			switch {
			case int(p.ContainerPort) != port || p.HostPort == 0 || p.HostIP != "":
			case isTCP(p):
				return int(p.HostPort), nil
			case found == 0:
				found = int(p.HostPort)
			}
		}
	}
	switch {
	case found > 0:
		return found, nil
	case s.Spec.HostNetwork:
		return port, nil
	}
	return 0, noHostPort(port)
}

func noHostPort(port int) error {
	return fmt.Errorf("the pod is to be registered at its node's address, by annotation %s or service.address, and no container has a "+
		"hostPort for its containerPort %d: set ports[].hostPort, without hostIP, or choose another address", AnnotationAddress, port)
}
