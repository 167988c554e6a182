// The manager that ships, with a driver that batches: the protocol of the driver http, and POST /v1/batch with a list of
// changes, which the bench's registry answers with a text for each.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
)

const batchLimit = 1000

func main() {
	app.Main(append(builtin.Registries(), app.WithRegistry("bench-batching", newBatching))...)
}

type batching struct {
	*httpregistry.Registry

	endpoint string
}

var _ registry.Batcher = (*batching)(nil)

func newBatching(ctx context.Context, config registry.Config) (registry.Registry, error) {
	made, err := httpregistry.New(ctx, config)
	if err != nil {
		return nil, err
	}
	driver, ok := made.(*httpregistry.Registry)
	if !ok {
		return nil, fmt.Errorf("the driver http made a %T", made)
	}
	return &batching{Registry: driver, endpoint: config.Endpoint + "/v1/batch"}, nil
}

// BatchLimit implements [registry.Batcher].
func (*batching) BatchLimit() int { return batchLimit }

// Batch implements [registry.Batcher].
func (b *batching) Batch(ctx context.Context, changes []registry.Change) []error {
	texts, err := b.post(ctx, changes)
	if err != nil {
		return slices.Repeat([]error{err}, len(changes))
	}
	errs := make([]error, len(changes))
	for i := range min(len(texts), len(errs)) {
		if texts[i] != "" {
			errs[i] = errors.New(texts[i])
		}
	}
	return errs
}

func (b *batching) post(ctx context.Context, changes []registry.Change) (texts []string, err error) {
	body, err := json.Marshal(changes)
	if err != nil {
		return nil, fmt.Errorf("encoding a batch: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.endpoint, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("making a batch: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("making a batch: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("making a batch: the registry answers %s", answer.Status)
	}
	if err := json.NewDecoder(answer.Body).Decode(&texts); err != nil {
		return nil, fmt.Errorf("reading the answer to a batch: %w", err)
	}
	return texts, nil
}
