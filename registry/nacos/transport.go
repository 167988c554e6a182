package nacos

import (
	"crypto/tls"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

const (
	// idleTimeout is shorter than what most servers grant, so that it is rarely they who close first.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds the head of an answer, maxAnswer its body where it is of one instance or service, and maxListing
	// where it is of all: some 400,000 instances, other people's included.
	maxHeaderBytes = 64 << 10
	maxAnswer      = 1 << 20
	maxListing     = 256 << 20
)

// newHTTPClient makes a pool of connections of its own. No number bounds them: the manager bounds the calls, and one
// that waited for a connection would lose its time unsent. A context bounds each call whole; the time-outs here are for
// what goes on in the background.
func newHTTPClient(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    10 * time.Second,
			ForceAttemptHTTP2:      true,        // not by default with a TLS configuration of one's own
			MaxIdleConnsPerHost:    math.MaxInt, // the default keeps two
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
		// Nacos does not redirect, and the token must not be carried elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// readBounded takes a whole body or nothing.
func readBounded(body io.Reader, limit int64) ([]byte, error) {
	limited := &io.LimitedReader{R: body, N: limit + 1}
	raw, err := io.ReadAll(limited)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("the answer has more than %d bytes", limit)
	}
	return raw, nil
}
