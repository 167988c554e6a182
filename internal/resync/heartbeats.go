package resync

import (
	"context"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/rollcall-dev/rollcall/internal/gate"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// tick is how finely the heartbeats of one interval are spread.
	tick = 250 * time.Millisecond
	// atOnce bounds the heartbeats to one registry that are under way.
	atOnce = 32
)

// Book knows which instances have to be kept alive. It is the reconciler, and safe for concurrent use.
type Book interface {
	// Held returns the instances of a registry whose Register or FailOver was acknowledged, without those for which a
	// Deregister has begun since.
	Held(registry string) []registry.Instance
	// Lost is told that the registry, asked at that time, had no entry for the instance.
	Lost(registry string, in registry.Instance, asked time.Time)
}

// Leased is a registry whose entries expire.
type Leased struct {
	// Name is the registry's in the configuration.
	Name        string
	Heartbeater registry.Heartbeater
	// Timeout bounds one heartbeat.
	Timeout time.Duration
	// Gate is told how each heartbeat ended; it bounds none. It may be nil.
	Gate *gate.Gate
}

// Heartbeats renews every held instance of every leased registry once in the registry's interval. An instance's turn
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
	leased atomic.Pointer[Leased]
	// last is until when turns have been served; of use to the one who made busy true.
	last time.Time
	busy atomic.Bool
	// failed is when a heartbeat last failed; zero where that has passed. failures counts them since the first, and
	// failure is the last.
	failed   time.Time
	failures int64
	failure  error
}

// NewHeartbeats returns Heartbeats for no registry yet.
func NewHeartbeats(book Book, c clock.WithTicker, logger logr.Logger) *Heartbeats {
	return &Heartbeats{book: book, clock: c, logger: logger, pulse: map[string]*pulse{}}
}

// Apply says which registries there are from now on. It may be called at any time.
func (h *Heartbeats) Apply(all []Leased) {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := make(map[string]*pulse, len(all))
	for _, leased := range all {
		p := h.pulse[leased.Name]
		if p == nil {
			p = &pulse{last: h.clock.Now()}
		}
		p.leased.Store(&leased)
		next[leased.Name] = p
	}
	for name, p := range h.pulse {
		if next[name] == nil {
			p.leased.Store(nil)
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
			// A registry that is slower than its own interval gets its next round when this one is done.
			if p.busy.CompareAndSwap(false, true) {
				rounds.Go(func() {
					defer p.busy.Store(false)
					h.round(ctx, p)
				})
			}
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

// round renews those whose turn has come since the last round.
func (h *Heartbeats) round(ctx context.Context, p *pulse) {
	leased, from, to := p.leased.Load(), p.last, h.clock.Now()
	if leased == nil { // it has been dropped since
		return
	}
	interval := leased.Heartbeater.HeartbeatInterval()
	if interval <= 0 {
		return
	}
	p.last = to
	var group errgroup.Group
	group.SetLimit(atOnce)
	var beats, failures atomic.Int64
	var last atomic.Pointer[error]
	for _, in := range h.book.Held(leased.Name) {
		if !isTurn(in, interval, from, to) {
			continue
		}
		beats.Add(1)
		group.Go(func() error {
			// What replaced or dropped the registry has retired it too: a heartbeat that was not made since says nothing.
			if err := h.beat(ctx, leased, in); err != nil && !(gate.IsInconclusive(err) && p.leased.Load() != leased) {
				failures.Add(1)
				last.Store(&err)
			}
			return nil
		})
	}
	_ = group.Wait() // each failure was counted
	if beats.Load() == 0 || ctx.Err() != nil {
		return
	}
	h.tell(leased.Name, p, failures.Load(), last.Load(), interval)
}

// beat renews one instance. That it is lost is no failure: the reconciler puts it back.
func (h *Heartbeats) beat(ctx context.Context, leased *Leased, in registry.Instance) error {
	asked := h.clock.Now()
	bounded, cancel := context.WithTimeout(ctx, leased.Timeout)
	defer cancel()
	err := leased.Heartbeater.Heartbeat(bounded, in)
	leased.Gate.Witness(in.Service, err)
	if registry.IsNotRegistered(err) {
		h.book.Lost(leased.Name, in, asked)
		return nil
	}
	return err
}

// tell logs the first failure, and that none has come for an interval, in which everyone had a turn, and how many there
// were.
func (h *Heartbeats) tell(name string, p *pulse, failures int64, last *error, interval time.Duration) {
	now := h.clock.Now()
	switch {
	case failures > 0:
		if p.failed.IsZero() {
			h.logger.Error(*last, "heartbeats fail: entries expire unless this passes", "registry", name, "failed", failures)
		}
		p.failed, p.failures, p.failure = now, p.failures+failures, *last
	case !p.failed.IsZero() && now.Sub(p.failed) > interval+tick:
		h.logger.Info("heartbeats succeed again", "registry", name, "failed", p.failures, "lastFailure", p.failure.Error())
		p.failed, p.failures, p.failure = time.Time{}, 0, nil
	}
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
