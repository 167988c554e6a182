package etcd

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

func (t target) encode(in registry.Instance) (string, error) {
	if t.format.unfit != nil {
		if what := t.format.unfit(in.Service); what != "" {
			return "", fmt.Errorf("the name of the service has %s, which readers of options.format can't look up", what)
		}
	}
	raw, err := json.Marshal(t.format.encode(in, t.scheme))
	if err != nil {
		return "", fmt.Errorf("encoding the entry: %w", err)
	}
	return string(raw), nil
}

// decode returns the instance of an entry that Rollcall could have written at its key; of others there is none.
func (t target) decode(kv *mvccpb.KeyValue) (registry.Instance, bool) {
	of, read := t.format.decode(kv.GetValue())
	if !read || len(of.addresses) != 1 || of.meta[registry.MetaUID] == "" {
		return registry.Instance{}, false
	}
	service, below := t.service(string(kv.GetKey()))
	in, is := at(service, of.addresses[0])
	in.SetMeta(of.meta)
	return in, is && below && t.key(in) == string(kv.GetKey())
}

// foreign returns what clients are given by an entry which this driver does not change, whatever its key is below the service's target:
// another's, or one with the cluster's ownership tag at another key. What they can't read gives them nothing.
func (t target) foreign(kv *mvccpb.KeyValue, cluster string) (all []registry.Entry) {
	of, read := t.format.decode(kv.GetValue())
	service, below := t.service(string(kv.GetKey()))
	if _, ours := t.decode(kv); !read || !below || ours || !driverkit.IsForeignTo(cluster, of.meta) {
		return nil
	}
	if of.meta[registry.MetaUID] != "" && t.bare {
		return nil // it is a record, which no client reads
	}
	for _, address := range of.addresses {
		if in, is := at(service, address); is {
			e := driverkit.Foreign(service, in.Address, in.Port)
			all = append(all, driverkit.Tagged(e, of.meta, "key "+string(kv.GetKey())))
		}
	}
	return all
}

// foreignToAny is foreign to the cluster whose ownership tag the entry has, if it has one.
func (t target) foreignToAny(kv *mvccpb.KeyValue) []registry.Entry {
	return t.foreign(kv, t.markOf(kv)[registry.MetaCluster])
}

// at returns the instance of a service at an address with its port.
func at(service, address string) (registry.Instance, bool) {
	host, written, err := net.SplitHostPort(address)
	if err != nil {
		return registry.Instance{}, false
	}
	port, err := strconv.Atoi(written)
	return registry.Instance{Service: service, Address: host, Port: port}, err == nil
}

// markOf returns the ownership tag of an entry, nothing for one that somebody else wrote.
func (t target) markOf(kv *mvccpb.KeyValue) map[string]string {
	of, _ := t.format.decode(kv.GetValue())
	return of.meta
}
