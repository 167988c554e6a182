package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	// Binary is the name of the server's program.
	Binary = "etcd"
	// root is the user that etcd asks for before it turns authentication on.
	root = "root"
)

// Module is what the server is built from.
func Module(ctx context.Context) (cache.Module, error) {
	dir, err := cache.Dir(ctx, "test/harness/registries/servers/etcd")
	if err != nil {
		return cache.Module{}, err
	}
	const pkg = "go.etcd.io/etcd/server/v3"
	return cache.Module{
		Name: "etcd", Dir: dir, Requires: pkg,
		Binaries: []cache.Binary{{Name: Binary, Package: pkg, Reported: reportedVersion}},
	}, nil
}

// reportedVersion reads "etcd Version: 3.6.16", the first of several lines.
func reportedVersion(output string) string {
	line, _, _ := strings.Cut(output, "\n")
	number, found := strings.CutPrefix(strings.TrimSpace(line), "etcd Version: ")
	if !found {
		return ""
	}
	return "v" + number
}

// Get builds the server unless it is there, and tells log about it.
func Get(ctx context.Context, log io.Writer) (cache.Built, error) {
	m, err := Module(ctx)
	if err != nil {
		return cache.Built{}, registries.Missing(err)
	}
	built, err := cache.Build(ctx, cache.NewProgress(log, "registries"), m)
	return built, registries.Missing(err)
}

// Options say what server to start. The zero value is one without TLS and authentication.
type Options struct {
	// TLS makes it serve https.
	TLS bool
	// ClientCertificates makes it ask clients for a certificate; it implies TLS.
	ClientCertificates bool
	// RootPassword turns authentication on, with this password for the user root.
	RootPassword string
}

// Server is a running etcd with one member.
type Server struct {
	*registries.Server
	// Endpoint is host:port.
	Endpoint string
	// CAFile, CertFile and KeyFile are for clients, and empty without TLS.
	CAFile, CertFile, KeyFile string

	opts      Options
	url       string
	peerURL   string
	http      *http.Client
	clientTLS *tls.Config
	serving   pki.KeyPair
}

// Start gets the server, runs it and returns when it serves.
func Start(ctx context.Context, opts Options) (*Server, error) {
	built, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if opts.TLS = opts.TLS || opts.ClientCertificates; opts.TLS {
		scheme = "https"
	}
	s := &Server{
		opts: opts, Endpoint: fmt.Sprintf("127.0.0.1:%d", ports[0]), peerURL: fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
		http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	s.url = scheme + "://" + s.Endpoint
	s.Server, err = registries.Run(ctx, registries.Spec{
		Name: "etcd", Version: built.Version,
		Command: func(dir string) (process.Command, error) { return s.command(built.Paths[Binary], dir) },
		Ready:   s.ready,
	})
	if err != nil {
		return nil, err
	}
	if err := s.enableAuth(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("turning on etcd's authentication: %w", err)
	}
	return s, nil
}

func (s *Server) command(path, dir string) (process.Command, error) {
	args := []string{
		"--name=test",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + s.url,
		"--advertise-client-urls=" + s.url,
		"--listen-peer-urls=" + s.peerURL,
		"--initial-advertise-peer-urls=" + s.peerURL,
		"--initial-cluster=test=" + s.peerURL,
		// Nothing here has to survive a power cut, and a sync is what etcd waits for most.
		"--unsafe-no-fsync",
		"--log-level=warn",
		// The tests log in by the hundred, and no password here is worth more.
		"--bcrypt-cost=4",
	}
	if s.opts.TLS {
		if err := s.issue(filepath.Join(dir, "pki")); err != nil {
			return process.Command{}, err
		}
		args = append(args, "--cert-file="+s.serving.CertFile, "--key-file="+s.serving.KeyFile)
	}
	if s.opts.ClientCertificates {
		args = append(args, "--trusted-ca-file="+s.CAFile, "--client-cert-auth")
	}
	return process.Command{Path: path, Args: args}, nil
}

// issue makes the certificates of the server and of its clients.
func (s *Server) issue(dir string) error {
	authority, err := pki.NewAuthority(dir, "rollcall-test-etcd")
	if err != nil {
		return err
	}
	if s.serving, err = authority.Issue("serving", pkix.Name{CommonName: "etcd"}); err != nil {
		return err
	}
	// Without a name: with one, etcd would take it for the user.
	client, err := authority.Issue("client", pkix.Name{Organization: []string{"rollcall"}})
	if err != nil {
		return err
	}
	s.CAFile, s.CertFile, s.KeyFile = authority.CertFile, client.CertFile, client.KeyFile
	config, err := authority.TLSConfig(client)
	if err != nil {
		return err
	}
	s.clientTLS = config
	s.http.Transport = &http.Transport{TLSClientConfig: config.Clone(), DisableKeepAlives: true}
	return nil
}

// URL is the endpoint with its scheme.
func (s *Server) URL() string { return s.url }

// WithUsers reports whether the server asks for a user and password.
func (s *Server) WithUsers() bool { return s.opts.RootPassword != "" }

// TLSConfig is that of a client that this server lets in, nil without TLS.
func (s *Server) TLSConfig() *tls.Config { return s.clientTLS.Clone() }

func (s *Server) ready(ctx context.Context) error {
	return s.do(ctx, http.MethodGet, "/health", nil)
}

// enableAuth makes the user root, who may do everything, and lets no one in without a password from then on.
func (s *Server) enableAuth(ctx context.Context) error {
	if s.opts.RootPassword == "" {
		return nil
	}
	for _, step := range []struct {
		path string
		body map[string]string
	}{
		{"/v3/auth/user/add", map[string]string{"name": root, "password": s.opts.RootPassword}},
		{"/v3/auth/role/add", map[string]string{"name": root}},
		{"/v3/auth/user/grant", map[string]string{"user": root, "role": root}},
		{"/v3/auth/enable", map[string]string{}},
	} {
		body, err := json.Marshal(step.body)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		if err := s.do(ctx, http.MethodPost, step.path, body); err != nil {
			return err
		}
	}
	return nil
}

// do asks etcd's own HTTP gateway.
func (s *Server) do(ctx context.Context, method, path string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("asking %s: %w", path, err)
	}
	response, err := s.http.Do(request)
	if err != nil {
		return fmt.Errorf("asking %s: %w", path, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(path + " answers " + response.Status)
	}
	return nil
}
