package consul

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Options are the driver's own part of the configuration.
type Options struct { //nolint:recvcheck // a value, but for places, which are filled in
	// Datacenter is the datacenter whose catalog is written. Default: that of the agent or server at endpoint.
	Datacenter string `json:"datacenter"`
	// Namespace is the Consul namespace of the services, with {namespace}, {label:KEY} and {nsLabel:KEY} if pods differ; Consul
	// Enterprise only. Default: none is sent.
	Namespace string `json:"namespace"`
	// Partition is the admin partition of nodes and services, with the same placeholders; Consul Enterprise only. Default: none is sent.
	Partition string `json:"partition"`
	// NodePrefix begins the names of the services' nodes in the catalog, such as rollcall-07. With a namespace, the namespace
	// is added after a dot. Default: rollcall-.
	NodePrefix string `json:"nodePrefix"`
	// ServerName is the name that the server's certificate must be valid for, such as server.dc1.consul. Default: the host
	// of endpoint.
	ServerName string `json:"serverName"`
	// AgentEndpoint is the URL of a node's agent, with {nodeIP} and {node} for the address and the name that the node has in
	// Consul. Only entries that applications wrote need it. Default: http://{nodeIP}:8500, and with endpoint https://,
	// https://{nodeIP}:8501.
	AgentEndpoint string `json:"agentEndpoint"`
	// AgentServerName is the name that the agents' certificates must be valid for, such as client.dc1.consul. Default: the
	// host of agentEndpoint.
	AgentServerName string `json:"agentServerName"`
	// Probe lets OpenKruise continue only once Consul's health endpoint gives the pod to clients. Set it if others, such as
	// consul-esm, keep checks of the services or their nodes. Default: false.
	Probe bool `json:"probe"`
	// KratosScheme is the protocol of the pods' ports for clients of Kratos: grpc, grpcs, http or https. They take it from a tagged address,
	// such as grpc with grpc://10.244.1.7:9000, which is added then. Default: none is added.
	KratosScheme string `json:"kratosScheme"`
	// OutOfRotation chooses how an entry is taken out of rotation: critical (it stays with a critical check) or delete (for clients that
	// call instances whatever their checks are). Default: critical.
	OutOfRotation string `json:"outOfRotation"`
	// AuthMethod is the name of Consul's authentication method by which Rollcall logs in: auth.tokenFile then holds the token of Rollcall's
	// ServiceAccount. Default: none; auth.tokenFile holds an ACL token.
	AuthMethod string `json:"authMethod"`
}

const (
	defaultNodePrefix = "rollcall-"
	maxName           = 64
	maxMethod         = 128

	defaultAgent    = "http://{nodeIP}:8500"
	defaultAgentTLS = "https://{nodeIP}:8501"

	outCritical = "critical"
	outDelete   = "delete"
)

func decodeOptions(cfg registry.Config) (Options, error) {
	opts := Options{NodePrefix: defaultNodePrefix, OutOfRotation: outCritical}
	decoded := driverkit.DecodeOptions(cfg, &opts)
	secure := strings.HasPrefix(strings.TrimSpace(cfg.Endpoint), "https://")
	if opts.AgentEndpoint == "" {
		opts.AgentEndpoint = defaultAgent
		if secure {
			opts.AgentEndpoint = defaultAgentTLS
		}
	}
	return opts, errors.Join(
		decoded,
		opts.checkPlaces(),
		opts.checkUse(cfg, secure),
		opts.checkAgent(),
		driverkit.CheckName("options.authMethod", opts.AuthMethod, "-_", maxMethod),
		driverkit.OneOf("options.kratosScheme", opts.KratosScheme, "", "grpc", "grpcs", "http", "https"),
		driverkit.OneOf("options.outOfRotation", opts.OutOfRotation, outCritical, outDelete),
	)
}

// checkPlaces refuses names with their placeholders filled in.
func (o Options) checkPlaces() error {
	if _, err := o.places().Template(); err != nil {
		return err
	}
	o.places().Example()
	if o.NodePrefix == "" {
		return errors.Join(o.checkNames(), registry.FieldError("options.nodePrefix", errors.New("is empty; remove it for the default")))
	}
	return o.checkNames()
}

// checkUse refuses options that have no effect without another field.
func (o Options) checkUse(cfg registry.Config, secure bool) error {
	var problems []error
	if o.ServerName != "" && !secure {
		problems = append(problems, registry.FieldError("options.serverName",
			errors.New("has no effect: endpoint is not https://; remove it or correct the endpoint")))
	}
	if o.AuthMethod != "" && cfg.Auth.TokenFile == "" {
		problems = append(problems, registry.FieldError("auth.tokenFile",
			errors.New("is missing: set the file of the token with which Rollcall logs in by options.authMethod")))
	}
	return errors.Join(problems...)
}

// places are the options that can set an entry's place by its pod.
func (o *Options) places() driverkit.Places {
	return driverkit.Places{{Field: "options.partition", Value: &o.Partition}, {Field: "options.namespace", Value: &o.Namespace}}
}

// checkNames refuses a wildcard and a dot: a node's name goes into a path.
func (o Options) checkNames() error {
	var problems []error
	for _, f := range []struct{ field, value string }{
		{"options.datacenter", o.Datacenter},
		{"options.namespace", o.Namespace},
		{"options.partition", o.Partition},
		{"options.nodePrefix", o.NodePrefix},
	} {
		problems = append(problems, driverkit.CheckName(f.field, f.value, "-_", maxName))
	}
	return errors.Join(problems...)
}

func (o Options) checkAgent() error {
	filled := o.agentOf("node", "192.0.2.1")
	u, err := url.Parse(filled)
	switch {
	case strings.ContainsAny(filled, "{}") || filled == o.AgentEndpoint:
		return registry.FieldError("options.agentEndpoint",
			fmt.Errorf("is %q; use {nodeIP} or {node} for what differs between agents, and nothing else in braces: %s",
				o.AgentEndpoint, defaultAgent))
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "":
		return registry.FieldError("options.agentEndpoint",
			fmt.Errorf("is %q; use an http or https URL such as %s", o.AgentEndpoint, defaultAgent))
	case o.AgentServerName != "" && u.Scheme != "https":
		return registry.FieldError("options.agentServerName",
			errors.New("has no effect: options.agentEndpoint is not https://; remove it or correct agentEndpoint"))
	}
	return nil
}

// agentOf is the URL of a node's agent.
func (o Options) agentOf(node, address string) string {
	return strings.NewReplacer("{nodeIP}", driverkit.InURL(address), "{node}", node).Replace(o.AgentEndpoint)
}

// nodeName is another one for each namespace: a reader of one namespace can't see that a node has services in another.
func (o Options) nodeName(number int) string {
	return fmt.Sprintf("%s%02d", o.NodePrefix, number) + o.suffix()
}

// group is what all of Rollcall's nodes have in common.
func (o Options) group() string { return o.NodePrefix + o.suffix() }

func (o Options) suffix() string {
	if o.Namespace == "" {
		return ""
	}
	return "." + o.Namespace
}
