// Package eureka runs Eureka for test/registries/eureka, which proves the driver: the server that Spring's guide describes,
// and a Spring application that reads from it. Both are started from their source files, so a JDK is needed.
package eureka

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java"
)

const (
	loopback = "127.0.0.1"
	// user and password are those of a server with BasicAuth.
	user     = "rollcall"
	password = "a pässword: of a server"
	// pins is the name of the folders with its jars.
	pins = "eureka"
	// artifact is that whose version is the server's.
	artifact = "eureka-core"
	// cacheUpdate is how often the read-only cache is renewed; by default it is 30 seconds.
	cacheUpdate = time.Second
	// cacheExpiry is how long the cache behind it keeps an answer; by default it is 180 seconds.
	cacheExpiry = time.Second
	// eviction is how often the server removes what has no lease any more; by default it is a minute.
	eviction     = time.Second
	slowEviction = time.Hour
)

// Get downloads server and reader unless they are there, and tells log about it. EUREKA=2025.0 in the environment chooses that Spring
// Cloud; the newest is the default.
func Get(ctx context.Context, log io.Writer) (*java.Jars, error) {
	jars, err := java.Pinned(ctx, log, pins)
	if err != nil {
		return nil, err
	}
	return jars, haveSources(ctx, jars)
}

// getAll is [Get] of all versions, the newest last.
func getAll(ctx context.Context, log io.Writer) ([]*java.Jars, error) {
	all, err := java.AllPinned(ctx, log, pins)
	if err != nil {
		return nil, err
	}
	return all, haveSources(ctx, all...)
}

// haveSources points to the server's class and the configuration, which all versions have in common.
func haveSources(ctx context.Context, all ...*java.Jars) error {
	dir, err := cache.Dir(ctx, "test/harness/registries/eureka/server")
	for _, jars := range all {
		jars.Dir = dir
	}
	return err
}

// Options say what server to start. The zero value is one that has its read-only response cache off, takes anybody's word,
// and removes what has no lease any more.
type Options struct {
	// ReadOnlyCache has it on, as it is by default.
	ReadOnlyCache bool
	// BasicAuth makes it serve only who shows a user and a password.
	BasicAuth bool
	// SlowEviction makes it keep what has no lease any more until the test has ended.
	SlowEviction bool
}

// Server is a running Eureka.
type Server struct {
	*registries.Server
	// Endpoint is its URL, with Spring's path.
	Endpoint string
	// Staleness is how old the answer to a listing may be.
	Staleness time.Duration
	// User and Password are for clients of a server with BasicAuth.
	User, Password string

	opts Options
	host string
	port int
	peer string // the Endpoint of the other one
	// syncs: it begins with what its peer has, as it does by default.
	syncs bool
	api   *registries.Client
}

// Start gets the server, runs it and returns when it serves.
func Start(ctx context.Context, opts Options) (*Server, error) {
	servers, err := start(ctx, opts, 1)
	if err != nil {
		return nil, err
	}
	return servers[0], nil
}

// StartPeers runs two servers that replicate each other.
func StartPeers(ctx context.Context, opts Options) (one, other *Server, err error) {
	servers, err := start(ctx, opts, 2) //nolint:mnd // it says so
	if err != nil {
		return nil, nil, err
	}
	return servers[0], servers[1], nil
}

func start(ctx context.Context, opts Options, n int) ([]*Server, error) {
	jars, err := Get(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	ports, err := process.FreePorts(ctx, n)
	if err != nil {
		return nil, err
	}
	servers := make([]*Server, n)
	for i, port := range ports {
		servers[i] = &Server{
			Endpoint: registries.URL(loopback, port) + "/eureka", Staleness: cacheExpiry, opts: opts, host: loopback, port: port,
		}
		if opts.ReadOnlyCache {
			servers[i].Staleness += cacheUpdate
		}
		servers[i].api = registries.NewClient(servers[i].Endpoint)
		if opts.BasicAuth {
			servers[i].User, servers[i].Password = user, password
			basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
			servers[i].api.Header.Set("Authorization", "Basic "+basic)
		}
	}
	for i := range servers[1:] {
		servers[i].peer, servers[i+1].peer = servers[i+1].Endpoint, servers[i].Endpoint
	}
	return registries.StartAll(servers, func(s *Server) error { return s.start(ctx, jars) })
}

func (s *Server) start(ctx context.Context, jars *java.Jars) (err error) {
	s.Server, err = registries.Run(ctx, registries.Spec{
		Name: "Eureka", Version: jars.Version(artifact), Ready: s.ready,
		Command: func(dir string) (process.Command, error) { return s.command(jars, dir) },
	})
	return err
}

func (s *Server) command(jars *java.Jars, dir string) (process.Command, error) {
	properties := map[string]string{
		"server.address": s.host,
		"server.port":    strconv.Itoa(s.port),
		"eureka.server.use-read-only-response-cache":              strconv.FormatBool(s.opts.ReadOnlyCache),
		"eureka.server.enable-self-preservation":                  "false",
		"eureka.server.eviction-interval-timer-in-ms":             milliseconds(eviction),
		"eureka.server.response-cache-update-interval-ms":         milliseconds(cacheUpdate),
		"eureka.server.response-cache-auto-expiration-in-seconds": strconv.Itoa(int(cacheExpiry.Seconds())),
		"eureka.server.my-url":                                    s.Endpoint + "/",
		"eureka.client.service-url.defaultZone":                   s.Endpoint + "/",
		"eureka.server.peer-node-connect-timeout-ms":              milliseconds(time.Second),
		"eureka.server.peer-node-read-timeout-ms":                 milliseconds(5 * time.Second),
		"eureka.server.max-time-for-replication":                  milliseconds(30 * time.Second),
		"logging.level.com.netflix.eureka":                        "warn",
		"logging.level.com.netflix.discovery":                     "warn",
	}
	if s.opts.SlowEviction {
		properties["eureka.server.eviction-interval-timer-in-ms"] = milliseconds(slowEviction)
	}
	if s.peer != "" {
		properties["eureka.client.service-url.defaultZone"] = s.peer + "/"
	}
	if s.syncs {
		properties["eureka.client.fetch-registry"] = "true"
		properties["eureka.server.registry-sync-retries"] = "5"
		properties["eureka.server.registry-sync-retry-wait-ms"] = milliseconds(time.Second)
	}
	if s.opts.BasicAuth {
		properties["spring.profiles.active"] = "auth"
		properties["spring.security.user.name"] = user
		properties["spring.security.user.password"] = password
	}
	main := []string{filepath.Join(jars.Dir, "Server.java"), configuration(jars)}
	for name, value := range properties {
		main = append(main, "--"+name+"="+value)
	}
	jvm, args := jars.Command([]string{"-Xmx256m", "-Djava.io.tmpdir=" + dir}, main)
	return process.Command{
		// Java reads its arguments by the locale, and the password is not ASCII.
		Path: jvm, Args: args, Env: []string{"LC_ALL=C.UTF-8"},
	}, nil
}

// configuration is what the server and the applications share.
func configuration(jars *java.Jars) string {
	return "--spring.config.location=file:" + filepath.Join(jars.Dir, "application.yml")
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func (s *Server) ready(ctx context.Context) error {
	_, err := s.Do(ctx, http.MethodGet, "/apps", nil)
	return err
}

// Do makes a request at a path behind the endpoint, with the rights of a user, and returns the body of its answer; an
// answer other than 2xx is an error.
func (s *Server) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return s.api.Do(ctx, method, path, body)
}
