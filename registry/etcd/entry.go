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

// value is an entry's, as the package naming/endpoints of etcd's client writes it. Metadata is any JSON there; ours is an
// object of strings, which gRPC's resolver does not look at.
//
//nolint:tagliatelle // the names are etcd's
type value struct {
	Op       uint8             `json:"Op"` // 0: the address is to be added. Nothing else is ever stored
	Addr     string            `json:"Addr"`
	Metadata map[string]string `json:"Metadata"`
}

func encode(in registry.Instance) (string, error) {
	raw, err := json.Marshal(value{Addr: in.Endpoint(), Metadata: in.Meta()})
	if err != nil {
		return "", fmt.Errorf("encoding the entry: %w", err)
	}
	return string(raw), nil
}

// decode returns the instance of an entry that Rollcall could have written at its key; of others there is none.
func (t target) decode(kv *mvccpb.KeyValue) (registry.Instance, bool) {
	var v value
	if json.Unmarshal(kv.GetValue(), &v) != nil || v.Op != 0 {
		return registry.Instance{}, false
	}
	var in registry.Instance
	in.SetMeta(v.Metadata)
	host, port, err := net.SplitHostPort(v.Addr)
	if err != nil {
		return registry.Instance{}, false
	}
	in.Address = host
	if in.Port, err = strconv.Atoi(port); err != nil {
		return registry.Instance{}, false
	}
	var ours bool
	if in.Service, ours = t.service(string(kv.GetKey())); !ours || t.key(in) != string(kv.GetKey()) {
		return registry.Instance{}, false
	}
	return in, true
}

// foreign returns the instance that clients are given by an entry which no Rollcall has written, whatever its key is below
// the service's target.
func (t target) foreign(kv *mvccpb.KeyValue) (registry.Instance, bool) {
	host, port, found := foreignAddress(kv)
	service, below := t.service(string(kv.GetKey()))
	return registry.Instance{Service: service, Address: host, Port: port}, found && below
}

// foreignAddress returns the address that clients are given by an entry which no Rollcall has written. What they can't read
// gives them none.
func foreignAddress(kv *mvccpb.KeyValue) (host string, port int, found bool) {
	var v struct {
		Op   uint8  `json:"Op"`   //nolint:tagliatelle // the names are etcd's
		Addr string `json:"Addr"` //nolint:tagliatelle // the names are etcd's
	}
	if json.Unmarshal(kv.GetValue(), &v) != nil || v.Op != 0 || !isForeign(kv) {
		return "", 0, false
	}
	host, written, err := net.SplitHostPort(v.Addr)
	if err != nil {
		return "", 0, false
	}
	port, err = strconv.Atoi(written)
	return host, port, err == nil
}

// isForeign holds for an entry without the mark of any Rollcall.
func isForeign(kv *mvccpb.KeyValue) bool { return markOf(kv)[registry.MetaUID] == "" }

// markOf returns the marks of an entry, none of one that somebody else wrote.
func markOf(kv *mvccpb.KeyValue) map[string]string {
	var v value
	if json.Unmarshal(kv.GetValue(), &v) != nil {
		return nil
	}
	return v.Metadata
}

func owns(in registry.Instance, kv *mvccpb.KeyValue) bool {
	return driverkit.Owns(in, markOf(kv))
}
