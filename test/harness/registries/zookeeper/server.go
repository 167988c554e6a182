// Package zookeeper runs a real ZooKeeper. The tests of test/registries/zookeeper prove the driver on it.
//
// Server and readers are the jars that Apache and Spring publish on Maven Central: that needs neither root nor a
// distribution's package, and is the same everywhere.
package zookeeper

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/util/keyutil"

	"github.com/rollcall-dev/rollcall/test/harness/pki"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/dubbo"
)

const (
	loopback = "127.0.0.1"
	// serverJars and readerJars are the folders with what is pinned.
	serverJars, readerJars = "zookeeper/server", "zookeeper/reader"
	// MinSessionTimeout is the shortest that a server grants; it notices an end within a tick.
	MinSessionTimeout = time.Second
	tick              = 200 * time.Millisecond
	// emptyFor is how often a server removes empty containers; by default it is a minute.
	emptyFor = time.Second
	// maxAnswer bounds the answer to the question whether a server is ready.
	maxAnswer = 4 << 10
)

// Get downloads the server, the readers and applications of Dubbo unless they are there, and tells log about it.
func Get(ctx context.Context, log io.Writer) (*java.Jars, error) {
	for _, folder := range []string{readerJars, dubbo.Folder} {
		if _, err := java.Get(ctx, log, folder); err != nil {
			return nil, err
		}
	}
	return java.Get(ctx, log, serverJars)
}

// Options say what server to start. The zero value is one without TLS.
type Options struct {
	// TLS makes it serve TLS too, at SecureEndpoint.
	TLS bool
	// ClientCertificates makes it ask TLS clients for a certificate; it implies TLS.
	ClientCertificates bool
	// EnforceAuth makes it serve only clients that have said who they are, by the scheme digest.
	EnforceAuth bool
}

// Server is a running ZooKeeper, or one of an ensemble.
type Server struct {
	*registries.Server
	// Endpoint is host:port.
	Endpoint string
	// SecureEndpoint is that with TLS, and empty without. CAFile, CertFile and KeyFile are for its clients.
	SecureEndpoint            string
	CAFile, CertFile, KeyFile string

	opts     Options
	ensemble []string // the servers' lines of the configuration
	id       int
	syncs    bool
}

// Start gets the server, runs it and returns when it serves.
func Start(ctx context.Context, opts Options) (*Server, error) {
	jars, err := java.Get(ctx, os.Stderr, serverJars)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, 2)
	if err != nil {
		return nil, err
	}
	s := &Server{opts: opts, Endpoint: fmt.Sprintf("%s:%d", loopback, ports[0])}
	if s.opts.TLS = opts.TLS || opts.ClientCertificates; s.opts.TLS {
		s.SecureEndpoint = fmt.Sprintf("%s:%d", loopback, ports[1])
	}
	return s, s.start(ctx, jars)
}

// StartEnsemble runs n servers that replicate one another, and returns when they have elected a leader.
func StartEnsemble(ctx context.Context, n int) ([]*Server, error) {
	jars, err := java.Get(ctx, os.Stderr, serverJars)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, 3*n) //nolint:mnd // for clients, for the leader, for the election
	if err != nil {
		return nil, err
	}
	var lines []string
	servers := make([]*Server, n)
	for i := range servers {
		lines = append(lines, fmt.Sprintf("server.%d=%s:%d:%d", i+1, loopback, ports[3*i+1], ports[3*i+2]))
		servers[i] = &Server{id: i + 1, Endpoint: fmt.Sprintf("%s:%d", loopback, ports[3*i])}
	}
	return registries.StartAll(servers, func(s *Server) error {
		s.ensemble = lines
		return s.start(ctx, jars)
	})
}

func (s *Server) start(ctx context.Context, jars *java.Jars) (err error) {
	s.Server, err = registries.Run(ctx, registries.Spec{
		Name: "ZooKeeper", Version: jars.Version("zookeeper"), Ready: s.ready,
		Command: func(dir string) (process.Command, error) { return s.command(jars, dir) },
	})
	return err
}

func (s *Server) command(jars *java.Jars, dir string) (process.Command, error) {
	lines, err := s.config(dir)
	if err != nil {
		return process.Command{}, err
	}
	config := filepath.Join(dir, "zoo.cfg")
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return process.Command{}, fmt.Errorf("writing the configuration: %w", err)
	}
	main := "org.apache.zookeeper.server.ZooKeeperServerMain"
	if len(s.ensemble) > 0 {
		main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
		if err := os.WriteFile(filepath.Join(dir, "myid"), fmt.Appendln(nil, s.id), 0o600); err != nil {
			return process.Command{}, fmt.Errorf("writing the server's number: %w", err)
		}
	}
	jvm, args := jars.Command([]string{
		"-Xmx160m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true",
		// Nothing here has to survive a power cut, and a sync is what a server waits for most. A disk can be slow only if there are some.
		"-Dzookeeper.forceSync=" + map[bool]string{true: "yes", false: "no"}[s.syncs],
		fmt.Sprintf("-Dznode.container.checkIntervalMs=%d", emptyFor.Milliseconds()),
	}, []string{main, config})
	return process.Command{Path: jvm, Args: args}, nil
}

func (s *Server) config(dir string) ([]string, error) {
	host, port, err := net.SplitHostPort(s.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("reading the address: %w", err)
	}
	lines := append([]string{
		"dataDir=" + dir,
		"clientPort=" + port,
		"clientPortAddress=" + host,
		"admin.enableServer=false",
		"maxClientCnxns=0", // all tests come from one address
		fmt.Sprintf("tickTime=%d", tick.Milliseconds()),
		fmt.Sprintf("minSessionTimeout=%d", MinSessionTimeout.Milliseconds()),
		fmt.Sprintf("maxSessionTimeout=%d", time.Minute.Milliseconds()),
		"initLimit=50", "syncLimit=25",
	}, s.ensemble...)
	if s.opts.EnforceAuth {
		lines = append(lines, "enforce.auth.enabled=true", "enforce.auth.schemes=digest")
	}
	if !s.opts.TLS {
		return lines, nil
	}
	secure, err := s.secureConfig(filepath.Join(dir, "pki"))
	return append(lines, secure...), err
}

func (s *Server) secureConfig(dir string) ([]string, error) {
	_, port, err := net.SplitHostPort(s.SecureEndpoint)
	if err != nil {
		return nil, fmt.Errorf("reading the address: %w", err)
	}
	both, err := pki.NewTLS(dir, pkix.Name{CommonName: "zookeeper"}, pkix.Name{CommonName: "rollcall"})
	if err != nil {
		return nil, err
	}
	s.CAFile, s.CertFile, s.KeyFile = both.Files()
	keyStore := filepath.Join(dir, "serving.pem")
	if err := writeKeyStore(keyStore, both.Serving); err != nil {
		return nil, err
	}
	clientAuth := "none"
	if s.opts.ClientCertificates {
		clientAuth = "need"
	}
	return []string{
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		"secureClientPort=" + port,
		"secureClientPortAddress=" + loopback,
		"ssl.keyStore.location=" + keyStore, "ssl.keyStore.type=PEM",
		"ssl.trustStore.location=" + s.CAFile, "ssl.trustStore.type=PEM",
		"ssl.clientAuth=" + clientAuth,
		"ssl.clientHostnameVerification=false",
	}, nil
}

// writeKeyStore writes certificate and key into one file, the key in the one form that ZooKeeper reads.
func writeKeyStore(path string, pair pki.KeyPair) error {
	key, err := keyutil.ParsePrivateKeyPEM(pair.KeyPEM)
	if err != nil {
		return fmt.Errorf("reading the server's key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the server's key: %w", err)
	}
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), pair.CertPEM...)
	if err := os.WriteFile(path, both, 0o600); err != nil {
		return fmt.Errorf("writing the server's key store: %w", err)
	}
	return nil
}

// ready returns nil if the server serves, alone or in an ensemble that has a leader. It opens the port for TLS after the other one.
func (s *Server) ready(ctx context.Context) error {
	if _, err := s.mode(ctx); err != nil || s.SecureEndpoint == "" {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.SecureEndpoint)
	if err != nil {
		return fmt.Errorf("connecting by TLS: %w", err)
	}
	return conn.Close()
}

// mode asks the server what it is: standalone, leader or follower. One that has no leader yet says that it is not serving.
func (s *Server) mode(ctx context.Context) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.Endpoint)
	if err != nil {
		return "", fmt.Errorf("connecting: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", fmt.Errorf("setting a deadline: %w", err)
		}
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return "", fmt.Errorf("asking: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	_, after, found := strings.Cut(string(answer), "Mode: ")
	if !found {
		return "", fmt.Errorf("it answers %q", strings.TrimSpace(string(answer)))
	}
	mode, _, _ := strings.Cut(after, "\n")
	return mode, nil
}
