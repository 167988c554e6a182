// Package registryclient is the only way to a registry. A call passes these layers, outermost first:
//
//	fence, limit, breaker, begin, dryrun, trace, measure, timeout, batch
//
// [Classify] returns the outcome.
package registryclient

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/registry"
)

// Options configure a Client. Nil fields are off.
type Options struct {
	Name, Driver string
	Timeout      time.Duration
	// MaxInFlight is the most slots, at least 1. Lists, reads and heartbeats take none.
	MaxInFlight int
	Fence       Fence
	// DryRun replaces each change. It must be safe for concurrent use.
	DryRun  func(Subject)
	Metrics *metrics.RegistryMetrics
	Trace   Trace
	Logger  logr.Logger
	// History gets each call.
	History history.Log
}

// Caller asks for a call. A zero Caller waits its turn, for at most Options.Timeout.
type Caller struct {
	// ID identifies the caller in the queue.
	ID string
	// Urgent callers go first, and have reserved slots.
	Urgent bool
	// Yields: the call goes last, since clients are given the instance already.
	Yields bool
	// Wake is called when a [Queued] or [Outage] caller may retry. It must not block or use the client. With it, calls never wait.
	Wake func()
	// Begin is called just before the registry: from then on the outcome is unknown. End is called with the outcome, before another
	// change of the endpoint can begin.
	Begin func()
	End   func(error)
}

// Client is safe for concurrent use. A nil Client, of a removed registry, has no capabilities.
type Client struct {
	options     Options
	made        registry.Registry
	traits      registry.Traits
	change      func(context.Context, registry.Change) error
	lister      registry.Lister
	placer      registry.PlaceLister
	getter      registry.Getter
	prober      registry.Prober
	heartbeater registry.Heartbeater

	fence   *fence
	limit   *limit
	breaker *breaker
	// apps is for applications' entries, if the driver steers them.
	apps   *Client
	ofApps bool
	// upkeep, for lists, reads and heartbeats, bypasses the limit and the breaker.
	calls, upkeep handler
}

// New takes ownership of the registry; [Client.Close] closes it.
func New(made registry.Registry, o Options) *Client {
	b := newBreaker()
	traits := registry.TraitsOf(made)
	b.apart = traits.CallsPods
	l := newLimit(o.MaxInFlight, b.lets, fixed(made, traits))
	b.queue = l.queue
	c := connect(made, traits, o, l, b)
	c.lister, _ = made.(registry.Lister)
	c.placer, _ = made.(registry.PlaceLister)
	c.heartbeater, _ = made.(registry.Heartbeater)
	if steerer, can := made.(registry.AppEntrySteerer); can {
		// What others wrote carries no ownership tag to list it by, and is not Rollcall's to renew.
		c.apps = connect(steerer.AppEntries(), traits, o, l, b)
		c.apps.ofApps = true
	}
	return c
}

// fixed reports whether the latency of calls tells nothing of the registry: they wait to be made together, or each is to another server.
func fixed(made registry.Registry, traits registry.Traits) func() bool {
	batcher, batches := made.(registry.Batcher)
	return func() bool { return traits.CallsPods || batches && batcher.BatchLimit() > 1 }
}

// connect makes a client without the capabilities that no pod needs.
func connect(made registry.Registry, traits registry.Traits, o Options, l *limit, b *breaker) *Client {
	c := &Client{options: o, made: made, traits: traits, fence: &fence{Options: o}, limit: l, breaker: b}
	c.calls = chain(c.fence.pass, c.limit.pass, c.breaker.pass, begin, o.rehearse, o.trace, o.measure, o.bound)
	c.upkeep = chain(c.fence.pass, o.rehearse, o.trace, o.measure, o.bound)
	// Batches are innermost: each change has its own deadline and outcome.
	c.change = func(ctx context.Context, change registry.Change) error { return change.Make(ctx, made) }
	if batcher, ok := made.(registry.Batcher); ok {
		c.change = newJoiner(made, batcher, func() int { return l.status().Slots }, o.caught).join
	}
	c.getter, _ = made.(registry.Getter)
	c.prober, _ = made.(registry.Prober)
	return c
}

// AppEntries is the client of applications' entries, or nil. It shares slots and Close with this one.
func (c *Client) AppEntries() *Client {
	if c == nil {
		return nil
	}
	return c.apps
}

// Operations besides changes, as in the metrics.
const (
	list      = "list"
	probe     = "probe"
	heartbeat = "heartbeat"
	get       = "get"
)

// Subject is what a call is about.
type Subject struct {
	Operation string
	// Instance is zero for a list.
	Instance registry.Instance
	ByApp    bool
}

type call struct {
	Caller
	Subject

	make func(context.Context) error
}

// changes is true for a heartbeat, too: it keeps an entry that may have to go.
func (c *call) changes() bool {
	return c.Operation != list && c.Operation != get && c.Operation != probe
}

func (c *call) turn() turn {
	return turn{c.ID, c.Operation, c.endpoint()}
}

func (c *call) endpoint() endpoint {
	return endpoint{c.Instance.Service, c.Instance.Address, c.Instance.Port, c.ByApp}
}

// A layer calls next, or returns why not.
type (
	handler = func(context.Context, *call) error
	layer   = func(ctx context.Context, c *call, next handler) error
)

// chain puts the first layer outermost.
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
	err := next(ctx, c)
	if c.End != nil {
		c.End(err)
	}
	return err
}

// Change sets the state of an instance in the registry.
func (c *Client) Change(ctx context.Context, by Caller, change registry.Change) error {
	if err := change.Check(); err != nil {
		return err
	}
	operation := map[registry.State]string{
		registry.InService: "register", registry.OutOfService: "takeOut", registry.Absent: "deregister",
	}[change.State]
	told := registry.Change{Instance: c.told(change.Instance), State: change.State}
	return c.ask(ctx, &call{by, c.subject(operation, change.Instance), func(ctx context.Context) error {
		return inPlace(told.Instance.Place, c.change(ctx, told))
	}})
}

// Get returns an instance's state.
func (c *Client) Get(ctx context.Context, by Caller, in registry.Instance) (state registry.State, err error) {
	err = c.ask(ctx, &call{by, c.subject(get, in), func(ctx context.Context) (err error) {
		state, err = c.getter.Get(ctx, c.told(in))
		return err
	}})
	return state, err
}

// Read is Get for resync. Like a list it takes no slot, which it would from pods that wait.
func (c *Client) Read(ctx context.Context, in registry.Instance) (state registry.State, err error) {
	err = c.upkeep(ctx, &call{Subject: c.subject(get, in), make: func(ctx context.Context) (err error) {
		state, err = c.getter.Get(ctx, c.told(in))
		return err
	}})
	return state, err
}

// Probe returns nil once clients are given the instance.
func (c *Client) Probe(ctx context.Context, by Caller, in registry.Instance) error {
	return c.ask(ctx, &call{by, c.subject(probe, in), func(ctx context.Context) error { return c.prober.Probe(ctx, c.told(in)) }})
}

// List returns a cluster's entries, if the registry has no places.
func (c *Client) List(ctx context.Context, cluster string) (entries []registry.Entry, err error) {
	return c.list(ctx, func(ctx context.Context) ([]registry.Entry, error) { return c.lister.List(ctx, cluster) })
}

func (c *Client) list(
	ctx context.Context, ask func(context.Context) ([]registry.Entry, error),
) (entries []registry.Entry, err error) {
	err = c.upkeep(ctx, &call{Subject: c.subject(list, registry.Instance{}), make: func(ctx context.Context) (err error) {
		entries, err = ask(ctx)
		return err
	}})
	return entries, err
}

// ListTimeout is how long one list may take.
func (c *Client) ListTimeout() time.Duration { return listTimeouts * c.options.Timeout }

// Heartbeat renews an entry.
func (c *Client) Heartbeat(ctx context.Context, in registry.Instance) error {
	return c.upkeep(ctx, &call{Subject: c.subject(heartbeat, in), make: func(ctx context.Context) error {
		return c.heartbeater.Heartbeat(ctx, c.told(in))
	}})
}

func (c *Client) subject(operation string, in registry.Instance) Subject {
	return Subject{operation, in, c.ofApps}
}

// ask waits for callers without Wake.
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

// CallsPods reports whether it has no server: see [registry.Traits].
func (c *Client) CallsPods() bool { return c != nil && c.breaker.apart }

// MayBeOne reports whether an application's entry that goes by own in this registry can be the one that goes by others in the other
// registry, which may be the same. An application that is called has one entry, wherever it registers it, and one driver under two names
// can be one server.
func (c *Client) MayBeOne(own registry.Instance, other *Client, others registry.Instance) bool {
	switch {
	case c.AppEntries() == nil, other.AppEntries() == nil:
		return false
	case c.CallsPods(), other.CallsPods():
		return true
	case c.options.Driver != other.options.Driver:
		return false
	}
	own, others = c.told(own), other.told(others)
	if c.PlaceTemplate() == other.PlaceTemplate() && own.Place != others.Place { // else each has its own spelling of a place
		return false
	}
	if matcher, matches := c.apps.made.(registry.EntryMatcher); matches {
		return matcher.MayBeOne(own, others)
	}
	return own.Endpoint() == others.Endpoint() && strings.EqualFold(own.Service, others.Service)
}

// Lists reports whether [Client.List] works.
func (c *Client) Lists() bool { return c != nil && (c.lister != nil || c.PlaceTemplate() != "") }

// PlaceTemplate is empty if the registry has no places; see [registry.Traits].
func (c *Client) PlaceTemplate() string { return c.traits.PlaceTemplate }

// UnlistedMembers are the registry's servers if the endpoint lacks addresses of some; see [registry.MemberLister].
func (c *Client) UnlistedMembers() []string {
	if lister, is := c.made.(registry.MemberLister); is {
		return lister.UnlistedMembers()
	}
	return nil
}

// Gets reports whether [Client.Get] works.
func (c *Client) Gets() bool { return c != nil && c.getter != nil }

// Probes reports whether clients may get a registered instance late.
func (c *Client) Probes() bool {
	if c == nil || c.prober == nil {
		return false
	}
	optional, is := c.prober.(registry.OptionalProber)
	return !is || optional.Probes()
}

// Staleness is how old a list may be; see [registry.Traits].
func (c *Client) Staleness() time.Duration { return c.traits.Staleness }

// Follows reports whether the registry follows the pods' condition; see [registry.Traits].
func (c *Client) Follows() bool { return c != nil && c.traits.FollowsCondition }

// ReaderLag is how late clients may learn of a change; see [registry.Traits].
func (c *Client) ReaderLag() time.Duration { return c.traits.ReaderLag }

// Weighs reports whether clients heed weights; see [registry.Traits].
func (c *Client) Weighs() bool { return c.traits.Weighs }

// Expires reports whether entries need heartbeats.
func (c *Client) Expires() bool { return c.heartbeater != nil && c.traits.HeartbeatInterval > 0 }

// HeartbeatInterval is zero without heartbeats, as in a dry run.
func (c *Client) HeartbeatInterval() time.Duration {
	if !c.Expires() || c.options.DryRun != nil {
		return 0
	}
	return c.traits.HeartbeatInterval
}

// Timeout of one call.
func (c *Client) Timeout() time.Duration { return c.options.Timeout }

// MayLandFor is how long after it began a change may take effect.
func (c *Client) MayLandFor() time.Duration { return c.options.mayLandFor() }

// Succeeds makes changes of an endpoint wait for what the client before, of the same registry, has under way. The one before that has
// been closed.
func (c *Client) Succeeds(before *Client) {
	before.limit.succeeds(nil)
	c.limit.succeeds(before.limit)
}

// SetMaxInFlight changes the most slots. Calls under way continue.
func (c *Client) SetMaxInFlight(n int) { c.limit.resize(n) }

// Status of the slots.
type Status = metrics.Slots

// Status can be called at any time.
func (c *Client) Status() Status {
	s := c.limit.status()
	s.Breaker = c.breaker.status()
	return s
}

// Close refuses new calls and waits for those under way.
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

// Registries are by name.
type Registries map[string]*Client

// Names are sorted.
func (r Registries) Names() []string { return slices.Sorted(maps.Keys(r)) }
