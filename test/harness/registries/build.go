package registries

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
)

// Servers is where versions of servers are pinned side by side, for [cache.Pinned].
const Servers = "test/harness/registries/servers"

// Names of the programs that are Go modules: servers, and Nacos' own client with a main around it.
const (
	Consul      = "consul"
	Etcd        = "etcd"
	NacosReader = "nacos-reader"
)

// Module is the Go module that a program is built from; a server's is in servers/<name>-<version>.
func Module(ctx context.Context, name string) (cache.Module, error) {
	if name == NacosReader {
		return nacosReader(ctx)
	}
	dir, err := cache.Pinned(ctx, Servers, name)
	return module(dir, name), err
}

// Modules is [Module] of a server in all versions that [cache.AllPinned] returns, the newest last.
func Modules(ctx context.Context, name string) (all []cache.Module, err error) {
	dirs, err := cache.AllPinned(ctx, Servers, name)
	for _, dir := range dirs {
		all = append(all, module(dir, name))
	}
	return all, err
}

func module(dir, name string) cache.Module {
	binary := cache.Binary{Name: name, Package: "go.etcd.io/etcd/server/v3"}
	if name == Consul {
		binary = cache.Binary{Name: name, Package: "github.com/hashicorp/consul", Packages: 2000}
	}
	return cache.Module{Name: name, Dir: dir, Requires: binary.Package, Clock: true, Binaries: []cache.Binary{binary}}
}

func nacosReader(ctx context.Context) (cache.Module, error) {
	dir, err := cache.Dir(ctx, "test/harness/registries/readers")
	if err != nil {
		return cache.Module{}, err
	}
	source, err := os.ReadFile(filepath.Join(dir, "nacos", "main.go"))
	if err != nil {
		return cache.Module{}, fmt.Errorf("reading the source of the reader: %w", err)
	}
	sum := sha256.Sum256(source)
	return cache.Module{
		Name: NacosReader, Dir: dir, Requires: "github.com/nacos-group/nacos-sdk-go/v2",
		// Another source is another binary in the cache.
		LDFlags:  func(string) string { return "-X main.source=" + hex.EncodeToString(sum[:8]) },
		Binaries: []cache.Binary{{Name: NacosReader, Package: "./nacos"}},
	}, nil
}

// Build builds a program, a server in its newest version, unless it is there, and tells log about it.
func Build(ctx context.Context, log io.Writer, name string) (cache.Built, error) {
	m, err := Module(ctx, name)
	if err != nil {
		return cache.Built{}, err
	}
	return cache.Build(ctx, progress(log), m)
}

// BuildAll is Build of all of [Modules].
func BuildAll(ctx context.Context, log io.Writer, name string) (all []cache.Built, err error) {
	modules, err := Modules(ctx, name)
	if err != nil {
		return nil, err
	}
	return cache.BuildAll(ctx, progress(log), modules...)
}

func progress(log io.Writer) *cache.Progress { return cache.NewProgress(log, "registries") }

// Client asks a server's HTTP API.
type Client struct {
	// URL comes before each path.
	URL string
	// HTTP is what asks.
	HTTP *http.Client
	// Header goes with each request.
	Header http.Header
}

// URL is of a server on a port of an address.
func URL(ip string, port int) string { return "http://" + net.JoinHostPort(ip, strconv.Itoa(port)) }

// NewClient returns one that keeps no connection open, so that a server can be stopped at any time.
func NewClient(url string) *Client {
	return &Client{
		URL: url, Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}},
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
}

// Do makes a request, and returns the body of an answer that is 2xx.
func (c *Client) Do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	request.Header = c.Header.Clone()
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	if response.StatusCode/100 != 2 {
		return nil, &StatusError{response.StatusCode, fmt.Sprintf("%s %s%s: the server answers %s: %s",
			method, c.URL, path, response.Status, bytes.TrimSpace(answer))}
	}
	return answer, nil
}

// StatusError is an answer that is not 2xx.
type StatusError struct {
	Code int
	text string
}

func (e *StatusError) Error() string { return e.text }

// IsNotFound reports whether the server has answered 404.
func IsNotFound(err error) bool {
	refused := new(StatusError)
	return errors.As(err, &refused) && refused.Code == http.StatusNotFound
}

// BuildReader builds a program of the module readers, by its folder there or the package of a tool, into a folder, and returns its path.
func BuildReader(ctx context.Context, into, name string) (string, error) {
	dir, err := cache.Dir(ctx, "test/harness/registries/readers")
	if err != nil {
		return "", err
	}
	at := filepath.Join(into, filepath.Base(name))
	if said, err := exec.CommandContext(ctx, "go", "build", "-C", dir, "-o", at, name).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w: %s", name, err, said)
	}
	return at, nil
}

// Resolver asks the DNS server at host:port and no other, by TCP: answers by UDP are cut short without telling.
func Resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}}
}
