package memory

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
)

// instancesPath is the list of the HTTP registry protocol (docs/http-registry.openapi.yaml).
const instancesPath = "/v1/instances"

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
