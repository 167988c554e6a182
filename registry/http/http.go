package httpregistry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	registerPath   = "/v1/register"
	failOverPath   = "/v1/fail-over"
	deregisterPath = "/v1/deregister"
	instancesPath  = "/v1/instances"

	maxWeight = 10000

	// maxListing bounds the answer to a list, in bytes: some 200,000 instances.
	maxListing = 64 << 20
)

// Registry is the client half of the protocol. It implements [registry.Registry], [registry.Lister], [registry.Getter],
// [registry.Batcher], [registry.OptionalProber] and io.Closer, and keeps nothing about instances. It is safe for concurrent use.
type Registry struct {
	client *driverkit.HTTPClient
	header http.Header
	field  string // of the configuration: the one to check if the server refuses access
	log    *slog.Logger
	// can is what the server has reported that it can do, nil before it has. Several servers can do the same.
	can atomic.Pointer[capabilities]
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
	_ registry.Batcher     = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)

	_ registry.OptionalProber = (*Registry)(nil)
	_ registry.Describer      = (*Registry)(nil)
)

// New makes a driver for the registry at cfg.Endpoint, one or several http or https URLs whose path, if any, is put before
// the protocol's own. It shows the token in cfg.Auth.TokenFile, or the user and the password in cfg.Auth.PasswordFile, and
// the certificate in cfg.TLS.CertFile. There are no options. Calls go to one of the servers until it fails, and to the next
// one from then on.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	credentials, credentialsErr := driverkit.ReadCredentials(cfg.Auth, driverkit.Token, driverkit.Password)
	header, headerErr := credentials.Authorization()
	client, clientErr := driverkit.NewHTTPClient(cfg, driverkit.HTTPOptions{Name: "the registry", Credentials: credentials})
	if err := errors.Join(credentialsErr, headerErr, clientErr, driverkit.DecodeOptions(cfg, &struct{}{})); err != nil {
		return nil, err
	}
	return &Registry{client: client, header: header, field: driverkit.CredentialsField(cfg), log: driverkit.Logger(cfg)}, nil
}

// Traits implements [registry.Describer].
func (r *Registry) Traits() registry.Traits { return registry.Traits{Weighs: true} }

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "registering", in, r.change(ctx, registerPath, in))
}

// FailOver implements [registry.Registry].
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "taking out", in, r.change(ctx, failOverPath, in))
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "deregistering", in, r.change(ctx, deregisterPath, in))
}

// List implements [registry.Lister]. What the server lists of other clusters is left out. A server that has answered is
// asked what it can do as well, since it may have been upgraded.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	entries, err := driverkit.List(ctx, cluster, func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		return r.list(ctx, url.Values{"cluster": {cluster}})
	})
	if err == nil {
		_ = r.learn(ctx, true) // the list is whole without it
	}
	return entries, err //nolint:wrapcheck // the kit adds what was listed
}

// Get implements [registry.Getter] with a list of one identity. A server of version 1.1 of the protocol or older lists the
// whole cluster, and what it lists besides is left out.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	entries, err := r.listOne(ctx, in)
	if err != nil {
		return "", driverkit.CallError(ctx, "asking for", in, err)
	}
	for _, e := range entries {
		if e.Service == in.Service && e.Address == in.Address && e.Port == in.Port && in.Owns(e.UID, e.Registry) {
			return e.State, nil
		}
	}
	return registry.Absent, nil
}

func (r *Registry) listOne(ctx context.Context, in registry.Instance) ([]registry.Entry, error) {
	if err := check(in); err != nil {
		return nil, err
	}
	return r.list(ctx, url.Values{
		"cluster": {in.Cluster}, "service": {in.Service}, "address": {in.Address}, "port": {strconv.Itoa(in.Port)},
	})
}

// list returns what a query finds, and nothing of other clusters than its own.
func (r *Registry) list(ctx context.Context, query url.Values) ([]registry.Entry, error) {
	var entries []registry.Entry
	_, err := r.send(ctx, driverkit.Request{
		Method: http.MethodGet, Path: instancesPath, Query: query, Limit: maxListing,
		Check: func(answer *driverkit.Answer) (err error) {
			entries, err = decodeListing(answer.Body, query.Get("cluster"))
			return err
		},
	})
	return entries, err
}

// Close closes idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.client.Close()
	return nil
}

func (r *Registry) change(ctx context.Context, path string, in registry.Instance) error {
	if err := check(in); err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encoding the instance: %w", err)
	}
	_, err = r.send(ctx, driverkit.Request{Method: http.MethodPost, Path: path, Body: body, Check: driverkit.CheckNoPage})
	return err
}

// check holds an instance against the document.
func check(in registry.Instance) error {
	if err := driverkit.CheckInstance(in); err != nil {
		return err
	}
	if in.Weight < 0 || in.Weight > maxWeight {
		return registry.Terminal(fmt.Errorf("the instance has weight %d; a weight is 1 to %d, 0 for none", in.Weight, maxWeight))
	}
	return nil
}

// send makes one request. An answer with another status than 2xx is an error of the right class.
func (r *Registry) send(ctx context.Context, request driverkit.Request) (*driverkit.Answer, error) {
	request.Header = r.header
	answer, err := r.client.Do(ctx, request)
	switch {
	case err != nil:
		return nil, err
	case !answer.OK():
		return nil, r.refusal(answer)
	}
	return answer, nil
}

// decodeListing takes a whole listing or nothing: an entry that is missing from it may be registered forever.
func decodeListing(raw []byte, cluster string) ([]registry.Entry, error) {
	var listing struct {
		Instances *[]registry.Entry `json:"instances"`
	}
	if err := json.Unmarshal(raw, &listing); err != nil {
		return nil, fmt.Errorf("decoding the answer: %w", err)
	}
	if listing.Instances == nil {
		return nil, errors.New(`the answer has no "instances"`)
	}
	entries := make([]registry.Entry, 0, len(*listing.Instances))
	for i, e := range *listing.Instances {
		if e.Cluster != cluster {
			continue
		}
		if e.State != registry.InService && e.State != registry.OutOfService {
			return nil, fmt.Errorf("instances[%d].state is %q, not %s or %s",
				i, e.State, registry.InService, registry.OutOfService)
		}
		if len(e.Metadata) == 0 {
			e.Metadata = nil
		}
		e.Tags = slices.Sorted(slices.Values(e.Tags))
		entries = append(entries, e)
	}
	return entries, nil
}
