// The manager that chaos plays with: the shipped one, and four registries that are like none of the servers that ship. One forgets what is
// not renewed, one can't be asked, one has places, and in one applications register themselves. All speak the http driver's protocol.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/cmd/app"
	"github.com/rollcall-dev/rollcall/cmd/builtin"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// heartbeatInterval is a third of the lease that the server gives.
const heartbeatInterval = 4 * time.Second

func main() {
	app.Main(append(builtin.Registries(),
		app.WithRegistry("chaos-leased", newLeased), app.WithRegistry("chaos-unlisted", newUnlisted),
		app.WithRegistry("chaos-steered", newSteered), app.WithRegistry("chaos-placed", newPlaced))...)
}

// unlisted has none of the driver's capabilities.
type unlisted struct{ registry.Registry }

func newUnlisted(ctx context.Context, config registry.Config) (registry.Registry, error) {
	made, err := httpregistry.New(ctx, config)
	return unlisted{made}, err
}

// placed has the services of a place under names that begin with it.
type placed struct {
	fakeregistry.Placed
	io.Closer
}

func newPlaced(ctx context.Context, config registry.Config) (registry.Registry, error) {
	driver, err := newHTTP(ctx, config)
	return placed{fakeregistry.Placed{Backend: driver, Template: "{label:chaos.rollcall.dev/place}"}, driver}, err
}

// newHTTP makes a driver of which the others are made.
func newHTTP(ctx context.Context, config registry.Config) (*httpregistry.Registry, error) {
	made, err := httpregistry.New(ctx, config)
	if err != nil {
		return nil, err
	}
	driver, ok := made.(*httpregistry.Registry)
	if !ok {
		return nil, fmt.Errorf("the driver http made a %T", made)
	}
	return driver, nil
}

// leased adds a heartbeat to the protocol: POST /v1/heartbeat with the instance, and 404 where there is nothing to renew.
type leased struct {
	*httpregistry.Registry

	server registries.Client
}

var _ registry.Heartbeater = (*leased)(nil)

func newLeased(ctx context.Context, config registry.Config) (registry.Registry, error) {
	driver, err := newHTTP(ctx, config)
	if err != nil {
		return nil, err
	}
	server := registries.Client{URL: strings.TrimSuffix(config.Endpoint, "/"), HTTP: http.DefaultClient}
	return &leased{Registry: driver, server: server}, nil
}

// Traits implements [registry.Describer].
func (*leased) Traits() registry.Traits { return registry.Traits{HeartbeatInterval: heartbeatInterval} }

// Heartbeat implements [registry.Heartbeater].
func (l *leased) Heartbeat(ctx context.Context, in registry.Instance) error {
	body, err := json.Marshal(in)
	if err == nil {
		_, err = l.server.Do(ctx, http.MethodPost, "/v1/heartbeat", body)
	}
	switch {
	case registries.IsNotFound(err):
		return registry.NotRegistered(err)
	case err != nil:
		return fmt.Errorf("renewing %s at %s: %w", in.Service, in.Endpoint(), err)
	default:
		return nil
	}
}

// steered has the entries that applications wrote in another registry of the protocol, at /app. 422 says that there is none.
type steered struct {
	registry.Registry

	apps appEntries
}

var _ registry.AppEntrySteerer = (*steered)(nil)

func newSteered(ctx context.Context, config registry.Config) (registry.Registry, error) {
	own, err := httpregistry.New(ctx, config)
	if err != nil {
		return nil, err
	}
	config.Endpoint += "/app"
	apps, err := httpregistry.New(ctx, config)
	if err != nil {
		return nil, err
	}
	return &steered{own, appEntries{apps}}, nil
}

// AppEntries implements [registry.AppEntrySteerer].
func (s *steered) AppEntries() registry.AppRegistry { return s.apps }

type appEntries struct{ registry.Registry }

// Register implements [registry.Registry].
func (a appEntries) Register(ctx context.Context, in registry.Instance) error {
	err := a.Registry.Register(ctx, in)
	if refused := new(driverkit.StatusError); errors.As(err, &refused) && refused.Status == http.StatusUnprocessableEntity {
		return registry.NotRegistered(errors.New(err.Error())) // nothing is wrong with the call
	}
	return err //nolint:wrapcheck // it is the driver's own
}

// Get implements [registry.Getter].
func (a appEntries) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	return a.Registry.(registry.Getter).Get(ctx, in) //nolint:forcetypeassert,wrapcheck // it is the http driver
}
