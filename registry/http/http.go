package httpregistry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	registerPath   = "/v1/register"
	failOverPath   = "/v1/fail-over"
	deregisterPath = "/v1/deregister"
	instancesPath  = "/v1/instances"

	maxWeight = 10000

	// maxListing bounds the answer to a list, in bytes: some 200,000 instances.
	maxListing = 64 << 20
	// maxIgnored bounds what is read of a body for nothing but using its connection again.
	maxIgnored = 64 << 10
)

// Registry is the client half of the protocol. It implements [registry.Registry], [registry.Lister], [registry.Getter] and
// io.Closer, and keeps nothing about instances. It is safe for concurrent use.
type Registry struct {
	servers     *servers
	client      *http.Client
	credentials credentials
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ registry.Getter      = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)
)

// New makes a driver for the registry at cfg.Endpoint, one or several http or https URLs whose path, if any, is put before
// the protocol's own. It shows the token in cfg.Auth.TokenFile, or the user and the password in cfg.Auth.PasswordFile, and
// the certificate in cfg.TLS.CertFile. There are no options.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	urls, err := cfg.URLs()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.TLS.ClientConfig()
	if err != nil {
		return nil, err
	}
	shown, err := readCredentials(cfg)
	if err != nil {
		return nil, err
	}
	if err := cfg.DecodeOptions(&struct{}{}); err != nil {
		return nil, err
	}
	return &Registry{
		servers:     &servers{urls: urls},
		credentials: shown,
		client: &http.Client{
			Transport:     newTransport(tlsConfig),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// Register implements [registry.Registry].
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "registering", registerPath, in)
}

// FailOver implements [registry.Registry].
func (r *Registry) FailOver(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "failing over", failOverPath, in)
}

// Deregister implements [registry.Registry].
func (r *Registry) Deregister(ctx context.Context, in registry.Instance) error {
	return r.change(ctx, "deregistering", deregisterPath, in)
}

// List implements [registry.Lister]. What the server lists of other clusters is left out.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	if cluster == "" {
		return nil, registry.Terminal(errors.New("listing a cluster: it has no name"))
	}
	entries, err := r.list(ctx, url.Values{"cluster": {cluster}})
	if err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return entries, nil
}

// Get implements [registry.Getter] with a list of one identity. A server of version 1.1 of the protocol or older lists the
// whole cluster, and what it lists besides is left out.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	entries, err := r.listOne(ctx, in)
	if err != nil {
		return "", fmt.Errorf("asking for %s at %s: %w", in.Service, in.Endpoint(), err)
	}
	for _, e := range entries {
		if e.Service == in.Service && e.Address == in.Address && e.Port == in.Port && in.Owns(e.UID, e.Registry) {
			return e.State, nil
		}
	}
	return registry.Absent, nil
}

func (r *Registry) listOne(ctx context.Context, in registry.Instance) ([]registry.Entry, error) {
	if err := whole(in); err != nil {
		return nil, registry.Terminal(err)
	}
	return r.list(ctx, url.Values{
		"cluster": {in.Cluster}, "service": {in.Service}, "address": {in.Address}, "port": {strconv.Itoa(in.Port)},
	})
}

// list returns what a query finds, and nothing of other clusters than its own.
func (r *Registry) list(ctx context.Context, query url.Values) (entries []registry.Entry, err error) {
	asked := request{method: http.MethodGet, path: instancesPath, query: query}
	err = r.send(ctx, asked, func(body io.Reader) (err error) {
		entries, err = decodeListing(body, query.Get("cluster"))
		return err
	})
	return entries, err
}

// Close lets go of idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.client.CloseIdleConnections()
	return nil
}

func (r *Registry) change(ctx context.Context, doing, path string, in registry.Instance) error {
	if err := whole(in); err != nil {
		return registry.Terminal(fmt.Errorf("%s %s at %s: %w", doing, in.Service, in.Endpoint(), err))
	}
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encoding the instance: %w", err)
	}
	statusSuffices := func(io.Reader) error { return nil }
	if err := r.send(ctx, request{method: http.MethodPost, path: path, body: body}, statusSuffices); err != nil {
		return fmt.Errorf("%s %s at %s: %w", doing, in.Service, in.Endpoint(), err)
	}
	return nil
}

// whole holds an instance against the document. What has no UID above all is never sent: a server that compares carelessly
// could take "" for anybody's.
func whole(in registry.Instance) error {
	for _, f := range []struct{ name, value string }{
		{"service", in.Service}, {"address", in.Address}, {"cluster", in.Cluster},
		{"namespace", in.Namespace}, {"pod", in.Pod}, {"uid", in.UID},
	} {
		if f.value == "" {
			return fmt.Errorf("the instance has no %s", f.name)
		}
	}
	if in.Port < 1 || in.Port > math.MaxUint16 {
		return fmt.Errorf("the instance has port %d; a port is 1 to 65535", in.Port)
	}
	if in.Weight < 0 || in.Weight > maxWeight {
		return fmt.Errorf("the instance has weight %d; a weight is 1 to %d, 0 for none", in.Weight, maxWeight)
	}
	return nil
}

// request is one call of the protocol.
type request struct {
	method, path string
	query        url.Values
	body         []byte
}

// send makes one request. Of an answer with status 2xx read gets the body; any other is an error of the right class.
func (r *Registry) send(ctx context.Context, call request, read func(io.Reader) error) error {
	number, base := r.servers.pick()
	req, err := r.prepare(ctx, base, call)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	resp, err := r.client.Do(req)
	if isDown(resp, err) {
		r.servers.leave(number)
	}
	if err != nil {
		return registry.ContextError(ctx, r.credentials.hide(registry.TLSError(err)))
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		err = read(resp.Body)
	} else {
		err = answerError(resp, r.credentials)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxIgnored) // a body that is not at its end costs the connection
	return registry.ContextError(ctx, err)
}

func (r *Registry) prepare(ctx context.Context, base *url.URL, call request) (*http.Request, error) {
	u := base.JoinPath(call.path)
	u.RawQuery = call.query.Encode()
	req, err := http.NewRequestWithContext(ctx, call.method, u.String(), bytes.NewReader(call.body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "rollcall")
	if call.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.credentials.header != "" {
		req.Header.Set("Authorization", r.credentials.header)
	}
	return req, nil
}

// decodeListing takes a whole listing or nothing: an entry that is missing from it may be registered for ever.
func decodeListing(body io.Reader, cluster string) ([]registry.Entry, error) {
	limited := &io.LimitedReader{R: body, N: maxListing + 1}
	raw, err := io.ReadAll(limited)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	if limited.N == 0 {
		return nil, fmt.Errorf("the answer has more than %d bytes", maxListing)
	}
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
		entries = append(entries, e)
	}
	return entries, nil
}
