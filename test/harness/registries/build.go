package registries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/rollcall-dev/rollcall/test/harness/cache"
)

// Servers is where versions of servers are pinned side by side, for [cache.Pinned].
const Servers = "test/harness/registries/servers"

// Module is the Go module in servers/<name>-<version>, whose server is built from pkg.
func Module(ctx context.Context, name, pkg string) (cache.Module, error) {
	dir, err := cache.Pinned(ctx, Servers, name)
	return module(dir, name, pkg), err
}

func module(dir, name, pkg string) cache.Module {
	return cache.Module{Name: name, Dir: dir, Requires: pkg, Clock: true, Binaries: []cache.Binary{{Name: name, Package: pkg}}}
}

// Build builds a module's server unless it is there, and tells log about it.
func Build(ctx context.Context, log io.Writer, m cache.Module, err error) (cache.Built, error) {
	if err != nil {
		return cache.Built{}, Missing(err)
	}
	built, err := cache.Build(ctx, cache.NewProgress(log, "registries"), m)
	return built, Missing(err)
}

// BuildAll is [Module] and [Build] of all versions that [cache.AllPinned] returns, the newest last.
func BuildAll(ctx context.Context, log io.Writer, name, pkg string) (all []cache.Built, err error) {
	dirs, err := cache.AllPinned(ctx, Servers, name)
	for _, dir := range dirs {
		built, buildErr := Build(ctx, log, module(dir, name, pkg), err)
		if buildErr != nil {
			return nil, buildErr
		}
		all = append(all, built)
	}
	return all, Missing(err)
}

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
