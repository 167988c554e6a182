// Package consul runs a real Consul server. The tests of test/registries/consul prove the driver on it.
package consul

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	// Node is the name of the server's own node in the catalog.
	Node = "server-07"
	// Datacenter is that of the server.
	Datacenter = "dc1"
	// ServerName is a name that the certificate is good for besides localhost, as `consul tls cert create` makes it.
	ServerName = "server.dc1.consul"
)

// Get builds the server unless it is there, and tells log about it.
func Get(ctx context.Context, log io.Writer) (cache.Built, error) {
	return registries.Build(ctx, log, registries.Consul)
}

// Options say what server to start. The zero value is one without TLS and access control.
type Options struct {
	// ClientCertificates makes it serve https, and ask clients for a certificate.
	ClientCertificates bool
	// ACL makes it deny what no token allows.
	ACL bool
}

// Server is a running Consul server that keeps its catalog on disk.
type Server struct {
	*registries.Server
	// URL is that of the HTTP API.
	URL string
	// DNS is host:port, for UDP and TCP.
	DNS string
	// CAFile, CertFile and KeyFile are for clients, and empty without TLS.
	CAFile, CertFile, KeyFile string
	// ManagementToken may do everything. It is empty without access control.
	ManagementToken string

	opts  Options
	ports ports
	api   *registries.Client
	tls   *pki.TLS
	path  string // of the program
}

type ports struct{ api, dns, rpc, serf int }

// Start gets the server, runs it and returns when it serves.
func Start(ctx context.Context, opts Options) (*Server, error) {
	built, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	free, err := process.FreePorts(ctx, 4)
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, path: built.Paths[registries.Consul], ports: ports{api: free[0], dns: free[1], rpc: free[2], serf: free[3]},
		URL: fmt.Sprintf("http://127.0.0.1:%d", free[0]), DNS: fmt.Sprintf("127.0.0.1:%d", free[1]),
	}
	if opts.ClientCertificates {
		s.URL = fmt.Sprintf("https://127.0.0.1:%d", free[0])
	}
	s.api = registries.NewClient(s.URL)
	if opts.ACL {
		s.ManagementToken = string(uuid.NewUUID())
		s.api.Header.Set("X-Consul-Token", s.ManagementToken)
	}
	s.Server, err = registries.Run(ctx, registries.Spec{
		Name: "Consul", Version: built.Version,
		Command: func(dir string) (process.Command, error) { return s.command(built.Paths[registries.Consul], dir) },
		Ready:   s.ready,
	})
	return s, err
}

func (s *Server) command(path, dir string) (process.Command, error) {
	if s.opts.ClientCertificates {
		if err := s.issue(filepath.Join(dir, "pki")); err != nil {
			return process.Command{}, err
		}
	}
	config, err := json.Marshal(s.config(dir))
	if err != nil {
		return process.Command{}, fmt.Errorf("encoding the configuration: %w", err)
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return process.Command{}, fmt.Errorf("writing the configuration: %w", err)
	}
	return process.Command{Path: path, Args: []string{"agent", "-config-file=" + file}}, nil
}

type object = map[string]any

func (s *Server) config(dir string) object {
	const off = -1
	apiPorts := object{"http": s.ports.api}
	if s.opts.ClientCertificates {
		apiPorts = object{"http": off, "https": s.ports.api}
	}
	maps.Copy(apiPorts, object{
		"dns": s.ports.dns, "server": s.ports.rpc, "serf_lan": s.ports.serf, "serf_wan": off, "grpc": off, "grpc_tls": off,
	})
	config := object{
		"server": true, "bootstrap_expect": 1, "datacenter": Datacenter, "node_name": Node,
		"data_dir": filepath.Join(dir, "consul"), "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "ports": apiPorts,
		// A single server need not wait long for others to stand for election, nor a request for a leader.
		"performance":          object{"raft_multiplier": 1, "rpc_hold_timeout": "500ms"},
		"disable_update_check": true, "log_level": "warn",
		// Each driver of the suite has its own connections, where people have one Rollcall.
		"limits": object{"http_max_conns_per_client": 5000},
	}
	if s.opts.ClientCertificates {
		config["tls"] = object{"https": object{
			"cert_file": s.tls.Serving.CertFile, "key_file": s.tls.Serving.KeyFile, "ca_file": s.CAFile, "verify_incoming": true,
		}}
	}
	if s.opts.ACL {
		config["acl"] = object{
			"enabled": true, "default_policy": "deny",
			"tokens": object{"initial_management": s.ManagementToken, "agent": s.ManagementToken},
		}
	}
	return config
}

func (s *Server) issue(dir string) (err error) {
	if s.tls, err = pki.NewTLS(dir, pkix.Name{CommonName: ServerName}, pkix.Name{CommonName: "rollcall"}, ServerName); err != nil {
		return err
	}
	s.CAFile, s.CertFile, s.KeyFile = s.tls.Files()
	config, err := s.tls.Config()
	s.api.HTTP.Transport = &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	return err
}

// ready waits for a leader that has read the catalog, and until the server's agent has written its node there: first the
// leader does so, with less.
func (s *Server) ready(ctx context.Context) error {
	var nodes []struct {
		Node            string
		TaggedAddresses map[string]string
	}
	if err := s.Do(ctx, http.MethodGet, "/v1/catalog/nodes?consistent", nil, &nodes); err != nil {
		return err
	}
	for _, n := range nodes {
		if n.Node == Node && len(n.TaggedAddresses) > 0 {
			return nil
		}
	}
	return errors.New("the server is not whole in its catalog yet")
}

// NewToken makes a token that may do what the rules allow, and returns its secret.
func (s *Server) NewToken(ctx context.Context, rules string) (string, error) {
	name := "test-" + string(uuid.NewUUID())
	policy := object{"Name": name, "Rules": rules}
	if err := s.Do(ctx, http.MethodPut, "/v1/acl/policy", policy, nil); err != nil {
		return "", err
	}
	var token struct{ SecretID string }
	body := object{"Policies": []object{{"Name": name}}}
	if err := s.Do(ctx, http.MethodPut, "/v1/acl/token", body, &token); err != nil {
		return "", err
	}
	return token.SecretID, nil
}

// Do makes a request that may do everything. The body and what is answered are JSON, and may be nil.
func (s *Server) Do(ctx context.Context, method, path string, body, answer any) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encoding the request to %s: %w", path, err)
		}
	}
	raw, err := s.api.Do(ctx, method, path, raw)
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("decoding the answer of %s: %w", path, err)
	}
	return nil
}

// Run runs one of Consul's own commands, such as services register, as a client of this server.
func (s *Server) Run(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, s.path, args...)
	command.Env = []string{
		"CONSUL_HTTP_ADDR=" + s.URL, "CONSUL_HTTP_TOKEN=" + s.ManagementToken, "CONSUL_CACERT=" + s.CAFile,
		"CONSUL_CLIENT_CERT=" + s.CertFile, "CONSUL_CLIENT_KEY=" + s.KeyFile,
	}
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("consul %s: %w: %s", strings.Join(args, " "), err, said)
	}
	return nil
}
