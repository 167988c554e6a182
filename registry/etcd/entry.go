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

// foreign returns what clients are given by an entry which no Rollcall has written, whatever its key is below the service's
// target. What they can't read gives them nothing.
func (t target) foreign(kv *mvccpb.KeyValue) (all []registry.Entry) {
	of, read := t.format.decode(kv.GetValue())
	service, below := t.service(string(kv.GetKey()))
	if !read || !below || of.meta[registry.MetaUID] != "" {
		return nil
	}
	for _, address := range of.addresses {
		if in, is := at(service, address); is {
			all = append(all, driverkit.Foreign(service, in.Address, in.Port))
		}
	}
	return all
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
