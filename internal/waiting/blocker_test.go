package waiting

import (
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestBlockersTogether(t *testing.T) {
	t.Parallel()
	soon, late, event := Blocker{Reason: "Soon", After: time.Second}, Blocker{Reason: "Late", After: time.Minute}, Blocker{Reason: "Event"}
	type row struct {
		reason     string
		one, other Blocker
		want       Blocker
	}
	expect.Each(t, map[string]row{
		"nothing":             {"nothing is missing", Blocker{}, Blocker{}, Blocker{}},
		"the first":           {"the other has come", soon, Blocker{}, soon},
		"the second":          {"the first has come", Blocker{}, late, late},
		"the sooner is first": {"one look is for both", soon, late, soon},
		"the later is first":  {"the first is shown, and neither waits for the other", late, soon, Blocker{Reason: "Late", After: time.Second}},
		"an event, then time": {"the event may not be about the other", event, late, Blocker{Reason: "Event", After: time.Minute}},
		"a turn to come":      {"what is more than that is shown", Blocker{Reason: reason.Queued, After: time.Second}, late, Blocker{Reason: "Late", After: time.Second}},
		"unasked":             {"a registry has yet to be asked, whichever it is", late, Blocker{Reason: "Other", Unasked: true}, Blocker{Reason: "Late", After: time.Minute, Unasked: true}},
		"time, then an event": {"no event takes the time away", late, event, late},
	}, func(t *testing.T, tc row) {
		if got := First(tc.one, tc.other); got != tc.want {
			t.Errorf("got %+v, want %+v\nreason: %s", got, tc.want, tc.reason)
		}
	})
}

func TestBlockerInPlaceOf(t *testing.T) {
	t.Parallel()
	refused, queued := Blocker{Reason: reason.RegistryRefused, Message: "no", After: time.Minute}, Blocker{Reason: reason.Queued, Unasked: true, After: time.Second}
	late, stopping := Blocker{Reason: reason.ManagerNotReady, Calm: true, After: time.Second}, Stopping()
	hangs := CacheBehind(time.Minute)
	missing := Blocker{Reason: reason.AppNotRegistered, Message: "none", After: 5 * time.Second}
	type row struct {
		reason            string
		now, before, want Blocker
	}
	expect.Each(t, map[string]row{
		"to be asked again": {"nothing new is known", queued, refused, Blocker{Reason: reason.RegistryRefused, Message: "no", After: time.Second}},
		"the application is to be asked for": {"it may have registered or not", late, missing,
			Blocker{Reason: reason.AppNotRegistered, Message: "none", After: time.Second}},
		"the manager stops": {"the call was cut off", stopping, refused, Blocker{Reason: reason.RegistryRefused, Message: "no"}},
		"the cache hangs":   {"a person has to restart the manager", hangs, refused, hangs},
		"asked again":       {"the registry has answered", refused, queued, refused},
		"no call is needed": {"the drain has passed", queued, Blocker{Reason: reason.Draining}, queued},
		"passed":            {"nothing is missing", Blocker{}, refused, Blocker{}},
	}, func(t *testing.T, tc row) {
		if got := tc.now.InPlaceOf(tc.before); got != tc.want {
			t.Errorf("got %+v, want %+v\nreason: %s", got, tc.want, tc.reason)
		}
	})
}

func TestBlockerSay(t *testing.T) {
	t.Parallel()
	now := time.Now()
	refused := Blocker{Hook: lifecycle.PreDelete, Reason: reason.RegistryRefused}
	said := func(b Blocker, at time.Time) Blocker { b.Said = at; return b }
	since := func(ago time.Duration) Blocker { return Blocker{Reason: reason.NotReady, Since: now.Add(-ago)} }
	missing := Blocker{Reason: reason.AppNotRegistered}
	otherName, starting := missing, missing
	otherName.Case, starting.Calm = OtherName, true
	follows := func(ago time.Duration) Blocker {
		return Blocker{Reason: reason.NotEffective, Since: now.Add(-ago), Late: true}
	}
	after := func(b Blocker, d time.Duration) Blocker { b.After = d; return b }
	type row struct {
		reason      string
		now, before Blocker
		want        Blocker
		due         bool
	}
	expect.Each(t, map[string]row{
		"new":          {"a person has to know", refused, Blocker{}, said(refused, now), true},
		"the same":     {"the Event is there", refused, said(refused, now.Add(-time.Minute)), said(refused, now.Add(-time.Minute)), false},
		"another hook": {"the Event names the hook", refused, said(Blocker{Reason: reason.RegistryRefused}, now), said(refused, now), true},
		"no hook any more": {"it says no more than the Event does", Blocker{Reason: reason.RegistryRefused}, said(refused, now),
			said(Blocker{Reason: reason.RegistryRefused}, now), false},
		"for long": {"the API server drops an Event after an hour", refused, said(refused, now.Add(-reason.EventRepeat)), said(refused, now), true},
		"calm":     {"it is part of any rollout", Blocker{Reason: reason.Draining}, said(refused, now), Blocker{Reason: reason.Draining}, false},
		"not for long": {"a pod may start slowly, and is looked at again", since(reason.Patience - time.Second), Blocker{},
			after(since(reason.Patience-time.Second), time.Second), false},
		"too long":       {"the pod is missing", since(reason.Patience), since(0), said(since(reason.Patience), now), true},
		"longer":         {"the Event is there", since(time.Hour), said(since(0), now), said(since(time.Hour), now), false},
		"another case":   {"it is another fact, although the remedy is the same", otherName, said(missing, now), said(otherName, now), true},
		"the same case":  {"the Event is there", otherName, said(otherName, now), said(otherName, now), false},
		"it starts":      {"the application has yet to register", starting, Blocker{}, starting, false},
		"it has started": {"nothing is told of it yet", missing, starting, said(missing, now), true},
		"its clients follow late": {"that is part of any rollout, and looked at again", follows(reason.Patience - time.Second), Blocker{},
			after(follows(reason.Patience-time.Second), time.Second), false},
		"its clients don't follow": {"nothing else shows it", follows(reason.Patience), Blocker{}, said(follows(reason.Patience), now), true},
		"a calm one before": {"the Event of the one before that says Resolved", refused, Blocker{Hook: lifecycle.PreDelete, Reason: reason.Draining},
			said(refused, now), true},
	}, func(t *testing.T, tc row) {
		if got, due := tc.now.Say(tc.before, now); got != tc.want || due != tc.due {
			t.Errorf("got %+v, due %t, want %+v, due %t\nreason: %s", got, due, tc.want, tc.due, tc.reason)
		}
	})
}
