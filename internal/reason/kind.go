package reason

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// EventRepeat is after how long an Event is made again whose reason stays: the API server drops Events after an hour.
const EventRepeat = 30 * time.Minute

// Patience is how long a reason that is [Reason.Late] lasts before its Event. A pod that starts slowly makes none, and the alert comes
// with it.
const Patience = 10 * time.Minute

// kind is how a reason is shown, and what ends it. The zero value makes no Event and passes by itself.
type kind struct {
	// event is the type of the Event; empty for none.
	event string
	// late: the Event comes after [Patience].
	late bool
	// momentary: it happened, and does not last.
	momentary bool
	// common: the cause is in the API server or the manager.
	common bool
	// unasked: the registry has yet to be asked.
	unasked bool
	// answered: only another call can tell that it has passed.
	answered bool
	// registry: a registry that was asked, or its agent, holds the pod.
	registry bool
	// app: an application has not registered.
	app bool
}

// kind is the table of reasons: a new one is a line here, and is explained where it is declared.
//
//nolint:gocyclo // a table
func (r Reason) kind() kind {
	const warning, normal = corev1.EventTypeWarning, corev1.EventTypeNormal
	switch r {
	case RegistryUnavailable, RegistryRefused, NotConfirmed, NotEffective, AlsoRegistersItself:
		return kind{event: warning, registry: true, answered: true}
	case AppNotRegistered:
		return kind{event: warning, registry: true, answered: true, app: true}
	case RightsMissing:
		return kind{event: warning, registry: true, answered: true, common: true}
	case UnknownRegistry:
		return kind{event: warning, registry: true}
	case Settling:
		return kind{registry: true}
	case NotReady, NoAddress, AwaitingOpenKruise:
		return kind{event: warning, late: true}
	case APIServerFailed:
		return kind{event: warning, common: true}
	case ManagerNotReady:
		return kind{event: warning, common: true, unasked: true}
	case OtherWriter, ReleasedUnacknowledged, SkipRefused, HandlerInTemplate, DrainTimeout:
		return kind{event: warning, momentary: true}
	case EvictionHooked, RolloutProgress:
		return kind{event: normal, momentary: true}
	case HeldOut, Resolved:
		return kind{event: normal}
	case Queued:
		return kind{unasked: true}
	case "", Draining, WarmingUp, DryRun, AppEntryRemains, Acknowledgement, NotWatched:
		return kind{}
	case InvalidPod, ServiceNotAllowed, HandlerRefused, UnknownState, HeldNotReady, PanicThreshold, Ending, Orphaned, RolloutWaits,
		NotEnrolled, HooksRemoved:
		return kind{event: warning}
	}
	return kind{event: warning} // of a newer manager, as the plugin reads it
}

// Event returns the type of the Event that shows the reason, or nothing if none does. That of a reason that is [Reason.Late] comes
// later.
func (r Reason) Event() string { return r.kind().event }

// Common reports whether the cause is in the API server or the manager, so that it likely concerns many pods at the same time.
func (r Reason) Common() bool { return r.kind().common }

// Late reports whether the reason is part of any rollout and makes its Event only once it has lasted for [Patience]: Rollcall has done
// its part, and waits for the pod or for OpenKruise.
func (r Reason) Late() bool { return r.kind().late }

// Momentary reports whether an Event of the reason reports what happened, and neither that the pod waits nor that it no longer does.
func (r Reason) Momentary() bool { return r.kind().momentary }

// Releases reports whether OpenKruise continued without the registry's word.
func (r Reason) Releases() bool { return r == ReleasedUnacknowledged }

// BeforeTheCall reports whether the registry has yet to be asked, so that nothing is known of it but what was before.
func (r Reason) BeforeTheCall() bool { return r.kind().unasked }

// NeedsAnotherCall reports whether only another call can tell that the reason has passed.
func (r Reason) NeedsAnotherCall() bool { return r.kind().answered }

// OfRegistry reports whether the pod waits for a registry that was asked. A missing slot does not count: after a start, most
// pods of a storm would be released before their registry was asked.
func (r Reason) OfRegistry() bool { return r.kind().registry }

// OfApp reports whether the pod waits for the entry of an application that registers itself.
func (r Reason) OfApp() bool { return r.kind().app }
