package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	readTimeout     = 10 * time.Second
	shutdownTimeout = 5 * time.Second
	// readerTimeout is how long a reader may take for one write, and maxWrite how many bytes that is.
	readerTimeout = 10 * time.Second
	maxWrite      = 64 << 10
	// maxHeader has room for a token.
	maxHeader = 32 << 10
)

// served is what a server is made with.
type served struct {
	handler http.Handler
	// certificate is nil for plain HTTP, and runnables are what must run next to the server.
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	runnables   []manager.Runnable
}

// servers are the HTTP servers of the manager, bound before anything else starts: an address that is taken is an error
// at start, and the real ports are known.
type servers struct {
	runnables []*manager.Server
	addresses addresses
}

// addresses are where the manager listens, each as host:port and empty if it was turned off.
type addresses struct{ Metrics, Health, Evictions string }

// listen binds every address that is not off. close must be called once nothing is served any more, or when listen
// fails.
func (s *servers) listen(ctx context.Context, f *flags, metrics served, health http.Handler, evictions served) error {
	for _, server := range []struct {
		name, flag, address string
		served
		bound *string
	}{
		{"metrics", "metrics-bind-address", f.metrics.address, metrics, &s.addresses.Metrics},
		{"health", "health-probe-bind-address", f.healthAddress, served{handler: health}, &s.addresses.Health},
		{"evictions", "eviction-webhook-bind-address", f.evictionsAddress, evictions, &s.addresses.Evictions},
	} {
		if server.address == off || server.handler == nil {
			continue
		}
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", server.address)
		if err != nil {
			return fmt.Errorf("--%s: %w", server.flag, err)
		}
		*server.bound = listener.Addr().String()
		serves := &http.Server{Handler: withDeadlines(server.handler), ReadTimeout: readTimeout, MaxHeaderBytes: maxHeader}
		if server.certificate != nil {
			serves.TLSConfig = &tls.Config{
				MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, GetCertificate: server.certificate,
			}
			listener = tls.NewListener(listener, serves.TLSConfig)
		}
		s.runnables = append(s.runnables, &manager.Server{
			Name: server.name, Server: serves, Listener: listener, ShutdownTimeout: new(shutdownTimeout),
		})
	}
	return nil
}

// withDeadlines ends the request of a reader who does not take what is written. A server's WriteTimeout would end streams too.
func withDeadlines(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &punctual{w, http.NewResponseController(w)}
		defer func() { _ = p.control.SetWriteDeadline(time.Now().Add(readerTimeout)) }() // for what is buffered
		handler.ServeHTTP(p, r)
	})
}

// atMost answers so many requests at a time.
func atMost(n int, handler http.Handler) http.Handler {
	places := make(chan struct{}, n)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			handler.ServeHTTP(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d readers are being answered already: try again soon", n), http.StatusServiceUnavailable)
		}
	})
}

// punctual has a deadline for each write, and for none in between: with HTTP/2, one that passes resets the stream.
type punctual struct {
	http.ResponseWriter

	control *http.ResponseController
}

// Unwrap is for [http.ResponseController].
func (p *punctual) Unwrap() http.ResponseWriter { return p.ResponseWriter }

func (p *punctual) Write(data []byte) (written int, err error) {
	for first := true; first || len(data) > 0 && err == nil; first = false {
		n := min(len(data), maxWrite)
		if err := p.within(func() error { n, err = p.ResponseWriter.Write(data[:n]); return err }); err != nil {
			return written + n, err
		}
		written, data = written+n, data[n:]
	}
	return written, err
}

// FlushError is for [http.ResponseController].
func (p *punctual) FlushError() error { return p.within(p.control.Flush) }

func (p *punctual) within(do func() error) error {
	_ = p.control.SetWriteDeadline(time.Now().Add(readerTimeout)) // what has none, as in a test, needs none
	err := do()
	_ = p.control.SetWriteDeadline(time.Time{})
	return err
}

func (s *servers) close(logger logr.Logger) {
	for _, server := range s.runnables {
		if err := server.Listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			logger.Error(err, "failed to close a listener", "name", server.Name)
		}
	}
}

// healthHandler answers /healthz as long as the process does, and /readyz by what unready returns: empty, or the reason.
func healthHandler(unready func() string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := unready(); reason != "" {
			http.Error(w, reason, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
