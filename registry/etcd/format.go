package etcd

import (
	"encoding/json"
	"net/url"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	formatGRPC   = "grpc"
	formatGoZero = "go-zero"
	formatKratos = "kratos"
	formatKitex  = "kitex"
)

// format is how values are written for readers of a kind.
type format struct {
	target string // by default
	encode func(in registry.Instance, scheme string) any
	decode func(raw []byte) (content, bool)
	// verbatim: readers look a service up under its name as it stands, and not escaped.
	verbatim bool
	// lag is how long after a change clients have read again that do not watch.
	lag time.Duration
}

// kitexRefresh is the defaultRefreshInterval in pkg/loadbalance/lbcache of Kitex.
const kitexRefresh = 5 * time.Second

// content is what clients make of a value.
type content struct {
	addresses []string // with their ports
	meta      meta
}

func formatOf(name string) format {
	switch name {
	case formatKratos:
		return format{"/microservices/{service}", kratosOf, decodeAs[kratosValue], true, 0}
	case formatKitex:
		return format{"kitex/registry-etcd/{service}", kitexOf, decodeAs[kitexValue], true, kitexRefresh}
	case formatGoZero: // what its readers read stands beside, see target.beside
		return format{"{service}", grpcOf, decodeAs[grpcValue], true, 0}
	}
	return format{"services/{service}", grpcOf, decodeAs[grpcValue], false, 0}
}

func decodeAs[V interface{ content() (content, bool) }](raw []byte) (content, bool) {
	var v V
	if json.Unmarshal(raw, &v) != nil {
		return content{}, false
	}
	return v.content()
}

// meta is an object of texts. What else others write there counts for none.
type meta map[string]string

// UnmarshalJSON implements json.Unmarshaler.
func (m *meta) UnmarshalJSON(raw []byte) error {
	var texts map[string]string
	if json.Unmarshal(raw, &texts) == nil {
		*m = texts
	}
	return nil
}

// grpcValue is an endpoint of the package naming/endpoints in etcd's client. gRPC's resolver does not look at Metadata.
//
//nolint:tagliatelle // the names are etcd's
type grpcValue struct {
	Op       uint8  `json:"Op"` // 0: the address is to be added. Nothing else is ever stored
	Addr     string `json:"Addr"`
	Metadata meta   `json:"Metadata"`
}

func grpcOf(in registry.Instance, _ string) any {
	return grpcValue{Addr: in.Endpoint(), Metadata: in.Meta()}
}

func (v grpcValue) content() (content, bool) { return content{[]string{v.Addr}, v.Metadata}, v.Op == 0 }

// kratosValue is a ServiceInstance of Kratos, whose readers take one endpoint of their scheme and the weight from Metadata.
type kratosValue struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Version   string   `json:"version"`
	Metadata  meta     `json:"metadata"`
	Endpoints []string `json:"endpoints"`
}

func kratosOf(in registry.Instance, scheme string) any {
	return kratosValue{
		ID: in.Endpoint(), Name: in.Service, Version: in.Metadata["version"], Metadata: in.Meta(),
		Endpoints: []string{scheme + "://" + in.Endpoint()},
	}
}

func (v kratosValue) content() (content, bool) {
	c := content{meta: v.Metadata}
	for _, endpoint := range v.Endpoints {
		if u, err := url.Parse(endpoint); err == nil {
			c.addresses = append(c.addresses, u.Host)
		}
	}
	return c, true
}

// kitexValue is an instanceInfo of Kitex. Of its tags, clients see those that they ask for.
type kitexValue struct {
	Network string `json:"network"`
	Address string `json:"address"`
	Weight  int    `json:"weight"` // 0: the reader's default
	Tags    meta   `json:"tags"`
}

func kitexOf(in registry.Instance, _ string) any {
	return kitexValue{Network: "tcp", Address: in.Endpoint(), Weight: in.Weight, Tags: in.Meta()}
}

func (v kitexValue) content() (content, bool) { return content{[]string{v.Address}, v.Tags}, true }
