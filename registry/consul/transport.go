package consul

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// idleTimeout is shorter than what most servers grant, so that it is rarely they who close first.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds the head of an answer, maxAnswer its body: some 50,000 services.
	maxHeaderBytes = 64 << 10
	maxAnswer      = 64 << 20
	// maxErrorBody bounds what is read of the body of an answer that is no acknowledgement.
	maxErrorBody = 64 << 10
)

// unusedToken is what the client is given as its token, so that it looks for none in the environment. It is never sent.
const unusedToken = "the-transport-sets-the-token"

// newTransport makes a pool of connections of its own. No number bounds them: the manager bounds the calls, and one that
// waited for a connection would lose its time unsent. A context bounds each call whole; the time-outs here are for what
// goes on in the background. It speaks HTTP/1.1, as Consul's client does: HTTP/2 hides why a server refuses a certificate.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    math.MaxInt, // the default keeps two
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// newClient makes Consul's client so that all it sends is what the guard lets it send.
func newClient(g *guard) (*api.Client, error) {
	client, err := api.NewClient(&api.Config{
		Address: g.endpoints[0].Host,
		Scheme:  g.endpoints[0].Scheme,
		Token:   unusedToken,
		HttpClient: &http.Client{
			Transport: g,
			// Consul's own servers don't redirect, and the token must not be carried elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making Consul's client: %w", err)
	}
	return client, nil
}

// guard stands between Consul's client and the wire. It sends each request to the endpoint that answered last, with our
// token and no other, and without what the client took from the environment; and it keeps of each answer what the client
// would drop.
type guard struct {
	base      http.RoundTripper
	endpoints []*url.URL
	current   atomic.Int64 // the index of the endpoint in use
	token     string
	opts      Options
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	current := g.current.Load()
	resp, err := g.base.RoundTrip(g.prepare(req, g.endpoints[current]))
	if isElsewhere(req.Context(), resp, err) {
		// Not now, since nothing is retried here: the next call goes to the next one.
		g.current.CompareAndSwap(current, (current+1)%int64(len(g.endpoints)))
	}
	if err != nil {
		return nil, err
	}
	if err := exchangeOf(req.Context()).keep(resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// isElsewhere reports whether another server may do better: this one does not answer, has lost the leader, or is over its
// limits.
func isElsewhere(ctx context.Context, resp *http.Response, err error) bool {
	if err != nil {
		return !errors.Is(ctx.Err(), context.Canceled)
	}
	return resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests
}

func (g *guard) prepare(req *http.Request, endpoint *url.URL) *http.Request {
	out := req.Clone(req.Context())
	target := *endpoint
	target.Path = strings.TrimSuffix(endpoint.Path, "/") + req.URL.Path
	target.RawPath = "" // no path here needs another form
	out.URL = &target
	query := req.URL.Query()
	set := func(key, value string, wanted bool) {
		query.Del(key)
		if value != "" && wanted {
			query.Set(key, value)
		}
	}
	scoped := exchangeOf(req.Context()).scoped
	set("dc", g.opts.Datacenter, true)
	set("ns", g.opts.Namespace, scoped)
	set("partition", g.opts.Partition, scoped)
	out.URL.RawQuery = query.Encode()
	out.Host = endpoint.Host
	out.Header.Del("Authorization")
	out.Header.Del("X-Consul-Token")
	if g.token != "" {
		out.Header.Set("X-Consul-Token", g.token)
	}
	out.Header.Set("User-Agent", "rollcall")
	return out
}

// exchange is what the driver and the guard tell each other of a request, past the client.
type exchange struct {
	// scoped puts namespace and partition into the query. Those of a transaction are in its operations.
	scoped bool

	// What the guard keeps of the response.
	status     int
	retryAfter string
	location   string
	body       []byte // of an answer that is no acknowledgement
}

type exchangeKey struct{}

func (e *exchange) on(ctx context.Context) context.Context {
	return context.WithValue(ctx, exchangeKey{}, e)
}

func exchangeOf(ctx context.Context) *exchange {
	if e, ok := ctx.Value(exchangeKey{}).(*exchange); ok {
		return e
	}
	return &exchange{}
}

// keep takes what the client would drop, and bounds what it can read.
func (e *exchange) keep(resp *http.Response) error {
	e.status = resp.StatusCode
	e.retryAfter, e.location = resp.Header.Get("Retry-After"), resp.Header.Get("Location")
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusConflict { // a transaction's two answers
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxAnswer + 1}
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("reading the answer with status %d: %w", resp.StatusCode, err)
	}
	e.body = body
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// bounded is a body that ends with an error where it is too long.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
