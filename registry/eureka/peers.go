package eureka

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// idleTimeout is shorter than what most servers grant, so that it is rarely they who close first.
	idleTimeout = 30 * time.Second
	// connectTimeout bounds the time until a connection is there, TLS included.
	connectTimeout = 10 * time.Second
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 64 << 10
	// maxAnswer bounds the body of an answer, in bytes: some 100,000 instances.
	maxAnswer = 128 << 20
	// maxIgnored bounds what is read of a body for nothing but using its connection again.
	maxIgnored = 64 << 10
)

// peers are the servers that endpoint names, which replicate one another.
type peers struct {
	all  []*peer
	good atomic.Uint32 // the index of the one that took the last call
}

// peer is one server.
type peer struct {
	base   string // without a slash at its end
	client *http.Client
	login  login
}

// login says who we are.
type login struct{ user, password string }

func newPeers(cfg registry.Config) (*peers, error) {
	urls, err := cfg.URLs()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	if err := cfg.Auth.Accept(registry.AuthPassword); err != nil {
		return nil, err
	}
	password, err := cfg.Auth.Password()
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport:     newTransport(tlsConfig, share(cfg.Timeout, len(urls))),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	ps := &peers{}
	for _, u := range urls {
		ps.all = append(ps.all, newPeer(u, client, login{user: cfg.Auth.Username, password: password}))
	}
	return ps, nil
}

func newPeer(u *url.URL, client *http.Client, l login) *peer {
	return &peer{base: strings.TrimRight(u.String(), "/"), client: client, login: l}
}

// share is how long one of several peers may take to connect, so that a call has time left for the others.
func share(timeout time.Duration, peers int) time.Duration {
	if timeout <= 0 || peers < 2 {
		return connectTimeout
	}
	return min(timeout/time.Duration(peers), connectTimeout)
}

// newTransport makes a pool of connections of its own. No number bounds them: the manager bounds the calls, and one that
// waited for a connection would lose its time unsent. A context bounds each call whole.
func newTransport(config *tls.Config, connect time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: connect, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    connect,
		ForceAttemptHTTP2:      true,        // not by default with a TLS configuration of one's own
		MaxIdleConnsPerHost:    math.MaxInt, // the default keeps two
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// try makes a call on the peer that took the last one, and on the next where that is away, until one takes it. A call is
// all of its requests: they go to one peer, since what that has acknowledged is a moment later at the others.
func (ps *peers) try(ctx context.Context, call func(*peer) error) error {
	count := uint32(len(ps.all)) //nolint:gosec // as many as a person wrote
	first := ps.good.Load()
	var failures []error
	for i := range count {
		at := (first + i) % count
		err := registry.ContextError(ctx, call(ps.all[at]))
		if !isAway(err) || ctx.Err() != nil {
			if isSlow(err) {
				at = (at + 1) % count
			}
			ps.good.CompareAndSwap(first, at)
			return err
		}
		failures = append(failures, err)
	}
	return noneLeft(failures)
}

func (ps *peers) close() { ps.all[0].client.CloseIdleConnections() } // all have the same

// send makes one request. Of an answer with status 2xx it returns the body; any other is an error of the right class.
func (p *peer) send(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, p.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "rollcall")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if p.login.user != "" {
		req.SetBasicAuth(p.login.user, p.login.password)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, sendError(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		err := p.answerError(resp)
		_, _ = io.CopyN(io.Discard, resp.Body, maxIgnored) // a body that is not at its end costs the connection
		return nil, err
	}
	return readAnswer(resp.Body)
}

func readAnswer(body io.Reader) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if len(raw) > maxAnswer {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	return raw, nil
}

// field is the one to correct where the server does not know us.
func (l login) field() string {
	if l.user == "" {
		return "auth.username"
	}
	return "auth.passwordFile"
}

// secrets are what must not be shown: the password, by itself and as it is sent.
func (l login) secrets() []string {
	if l.password == "" {
		return nil
	}
	return []string{base64.StdEncoding.EncodeToString([]byte(l.user + ":" + l.password)), l.password}
}
