package driverkit

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// connectTimeout bounds the time until a connection is there, TLS included.
	connectTimeout = 10 * time.Second
	// keepAlive is how often a silent connection is asked whether it is still there.
	keepAlive = 15 * time.Second
	// idleTimeout is shorter than what most servers grant, so that they rarely close a connection first.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 64 << 10
)

// HTTPOptions are what a driver adds to the configuration.
type HTTPOptions struct {
	// Name is what errors call the registry: Consul, say.
	Name string
	// ServerName is the name that the servers' certificates must be good for. Default: the host of each URL.
	ServerName string
	// Path is that of a server whose URL has none. Default: /.
	Path string
	// Credentials are what no error may have. They are not sent: the header of a [Request] does that.
	Credentials Credentials
	// NameServers has errors call each server by its URL, not by Name, where it matters which one of several answered.
	NameServers bool
}

// HTTPClient makes requests to the servers of one registry. It follows no redirect, since credentials must not be carried
// elsewhere. It is safe for concurrent use.
type HTTPClient struct {
	options   HTTPOptions
	outgoing  func(context.Context, *url.URL) map[string]string // nil without traces
	mask      mask
	log       *slog.Logger
	transport http.RoundTripper // of net/http, but in tests of the kit
	servers   []*url.URL
	current   atomic.Int64 // the number of the server that calls begin at
}

// NewHTTPClient makes a client of the URLs in cfg.Endpoint and the files in cfg.TLS, which it reads now. It needs no server
// to be reachable. An error names the field that is wrong.
//
// No number bounds its connections: the manager bounds the calls, and one that waited for a connection would lose its time
// unsent. As many stay open as were in use a moment ago. One of several servers may take its share of cfg.Timeout to
// connect, so that a call has time left for the others. It speaks HTTP/1.1: with HTTP/2 a server's refusal of our
// certificate is lost.
func NewHTTPClient(cfg registry.Config, options HTTPOptions) (*HTTPClient, error) {
	servers, err := URLs(cfg)
	if err != nil {
		return nil, err
	}
	for i, u := range servers {
		if u.Path == "" {
			servers[i] = u.JoinPath(options.Path)
		}
	}
	config, err := ClientTLS(cfg.TLS)
	if err != nil {
		return nil, err
	}
	config.ServerName = options.ServerName
	connect := connectTimeout
	if cfg.Timeout > 0 && len(servers) > 1 {
		connect = min(connect, cfg.Timeout/time.Duration(len(servers)))
	}
	return &HTTPClient{
		options: options, outgoing: cfg.Outgoing, mask: options.Credentials.mask(), log: Logger(cfg),
		transport: newTransport(config, connect), servers: servers,
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

// Close lets go of idle connections. Calls under way are not disturbed.
func (c *HTTPClient) Close() {
	if pool, ok := c.transport.(interface{ CloseIdleConnections() }); ok {
		pool.CloseIdleConnections()
	}
}

// Server is one of a client's servers, for one call.
type Server struct {
	number int // from 0 in the order of the endpoint
	left   int // how many servers the call has not been to, this one included
	url    *url.URL
}

// Share bounds a request that can be repeated by its part of the time that is left for the servers which the call has not been
// to, this one included.
func (s Server) Share(ctx context.Context) (context.Context, context.CancelFunc) {
	return Share(ctx, s.left)
}

// ServerAt returns a server that is none of the endpoint's: what a registry names itself, such as the agent of a node.
func (c *HTTPClient) ServerAt(address string) (Server, error) {
	u, err := url.Parse(address)
	if err != nil {
		return Server{}, fmt.Errorf("reading the URL: %w", err)
	}
	return Server{left: 1, url: u}, nil
}

// Share bounds a request by its part of the time that is left for as many requests, one after the other, this one included: a
// server that hangs takes no time from those after it. The last one has all that is left. As with [context.WithTimeout], the
// caller calls the function when the request has ended.
func Share(ctx context.Context, left int) (context.Context, context.CancelFunc) {
	deadline, is := ctx.Deadline()
	if !is || left <= 1 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
}

// Request is what is sent to a server.
type Request struct {
	Method string
	// Path stands behind that of the server's URL, with what is not to be taken for a slash escaped.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte
	// Limit is how many bytes of an acknowledgement are read; one that has more is an error. Zero: the status suffices.
	Limit int64
	// Secrets are those of this request alone, such as the token of a session. The options have the others.
	Secrets []string
}

// Do makes one request to the current server, which the client leaves for the next one where it does not answer, or answers
// 5xx or 429: later calls go there. Where there are several servers, Do takes Retry-After out of a 5xx answer. The call is made again
// only where a certificate was not good, so that the server has not read the request. For the answer and the error see
// [HTTPClient.Send]; the error is terminal only if no server has a good one.
func (c *HTTPClient) Do(ctx context.Context, r Request) (*Answer, error) {
	var failures []error
	for server := range c.from(int(c.current.Load())) {
		answer, err := c.Send(ctx, server, r)
		switch {
		case err != nil && !errors.Is(ctx.Err(), context.Canceled): // a caller who has gone says nothing of the server
			c.Leave(server, err)
		case err == nil && (answer.Status >= http.StatusInternalServerError || answer.Status == http.StatusTooManyRequests):
			c.Leave(server, answer.Refusal(""))
			if len(c.servers) > 1 && answer.Status != http.StatusTooManyRequests { // which is about the caller
				answer.Header.Del(retryAfter)
			}
		}
		if !registry.IsTerminal(err) {
			return answer, err
		}
		failures = append(failures, err)
	}
	return nil, allOf(failures)
}

// Try makes a call, all of its requests at one server: the one that took the last call, or where its error is marked by
// [Away] the next one, until one takes it. None is asked twice. After a time-out or another error whose Timeout() is true the
// call may still be under way, so it is not made elsewhere, but the next call begins there. Where all servers are away the error
// tells of each, and is terminal only if all are.
func (c *HTTPClient) Try(ctx context.Context, call func(Server) error) error {
	var failures []error
	for server := range c.from(int(c.current.Load())) {
		err := call(server)
		away := isAway(err) && !errors.Is(ctx.Err(), context.Canceled)
		if away || errors.Is(err, context.DeadlineExceeded) || mayLand(err) {
			c.Leave(server, err)
		}
		if !away {
			return err
		}
		if failures = append(failures, err); ctx.Err() != nil {
			break
		}
	}
	return allOf(failures)
}

// Others returns the servers but one, as a call that goes on from there meets them; their shares of its time leave some for what
// follows. A failure at one of them says nothing to later calls.
func (c *HTTPClient) Others(than Server) []Server {
	others := slices.Collect(c.from(than.number))[1:]
	for i := range others {
		others[i].left += 2
	}
	return others
}

// from are all servers, in the order in which a call meets them that begins at the one with that number.
func (c *HTTPClient) from(first int) iter.Seq[Server] {
	return func(yield func(Server) bool) {
		for left := len(c.servers); left > 0; left-- {
			number := (first + len(c.servers) - left) % len(c.servers)
			if !yield(Server{number: number, left: left, url: c.servers[number]}) {
				return
			}
		}
	}
}

// Elsewhere takes a look that found nothing at one server to the others, until one of them has what is looked for, and reports
// whether one has. Later calls begin at that one. A server that can't tell counts as one that has nothing.
func (c *HTTPClient) Elsewhere(than Server, has func(Server) bool) bool {
	for _, other := range c.Others(than) {
		if has(other) {
			c.log.Info("registry server lacks an entry, using one that has it", "server", than.String(), "next", other.String())
			c.current.Store(int64(other.number))
			return true
		}
	}
	return false
}

// Distrust returns the error of an answer that is not what the registry makes, such as a proxy's page with status 200, and says whose
// it is. Later calls begin at the next server, where that one is the endpoint's. A call by [HTTPClient.Try] returns such an error
// through [Away]. Distrust of no error is nil.
func (c *HTTPClient) Distrust(a *Answer, err error) error {
	if err == nil {
		return nil
	}
	c.Leave(a.from, err)
	return fmt.Errorf("%s: %w", a.from, err)
}

// Leave has later calls begin at the next server, unless another call has seen to that already. It is for a server that answers, and
// is of no use all the same. That of [HTTPClient.ServerAt] is none.
func (c *HTTPClient) Leave(server Server, why error) {
	if c.servers[server.number] != server.url {
		return
	}
	next := (server.number + 1) % len(c.servers)
	if next != server.number && c.current.CompareAndSwap(int64(server.number), int64(next)) {
		c.log.Info("registry server failed, using the next one",
			"server", server.url.Redacted(), "next", c.servers[next].Redacted(), "error", why)
	}
}

// Send makes one request to a server. The error is nil where there is an answer, whatever its status. Else it is marked by
// [Away], has the class of [TLSError] where a certificate is not good, and holds no secret; or it is that of the context. Of a
// request with another method than GET or HEAD that was sent, and whose connection was cut then, the error is not marked, and
// its Timeout() is true. Of an acknowledgement that breaks off, or has more bytes than the limit, it is marked with GET and HEAD only.
func (c *HTTPClient) Send(ctx context.Context, to Server, r Request) (*Answer, error) {
	mask := c.mask.with("[secret]", r.Secrets...)
	var sent atomic.Bool
	tracked := ctx
	if !isRead(r.Method) {
		tracked = noting(ctx, &sent)
	}
	req, err := c.prepare(tracked, to, r)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	// An http.Client copies the header of each request for redirects, which are not followed here.
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, silence(ctx, to, mask, err, sent.Load())
	}
	defer resp.Body.Close()
	a := &Answer{
		Status: resp.StatusCode, Header: resp.Header,
		from: to, read: isRead(r.Method), by: c.options.Name, what: c.options.Name, mask: mask,
	}
	if c.options.NameServers {
		a.by = to.String()
	}
	switch {
	case !a.OK():
		a.Body, _ = io.ReadAll(io.LimitReader(resp.Body, maxWords)) // what could be read is better than nothing
	case r.Limit > 0:
		if a.Body, err = readBody(resp.Body, r.Limit); err != nil {
			return nil, half(ctx, a, err)
		}
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxIgnored) // a body that is not at its end costs the connection
	return a, nil
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

// half is the error of an acknowledgement whose body could not be read to its end. Another server may give a whole one to what changes
// nothing.
func half(ctx context.Context, a *Answer, err error) error {
	if err = fmt.Errorf("%s: %w", a.from, err); ctx.Err() != nil || !a.read {
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
		return &lateError{err: err}
	case mayLand(err): // a connection took too long to come about: nothing was sent that could be carried out late
		err = errors.New(err.Error())
	}
	return Away(err)
}

// String is the server's URL, which tells it from the client's other servers.
func (s Server) String() string { return strings.TrimRight(s.url.String(), "/") }

// Away marks the error of a server that has not taken a call and will not, where another one may; see [HTTPClient.Try].
// Away(nil) is nil.
func Away(err error) error {
	if err == nil {
		return nil
	}
	return &awayError{err: err}
}

func isAway(err error) bool {
	_, is := errors.AsType[*awayError](err)
	return is
}

type awayError struct{ err error }

func (e *awayError) Error() string { return e.err.Error() }
func (e *awayError) Unwrap() error { return e.err }

// allOf tells of all failures in one line. It has the class of the one that passes first.
func allOf(failures []error) error {
	var texts []string
	for _, err := range failures {
		texts = append(texts, err.Error())
	}
	first := slices.MinFunc(failures, func(a, b error) int { return cmp.Compare(passes(a), passes(b)) })
	return &retold{text: strings.Join(texts, "; "), err: first}
}

// passes is how long a failure lasts at the least.
func passes(err error) time.Duration {
	if registry.IsTerminal(err) {
		return math.MaxInt64
	}
	after, _ := registry.RetryAfterOf(err)
	return after
}
