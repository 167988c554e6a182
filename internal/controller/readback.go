package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// settle returns an empty wait once no call of unknown outcome can have undone, or can still undo, what was acknowledged.
func (r *PodReconciler) settle(ctx context.Context, seen *observation, s step) wait {
	c := seen.page.calls[s.key()]
	asks := seen.page.asks(s.key())
	switch {
	case !c.settled() && (!asks || r.settles(c) > 0):
		return wait{reason: ReasonSettling, after: max(r.settles(c), backoffBase),
			message: s.String() + ": an earlier call timed out and may still be carried out"}
	case asks:
		if missing := r.readBack(ctx, seen, s, c); missing.reason != "" {
			return missing
		}
	}
	if seen.page.foreign[s.registry][s.key()] {
		return alsoRegistersItself(s.target, "its list has an entry of somebody else")
	}
	return wait{}
}

// alsoRegistersItself is why a hook waits while clients are given the pod by an entry that no Rollcall has written: what the
// registry acknowledges says nothing of that one.
func alsoRegistersItself(t target, why string) wait {
	return wait{reason: ReasonAlsoRegistersItself, after: backoffCap, message: fmt.Sprintf(
		"%s: clients are given this address by an entry that Rollcall has not written (%s): turn off the application's own "+
			"registration, see docs/self-registration.md", t, why)}
}

// readBack asks the registry whether it says what it has acknowledged, once nothing can be carried out any more that would
// undo it: an earlier answer would prove nothing. Where it says something else, it is told again and asked again.
func (r *PodReconciler) readBack(ctx context.Context, seen *observation, s step, c *call) wait {
	for toldAgain := false; ; toldAgain = true {
		asked := r.clock.Now()
		state, missing := r.ask(ctx, seen, s)
		switch {
		case missing.reason != "":
			return missing
		case state == registry.Foreign:
			return alsoRegistersItself(s.target, "the registry was asked for it")
		case confirms(state, s.want):
			c.confirmed(asked, r.clock.Now())
			return wait{}
		}
		c.contradicted(state)
		if toldAgain {
			return wait{reason: ReasonNotConfirmed, after: r.backoff.When(seen.pod().UID),
				message: fmt.Sprintf("%s: the registry has acknowledged that it is %s, and says %s", s, s.want, state)}
		}
		if missing := r.call(ctx, seen, s); missing.reason != "" {
			return missing
		}
	}
}

// ask asks what the registry says of an instance. It changes nothing, so a time-out leaves nothing that could land late.
func (r *PodReconciler) ask(ctx context.Context, seen *observation, s step) (registry.State, wait) {
	if told := seen.page.toldToWait(s, r.clock.Now()); told.reason != "" {
		return "", told
	}
	state, err := seen.settings.Registries[s.registry].Get(ctx, r.caller(seen, nil), s.instance)
	switch {
	case err == nil:
		return state, wait{}
	case ctx.Err() != nil:
		return "", stopping()
	}
	return "", r.unanswered(seen, s, err)
}

// confirms reports whether a state is what was wanted. Out of service may be absent: some registries know no such state.
func confirms(state registry.State, want lifecycle.Want) bool {
	switch want {
	case lifecycle.InService:
		return state == registry.InService
	case lifecycle.OutOfService:
		return state == registry.OutOfService || state == registry.Absent
	default:
		return state == registry.Absent
	}
}

// asks reports whether the registry has to be asked for the instance before anything rests on its acknowledgement: a call
// of unknown outcome came before that.
func (p *page) asks(in lifecycle.Recorded) bool {
	c := p.calls[in]
	return c != nil && c.doubtful && p.settings.Registries[in.Registry].Gets()
}

// confirmed notes that the registry, asked at that time, said what is wanted.
func (c *call) confirmed(asked, now time.Time) {
	c.doubtful = false
	// A late call can have put it in since, and another late one have taken it out again.
	if _, wasIn := c.late[lifecycle.InService]; wasIn && len(c.late) > 1 && c.want != lifecycle.InService {
		c.outSince = now
	}
	c.landed(asked)
}

// contradicted notes that the registry says otherwise than it has acknowledged.
func (c *call) contradicted(state registry.State) {
	c.acknowledged = false
	if state == registry.InService {
		c.outSince = time.Time{}
	}
}
