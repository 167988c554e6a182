package httpregistry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	batchPath = "/v1/batch"
	maxBatch  = 1000
	maxAnswer = 4 << 20 // of a batch, in bytes
)

// Options are the driver's own part of the configuration.
type Options struct {
	// BatchLimit is how many changes the server takes in one call of /v1/batch, at most 1000; 0 where it has none. Default: 0.
	BatchLimit int `json:"batchLimit"`
}

func decodeOptions(cfg registry.Config) (opts Options, err error) {
	if err := driverkit.DecodeOptions(cfg, &opts); err != nil {
		return Options{}, err
	}
	if opts.BatchLimit < 0 || opts.BatchLimit > maxBatch {
		return Options{}, registry.FieldError("options.batchLimit",
			fmt.Errorf("is %d; write how many changes the server takes in one call, at most %d, or 0 for no batches", opts.BatchLimit, maxBatch))
	}
	return opts, nil
}

// batcher is a [Registry] whose server takes batches.
type batcher struct {
	*Registry

	limit int
}

// BatchLimit implements [registry.Batcher].
func (b batcher) BatchLimit() int { return b.limit }

// Batch implements [registry.Batcher].
func (b batcher) Batch(ctx context.Context, changes []registry.Change) []error {
	errs, of := make([]error, len(changes)), []int{}
	var asked struct {
		Changes []registry.Entry `json:"changes"`
	}
	for i, c := range changes {
		if errs[i] = c.Check(); errs[i] == nil {
			errs[i] = check(c.Instance)
		}
		if errs[i] == nil {
			of = append(of, i)
			asked.Changes = append(asked.Changes, registry.Entry{Instance: c.Instance, State: c.State})
		}
	}
	if len(of) > 0 {
		body, err := json.Marshal(asked)
		if err != nil {
			err = fmt.Errorf("encoding the batch: %w", err)
		}
		outcomes := make([]error, len(of))
		if err == nil {
			err = b.sendBatch(ctx, body, outcomes)
		}
		for at, i := range of {
			if errs[i] = err; err == nil {
				errs[i] = outcomes[at]
			}
		}
	}
	for i, c := range changes {
		errs[i] = driverkit.ChangeError(ctx, c, errs[i])
	}
	return errs
}

// sendBatch fills in what came of each change, or returns why it is not known of any.
func (b batcher) sendBatch(ctx context.Context, body []byte, outcomes []error) error {
	answer, err := b.send(ctx, driverkit.Request{Method: http.MethodPost, Path: batchPath, Body: body, Limit: maxAnswer})
	switch {
	case driverkit.HasStatus(err, http.StatusNotFound):
		return registry.NotApplied(err) // a server of an older version: each change goes by itself
	case err != nil:
		return err
	}
	var said struct {
		Outcomes []struct {
			Status     int    `json:"status"`
			Error      string `json:"error"`
			RetryAfter int    `json:"retryAfter"`
		} `json:"outcomes"`
	}
	if err := json.Unmarshal(answer.Body, &said); err != nil {
		return fmt.Errorf("decoding the answer: %w", err)
	}
	if len(said.Outcomes) != len(outcomes) {
		return fmt.Errorf("the answer has %d outcomes, for %d changes", len(said.Outcomes), len(outcomes))
	}
	for i, o := range said.Outcomes {
		one := *answer // of the same server
		one.Status, one.Body, one.Header = o.Status, []byte(o.Error), http.Header{}
		if o.RetryAfter > 0 {
			one.Header.Set("Retry-After", strconv.Itoa(o.RetryAfter))
		}
		if !one.OK() {
			outcomes[i] = b.refusal(&one)
		}
	}
	return nil
}
