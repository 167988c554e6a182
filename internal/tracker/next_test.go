package tracker

import (
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestNext has, for each row, what happened to an entry that is to be absent, and the step that follows.
func TestNext(t *testing.T) {
	t.Parallel()
	const client, renewed = "the client", "one with other credentials"
	now := epoch().Add(time.Minute)
	want := func(g *Goal) { g.Want = lifecycle.InService }
	otherwise := func(g *Goal) { g.Told.Weight = 7 }
	mute, sees := func(g *Goal) { g.Gets = false }, func(g *Goal) { g.MustBeSeen = true }
	all := func(of ...func(*Goal)) func(*Goal) {
		return func(g *Goal) {
			for _, one := range of {
				one(g)
			}
		}
	}
	registered := Instance{}.begin(lifecycle.InService, in(), epoch()).acknowledge(epoch())
	removed := Instance{}.begin(lifecycle.Absent, in(), epoch()).acknowledge(epoch())
	found := removed
	found.seen = found.saw(epoch())
	// after is a removal that was acknowledged after a Register that may be carried out until lands; zero where it did not time out.
	after := func(lands time.Time) Instance {
		return Instance{}.begin(lifecycle.InService, in(), epoch()).fail(lands).begin(lifecycle.Absent, in(), epoch()).acknowledge(epoch())
	}
	late, soon := after(now.Add(time.Second)), after(now)
	postponed := func(i Instance, change lifecycle.Want) Instance {
		i.postponed = &Postponement{Want: change, Through: client, Until: now.Add(time.Second), Reason: reason.RegistryRefused}
		return i
	}
	wait := func(why Cause, d time.Duration) Step { return Step{Act: Wait, Cause: why, After: d} }
	act := func(a Act) Step { return Step{Act: a} }
	type row struct {
		reason string
		known  Instance
		goal   func(*Goal)
		want   Step
	}
	expect.Each(t, map[string]row{
		"unknown":                     {"a record is a hint, and absence is no acknowledgement", Instance{}, nil, act(Change)},
		"listed":                      {"the same", Instance{kept: kept{listed: &Sighting{State: registry.OutOfService}}}, nil, act(Change)},
		"acknowledged":                {"one call is enough", removed, nil, act(Nothing)},
		"in service":                  {"the same", registered, want, act(Nothing)},
		"in service, to be taken out": {"its hook waits for that", registered, nil, act(Change)},
		"in service, otherwise":       {"clients are given the weight", registered, all(want, otherwise), act(Change)},
		"out, otherwise":              {"nobody is given the weight", removed, otherwise, act(Nothing)},
		"failed":                      {"it may have been done, or not", Instance{}.begin(lifecycle.Absent, in(), epoch()).fail(now), nil, act(Change)},

		"a Register may still land":                 {"it would put the pod in again", late, nil, wait(Settling, time.Second)},
		"a Register may still land, mute registry":  {"the same", late, mute, wait(Settling, time.Second)},
		"a Register may have landed":                {"it may have put the pod in since", soon, nil, act(Ask)},
		"a Register may have landed, mute registry": {"what can't be asked is told again", soon, mute, act(Change)},
		"a Register failed":                         {"it may have been done after the removal", after(time.Time{}), nil, act(Ask)},
		"a Register failed, mute registry":          {"a failure is over by the next call", after(time.Time{}), mute, act(Nothing)},
		"the registry says it is absent":            {"nothing is pending", soon.confirm(now), nil, act(Nothing)},
		"the registry says it is in":                {"it is taken out again", soon.contradict(registry.InService), nil, act(Change)},
		"it said so twice": {
			"something puts it back as fast as it is taken out", soon.contradict(registry.InService),
			func(g *Goal) { g.Contradicted = 2 }, wait(NotConfirmed, 0),
		},

		"postponed":                   {"an event must not bring it sooner", postponed(Instance{}, lifecycle.Absent), nil, wait(Postponed, time.Second)},
		"postponed, to be asked":      {"a question is a call too", postponed(soon, lifecycle.Absent), nil, wait(Postponed, time.Second)},
		"postponed, and acknowledged": {"no call is needed", postponed(removed, lifecycle.Absent), nil, act(Nothing)},
		"another change was postponed": {
			"a registry that takes no more instances must not keep a deleted pod in", postponed(Instance{}, lifecycle.InService), nil, act(Change),
		},
		"postponed for another client": {
			"its credentials may have been the reason", postponed(Instance{}, lifecycle.Absent),
			func(g *Goal) { g.Through = renewed }, act(Change),
		},

		"never seen":               {"absence is an acknowledgement only of what was seen", removed, sees, act(Ask)},
		"never seen, and asked":    {"clients may be given the pod elsewhere", removed, all(sees, func(g *Goal) { g.Asked = true }), wait(Unseen, 0)},
		"seen":                     {"it was there and is not any more", found, sees, act(Nothing)},
		"never seen, not told":     {"the change comes first", Instance{}, sees, act(Change)},
		"given by another":         {"what the registry acknowledged says nothing of that entry", removed, func(g *Goal) { g.Given = true }, wait(GivenByAnother, 0)},
		"given by another, as yet": {"the change comes first", registered, func(g *Goal) { g.Given = true }, act(Change)},
	}, func(t *testing.T, tc row) {
		g := Goal{Want: lifecycle.Absent, Told: in(), Through: client, Gets: true}
		if tc.goal != nil {
			tc.goal(&g)
		}
		got := tc.known.Next(g, now)
		if got.Said = (Postponement{}); got != tc.want {
			t.Errorf("got %+v, want %+v: %s", got, tc.want, tc.reason)
		}
		if g.Asked, g.Contradicted, g.Given, g.MustBeSeen = false, 0, false, false; (tc.known.Next(g, now).Act == Nothing) != tc.known.Certain(g) {
			t.Errorf("it is certain: %t, and the next step is %+v", tc.known.Certain(g), got)
		}
	})
}
