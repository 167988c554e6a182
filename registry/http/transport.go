package httpregistry

import (
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"time"
)

const (
	// idleTimeout is shorter than what most servers grant, so that it is rarely they who close first.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 64 << 10
)

// newTransport makes a pool of connections of its own. No number bounds them: the manager bounds the calls, and one that
// waited for a connection would lose its time unsent. A context bounds each call whole; the time-outs here are for what
// goes on in the background.
func newTransport(tlsConfig *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true,        // not by default with a TLS configuration of one's own
		MaxIdleConnsPerHost:    math.MaxInt, // the default keeps two
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}
