package resync

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	tick = 250 * time.Millisecond
	// atOnce limits concurrent heartbeats per registry; one service gets half.
	atOnce = 32
)

// heartbeats renews each kept instance once per interval, at its own offset. For example, with an interval of 10 s and an offset of
// 3.2 s: at 3.2 s, 13.2 s, 23.2 s. A turn is skipped while the instance's last heartbeat is under way.
type heartbeats struct {
	keeper *keeper
	// served: turns up to here have begun.
	served time.Time
	slots  chan struct{}

	mu        sync.Mutex
	underWay  map[identity]bool
	ofService map[string]*serviceSlots
	trouble   trouble
	failed    time.Time
}

// serviceSlots keeps a service that hangs from delaying others; it exists while a heartbeat is under way.
type serviceSlots struct {
	slots    chan struct{}
	underWay int
}

func newHeartbeats(k *keeper) heartbeats {
	return heartbeats{
		keeper: k, slots: make(chan struct{}, atOnce), ofService: map[string]*serviceSlots{}, underWay: map[identity]bool{},
	}
}

// renewAll returns when the context has ended and no heartbeat is under way.
func (h *heartbeats) renewAll(ctx context.Context) {
	interval := h.keeper.client.HeartbeatInterval()
	if interval <= 0 {
		return
	}
	r := h.keeper.resync
	if h.served.IsZero() {
		h.served = time.Now()
	}
	var all sync.WaitGroup
	defer all.Wait()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		to := time.Now()
		for _, in := range r.Pods.Kept(h.keeper.name) {
			if !isTurn(in, interval, h.served, to) {
				continue
			}
			if service := h.begin(in); service != nil {
				all.Go(func() { h.renew(ctx, in, service) })
			}
		}
		h.served = to
	}, tick)
}

// begin returns nil if a heartbeat of the instance is under way already.
func (h *heartbeats) begin(in registry.Instance) *serviceSlots {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := identityOf(in)
	if h.underWay[id] {
		return nil
	}
	h.underWay[id] = true
	service := h.ofService[in.Service]
	if service == nil {
		service = &serviceSlots{slots: make(chan struct{}, atOnce/2)}
		h.ofService[in.Service] = service
	}
	service.underWay++
	return service
}

// end needs the lock.
func (h *heartbeats) end(in registry.Instance, service *serviceSlots) {
	delete(h.underWay, identityOf(in))
	if service.underWay--; service.underWay == 0 {
		delete(h.ofService, in.Service)
	}
}

func (h *heartbeats) renew(ctx context.Context, in registry.Instance, service *serviceSlots) {
	for _, slots := range []chan struct{}{service.slots, h.slots} {
		slots <- struct{}{} // freed within the timeout
		defer func() { <-slots }()
	}
	err := h.beat(ctx, in)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(in, service)
	h.note(ctx, err)
}

// beat returns nil for a missing entry: the reconciler registers it again.
func (h *heartbeats) beat(ctx context.Context, in registry.Instance) error {
	k := h.keeper
	asked := time.Now()
	err := k.client.Heartbeat(ctx, in)
	if registryclient.Classify(err) == registryclient.NotRegistered {
		k.resync.Pods.Missing(tracker.Target{Registry: k.name, Instance: in}, asked)
		return nil
	}
	return err
}

// note logs the first failure, and recovery after an interval without one, in which every instance had its turn. What the
// end of the manager or of the client cut off does not count.
func (h *heartbeats) note(ctx context.Context, err error) {
	k := h.keeper
	if ctx.Err() != nil || !k.resync.has(k) {
		return
	}
	switch {
	case err != nil:
		h.failed = time.Now()
	case time.Since(h.failed) <= k.client.HeartbeatInterval()+tick:
		return
	}
	h.trouble.tell(k.resync.Logger.WithValues("registry", k.name), err,
		"heartbeats fail, and entries expire unless they recover", "heartbeats succeed again")
}

// isTurn is true for a turn in (from, to].
func isTurn(in registry.Instance, interval time.Duration, from, to time.Time) bool {
	passed := to.Sub(from)
	if passed >= interval {
		return true
	}
	turn := turnOf(in, interval)
	since := (turn - time.Duration(from.UnixNano())%interval + interval) % interval
	return since > 0 && since <= passed
}

func turnOf(in registry.Instance, interval time.Duration) time.Duration {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(in.Service + "\x00" + in.Endpoint())) // never fails
	return time.Duration(sum.Sum64() % uint64(interval))          //nolint:gosec // an interval is above zero
}
