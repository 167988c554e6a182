package httpregistry

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// maxConns is as many as the controller has workers: each gets a connection, and keeps it between its calls.
	maxConns = 64
	// idleTimeout is shorter than what most servers grant, so that it is rarely they who close first.
	idleTimeout = 30 * time.Second
	// maxHeaderBytes bounds the head of an answer.
	maxHeaderBytes = 64 << 10
)

// newTransport makes a pool of connections of its own for the endpoint. A context bounds each call whole; the time-outs
// here are for what goes on in the background.
func newTransport(endpoint *url.URL, cfg registry.TLS) (*http.Transport, error) {
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.CAFile != "" {
		if endpoint.Scheme != "https" {
			return nil, errors.New("is of no use: endpoint is not https://; remove it or correct the endpoint")
		}
		roots, err := readAuthorities(cfg.CAFile)
		if err != nil {
			return nil, err
		}
		tlsConfig.RootCAs = roots
	}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    10 * time.Second,
		ForceAttemptHTTP2:      true, // not by default with a TLS configuration of one's own
		MaxConnsPerHost:        maxConns,
		MaxIdleConns:           maxConns,
		MaxIdleConnsPerHost:    maxConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}, nil
}

func readAuthorities(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("must be a PEM file that the manager can read: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return roots, nil
}
