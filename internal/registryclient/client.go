// Package registryclient is the one way to a registry. Every call passes the same layers, a file each, and [Classify] says what
// came of it.
package registryclient

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/registry"
)

// Options are what a Client is made with. What is nil is left out.
type Options struct {
	// Name is the registry's in the configuration, and Driver its driver's: the labels of the metrics.
	Name, Driver string
	// Timeout bounds one call.
	Timeout time.Duration
	// MaxInFlight is how many calls may be under way, at least 1. Lists and heartbeats have bounds of their own.
	MaxInFlight int
	Fence       Fence
	// DryRun is called in place of each change. It must be safe for concurrent use.
	DryRun  func(Subject)
	Metrics *metrics.RegistryMetrics
	// Trace sees each call. Nil is for no traces.
	Trace Trace
	// Logger gets the stack of a driver that panics.
	Logger logr.Logger
	// Server is what [Client.Server] returns. It must be comparable. With nil, each client is a registry of its own.
	Server any
}

// Caller is who asks for a call. The zero Caller, which is for work in the background, waits until the call may be made, for as
// long as one call may take.
type Caller struct {
	// ID tells callers apart. One caller has at most one place in the queue for each change of an instance.
	ID string
	// Urgent callers go first, and have slots that others can't take.
	Urgent bool
	// Wake is called when a caller that was [Queued] or met an [Outage] may try again. It must neither block nor use the
	// client. A caller that has one never waits.
	Wake func()
	// Begin is called just before the registry is asked, or a dry run reports a change: from then on the outcome is unknown.
	Begin func()
}

// Client is the only way to one registry. It is safe for concurrent use. A nil Client, of a registry that there is no more, has
// no capability.
type Client struct {
	options     Options
	made        registry.Registry
	change      func(context.Context, registry.Change) error
	lister      registry.Lister
	getter      registry.Getter
	prober      registry.Prober
	heartbeater registry.Heartbeater

	fence   *fence
	limit   *limit
	breaker *breaker
	// apps are the applications' own entries in the same registry; nil where they can't be steered.
	apps *Client
	// ofApps: this is the client of such entries.
	ofApps bool
	// calls is the way of the calls of pods, and upkeep that of lists and heartbeats, which go on during an outage.
	calls, upkeep handler
}

// New returns the client of a registry, which a driver has made and the client closes.
func New(made registry.Registry, o Options) *Client {
	b := newBreaker()
	l := newLimit(o.MaxInFlight, b.lets)
	b.queue = l.queue
	c := connect(made, o, l, b)
	c.lister, _ = made.(registry.Lister)
	c.heartbeater, _ = made.(registry.Heartbeater)
	if steerer, can := made.(registry.AppEntrySteerer); can {
		// What others wrote carries no mark to list it by, and is not Rollcall's to renew.
		o.Server = appServer{c.Server()}
		c.apps = connect(steerer.AppEntries(), o, l, b)
		c.apps.ofApps = true
	}
	return c
}

// appServer is the identity of the applications' entries in a server.
type appServer struct{ of any }

// connect makes a client without the capabilities that are no pod's.
func connect(made registry.Registry, o Options, l *limit, b *breaker) *Client {
	c := &Client{options: o, made: made, fence: &fence{Options: o}, limit: l, breaker: b}
	c.calls = chain(c.fence.pass, c.limit.pass, c.breaker.pass, begin, o.rehearse, o.trace, o.measure, o.bound)
	c.upkeep = chain(c.fence.pass, o.rehearse, o.trace, o.measure, o.bound)
	// Batches are inside all of them: each change has a time and an outcome of its own.
	c.change = func(ctx context.Context, change registry.Change) error { return change.Make(ctx, made) }
	if batcher, ok := made.(registry.Batcher); ok {
		c.change = newJoiner(made, batcher, func() int { return l.status().Slots }, o.caught).join
	}
	c.getter, _ = made.(registry.Getter)
	c.prober, _ = made.(registry.Prober)
	return c
}

// AppEntries returns the client of the entries that applications wrote in the registry, or nil where they can't be steered.
// Its calls count among those of this one, which closes it.
func (c *Client) AppEntries() *Client {
	if c == nil {
		return nil
	}
	return c.apps
}

// Operations that the metrics know besides those of changes.
const (
	list      = "list"
	probe     = "probe"
	heartbeat = "heartbeat"
	get       = "get"
)

// Subject is what a call is about.
type Subject struct {
	// Operation is what the metrics call it.
	Operation string
	// Instance is zero for a list.
	Instance registry.Instance
	// ByApp: the entry is one that an application has written.
	ByApp bool
}

// call is one call on its way to the registry.
type call struct {
	Caller
	Subject

	make func(context.Context) error
}

// changes reports whether the call changes something in the registry. A heartbeat does: it keeps an entry that may have to go.
func (c *call) changes() bool {
	return c.Operation != list && c.Operation != get && c.Operation != probe
}

func (c *call) place() place {
	return place{c.ID, c.Operation, c.Instance.Service, c.Instance.Address, c.Instance.Port, c.ByApp}
}

// A layer makes the call by next, or returns an error that says why it does not.
type (
	handler = func(context.Context, *call) error
	layer   = func(ctx context.Context, c *call, next handler) error
)

// chain puts layers around a call, the first one outermost.
func chain(layers ...layer) handler {
	if len(layers) == 0 {
		return func(ctx context.Context, c *call) error { return c.make(ctx) }
	}
	next := chain(layers[1:]...)
	return func(ctx context.Context, c *call) error { return layers[0](ctx, c, next) }
}

func begin(ctx context.Context, c *call, next handler) error {
	if c.Begin != nil {
		c.Begin()
	}
	return next(ctx, c)
}

// Change makes the registry say the state of the instance.
func (c *Client) Change(ctx context.Context, by Caller, change registry.Change) error {
	if err := change.Check(); err != nil {
		return err
	}
	operation := map[registry.State]string{
		registry.InService: "register", registry.OutOfService: "failOver", registry.Absent: "deregister",
	}[change.State]
	return c.ask(ctx, &call{by, c.subject(operation, change.Instance), func(ctx context.Context) error { return c.change(ctx, change) }})
}

// Get asks what the registry says of the instance, for a client that [Client.Gets].
func (c *Client) Get(ctx context.Context, by Caller, in registry.Instance) (state registry.State, err error) {
	err = c.ask(ctx, &call{by, c.subject(get, in), func(ctx context.Context) (err error) {
		state, err = c.getter.Get(ctx, in)
		return err
	}})
	return state, err
}

// Probe asks whether clients are given the instance, for a client that [Client.Probes].
func (c *Client) Probe(ctx context.Context, by Caller, in registry.Instance) error {
	return c.ask(ctx, &call{by, c.subject(probe, in), func(ctx context.Context) error { return c.prober.Probe(ctx, in) }})
}

// List asks for all entries of a cluster, for a client that [Client.Lists].
func (c *Client) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	err = c.upkeep(ctx, &call{Subject: c.subject(list, registry.Instance{}), make: func(ctx context.Context) (err error) {
		entries, err = c.lister.List(ctx, cluster)
		return err
	}})
	return entries, err
}

// Heartbeat renews an entry, for a client that has a [Client.HeartbeatInterval].
func (c *Client) Heartbeat(ctx context.Context, in registry.Instance) error {
	return c.upkeep(ctx, &call{Subject: c.subject(heartbeat, in), make: func(ctx context.Context) error {
		return c.heartbeater.Heartbeat(ctx, in)
	}})
}

func (c *Client) subject(operation string, in registry.Instance) Subject {
	return Subject{operation, in, c.ofApps}
}

// ask makes the call now, or waits until it may be made where its caller can't be woken.
func (c *Client) ask(ctx context.Context, asked *call) error {
	if asked.Wake != nil {
		return c.calls(ctx, asked)
	}
	woken := make(chan struct{}, 1)
	asked.Wake = func() {
		select {
		case woken <- struct{}{}:
		default: // it is on its way
		}
	}
	if asked.ID == "" {
		asked.ID = fmt.Sprintf("%s %s", asked.Instance.Endpoint(), asked.Instance.UID)
	}
	waiting, cancel := context.WithTimeout(ctx, c.options.Timeout)
	defer cancel()
	for {
		err := c.calls(ctx, asked)
		if why := Classify(err); why != Queued && why != Outage {
			return err
		}
		select {
		case <-woken:
		case <-waiting.Done():
			c.limit.withdraw(asked)
			return err
		}
	}
}

// Lists reports whether the registry can say what there is.
func (c *Client) Lists() bool { return c != nil && c.lister != nil }

// Gets reports whether the registry can be asked what it says of one instance.
func (c *Client) Gets() bool { return c != nil && c.getter != nil }

// Probes reports whether clients may not be given an instance yet that was registered.
func (c *Client) Probes() bool {
	if c == nil || c.prober == nil {
		return false
	}
	optional, is := c.prober.(registry.OptionalProber)
	return !is || optional.Probes()
}

// Staleness is how old a list may be; see [registry.StaleLister].
func (c *Client) Staleness() time.Duration {
	if stale, ok := c.lister.(registry.StaleLister); ok {
		return stale.Staleness()
	}
	return 0
}

// ReaderLag is how long clients may not know yet what was acknowledged; see [registry.LaggingReaders].
func (c *Client) ReaderLag() time.Duration {
	if lagging, ok := c.made.(registry.LaggingReaders); ok {
		return lagging.ReaderLag()
	}
	return 0
}

// Expires reports whether entries go unless they are renewed.
func (c *Client) Expires() bool { return c.heartbeater != nil && c.heartbeater.HeartbeatInterval() > 0 }

// HeartbeatInterval is how often each entry must be renewed; zero where nothing is to be renewed, as in a dry run.
func (c *Client) HeartbeatInterval() time.Duration {
	if c.heartbeater == nil || c.options.DryRun != nil {
		return 0
	}
	return c.heartbeater.HeartbeatInterval()
}

// Timeout bounds one call.
func (c *Client) Timeout() time.Duration { return c.options.Timeout }

// MayLandFor is how long after its beginning a change may still be carried out whose time was up.
func (c *Client) MayLandFor() time.Duration { return c.options.mayLandFor() }

// Server is equal for two clients of the same servers: what those have acknowledged to one is known of the other too.
func (c *Client) Server() any {
	if c.options.Server == nil {
		return c
	}
	return c.options.Server
}

// SetMaxInFlight changes how many calls may be under way. Those that are go on.
func (c *Client) SetMaxInFlight(n int) { c.limit.resize(n) }

// Status is what a client shows of itself.
type Status = metrics.Slots

// Status may be called at any time.
func (c *Client) Status() Status {
	s := c.limit.status()
	s.Breaker = c.breaker.status()
	return s
}

// Close refuses further calls, waits for those under way, and closes the registry.
func (c *Client) Close() error {
	c.fence.retire()
	if c.apps != nil {
		c.apps.fence.retire()
	}
	c.limit.close()
	if closer, ok := c.made.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// Registries are the clients of all registries of a configuration, by name.
type Registries map[string]*Client

// Names are sorted.
func (r Registries) Names() []string { return slices.Sorted(maps.Keys(r)) }
