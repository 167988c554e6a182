package memory

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// instancesPath is the list of the HTTP registry protocol (docs/http-registry.openapi.yaml).
	instancesPath = "/v1/instances"

	listenAgain = time.Second
	readTimeout = 10 * time.Second
)

// serve answers at the address until unserve is called. An address that is taken, as by the registry that this one replaces, is tried
// again.
func (r *Registry) serve(ctx context.Context, address string, logger *slog.Logger) {
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	r.unserve = func() {
		end()
		<-ended
	}
	go func() {
		defer close(ended)
		for said := ""; ctx.Err() == nil; {
			listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
			if err == nil {
				logger.Info("serving the entries", "address", listener.Addr().String())
				r.serveOn(ctx, listener)
				return
			}
			if text := err.Error(); text != said && ctx.Err() == nil {
				logger.Error("the entries can't be served", "error", text)
				said = text
			}
			select {
			case <-ctx.Done():
			case <-time.After(listenAgain):
			}
		}
	}()
}

func (r *Registry) serveOn(ctx context.Context, listener net.Listener) {
	server := &http.Server{Handler: r, ReadTimeout: readTimeout}
	closed := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer closed()
	_ = server.Serve(listener) // it ends with ctx
}

// ServeHTTP answers GET /v1/instances as the HTTP registry protocol does, sorted by service, address and port. Query
// parameters cluster, service, address and port narrow the answer; unlike in the protocol, cluster may be left out. It changes nothing.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.URL.Path != instancesPath {
		respond(w, http.StatusNotFound, problem{Error: "there is only " + instancesPath + ", e.g. " +
			instancesPath + "?service=web"})
		return
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		respond(w, http.StatusMethodNotAllowed, problem{Error: "this view is read-only; use GET"})
		return
	}
	query := req.URL.Query()
	matches := func(key, value string) bool { return !query.Has(key) || query.Get(key) == value }
	respond(w, http.StatusOK, listing{Instances: r.pick(func(e registry.Entry) bool {
		return matches("cluster", e.Cluster) && matches("service", e.Service) &&
			matches("address", e.Address) && matches("port", strconv.Itoa(e.Port))
	})})
}

type listing struct {
	Instances []registry.Entry `json:"instances"`
}

type problem struct {
	Error string `json:"error"`
}

func respond(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(body) // the reader has gone
}
