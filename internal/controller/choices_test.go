package controller

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/resync"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

type (
	Listing    = tracker.Listing
	Comparison = tracker.Comparison
	Wait       = metrics.Wait
)

// choices are settings whose registries are still to be given clients.
type choices struct {
	observe.Settings

	Registries map[string]Registry
}

// Registry is a registry that can do no more than it is given here.
type Registry struct {
	Calls       registry.Registry
	Getter      registry.Getter
	Prober      registry.Prober
	Steerer     registry.AppEntrySteerer
	Lister      registry.Lister
	CallsPods   bool
	Follows     bool
	MaxInFlight int
	Fence       registryclient.Fence
	DryRun      func(registryclient.Subject)
}

// built gives each registry a client, the one that it had where it is the same.
func (w *world) built() observe.Settings {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.settings.Settings
	s.Registries = make(map[string]*registryclient.Client, len(w.settings.Registries))
	for name, reg := range w.settings.Registries {
		key := fmt.Sprintf("%s %T%p %p %p %p %p %t %t %d %p %p", name, reg.Calls, reg.Calls, reg.Getter, reg.Prober, reg.Steerer,
			reg.Lister, reg.CallsPods, reg.Follows, reg.MaxInFlight, reg.Fence, reg.DryRun)
		if w.clients[key] == nil {
			w.clients[key] = reg.client(name)
		}
		s.Registries[name] = w.clients[key]
	}
	return s
}

func (r Registry) client(name string) *registryclient.Client {
	return registryclient.New(r.capable(), registryclient.Options{
		Name: name, Timeout: testTimeout, MaxInFlight: cmp.Or(r.MaxInFlight, 1000),
		Fence: r.Fence, DryRun: r.DryRun,
	})
}

// podCaller is a driver without a server.
type podCaller struct {
	registry.Registry
	registry.AppEntrySteerer
}

func (podCaller) Traits() registry.Traits { return registry.Traits{CallsPods: true} }

type follower struct{ registry.Registry }

func (follower) Traits() registry.Traits { return registry.Traits{FollowsCondition: true} }

// capable is the registry with no capability but the given ones.
func (r Registry) capable() registry.Registry {
	switch {
	case r.CallsPods:
		return podCaller{r.Calls, r.Steerer}
	case r.Steerer != nil:
		return struct {
			registry.Registry
			registry.AppEntrySteerer
		}{r.Calls, r.Steerer}
	case r.Lister != nil:
		return struct {
			registry.Registry
			registry.Lister
		}{r.Calls, r.Lister}
	case r.Follows:
		return follower{r.Calls}
	case r.Getter != nil:
		return struct {
			registry.Registry
			registry.Getter
		}{r.Calls, r.Getter}
	case r.Prober != nil:
		return struct {
			registry.Registry
			registry.Prober
		}{r.Calls, r.Prober}
	default:
		return struct{ registry.Registry }{r.Calls}
	}
}

// cluster is what resync has of the world.
func (w *world) cluster() *resync.Cluster {
	return &resync.Cluster{Cache: w.r.Client, Pods: w.r.Pods, API: w.r.APIReader, Synced: func() bool { return true }, Tracker: w.r.Tracker, Claims: w.r.State.Claims, Clock: w.clock}
}

func (w *world) compare(l Listing) Comparison {
	w.Helper()
	l.Names = map[string]bool{}
	for name := range w.settings.Registries {
		l.Names[name] = true
	}
	result, err := w.cluster().Compare(w.Context(), l)
	w.must(err, "comparing")
	return result
}

// fence permits calls unless it is closed.
type fence struct{ closed atomic.Bool }

func (f *fence) Permit(time.Duration) error {
	if f.closed.Load() {
		return errors.New("the lease was not renewed in time")
	}
	return nil
}

func (*fence) MayLand(time.Time) {}
