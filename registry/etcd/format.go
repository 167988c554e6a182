package etcd

import (
	"encoding/json"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	formatGRPC   = "grpc"
	formatGoZero = "go-zero"
	formatKratos = "kratos"
	formatKitex  = "kitex"
	formatSkyDNS = "skydns"
)

// format is how values are written for readers of a kind.
type format struct {
	target string // by default
	encode func(in registry.Instance, scheme string) any
	decode func(raw []byte) (content, bool)
	// unfit returns what a service's name has that readers can't look up; empty for nothing. Without it, names are escaped.
	unfit func(service string) string
	// leaf is the last part of an instance's key: its endpoint, unless readers make something of it.
	leaf func(in registry.Instance) string
	// weighs: readers share requests out by the weight.
	weighs bool
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
		return format{"/microservices/{service}", kratosOf, decodeAs[kratosValue], escaped, registry.Instance.Endpoint, true, 0}
	case formatKitex:
		return format{"kitex/registry-etcd/{service}", kitexOf, decodeAs[kitexValue], escaped, registry.Instance.Endpoint, true, kitexRefresh}
	case formatGoZero: // its readers read another key, see target.bare
		return format{"{service}", grpcOf, decodeAs[grpcValue], escaped, registry.Instance.Endpoint, false, 0}
	case formatSkyDNS:
		return format{"/skydns/local/skydns/{service}", skyDNSOf, decodeAs[skyDNSValue], noLabel, hostLabel, true, skyDNSTTL}
	}
	return format{"services/{service}", grpcOf, decodeAs[grpcValue], nil, registry.Instance.Endpoint, false, 0}
}

// escaped is what is unfit if readers look a service up under its unchanged name.
func escaped(service string) string {
	if strings.ContainsAny(service, "/%") {
		return "a slash or a percent sign"
	}
	return ""
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

// grpcValue is an endpoint of the package naming/endpoints in etcd's client. gRPC's resolver ignores Metadata.
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

// skyDNSTTL is how long a resolver may give an answer again. Without one, CoreDNS writes 300 s into its answers.
const skyDNSTTL = 5 * time.Second

// skyDNSValue is a Service of CoreDNS' plugin etcd (plugin/etcd/msg), which ignores Metadata.
type skyDNSValue struct {
	Host     string `json:"host"`
	Port     int    `json:"port"`
	Weight   int    `json:"weight"` // of SRV records; 0: 100
	TTL      int    `json:"ttl"`
	Metadata meta   `json:"metadata"`
}

func skyDNSOf(in registry.Instance, _ string) any {
	return skyDNSValue{in.Address, in.Port, in.Weight, int(skyDNSTTL.Seconds()), in.Meta()}
}

func (v skyDNSValue) content() (content, bool) {
	return content{[]string{net.JoinHostPort(strings.Trim(v.Host, "[]"), strconv.Itoa(v.Port))}, v.Metadata}, true
}

// hostLabel is the name of an instance's host below its service's: an SRV record gives it, and clients look its address up.
func hostLabel(in registry.Instance) string {
	return strings.NewReplacer(".", "-", ":", "-").Replace(in.Address) + "-" + strconv.Itoa(in.Port)
}

// noLabel is what is unfit if the name of a service is one label of a domain name, which CoreDNS looks up in lower case.
func noLabel(service string) string {
	if !label.MatchString(service) {
		return "something else than lower-case letters, digits and hyphens, or more than 63 of them"
	}
	return ""
}

var label = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
