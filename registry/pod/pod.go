package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// maxBody bounds what is read of an answer: Dubbo lists 5,000 services in it.
	maxBody = 1 << 20
	// requests are how many a change makes at most: whether it is needed, the change, whether it was made.
	requests = 3
)

// Registry implements [registry.AppEntrySteerer] and io.Closer, calls pods, and keeps nothing about pods. It is safe for concurrent use.
type Registry struct {
	client             *driverkit.HTTPClient
	credentials        driverkit.Credentials
	header             http.Header
	endpoint, refused  string // refused is the field of the configuration to check if a pod refuses access
	leave, join, state driverkit.Request
	in, out            expected
}

var (
	_ registry.Constructor     = New
	_ registry.AppEntrySteerer = (*Registry)(nil)
	_ registry.Describer       = (*Registry)(nil)
	_ registry.AppRegistry     = appEntries{}
	_ io.Closer                = (*Registry)(nil)
)

// New makes a driver that calls pods at cfg.Endpoint, in which {podIP} stands for the pod's own IP. It shows the token in
// cfg.Auth.TokenFile, or the user and the password in cfg.Auth.PasswordFile, and the certificate in cfg.TLS.CertFile.
func New(_ context.Context, cfg registry.Config) (registry.Registry, error) {
	r := &Registry{endpoint: cfg.Endpoint, refused: driverkit.CredentialsField(cfg)}
	opts, optionsErr := decodeOptions(cfg)
	requestsErr := r.requests(opts)
	var credentialsErr, headerErr error
	r.credentials, credentialsErr = driverkit.ReadCredentials(cfg.Auth, driverkit.Token, driverkit.Password)
	r.header, headerErr = r.credentials.Authorization()
	if err := errors.Join(optionsErr, requestsErr, credentialsErr, headerErr); err != nil {
		return nil, err
	}
	if opts.TokenHeader != "" {
		r.header = http.Header{http.CanonicalHeaderKey(opts.TokenHeader): {r.credentials.Token}}
	}
	cfg.Endpoint = strings.Replace(cfg.Endpoint, podIP, "192.0.2.1", 1) // each request has its own
	var err error
	r.client, err = driverkit.NewHTTPClient(cfg, driverkit.HTTPOptions{
		Name: "the pod", NameServers: true, ServerName: opts.ServerName, Credentials: r.credentials, Direct: true,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Registry) requests(opts Options) error {
	var problems [5]error
	r.leave, problems[0] = opts.Leave.made("options.leave", true)
	r.join, problems[1] = opts.Join.made("options.join", true)
	r.state, problems[2] = opts.State.made("options.state", false)
	r.in, problems[3] = opts.In.made("options.in")
	r.out, problems[4] = opts.Out.made("options.out")
	return errors.Join(problems[:]...)
}

// Traits implements [registry.Describer].
func (*Registry) Traits() registry.Traits { return registry.Traits{CallsPods: true} }

// AppEntries implements [registry.AppEntrySteerer].
func (r *Registry) AppEntries() registry.AppRegistry { return appEntries{r} }

// Register refuses, since Rollcall has no entries.
func (r *Registry) Register(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "registering", in, registry.Terminal(registry.FieldError("registeredBy",
		errors.New("set it to App: the driver pod writes no entry, and asks the application to do so"))))
}

// FailOver has nothing to take out.
func (*Registry) FailOver(ctx context.Context, _ registry.Instance) error { return ctx.Err() }

// Deregister has nothing to remove.
func (*Registry) Deregister(ctx context.Context, _ registry.Instance) error { return ctx.Err() }

// Close closes idle connections. Calls under way are not disturbed.
func (r *Registry) Close() error {
	r.client.Close()
	return nil
}

// appEntries are what applications have registered, wherever that is.
type appEntries struct{ driver *Registry }

// Register asks the application to join, unless it has.
func (a appEntries) Register(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "having the application join", in, a.driver.change(ctx, in, registry.InService))
}

// FailOver asks the application to leave. One that reports that it has left may only have tried, as Spring Cloud ZooKeeper does.
func (a appEntries) FailOver(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "having the application leave", in, a.driver.change(ctx, in, registry.OutOfService))
}

// Deregister does the same: nothing is remembered of a pod that is gone.
func (a appEntries) Deregister(ctx context.Context, in registry.Instance) error {
	return a.FailOver(ctx, in)
}

// Get asks the application.
func (a appEntries) Get(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	at, err := a.driver.at(in)
	if err == nil {
		state, err = a.driver.ask(ctx, at)
	}
	return state, driverkit.CallError(ctx, "asking the application of", in, err)
}

func (r *Registry) at(in registry.Instance) (*url.URL, error) {
	if err := driverkit.CheckInstance(in); err != nil {
		return nil, err
	}
	at, err := urlOf(r.endpoint, in.Address)
	return at, registry.Terminal(err)
}

// change brings the application into a state. Its first request has a share of the time, so that of a pod that does not answer it is
// known that nothing was changed.
func (r *Registry) change(ctx context.Context, in registry.Instance, want registry.State) error {
	at, err := r.at(in)
	if err != nil {
		return err
	}
	first, cancel := driverkit.Share(ctx, requests)
	defer cancel()
	state, err := r.ask(first, at)
	_, unclear := errors.AsType[unclearError](err)
	switch {
	case state == want && want == registry.InService:
		return nil // and out is what an application may say whose registry has refused that
	case unclear && want == registry.InService:
		return registry.NotRegistered(err)
	case err != nil && !unclear:
		return unchanged(ctx, err)
	}
	field, request := "options.leave", r.leave
	if want == registry.InService {
		field, request = "options.join", r.join
	}
	if err := r.send(ctx, at, field, request); err != nil {
		return err
	}
	switch state, err = r.ask(ctx, at); {
	case err != nil:
		return fmt.Errorf("%s has been asked to, but it is not known whether it did so: %w", at, err)
	case state != want:
		return fmt.Errorf("%s has been asked to, but its answer to options.state is still %s", at, state)
	}
	return nil
}

// unchanged is the error of a question that came before any change, so nothing can be carried out late.
func unchanged(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return errors.New(err.Error())
}

func (r *Registry) ask(ctx context.Context, at *url.URL) (registry.State, error) {
	request := r.state
	request.At, request.Header = at, r.header
	answer, err := r.client.Do(ctx, request)
	switch {
	case err != nil:
		return "", explained(err)
	case r.in.is(answer):
		return registry.InService, nil
	case r.out.is(answer):
		return registry.OutOfService, nil
	case !answer.OK():
		return "", r.refusal("options.state", answer)
	}
	return "", unclearError{fmt.Errorf("%s answered %q, which matches neither options.in nor options.out",
		at.JoinPath(r.state.Path), r.credentials.Excerpt(string(answer.Body)))}
}

// unclearError is of an answer that is neither in nor out: an application that has not started, for example.
type unclearError struct{ error }

func (r *Registry) send(ctx context.Context, at *url.URL, field string, request driverkit.Request) error {
	request.At, request.Header, request.Limit = at, r.header, 0
	answer, err := r.client.Do(ctx, request)
	if err == nil && !answer.OK() {
		err = r.refusal(field, answer)
	}
	return explained(err)
}

// explained adds what a reset most likely means: the proxy of a mesh that accepts only mTLS resets plain connections (istio/istio#37431).
func explained(err error) error {
	if !errors.Is(err, syscall.ECONNRESET) {
		return err
	}
	return fmt.Errorf("%w; a service mesh with STRICT mTLS resets connections from outside the mesh: let this port accept plain ones, "+
		"in Istio by portLevelMtls with the mode PERMISSIVE", err)
}

func (r *Registry) refusal(field string, answer *driverkit.Answer) error {
	err := answer.Refusal(string(answer.Body)).Classified()
	switch {
	case answer.Status == http.StatusUnauthorized, answer.Status == http.StatusForbidden:
		return registry.Terminal(registry.FieldError(r.refused, err))
	case registry.CodeOf(err) == registry.CodeTerminal:
		return registry.Terminal(registry.FieldError(field, err))
	}
	return err
}
