// Package etcd runs a real etcd. The tests of test/registries/etcd prove the driver on it.
package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/pki"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

const (
	// root is the user that etcd asks for before it turns authentication on.
	root = "root"
)

// Get builds the server unless it is there, and tells log about it.
func Get(ctx context.Context, log io.Writer) (cache.Built, error) {
	return registries.Build(ctx, log, registries.Etcd)
}

// Options say what server to start. The zero value is one without TLS and authentication.
type Options struct {
	// ClientCertificates makes it serve https, and ask clients for a certificate.
	ClientCertificates bool
	// RootPassword turns authentication on, with this password for the user root.
	RootPassword string
	// QuotaBytes is how large the database may become; 0 is etcd's default.
	QuotaBytes int
}

// Server is a running etcd with one member.
type Server struct {
	*registries.Server
	// Endpoint is host:port.
	Endpoint string
	// CAFile, CertFile and KeyFile are for clients, and empty without TLS.
	CAFile, CertFile, KeyFile string

	opts      Options
	peerURL   string
	api       *registries.Client
	clientTLS *tls.Config
	tls       *pki.TLS
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
	if opts.ClientCertificates {
		scheme = "https"
	}
	s := &Server{
		opts: opts, Endpoint: fmt.Sprintf("127.0.0.1:%d", ports[0]), peerURL: fmt.Sprintf("http://127.0.0.1:%d", ports[1]),
	}
	s.api = registries.NewClient(scheme + "://" + s.Endpoint)
	s.Server, err = registries.Run(ctx, registries.Spec{
		Name: "etcd", Version: built.Version,
		Command: func(dir string) (process.Command, error) { return s.command(built.Paths[registries.Etcd], dir) },
		Ready:   s.ready,
	})
	if err != nil {
		return nil, err
	}
	if opts.RootPassword == "" {
		return s, nil
	}
	if err := s.EnableAuth(ctx, opts.RootPassword); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *Server) command(path, dir string) (process.Command, error) {
	args := []string{
		"--name=test",
		"--data-dir=" + filepath.Join(dir, "etcd"),
		"--listen-client-urls=" + s.URL(),
		"--advertise-client-urls=" + s.URL(),
		"--listen-peer-urls=" + s.peerURL,
		"--initial-advertise-peer-urls=" + s.peerURL,
		"--initial-cluster=test=" + s.peerURL,
		// Nothing here has to survive a power cut, and a sync is what etcd waits for most.
		"--unsafe-no-fsync",
		"--log-level=warn",
		// The tests log in by the hundred, and no password here is worth more.
		"--bcrypt-cost=4",
	}
	if s.opts.QuotaBytes > 0 {
		args = append(args, fmt.Sprintf("--quota-backend-bytes=%d", s.opts.QuotaBytes))
	}
	if s.opts.ClientCertificates {
		if err := s.issue(filepath.Join(dir, "pki")); err != nil {
			return process.Command{}, err
		}
		args = append(args, "--cert-file="+s.tls.Serving.CertFile, "--key-file="+s.tls.Serving.KeyFile,
			"--trusted-ca-file="+s.CAFile, "--client-cert-auth")
	}
	return process.Command{Path: path, Args: args}, nil
}

// issue makes the certificates of the server and of its clients. With a name, etcd would take a client for the user.
func (s *Server) issue(dir string) (err error) {
	if s.tls, err = pki.NewTLS(dir, pkix.Name{CommonName: registries.Etcd}, pkix.Name{Organization: []string{"rollcall"}}); err != nil {
		return err
	}
	s.CAFile, s.CertFile, s.KeyFile = s.tls.Files()
	s.clientTLS, err = s.tls.Config()
	s.api.HTTP.Transport = &http.Transport{TLSClientConfig: s.clientTLS.Clone(), DisableKeepAlives: true}
	return err
}

// URL is the endpoint with its scheme.
func (s *Server) URL() string { return s.api.URL }

// WithUsers reports whether the server asks for a user and password.
func (s *Server) WithUsers() bool { return s.opts.RootPassword != "" }

// TLSConfig is that of a client that this server lets in, nil without TLS.
func (s *Server) TLSConfig() *tls.Config { return s.clientTLS.Clone() }

func (s *Server) ready(ctx context.Context) error {
	_, err := s.api.Do(ctx, http.MethodGet, "/health", nil)
	return err
}

// EnableAuth makes the user root, who may do everything, and lets no one in without a password from then on.
func (s *Server) EnableAuth(ctx context.Context, rootPassword string) error {
	for _, step := range []struct {
		path string
		body map[string]string
	}{
		{"/v3/auth/user/add", map[string]string{"name": root, "password": rootPassword}},
		{"/v3/auth/role/add", map[string]string{"name": root}},
		{"/v3/auth/user/grant", map[string]string{"user": root, "role": root}},
		{"/v3/auth/enable", map[string]string{}},
	} {
		body, err := json.Marshal(step.body)
		if err == nil {
			_, err = s.api.Do(ctx, http.MethodPost, step.path, body)
		}
		if err != nil {
			return fmt.Errorf("turning on etcd's authentication: %w", err)
		}
	}
	return nil
}
