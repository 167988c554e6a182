package resync

import (
	"cmp"
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// tick is how finely the heartbeats of one interval are spread.
	tick = 250 * time.Millisecond
	// atOnce bounds the heartbeats to one registry that are under way. One service has at most half of them.
	atOnce = 32
)

// Book knows which instances have to be kept alive. It is a tracker.Tracker, and safe for concurrent use.
type Book interface {
	// Kept returns the instances of a registry whose Register or FailOver was acknowledged, without those for which a
	// Deregister has begun since.
	Kept(registry string) []registry.Instance
	// Lost notes that the registry, asked at that time, had no entry for the instance.
	Lost(target tracker.Target, asked time.Time)
}

// Heartbeats renews every held instance of every registry whose entries expire once in the registry's interval. An instance's turn
// within the interval is its own and always the same, so that they are spread evenly and none is forgotten when others
// come and go.
type Heartbeats struct {
	book   Book
	clock  clock.WithTicker
	logger logr.Logger

	mu    sync.Mutex
	pulse map[string]*pulse
}

// pulse is what is known of one registry.
type pulse struct {
	source atomic.Pointer[Source]
	// slots bound the heartbeats that are under way.
	slots chan struct{}
	// last is until when turns have been served, but for those of services with a round under way. Only Start uses the two.
	last     time.Time
	underWay map[string]*round

	// mu guards the rest.
	mu sync.Mutex
	// failed is when a heartbeat last failed; zero where that has passed. failures counts them since the first, and
	// failure is the last.
	failed   time.Time
	failures int64
	failure  error
}

// round is one service's.
type round struct {
	// from is when it began, and until when turns are served with it.
	from time.Time
	done atomic.Bool
}

// NewHeartbeats returns Heartbeats for no registry yet.
func NewHeartbeats(book Book, c clock.WithTicker, logger logr.Logger) *Heartbeats {
	return &Heartbeats{book: book, clock: c, logger: logger, pulse: map[string]*pulse{}}
}

// Apply says which registries there are from now on. It may be called at any time.
func (h *Heartbeats) Apply(all []Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := make(map[string]*pulse, len(all))
	for _, source := range all {
		if source.Client.HeartbeatInterval() <= 0 {
			continue
		}
		p := h.pulse[source.Name]
		if p == nil {
			p = &pulse{last: h.clock.Now(), slots: make(chan struct{}, atOnce), underWay: map[string]*round{}}
		}
		p.source.Store(&source)
		next[source.Name] = p
	}
	for name, p := range h.pulse {
		if next[name] == nil {
			p.source.Store(nil)
		}
	}
	h.pulse = next
}

// Start renews until the context ends, and returns when no heartbeat is under way. It is a manager.Runnable, and needs
// the lease: only who leads knows what is held.
func (h *Heartbeats) Start(ctx context.Context) error {
	ticker := h.clock.NewTicker(tick)
	defer ticker.Stop()
	var rounds sync.WaitGroup
	defer rounds.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		for _, p := range h.pulses() {
			h.begin(ctx, p, &rounds)
		}
	}
}

func (h *Heartbeats) pulses() []*pulse {
	h.mu.Lock()
	defer h.mu.Unlock()
	pulses := make([]*pulse, 0, len(h.pulse))
	for _, p := range h.pulse {
		pulses = append(pulses, p)
	}
	return pulses
}

// begin has everybody renewed whose turn has come, each service in a round of its own: one that hangs costs the others no
// turn. A service whose last round is under way gets its next one when that is done.
func (h *Heartbeats) begin(ctx context.Context, p *pulse, rounds *sync.WaitGroup) {
	source, to := p.source.Load(), h.clock.Now()
	if source == nil { // it has been dropped since
		return
	}
	interval := source.Client.HeartbeatInterval()
	behind := p.ended()
	due := map[string][]registry.Instance{}
	for _, in := range h.book.Kept(source.Name) {
		if p.underWay[in.Service] == nil && isTurn(in, interval, cmp.Or(behind[in.Service], p.last), to) {
			due[in.Service] = append(due[in.Service], in)
		}
	}
	p.last = to
	for service, instances := range due {
		r := &round{from: to}
		p.underWay[service] = r
		rounds.Go(func() {
			defer r.done.Store(true)
			h.renew(ctx, p, source, instances)
			h.tellPassed(ctx, source.Name, p, interval)
		})
	}
}

// ended forgets the rounds that are done, and returns when each began: turns that came since have not been served.
func (p *pulse) ended() map[string]time.Time {
	behind := map[string]time.Time{}
	for service, r := range p.underWay {
		if r.done.Load() {
			behind[service] = r.from
			delete(p.underWay, service)
		}
	}
	return behind
}

// renew makes the heartbeats of one service, and returns when all have ended.
func (h *Heartbeats) renew(ctx context.Context, p *pulse, source *Source, instances []registry.Instance) {
	var group errgroup.Group
	group.SetLimit(atOnce / 2)
	for _, in := range instances {
		group.Go(func() error {
			p.slots <- struct{}{} // whoever has one gives it back within the time-out
			defer func() { <-p.slots }()
			err := h.beat(ctx, source, in)
			// What replaced or dropped the client has closed it too: a heartbeat that was not made since says nothing.
			if err != nil && (registryclient.Classify(err).Asked() || p.source.Load() == source) {
				h.tellFailed(ctx, source.Name, p, err)
			}
			return nil
		})
	}
	_ = group.Wait() // each failure was told
}

// beat renews one instance. That it is lost is no failure: the reconciler puts it back.
func (h *Heartbeats) beat(ctx context.Context, source *Source, in registry.Instance) error {
	asked := h.clock.Now()
	err := source.Client.Heartbeat(ctx, in)
	if registryclient.Classify(err) == registryclient.NotRegistered {
		h.book.Lost(tracker.Target{Registry: source.Name, Instance: in}, asked)
		return nil
	}
	return err
}

// tellFailed logs the first failure. That a manager stops is none.
func (h *Heartbeats) tellFailed(ctx context.Context, name string, p *pulse, err error) {
	if ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed.IsZero() {
		h.logger.Error(err, "heartbeats fail, and entries expire unless they recover", "registry", name)
	}
	p.failed, p.failures, p.failure = h.clock.Now(), p.failures+1, err
}

// tellPassed logs, after heartbeats were made, that none has failed for an interval, in which everyone had a turn, and how
// many did before.
func (h *Heartbeats) tellPassed(ctx context.Context, name string, p *pulse, interval time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil || p.failed.IsZero() || h.clock.Since(p.failed) <= interval+tick {
		return
	}
	h.logger.Info("heartbeats succeed again", "registry", name, "failed", p.failures, "lastFailure", p.failure.Error())
	p.failed, p.failures, p.failure = time.Time{}, 0, nil
}

// isTurn reports whether the instance's turn lies after from and not after to.
func isTurn(in registry.Instance, interval time.Duration, from, to time.Time) bool {
	passed := to.Sub(from)
	if passed >= interval {
		return true
	}
	turn := turnOf(in, interval)
	since := (turn - time.Duration(from.UnixNano())%interval + interval) % interval
	return since > 0 && since <= passed
}

// turnOf is the instance's moment in every interval.
func turnOf(in registry.Instance, interval time.Duration) time.Duration {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(in.Service + "\x00" + in.Endpoint())) // never fails
	return time.Duration(sum.Sum64() % uint64(interval))          //nolint:gosec // an interval is above zero
}
