package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// mine is an entry that Rollcall writes.
func mine(service lifecycle.Service, address string) lifecycle.Key {
	return lifecycle.Key{Registry: "default", Service: service, Address: address, Port: 80}
}

// rollcalls is a pod that Rollcall registers as web.
func rollcalls(changes ...with) *steered {
	return steer(append([]with{belongsIn(mine("web", here))}, changes...)...)
}

// recordedNow: the pod's record is of its present stay, and says so.
func recordedNow(want lifecycle.Want, outSince time.Time, entries ...lifecycle.Key) with {
	return func(s *steered) {
		s.f.Record = lifecycle.Record{Version: 1, Stamp: lifecycle.StampOf(s.f.Pod), Want: want, OutSince: &outSince, Instances: entries}
	}
}

// born: it came while this process watched.
func born(s *steered) {
	s.tr = tracker.New()
	s.tr.Arrived(lifecycle.PodID{}, true)
	s.tracked = s.tr.Open(lifecycle.PodID{})
}

// listed: the registry has shown all its entries, and none is the pod's.
func listed(s *steered) { listedBut("")(s) }

// listedBut: it has places, and one was not shown.
func listedBut(place string) with {
	return func(s *steered) {
		l := tracker.Listing{Registry: "default", Names: map[string]bool{"default": true}, Asked: s.now}
		if place != "" {
			l.Coverage = lifecycle.Coverage{Template: "namespace", Places: map[string]bool{place: false, "north": true}}
		}
		s.tr.Compare(l)
	}
}

func TestFacts_Instances(t *testing.T) {
	t.Parallel()
	many := make([]lifecycle.Key, 0, MaxHeard+2)
	for i := range MaxHeard + 2 {
		many = append(many, mine(lifecycle.Service(fmt.Sprintf("forged-%02d", i)), here))
	}
	web, z := mine("web", here), mine("zeta", here)
	type row struct {
		reason  string
		of      *steered
		all     []lifecycle.Key
		unheard []lifecycle.Key
	}
	expect.Each(t, map[string]row{
		"known":    {"what this process did counts", rollcalls(isAcknowledged(web, lifecycle.InService)), one(web), nil},
		"recorded": {"the manager before did", rollcalls(recordedAs(one(z), nil)), one(z), nil},
		"both":     {"it is one entry", rollcalls(isAcknowledged(web, lifecycle.InService), recordedAs(one(web), nil)), one(web), nil},
		"too many": {"a tenant can write records", rollcalls(recordedAs(many, nil)), many[:MaxHeard], many[MaxHeard:]},
		"too many and its own": {"that takes no place among them", rollcalls(recordedAs(append(one(web), many[:MaxHeard]...), nil)),
			append(many[:MaxHeard:MaxHeard], web), nil},
		"too many and a known one": {"the same", rollcalls(isAcknowledged(z, lifecycle.InService), recordedAs(append(one(z), many[:MaxHeard]...), nil)),
			append(many[:MaxHeard:MaxHeard], z), nil},
		"an application's":               {"it is at the pod's address", steer(recordedAs(one(apps("shop", here)), nil)), one(apps("shop", here)), nil},
		"an application's at another's":  {"it carries no mark, and may be another pod's", steer(recordedAs(one(apps("shop", before)), nil)), nil, nil},
		"Rollcall's at a former address": {"it carries the pod's mark", rollcalls(recordedAs(one(mine("web", before)), nil)), one(mine("web", before)), nil},
	}, func(t *testing.T, tc row) {
		all, unheard := tc.of.f.instances()
		expect.Equal(t, tc.all, all, "%s: instances", tc.reason)
		if !slices.Equal(tc.unheard, unheard) {
			t.Errorf("%s: %v are left for the next visit, want %v", tc.reason, unheard, tc.unheard)
		}
	})
}

func TestFacts_OfRecord(t *testing.T) {
	t.Parallel()
	web, shop := mine("web", here), mine("shop", here)
	described := target(web)
	described.Instance.Weight = 7
	many := make([]lifecycle.Key, 0, 2*maxRecalled)
	for i := range 2 * maxRecalled {
		many = append(many, mine(lifecycle.Service(fmt.Sprintf("forged-%03d", i)), here))
	}
	weighs := func(s *steered) { s.f.Targets = []tracker.Target{described} }
	type row struct {
		reason string
		of     *steered
		want   int
		weight int
	}
	expect.Each(t, map[string]row{
		"where it belongs":         {"it is told again as the pod describes it", rollcalls(weighs, recordedNow(lifecycle.InService, time.Time{}, web)), 1, 7},
		"where it belonged":        {"the pod describes it no more", rollcalls(weighs, recordedNow(lifecycle.InService, time.Time{}, shop)), 1, 0},
		"taken out for good":       {"nothing of it is left", rollcalls(recordedNow(lifecycle.Absent, time.Time{}, web)), 0, 0},
		"more than a pod can have": {"a tenant can write records", rollcalls(recordedNow(lifecycle.InService, time.Time{}, many...)), maxRecalled, 0},
	}, func(t *testing.T, tc row) {
		got := tc.of.f.OfRecord()
		if len(got) != tc.want || len(got) > 0 && got[0].Instance.Weight != tc.weight {
			t.Errorf("%s: got %d, %+v", tc.reason, len(got), got)
		}
	})
}

func TestFacts_Has(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		of  *steered
		in  lifecycle.Key
		has bool
	}{
		"it is the pod's":                         {rollcalls(), mine("web", here), true},
		"the pod had it once":                     {rollcalls(), mine("web", before), false},
		"what is gone has none":                   {rollcalls(gone), mine("web", here), false},
		"nothing is at no address":                {rollcalls(noAddress), mine("web", ""), false},
		"a port of the node is the pod's as well": {rollcalls(onItsNode), mine("web", before), true},
	} {
		if got := tc.of.f.Has(tc.in); got != tc.has {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

// renames is a configuration that has dropped the name "old".
type renames struct{ all }

func (renames) Has(registry string) bool { return registry != "old" }

// TestFacts_Instances_Renamed: a registry's former name is known from a list, and counts once the configuration lacks it.
func TestFacts_Instances_Renamed(t *testing.T) {
	t.Parallel()
	web, old := mine("web", before), mine("web", before)
	old.Registry = "old"
	shown := func(s *steered) {
		s.tr.Compare(tracker.Listing{Registry: "default", Names: map[string]bool{"default": true}, Asked: s.now, Entries: []registry.Entry{
			{Instance: registry.Instance{Registry: "old", Service: "shop", Address: here, Port: 80, UID: "2"}, State: registry.InService},
		}})
	}
	f := rollcalls(shown, recordedAs(one(old), nil)).f
	expect.Equal(t, one(old), f.Instances(), "while the configuration has both names")
	f.Configuration = renames{}
	expect.Equal(t, one(web), f.Instances(), "once it has one")
}

func TestFacts_WasInService(t *testing.T) {
	t.Parallel()
	web, shop := mine("web", here), mine("shop", here)
	never := func(s *steered) { s.f.Record.NeverInService = true }
	for reason, tc := range map[string]struct {
		of  *steered
		was bool
	}{
		"this process put it in":                   {rollcalls(isAcknowledged(web, lifecycle.InService), isAcknowledged(web, lifecycle.Absent)), true},
		"this process only took it out":            {rollcalls(isAcknowledged(web, lifecycle.Absent)), false},
		"by the record":                            {rollcalls(recordedNow(lifecycle.InService, time.Time{}, web)), true},
		"by the record it was elsewhere":           {rollcalls(recordedNow(lifecycle.InService, time.Time{}, shop)), false},
		"by the record the pod was only taken out": {rollcalls(recordedNow(lifecycle.OutOfService, time.Time{}, web), never), false},
		"nothing is known":                         {rollcalls(), false},
	} {
		if got := tc.of.f.WasInService(web); got != tc.was {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

func TestEntry_neverThere(t *testing.T) {
	t.Parallel()
	web := mine("web", here)
	expectEach(t, entry.neverThere, map[string]answer{
		"new, to stay out":           {"no manager called a registry for it", rollcalls(born), web, lifecycle.OutOfService, true},
		"new, to go in":              {"that takes a call", rollcalls(born), web, lifecycle.InService, false},
		"older":                      {"a manager before may have registered it", rollcalls(), web, lifecycle.OutOfService, false},
		"new, and called for":        {"this process did", rollcalls(born, isAcknowledged(web, lifecycle.OutOfService)), web, lifecycle.OutOfService, false},
		"new, for a hook":            {"the first watch may lag behind the leader before", rollcalls(born), web, lifecycle.Absent, false},
		"new, for an update's hook":  {"the same", rollcalls(born, leaving), web, lifecycle.OutOfService, false},
		"new, with another's record": {"somebody wrote that", rollcalls(born, recordedNow(lifecycle.OutOfService, time.Time{})), web, lifecycle.OutOfService, false},
		"new, for a hook, listed":    {"the list shows that nobody registered it", rollcalls(born, listed), web, lifecycle.Absent, true},
		"an application's, listed":   {"no list shows what applications register", steer(born, listed), apps("web", here), lifecycle.Absent, false},
	})
}

func TestEntry_outSince(t *testing.T) {
	t.Parallel()
	web, shop := mine("web", here), mine("shop", here)
	since := time.Unix(999_000, 0)
	ofAnotherStay := func(s *steered) {
		s.f.Pod.Labels = map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingUpdate)}
	}
	type row struct {
		reason string
		of     *steered
		in     lifecycle.Key
		says   bool
	}
	absent := func(entries ...lifecycle.Key) with { return recordedNow(lifecycle.Absent, since, entries...) }
	expect.Each(t, map[string]row{
		"recorded":             {"the drain goes on", rollcalls(leaving, absent(web)), web, true},
		"of another entry":     {"this one was elsewhere", rollcalls(leaving, absent(shop)), web, false},
		"as out of service":    {"it is to go now, which was not asked before", rollcalls(leaving, recordedNow(lifecycle.OutOfService, since, web)), web, false},
		"of another stay":      {"the pod may have been in service since", rollcalls(leaving, absent(web), ofAnotherStay), web, false},
		"may be in rotation":   {"a manager may have put it back", rollcalls(absent(web)), web, false},
		"an application's":     {"it may have put itself back", steer(leaving, absent(apps("web", here))), apps("web", here), false},
		"nothing was recorded": {"nothing is known", rollcalls(leaving), web, false},
	}, func(t *testing.T, tc row) {
		got := tc.of.f.entry(tc.in).outSince(lifecycle.Absent)
		if (got != nil && got.Equal(since)) != tc.says {
			t.Errorf("%s: got %v", tc.reason, got)
		}
	})
}

func TestFacts_Arrived(t *testing.T) {
	t.Parallel()
	web, pay := mine("web", here), mine("pay", here)
	undescribed := func(s *steered) { s.f.Undescribed = true }
	told := func(s *steered) { s.f.Targets[0].Instance.Weight = 7 }
	for reason, tc := range map[string]struct {
		of      *steered
		arrived bool
	}{
		"it is where it belongs":               {rollcalls(isAcknowledged(web, lifecycle.InService)), true},
		"it was never put there":               {rollcalls(), false},
		"one of two has yet to answer":         {rollcalls(belongsIn(web, pay), isAcknowledged(web, lifecycle.InService)), false},
		"it may belong to others as well":      {rollcalls(isAcknowledged(web, lifecycle.InService), undescribed), false},
		"the registry was told another weight": {rollcalls(isAcknowledged(web, lifecycle.InService), told), false},
	} {
		if got := tc.of.f.Arrived(); got != tc.arrived {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

func TestFacts_listed(t *testing.T) {
	t.Parallel()
	east := mine(lifecycle.Service("east/web"), here)
	for reason, tc := range map[string]struct {
		of     *steered
		listed bool
	}{
		"nothing was":                            {rollcalls(), false},
		"nothing was, and it belongs nowhere":    {rollcalls(belongsIn()), false},
		"all was":                                {rollcalls(listed), true},
		"the place where it belongs was not":     {rollcalls(listedBut("east"), belongsIn(east)), false},
		"another place was not":                  {rollcalls(listedBut("west"), belongsIn(mine("north/web", here))), true},
		"its application's is in no list anyway": {steer(listedBut("east"), belongsIn(apps("east/web", here))), true},
	} {
		if got := tc.of.f.listed("default"); got != tc.listed {
			t.Errorf("%s: got %t", reason, got)
		}
	}
	other := mine("east/web", here)
	other.Registry = "other"
	if f := rollcalls(listedBut("east"), belongsIn(other)).f; !f.listed("default") {
		t.Error("what another registry has yet to show holds this one")
	}
}
