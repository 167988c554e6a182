package driverkit

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

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

// CheckPrintable returns a terminal error for a service name that a person can't type and some servers can't find again. A driver calls it
// before it registers: Consul and Nacos refuse paths or parameters with such a character, and Nacos' lists end at a line separator. Entries
// that have one can be read and removed all the same.
func CheckPrintable(in registry.Instance) error {
	if IsPrintable(in.Service) {
		return nil
	}
	return registry.Terminal(fmt.Errorf("the service name %q has a character that can't be printed: remove it", in.Service))
}

// IsPrintable reports whether all of a name's characters can be printed.
func IsPrintable(name string) bool {
	return !strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsPrint(c) })
}

// parseAddress reads an IP in each form in which somebody may have written it: IPv6 in brackets, in capitals, with all eight groups or with
// a zone, and IPv4 as IPv6.
func parseAddress(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		text = strings.TrimSuffix(inner, "]")
	}
	ip, err := netip.ParseAddr(text)
	return ip.WithZone("").Unmap(), err == nil
}

// SameAddress reports whether two texts are the same IP: applications write IPv6 in other forms than Kubernetes does.
func SameAddress(a, b string) bool {
	one, is := parseAddress(a)
	if !is {
		return false
	}
	other, is := parseAddress(b)
	return is && one == other
}

// JavaForm is how Java's Inet6Address.getHostAddress writes a pod's IP: with all eight groups. Kubernetes shortens IPv6.
func JavaForm(address string) string {
	ip, is := parseAddress(address)
	if !is || ip.Is4() {
		return address
	}
	bytes := ip.As16()
	var groups []string
	for pair := range slices.Chunk(bytes[:], 2) { //nolint:mnd // bytes of a group
		groups = append(groups, strconv.FormatUint(uint64(binary.BigEndian.Uint16(pair)), 16))
	}
	return strings.Join(groups, ":")
}

// InURL is a host as URLs have it: IPv6 in brackets.
func InURL(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		return "[" + host + "]"
	}
	return host
}

// AddressForms returns the forms in which others may have written a pod's IP, but for a zone, first as it is. It is for a registry that has
// to be asked for a text; what has been read is compared by [SameAddress]. Spring Cloud Alibaba adds brackets.
func AddressForms(address string) []string {
	ip, is := parseAddress(address)
	switch {
	case !is:
		return []string{address}
	case ip.Is4():
		return []string{address, "::ffff:" + ip.String()}
	}
	var forms []string
	for _, form := range []string{address, JavaForm(address), ip.String(), ip.StringExpanded()} {
		forms = append(forms, form, "["+form+"]", strings.ToUpper(form), strings.ToUpper("["+form+"]"))
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(forms, func(form string) bool {
		repeated := seen[form]
		seen[form] = true
		return repeated
	})
}

// Foreign returns what a list contains for an entry that clients are given and that none of the driver's methods changes. It writes an IP
// in Kubernetes' form, so that the entry matches the pod's address.
func Foreign(service, address string, port int) registry.Entry {
	if ip, is := parseAddress(address); is {
		address = ip.String()
	}
	at := registry.Instance{Service: service, Address: address, Port: port}
	return registry.Entry{Instance: at, State: registry.Foreign}
}

// IsForeignTo reports whether an entry with this metadata, in rotation and not where the driver writes one, is [registry.Foreign] to a
// cluster: it has no ownership tag, or the cluster's. Another cluster's is for the Rollcall there to remove.
func IsForeignTo(cluster string, meta map[string]string) bool {
	return meta[registry.MetaUID] == "" || meta[registry.MetaCluster] == cluster
}

// Tagged adds to a foreign entry the ownership tag of its metadata, if it has one, and what the registry calls the entry.
func Tagged(e registry.Entry, meta map[string]string, id string) registry.Entry {
	if meta[registry.MetaUID] == "" {
		return e
	}
	var of registry.Instance
	of.SetMeta(meta)
	e.Cluster, e.ClusterUID, e.Registry = of.Cluster, of.ClusterUID, of.Registry
	e.Namespace, e.Pod, e.UID, e.ID = of.Namespace, of.Pod, of.UID, id
	return e
}

// GivesInstance reports whether clients are given the instance by a foreign entry of a list. One with the ownership tag of another registry
// of the configuration is managed there.
func GivesInstance(e registry.Entry, in registry.Instance) bool {
	managed := e.UID != "" && in.Registry != "" && e.Registry != "" && e.Registry != in.Registry
	return e.State == registry.Foreign && !managed && e.Service == in.Service && e.Port == in.Port && SameAddress(e.Address, in.Address)
}
