package registry

import (
	"maps"
	"strconv"
	"strings"
)

// The keys of what [Instance.Meta] adds to an instance's metadata, by which a driver asks for a cluster's entries, or sees that
// an entry has no ownership tag. Consul allows only letters, digits, - and _ in a key, so all registries get these keys. Spring
// Cloud LoadBalancer reads "zone" and "weight".
const (
	MetaPrefix  = "rollcall-"
	MetaCluster = MetaPrefix + "cluster"
	MetaUID     = MetaPrefix + "uid"
	MetaZone    = "zone"
	MetaWeight  = "weight"

	// MetaClusterUID can be left out if the registry has no room for it: the entry is then like one of an older version.
	MetaClusterUID = MetaPrefix + "cluster-uid"

	metaNamespace = MetaPrefix + "namespace"
	metaPod       = MetaPrefix + "pod"
	metaRegistry  = MetaPrefix + "registry"
)

// MetaIPv6 is the metadata with the IPv6 address of an instance at an IPv4 one. Clients of Spring Cloud Alibaba drop such instances without
// it, once one of the service has it, and put it into URLs as it is, so it is in brackets. A [Foreign] entry that is listed has it if
// clients read it there.
const MetaIPv6 = "IPv6"

// AddressMeta reports whether clients of a registry take the metadata of this key for an address: where to go in place of, or in addition
// to, the instance's own. Rollcall takes such pairs from the configuration, and from a pod only if the value is the pod's own address. A
// driver that makes an address of another key adds it here.
func AddressMeta(key string) bool {
	switch key {
	case "lan", "wan", "lan_ipv4", "lan_ipv6", "wan_ipv4", "wan_ipv6", // Consul's TaggedAddresses
		"hostName",                    // Eureka's field, from the driver
		"Endpoints",                   // Kratos on Eureka
		MetaIPv6,                      // Spring Cloud Alibaba
		"management.address",          // Spring Boot Admin
		"dubbo.metadata-service.urls": // Dubbo in Spring Cloud
		return true
	}
	return false
}

// ReservedMeta reports whether a key of metadata is one that [Instance.Meta] writes itself.
func ReservedMeta(key string) bool {
	return key == MetaZone || key == MetaWeight || strings.HasPrefix(key, MetaPrefix)
}

// Meta returns the instance's metadata, zone, weight and ownership tag as pairs of strings, for a registry that stores such
// pairs with an entry. [Instance.SetMeta] reads them back.
func (in Instance) Meta() map[string]string {
	meta := make(map[string]string, len(in.Metadata)+8)
	maps.Copy(meta, in.Metadata)
	meta[MetaCluster], meta[metaNamespace], meta[metaPod], meta[MetaUID] = in.Cluster, in.Namespace, in.Pod, in.UID
	if in.ClusterUID != "" {
		meta[MetaClusterUID] = in.ClusterUID
	}
	if in.Registry != "" {
		meta[metaRegistry] = in.Registry
	}
	if in.Zone != "" {
		meta[MetaZone] = in.Zone
	}
	if in.Weight != 0 {
		meta[MetaWeight] = strconv.Itoa(in.Weight)
	}
	return meta
}

// OwnsMeta is [Instance.Owns] for the entry with this metadata, which [Instance.Meta] wrote.
func (in Instance) OwnsMeta(meta map[string]string) bool {
	return in.Owns(meta[MetaUID], meta[metaRegistry])
}

// SetMeta sets the instance's fields from what [Instance.Meta] wrote. Other pairs become metadata, except for keys that only Meta writes.
func (in *Instance) SetMeta(meta map[string]string) {
	in.Cluster, in.Namespace, in.Pod, in.UID = meta[MetaCluster], meta[metaNamespace], meta[metaPod], meta[MetaUID]
	in.ClusterUID, in.Registry, in.Zone = meta[MetaClusterUID], meta[metaRegistry], meta[MetaZone]
	in.Weight, _ = strconv.Atoi(meta[MetaWeight]) // somebody else's entry may have any text there
	in.Metadata = nil
	for key, value := range meta {
		if ReservedMeta(key) {
			continue
		}
		if in.Metadata == nil {
			in.Metadata = map[string]string{}
		}
		in.Metadata[key] = value
	}
}
