// The manager that chaos plays with: the shipped one, and two registries that are like none of the servers that ship. One
// forgets what is not renewed, the other can't be asked. Both speak the http driver's protocol.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
)

// heartbeatInterval is a third of the lease that the server gives.
const heartbeatInterval = 4 * time.Second

func main() {
	app.Main(append(builtin.Registries(),
		app.WithRegistry("chaos-leased", newLeased), app.WithRegistry("chaos-unlisted", newUnlisted))...)
}

// unlisted has none of the driver's capabilities.
type unlisted struct{ registry.Registry }

func newUnlisted(ctx context.Context, config registry.Config) (registry.Registry, error) {
	made, err := httpregistry.New(ctx, config)
	return unlisted{made}, err
}

// leased adds a heartbeat to the protocol: POST /v1/heartbeat with the instance, and 404 where there is nothing to renew.
type leased struct {
	*httpregistry.Registry

	endpoint string
}

var (
	_ registry.Heartbeater = (*leased)(nil)

	errUnknownInstance = errors.New("the registry has no such entry")
)

func newLeased(ctx context.Context, config registry.Config) (registry.Registry, error) {
	made, err := httpregistry.New(ctx, config)
	if err != nil {
		return nil, err
	}
	driver, ok := made.(*httpregistry.Registry)
	if !ok {
		return nil, fmt.Errorf("the driver http made a %T", made)
	}
	return &leased{Registry: driver, endpoint: strings.TrimSuffix(config.Endpoint, "/") + "/v1/heartbeat"}, nil
}

// HeartbeatInterval implements [registry.Heartbeater].
func (*leased) HeartbeatInterval() time.Duration { return heartbeatInterval }

// Heartbeat implements [registry.Heartbeater].
func (l *leased) Heartbeat(ctx context.Context, in registry.Instance) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encoding the instance: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, l.endpoint, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("renewing %s at %s: %w", in.Service, in.Endpoint(), err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("renewing %s at %s: %w", in.Service, in.Endpoint(), err)
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusNotFound:
		return registry.NotRegistered(errUnknownInstance)
	case response.StatusCode/100 != 2:
		return fmt.Errorf("renewing %s at %s: the registry answers %s", in.Service, in.Endpoint(), response.Status)
	default:
		return nil
	}
}
