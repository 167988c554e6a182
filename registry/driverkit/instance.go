package driverkit

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
)

// CheckInstance returns a terminal error if no registry could store the instance: it has no service, cluster, namespace, pod or UID,
// its address is not a pod's IP, or its port is out of range. A driver calls it before it writes or reads anything: an instance
// without a UID could be taken for the owner of every entry without an ownership tag.
func CheckInstance(in registry.Instance) error {
	for _, f := range []struct{ name, value string }{
		{"service", in.Service}, {"address", in.Address}, {"cluster", in.Cluster},
		{"namespace", in.Namespace}, {"pod", in.Pod}, {"uid", in.UID},
	} {
		if f.value == "" {
			return registry.Terminal(fmt.Errorf("the instance has no %s", f.name))
		}
	}
	if in.Port < 1 || in.Port > math.MaxUint16 {
		return registry.Terminal(fmt.Errorf("the instance has port %d; a port is 1 to 65535", in.Port))
	}
	if ip, err := netip.ParseAddr(in.Address); err != nil || ip.Zone() != "" || ip.IsUnspecified() {
		return registry.Terminal(fmt.Errorf("the instance has address %q, which is not a pod's IP", in.Address))
	}
	return nil
}

// SameAddress reports whether two texts are the same IP: applications write IPv6 in other forms than Kubernetes does.
func SameAddress(a, b string) bool {
	one, err := netip.ParseAddr(a)
	if err != nil {
		return false
	}
	other, err := netip.ParseAddr(b)
	return err == nil && one.WithZone("").Unmap() == other.WithZone("").Unmap()
}

// AddressForms returns the forms in which others may have written a pod's IP, first as it is: Kubernetes shortens IPv6, and Java's
// Inet6Address.getHostAddress writes all eight groups.
func AddressForms(address string) []string {
	ip, err := netip.ParseAddr(address)
	if err != nil || !ip.Is6() {
		return []string{address}
	}
	bytes := ip.As16()
	var groups []string
	for pair := range slices.Chunk(bytes[:], 2) { //nolint:mnd // bytes of a group
		groups = append(groups, strconv.FormatUint(uint64(binary.BigEndian.Uint16(pair)), 16))
	}
	return slices.Compact([]string{address, strings.Join(groups, ":")})
}

// Foreign returns what a list contains for an entry that clients are given and no Rollcall has written. It writes an IP in
// Kubernetes' form, so that the entry matches the pod's address.
func Foreign(service, address string, port int) registry.Entry {
	if ip, err := netip.ParseAddr(address); err == nil {
		address = ip.WithZone("").Unmap().String()
	}
	at := registry.Instance{Service: service, Address: address, Port: port}
	return registry.Entry{Instance: at, State: registry.Foreign}
}
