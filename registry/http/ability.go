package httpregistry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	capabilitiesPath = "/v1/capabilities"
	probePath        = "/v1/probe"
	maxDocument      = 1 << 20 // in bytes
)

// capabilities are what a server can do beyond version 1.2 of the protocol.
type capabilities struct {
	BatchLimit int  `json:"batchLimit"`
	Probe      bool `json:"probe"`
}

// Probes implements [registry.OptionalProber]. It is true until the server has said what it can do.
func (r *Registry) Probes() bool {
	can := r.can.Load()
	return can == nil || can.Probe
}

// Probe implements [registry.Prober].
func (r *Registry) Probe(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "asking whether clients are given", in, r.probe(ctx, in))
}

func (r *Registry) probe(ctx context.Context, in registry.Instance) error {
	if r.can.Load() == nil {
		if err := r.learn(ctx); err != nil {
			return err
		}
	}
	if !r.Probes() {
		return nil
	}
	err := r.change(ctx, probePath, in)
	if hasNoPath(err) {
		// The server may be of another version now, or a gateway has no way to it for a moment: the next list tells.
		return errors.New(err.Error())
	}
	return err
}

// learn asks the server what it can do, with each list and before the first probe. With an error, what was known stays.
func (r *Registry) learn(ctx context.Context) error {
	answer, err := r.send(ctx, driverkit.Request{Method: http.MethodGet, Path: capabilitiesPath, Limit: maxDocument})
	if err != nil && !hasNoPath(err) {
		return err
	}
	var can capabilities
	if err == nil && json.Unmarshal(answer.Body, &can) != nil {
		can = capabilities{} // some servers answer every path
	}
	can.BatchLimit = min(max(can.BatchLimit, 1), maxBatch)
	if was := r.can.Swap(&can); was == nil || *was != can {
		r.log.Info("registry server's capabilities found", "batchLimit", can.BatchLimit, "probe", can.Probe)
	}
	return nil
}

// hasNoPath holds for the answer of a server of an older version of the protocol.
func hasNoPath(err error) bool {
	for _, status := range []int{http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone, http.StatusNotImplemented} {
		if driverkit.HasStatus(err, status) {
			return true
		}
	}
	return false
}
