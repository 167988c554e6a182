package driverkit

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// connectTimeout bounds the time until a connection is open, including TLS.
	connectTimeout = 10 * time.Second
	// keepAlive is how often a silent connection is checked.
	keepAlive = 15 * time.Second
	// idleTimeout is shorter than most servers', so that they rarely close a connection first.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 64 << 10
	// maxBeginning is how many bytes are read of an acknowledgement whose body does not matter.
	maxBeginning = 512
)

// HTTPOptions are what a driver adds to the configuration.
type HTTPOptions struct {
	// Name is what errors call the registry, such as Consul.
	Name string
	// ServerName is the name that the servers' certificates must be valid for. Default: the host of each URL.
	ServerName string
	// Path is the path of a server whose URL has none. Default: /.
	Path string
	// Credentials are masked in errors. They are not sent: set the header of a [Request] for that.
	Credentials Credentials
	// NameServers makes errors show the URL of the server instead of Name: for a registry with which it matters which server answered.
	NameServers bool
	// Direct makes each request use a connection of its own and bypass the environment's proxy: for servers that get few requests, or
	// that close a connection after each without announcing it.
	Direct bool
}

// HTTPClient makes requests to the servers of one registry. It follows no redirect, since credentials must not be sent elsewhere.
// It is safe for concurrent use.
type HTTPClient struct {
	options   HTTPOptions
	outgoing  func(context.Context, *url.URL) map[string]string // nil without traces
	mask      mask
	log       *slog.Logger
	transport http.RoundTripper // of net/http, but in tests of the kit
	servers   []*url.URL
	current   atomic.Int64               // the number of the server that calls begin at
	several   atomic.Bool                // an address stands for several servers, see [Members]
	reached   atomic.Pointer[[]*url.URL] // besides, see [Members.Reach]
}

// NewHTTPClient makes a client from the URLs in cfg.Endpoint and the files in cfg.TLS, which it reads now. No server needs to be
// reachable. The error joins those of all fields that are wrong.
//
// The number of its connections is not limited: the manager limits the calls, and a call that waits for a connection would lose its
// time before it is sent. As many stay open as were in use a moment ago. If there are several servers, connecting to one can take
// only a share of cfg.Timeout, so that a call has time left for the others. It speaks HTTP/1.1: with HTTP/2, a server's refusal of
// Rollcall's certificate is lost.
func NewHTTPClient(cfg registry.Config, options HTTPOptions) (*HTTPClient, error) {
	servers, endpointErr := URLs(cfg)
	files := cfg.TLS
	if len(servers) > 0 && servers[0].Scheme == "http" {
		files = registry.TLS{} // which has no effect, as in the error
	}
	config, filesErr := ClientTLS(files)
	if err := errors.Join(endpointErr, filesErr); err != nil {
		return nil, err
	}
	for i, u := range servers {
		if u.Path == "" {
			servers[i] = u.JoinPath(options.Path)
		}
	}
	config.ServerName = options.ServerName
	connect := connectTimeout
	if cfg.Timeout > 0 && len(servers) > 1 {
		connect = min(connect, cfg.Timeout/time.Duration(len(servers)))
	}
	transport := newTransport(config, connect)
	if transport.DisableKeepAlives = options.Direct; options.Direct {
		transport.Proxy = nil
	}
	return &HTTPClient{
		options: options, outgoing: cfg.Outgoing, mask: options.Credentials.mask(), log: Logger(cfg),
		transport: transport, servers: servers,
	}, nil
}

func newTransport(config *tls.Config, connect time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connect, KeepAlive: keepAlive}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    connect,
		MaxIdleConnsPerHost:    math.MaxInt, // the default keeps two
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// Servers are the URLs of the servers.
func (c *HTTPClient) Servers() []*url.URL { return slices.Clone(c.servers) }

// Close closes idle connections. Calls under way are not disturbed.
func (c *HTTPClient) Close() {
	if pool, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		pool.CloseIdleConnections()
	}
}

// Request is what is sent to a server.
type Request struct {
	Method string
	// Path is appended to that of the server's URL. Escape what must not be read as a slash.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
	// Limit is how many bytes of an acknowledgement are read; a longer one is an error. With zero, only the status counts.
	Limit int64
	// Secrets are those of this request alone, such as the token of a session. The options have the others.
	Secrets []string
	// Check returns why an acknowledgement is not the registry's, such as a proxy's page with status 200. The request then has this
	// error, with the server's URL. By default every acknowledgement is accepted.
	Check func(*Answer) error
	// Repeatable is set for a request of [HTTPClient.Try] that changes nothing, or changes the same when it is made twice: a server gets
	// only its share of the time, see [Share], and any error is marked by [Away].
	Repeatable bool
	// Changes is set for a request that changes something although its method is GET or HEAD.
	Changes bool
	// At is a server that is not one of the endpoint's, such as the agent of a node. [HTTPClient.Do] makes the request there, which does
	// not change where later calls begin.
	At *url.URL
}

// Do makes one request to this server. The error is nil if there is an answer, whatever its status. Otherwise it is the context's, or it is
// marked by [Away], contains no secret, and has the class of [TLSError] if a certificate is wrong. There are two exceptions. If the
// connection was cut after a request with a method other than GET or HEAD was sent, the error is not marked, and its Timeout() is true. If
// an acknowledgement breaks off, or has more bytes than the limit, it is marked only with GET and HEAD.
func (s Server) Do(ctx context.Context, r Request) (*Answer, error) {
	if !r.Repeatable {
		return s.client.send(ctx, s, r)
	}
	part, cancel := Share(ctx, s.left)
	defer cancel()
	a, err := s.client.send(part, s, r)
	if ctx.Err() == nil { // only its share of the time may have ended
		err = Away(err)
	}
	return a, err
}

func (c *HTTPClient) send(ctx context.Context, to Server, r Request) (*Answer, error) {
	mask := c.mask.with("[secret]", r.Secrets...)
	var sent atomic.Bool
	tracked := ctx
	if !r.reads() {
		tracked = noting(ctx, &sent)
	}
	req, err := c.prepare(tracked, to, r)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	// An http.Client copies the header of each request for redirects, which are not followed here.
	resp, err := to.transport().RoundTrip(req)
	if err != nil {
		return nil, silence(ctx, to, mask, err, sent.Load())
	}
	defer resp.Body.Close()
	a := &Answer{
		Status: resp.StatusCode, Header: resp.Header,
		read: r.reads(), by: c.options.Name, what: c.options.Name, mask: mask,
	}
	if c.options.NameServers {
		a.by = to.String()
	}
	switch {
	case !a.OK():
		a.Body, _ = io.ReadAll(io.LimitReader(resp.Body, maxWords)) // what could be read is better than nothing
	case r.Limit > 0:
		if a.Body, err = readBody(resp.Body, r.Limit); err != nil {
			return nil, half(ctx, a.read, fmt.Errorf("%s: %w", to, err))
		}
	}
	checks := r.Check != nil && a.OK()
	a.page = checks && isPage(beginning(a.Body, resp.Body))
	_, _ = io.CopyN(io.Discard, resp.Body, maxIgnored) // a body that is not at its end costs the connection
	if !checks {
		return a, nil
	}
	if err := r.Check(a); err != nil {
		return nil, fmt.Errorf("%s: %w", to, err)
	}
	return a, nil
}

// beginning is that of a body, as far as it has been read. What can't be read of the rest does not matter.
func beginning(body []byte, rest io.Reader) []byte {
	if body == nil {
		body, _ = io.ReadAll(io.LimitReader(rest, maxBeginning))
	}
	return body
}

// reads reports whether a request changes nothing, so that it can't be carried out late.
func (r Request) reads() bool {
	return !r.Changes && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

func (c *HTTPClient) prepare(ctx context.Context, to Server, r Request) (*http.Request, error) {
	u := to.url.JoinPath(r.Path)
	u.RawQuery = r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "rollcall")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.outgoing != nil {
		for key, value := range c.outgoing(ctx, u) {
			req.Header.Set(key, value)
		}
	}
	maps.Copy(req.Header, r.Header)
	return req, nil
}

// half is the error of an acknowledgement whose body could not be read to its end. A request that changes nothing can be made at another
// server.
func half(ctx context.Context, read bool, err error) error {
	if ctx.Err() != nil || !read {
		return contextError(ctx, err)
	}
	return Away(err)
}

// silence is the error of a request that got no answer, and may have been sent.
func silence(ctx context.Context, to Server, mask mask, err error, sent bool) error {
	late := sent && isCut(err)
	err = mask.retell(fmt.Errorf("no answer from %s: %w", to, TLSError(err)))
	switch {
	case ctx.Err() != nil:
		return contextError(ctx, err)
	case late:
		return Late(err)
	case mayLand(err): // a connection took too long to come about: nothing was sent that could be carried out late
		err = errors.New(err.Error())
	}
	return Away(err)
}
