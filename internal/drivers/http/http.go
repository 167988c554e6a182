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

	// maxListing bounds the answer to a list, in bytes: some 200,000 instances.
	maxListing = 64 << 20
	// maxIgnored bounds what is read of a body for nothing but using its connection again.
	maxIgnored = 64 << 10
)

// Registry is the client half of the protocol. It implements [registry.Registry], [registry.Lister] and io.Closer, and
// keeps nothing about instances. It is safe for concurrent use.
type Registry struct {
	endpoint *url.URL
	client   *http.Client
	token    tokenFile
}

var (
	_ registry.Constructor = New
	_ registry.Lister      = (*Registry)(nil)
	_ io.Closer            = (*Registry)(nil)
)

// New makes a driver for the registry at cfg.Endpoint, an http or https URL whose path, if any, is put before the
// protocol's own. The authorities in cfg.TLS.CAFile are read now; the token in cfg.Auth.TokenFile is read now and again
// at each call. There are no options.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	endpoint, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, registry.FieldError("endpoint", err)
	}
	transport, err := newTransport(endpoint, cfg.TLS)
	if err != nil {
		return nil, registry.FieldError("tls.caFile", err)
	}
	token := tokenFile(cfg.Auth.TokenFile)
	if _, err := token.read(); err != nil {
		return nil, registry.FieldError("auth.tokenFile", err)
	}
	if err := cfg.DecodeOptions(&struct{}{}); err != nil {
		return nil, err
	}
	return &Registry{
		endpoint: endpoint,
		token:    token,
		client: &http.Client{
			Transport:     transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

func parseEndpoint(text string) (*url.URL, error) {
	const form = "write a URL like https://registry.example.com/base"
	if text == "" {
		return nil, errors.New("is missing; " + form)
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("is not a URL (%w); %s", withoutURL(err), form)
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://; " + form)
	case u.Hostname() == "":
		return nil, errors.New("has no host; " + form)
	case !isPort(u.Port()):
		return nil, fmt.Errorf("has port %s; a port is 1 to 65535", u.Port())
	case u.User != nil:
		return nil, errors.New("must not hold a user or password; put a token into auth.tokenFile")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("must not have a query; " + form)
	case u.Fragment != "":
		return nil, errors.New("must not have a fragment; " + form)
	}
	return u, nil
}

// isPort holds for none given, too: the scheme has one.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// withoutURL takes the URL out of a parse error: it may hold a password.
func withoutURL(err error) error {
	if parse := new(url.Error); errors.As(err, &parse) {
		return parse.Err
	}
	return err
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
	var entries []registry.Entry
	u := r.endpoint.JoinPath(instancesPath)
	u.RawQuery = url.Values{"cluster": {cluster}}.Encode()
	err := r.send(ctx, http.MethodGet, u, nil, func(body io.Reader) (err error) {
		entries, err = decodeListing(body, cluster)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing cluster %q: %w", cluster, err)
	}
	return entries, nil
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
	if err := r.send(ctx, http.MethodPost, r.endpoint.JoinPath(path), body, statusSuffices); err != nil {
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
	return nil
}

// send makes one request. Of an answer with status 2xx read gets the body; any other is an error of the right class.
func (r *Registry) send(ctx context.Context, method string, u *url.URL, body []byte, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "rollcall")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	token, err := r.token.read()
	if err != nil {
		return fmt.Errorf("reading auth.tokenFile: %w", err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return contextFirst(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		err = read(resp.Body)
	} else {
		err = answerError(resp, token)
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxIgnored) // a body that is not at its end costs the connection
	return contextFirst(ctx, err)
}

// contextFirst makes sure that a call whose context has ended returns an error which says so.
func contextFirst(ctx context.Context, err error) error {
	switch {
	case ctx.Err() == nil || errors.Is(err, ctx.Err()):
		return err
	case err == nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
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
		entries = append(entries, e)
	}
	return entries, nil
}
