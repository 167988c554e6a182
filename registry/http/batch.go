package httpregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	batchPath = "/v1/batch"
	maxBatch  = 1000
	maxAnswer = 4 << 20 // of a batch, in bytes
)

// BatchLimit implements [registry.Batcher]. It is 1 until the server has reported that it takes more.
func (r *Registry) BatchLimit() int {
	if can := r.can.Load(); can != nil {
		return can.BatchLimit
	}
	return 1
}

// Batch implements [registry.Batcher].
func (r *Registry) Batch(ctx context.Context, changes []registry.Change) []error {
	return driverkit.Batch(ctx, changes, func(c registry.Change) (registry.Entry, error) {
		return registry.Entry{Instance: c.Instance, State: c.State}, check(c.Instance)
	}, func(entries []registry.Entry) []error {
		outcomes := make([]error, len(entries))
		if err := r.sendBatch(ctx, entries, outcomes); err != nil {
			return slices.Repeat([]error{err}, len(entries))
		}
		return outcomes
	})
}

// sendBatch fills in what came of each change, or returns why it is not known of any.
func (r *Registry) sendBatch(ctx context.Context, entries []registry.Entry, outcomes []error) error {
	body, err := json.Marshal(map[string][]registry.Entry{"changes": entries})
	if err != nil {
		return fmt.Errorf("encoding the batch: %w", err)
	}
	var said struct {
		Outcomes []struct {
			Status     int    `json:"status"`
			Error      string `json:"error"`
			RetryAfter int    `json:"retryAfter"`
		} `json:"outcomes"`
	}
	answer, err := r.send(ctx, driverkit.Request{
		Method: http.MethodPost, Path: batchPath, Body: body, Limit: maxAnswer,
		Check: func(answer *driverkit.Answer) error {
			if err := json.Unmarshal(answer.Body, &said); err != nil {
				return fmt.Errorf("decoding the answer: %w", err)
			}
			if len(said.Outcomes) != len(outcomes) {
				return fmt.Errorf("the answer has %d outcomes, for %d changes", len(said.Outcomes), len(outcomes))
			}
			return nil
		},
	})
	switch {
	case hasNoPath(err): // a server of an older version: each change goes by itself
		r.takeNoBatches()
		return registry.NotApplied(err)
	case len(outcomes) > 1 && isOfBatch(err): // the server refused the batch, and may take one change
		r.takeNoBatches()
		return registry.NotApplied(errors.New(err.Error())) // without its class
	case err != nil:
		return err
	}
	for i, o := range said.Outcomes {
		one := *answer
		one.Status, one.Body, one.Header = o.Status, []byte(o.Error), http.Header{}
		if o.RetryAfter > 0 {
			one.Header.Set("Retry-After", strconv.Itoa(o.RetryAfter))
		}
		if !one.OK() {
			outcomes[i] = r.refusal(&one)
		}
	}
	return nil
}

// takeNoBatches has each change go by itself until the next list. It does not affect the probe: a gateway may have lost its route for
// a moment.
func (r *Registry) takeNoBatches() {
	if can := r.can.Load(); can != nil {
		r.can.CompareAndSwap(can, &capabilities{BatchLimit: 1, Probe: can.Probe})
	}
}

// isOfBatch holds for the refusal of a whole batch for what it is, and not for who sends it: it is too large, or has more
// changes than the server takes by now, or one of them is unfit.
func isOfBatch(err error) bool {
	refusal, is := errors.AsType[*driverkit.StatusError](err)
	return is && refusal.Status >= http.StatusBadRequest && driverkit.IsFinal(refusal.Status) &&
		refusal.Status != http.StatusUnauthorized && refusal.Status != http.StatusForbidden
}
