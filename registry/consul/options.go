package consul

import (
	"errors"
	"fmt"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Options are the driver's own part of the configuration.
type Options struct {
	// Datacenter is the one whose catalog is written. Default: that of the agent or server at endpoint.
	Datacenter string `json:"datacenter"`
	// Namespace is that of the services; Consul Enterprise only. Default: none is sent.
	Namespace string `json:"namespace"`
	// Partition is the admin partition of node and services; Consul Enterprise only. Default: none is sent.
	Partition string `json:"partition"`
	// NodePrefix begins the names of the catalog's nodes that the services stand under, such as rollcall-07. With a
	// namespace, that is added after a dot. Default: rollcall-.
	NodePrefix string `json:"nodePrefix"`
	// ServerName is the name that the server's certificate must be good for, such as server.dc1.consul. Default: the host
	// of endpoint.
	ServerName string `json:"serverName"`
}

const (
	defaultNodePrefix = "rollcall-"
	maxName           = 64
)

func decodeOptions(cfg registry.Config) (Options, error) {
	opts := Options{NodePrefix: defaultNodePrefix}
	if err := driverkit.DecodeOptions(cfg, &opts); err != nil {
		return Options{}, err
	}
	for _, f := range []struct{ field, value string }{
		{"options.datacenter", opts.Datacenter},
		{"options.namespace", opts.Namespace},
		{"options.partition", opts.Partition},
		{"options.nodePrefix", opts.NodePrefix},
	} {
		// None of them is a wildcard or has a dot, and a node's name goes into a path.
		if err := driverkit.CheckName(f.field, f.value, "-_", maxName); err != nil {
			return Options{}, err
		}
	}
	if opts.NodePrefix == "" {
		return Options{}, registry.FieldError("options.nodePrefix", errors.New("is empty; remove it for the default"))
	}
	if opts.ServerName != "" && !strings.HasPrefix(strings.TrimSpace(cfg.Endpoint), "https://") {
		return Options{}, registry.FieldError("options.serverName",
			errors.New("is of no use: endpoint is not https://; remove it or correct the endpoint"))
	}
	return opts, nil
}

// nodeName is another one for each namespace: who looks into one can't see that a node has services in another.
func (o Options) nodeName(number int) string {
	return fmt.Sprintf("%s%02d", o.NodePrefix, number) + o.suffix()
}

// group is what all our nodes have in common.
func (o Options) group() string { return o.NodePrefix + o.suffix() }

func (o Options) suffix() string {
	if o.Namespace == "" {
		return ""
	}
	return "." + o.Namespace
}
