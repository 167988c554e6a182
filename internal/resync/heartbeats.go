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
	// tick is how finely the heartbeats of one interval are spread.
	tick = 250 * time.Millisecond
	// atOnce bounds the heartbeats to one registry that are under way. One service has at most half of them.
	atOnce = 32
)

// heartbeats renews every held instance of a registry whose entries expire once in the registry's interval. An instance's
// turn within the interval is its own and always the same, so that they are spread evenly and none is forgotten when
// others come and go. One that is under way when its turn comes again is not begun twice.
type heartbeats struct {
	keeper *keeper
	// served is until when turns have been served.
	served time.Time
	// slots are those of all.
	slots chan struct{}

	mu       sync.Mutex
	underWay map[identity]bool
	// ofService has the services of which heartbeats are under way.
	ofService map[string]*serviceSlots
	trouble   trouble
	failed    time.Time // the last time
}

// serviceSlots are those of one service, for the heartbeats of it that are under way: a service that hangs costs the others no turn.
type serviceSlots struct {
	slots    chan struct{}
	underWay int
}

func newHeartbeats(k *keeper) heartbeats {
	return heartbeats{
		keeper: k, slots: make(chan struct{}, atOnce), ofService: map[string]*serviceSlots{}, underWay: map[identity]bool{},
	}
}

// renewAll renews until the context ends, and returns when no heartbeat is under way.
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

// begin notes that a heartbeat of the instance is under way, and returns its service's slots; nil where one is already.
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

// end is called, under the lock, when a heartbeat is over.
func (h *heartbeats) end(in registry.Instance, service *serviceSlots) {
	delete(h.underWay, identityOf(in))
	if service.underWay--; service.underWay == 0 {
		delete(h.ofService, in.Service)
	}
}

// renew makes one heartbeat when there are slots for it.
func (h *heartbeats) renew(ctx context.Context, in registry.Instance, service *serviceSlots) {
	for _, slots := range []chan struct{}{service.slots, h.slots} {
		slots <- struct{}{} // each is given back within the time-out
		defer func() { <-slots }()
	}
	err := h.beat(ctx, in)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.end(in, service)
	h.note(ctx, err)
}

// beat renews one instance. That it is lost is no failure: the reconciler puts it back.
func (h *heartbeats) beat(ctx context.Context, in registry.Instance) error {
	k := h.keeper
	asked := time.Now()
	err := k.client.Heartbeat(ctx, in)
	if registryclient.Classify(err) == registryclient.NotRegistered {
		k.resync.Pods.Lost(tracker.Target{Registry: k.name, Instance: in}, asked)
		return nil
	}
	return err
}

// note logs the first failure, and when none has come for an interval, in which each instance had a turn. A heartbeat that
// was not made since the manager stops or the client was replaced says nothing.
func (h *heartbeats) note(ctx context.Context, err error) {
	k := h.keeper
	if ctx.Err() != nil || !registryclient.Classify(err).Asked() && !k.resync.has(k) {
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
