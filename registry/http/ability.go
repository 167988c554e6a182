package httpregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Probes implements [registry.OptionalProber]. It is true until the server has reported what it can do.
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
		if err := r.learn(ctx, false); err != nil {
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

// learn asks the server what it can do, with each list and before the first probe. With an error, what was known stays. A server that
// has just listed, and so speaks the protocol, is of an older version if it has no such path. Else that may be a gateway's word,
// which has lost its route for a moment: the next list tells.
func (r *Registry) learn(ctx context.Context, listed bool) error {
	answer, err := r.send(ctx, driverkit.Request{Method: http.MethodGet, Path: capabilitiesPath, Limit: maxDocument})
	older := hasNoPath(err)
	var can capabilities
	if err == nil {
		err = json.Unmarshal(answer.Body, &can)
		older = err != nil // some servers answer every path
	}
	switch {
	case older && !listed:
		return fmt.Errorf("the server's capabilities are known only after the first list: %v", err) //nolint:errorlint // it passes
	case older:
		can = capabilities{}
	case err != nil:
		return err
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
