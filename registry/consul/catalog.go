package consul

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// nodeCount must never change: an entry is under the node that its address makes. With 10,000 entries there are
	// some 300 on each.
	nodeCount = 32
	// nodeAddress is what consul-k8s gives its node. No client gets it: every service has an address of its own.
	nodeAddress = "127.0.0.1"
	// metaSynthetic keeps the node out of the UI's list of nodes.
	metaSynthetic = "synthetic-node"
	// metaGroup holds for all nodes of one prefix and namespace, so that they can be asked for together.
	metaGroup = "rollcall-nodes"
	// metaEmpty marks a node that was seen empty and is about to be deleted.
	metaEmpty = "rollcall-empty"

	// metaRevision is another one at each registration, so that each changes the service's ModifyIndex: a conditional
	// change that was on its way before must not be made after it. No client reads it.
	metaRevision = registry.MetaPrefix + "revision"

	checkName = "Rollcall"
)

// What Consul takes as meta (agent/structs, validateMetaPair).
const (
	maxMetaPairs = 64
	maxMetaKey   = 128
	maxMetaValue = 512
	reservedMeta = "consul-"
)

// checkInstance returns why an instance can't be written. Consul is not asked: it takes a missing UID or a port out of
// range, and what it refuses it refuses together with the rest of the transaction.
func checkInstance(in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return err
	}
	return registry.Terminal(checkMeta(in.Meta()))
}

func checkMeta(meta map[string]string) error {
	if pairs := len(meta) + 1; pairs > maxMetaPairs {
		return fmt.Errorf("the instance has %d pairs of metadata with those that Rollcall adds; Consul takes %d",
			pairs, maxMetaPairs)
	}
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		switch {
		case key == "" || driverkit.CheckName("", key, "-_", maxMetaKey) != nil:
			return fmt.Errorf("the instance has metadata with the key %q; Consul takes letters, digits, - and _, %d at most",
				key, maxMetaKey)
		case strings.HasPrefix(key, reservedMeta):
			return fmt.Errorf("the instance has metadata with the key %q; Consul reserves %s", key, reservedMeta)
		case len(meta[key]) > maxMetaValue:
			return fmt.Errorf("the instance has %d bytes in its metadata %q; Consul takes %d", len(meta[key]), key, maxMetaValue)
		}
	}
	return nil
}

// serviceID carries what makes the identity. Consul compares IDs without regard to case, and so far the names of services
// may differ in nothing else: one that has capital letters gets a hash of its exact name. The hash is not a valid port, so no two
// identities have the same ID.
func serviceID(in registry.Instance) string {
	id := fmt.Sprintf("%s-%s-%d", in.Service, in.Address, in.Port)
	if strings.ToLower(in.Service) == in.Service {
		return id
	}
	return fmt.Sprintf("%s-%.8x", id, sha256.Sum256([]byte(in.Service)))
}

// newNodes returns the records of the nodes as every registration writes them.
func newNodes(opts Options) []node {
	nodes := make([]node, nodeCount)
	for number := range nodes {
		nodes[number] = newNode(opts, number)
	}
	return nodes
}

func newNode(opts Options, number int) node {
	name := opts.nodeName(number)
	sum := sha256.Sum256([]byte("Rollcall's node " + name))
	return node{
		ID:         fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16]),
		Node:       name,
		Address:    nodeAddress,
		Datacenter: opts.Datacenter, // the server fills in that of the agent which was asked, not that of the request
		Partition:  opts.Partition,
		Meta:       map[string]string{metaSynthetic: "true", metaGroup: opts.group()},
	}
}

// nodeNumber returns the number of the node of an address.
func nodeNumber(address string) int {
	sum := sha256.Sum256([]byte(address))
	return int(sum[0]) % nodeCount
}

func nodeOp(do verb, of node) operation {
	return operation{Node: &nodeOperation{Verb: do, Node: of}}
}

// serviceOp is about the whole service of an instance. The index is the condition, if the verb has one.
func (r *Registry) serviceOp(do verb, in registry.Instance, index uint64) operation {
	weight := max(in.Weight, 1)
	meta := in.Meta()
	if do == set {
		meta[metaRevision] = rand.Text()
	}
	return operation{Service: &serviceOperation{
		Verb: do,
		Node: r.nodes[nodeNumber(in.Address)].Node,
		Service: service{
			ID: serviceID(in), Service: in.Service, Address: in.Address, Port: in.Port, Tags: in.Tags, Meta: meta,
			Weights: weights{Passing: weight, Warning: weight}, TaggedAddresses: taggedAddresses(in, r.opts.KratosScheme),
			Namespace: r.opts.Namespace, Partition: r.opts.Partition,
			ModifyIndex: index,
		},
	}}
}

// taggedAddresses are the instance's other addresses, for clients that choose: Consul's DNS answers A and AAAA by them, and those of Kratos
// read a URL of this scheme, if there is one, in place of the address.
func taggedAddresses(in registry.Instance, kratos string) map[string]serviceAddress {
	tagged := map[string]serviceAddress{}
	for _, tag := range []string{"lan_ipv4", "lan_ipv6", "wan_ipv4", "wan_ipv6", "lan", "wan"} {
		if address := in.Metadata[tag]; address != "" {
			tagged[tag] = serviceAddress{Address: address, Port: in.Port}
		}
	}
	if kratos != "" {
		tagged[kratos] = serviceAddress{Address: kratos + "://" + in.Endpoint(), Port: in.Port}
	}
	return tagged
}

// checkOp is about the check of an instance. Nothing probes it: its status is what Rollcall sets.
func (r *Registry) checkOp(do verb, in registry.Instance, status, output string) operation {
	return operation{Check: &checkOperation{
		Verb: do,
		Check: check{
			Node: r.nodes[nodeNumber(in.Address)].Node, CheckID: serviceID(in), Name: checkName, Status: status, Output: output,
			Notes:     fmt.Sprintf("Pod %s/%s of cluster %s", in.Namespace, in.Pod, in.Cluster),
			ServiceID: serviceID(in), ServiceName: in.Service,
			Namespace: r.opts.Namespace, Partition: r.opts.Partition,
		},
	}}
}

// entry reads an instance back.
func entry(s *service, state registry.State) registry.Entry {
	in := registry.Instance{Service: s.Service, Address: s.Address, Port: s.Port}
	in.SetMeta(s.Meta)
	in.Tags = slices.Sorted(slices.Values(s.Tags))
	return registry.Entry{Instance: in, State: state}
}

var errHidden = errors.New("the token may not read the entry")
