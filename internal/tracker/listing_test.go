package tracker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// scene is a pod that is looked at, to which steps happen one after the other, a second each.
type scene struct {
	tr  *Tracker
	pod *Pod
	now time.Time
	// found is what came of the last list.
	found Comparison
}

type step func(*scene)

func play(steps []step) *scene {
	tr := New()
	s := &scene{tr: tr, pod: tr.Open(Target{Instance: in()}.Pod()), now: epoch()}
	for _, step := range steps {
		s.now = s.now.Add(time.Second)
		step(s)
	}
	return s
}

func told(weight int) registry.Instance {
	told := in()
	told.Weight, told.Registry = weight, "default"
	return told
}

// acknowledged has a change made and acknowledged.
func acknowledged(want lifecycle.Want, weight int) step {
	return func(s *scene) {
		if want == lifecycle.Absent {
			s.pod.LetGo(key())
		}
		s.pod.Begin(key(), want, told(weight), s.now)
		s.pod.Acknowledged(key(), s.now)
	}
}

// lists has a list answer, with the pod's entry as it says.
func lists(state registry.State, weight int, change ...func(*Listing)) step {
	return func(s *scene) {
		l := listed(state, s.now)
		for i := range l.Entries {
			l.Entries[i].Instance = told(weight)
		}
		for _, c := range change {
			c(&l)
		}
		s.tr.TakeDoubted()
		s.found = s.tr.Compare(l)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	const in, out, absent = registry.InService, registry.OutOfService, registry.Absent
	registered, removed := acknowledged(lifecycle.InService, 7), acknowledged(lifecycle.Absent, 7)
	drained := acknowledged(lifecycle.OutOfService, 7)
	old := func(l *Listing) { l.Staleness = 2 * time.Second }
	stray := func(l *Listing) {
		l.Entries = append(l.Entries, l.Entries[0])
		l.Entries[1].Service = "api"
	}
	letsGo := func(s *scene) { s.pod.LetGo(key()) }
	begunOut := func(s *scene) { s.pod.Begin(key(), lifecycle.OutOfService, told(7), s.now) }
	begun := func(s *scene) { s.pod.Begin(key(), lifecycle.InService, told(7), s.now) }
	type outcome struct {
		different, missing, missed, doubtful, standing int
		stands                                         lifecycle.Want
	}
	isIn, isOut := outcome{standing: 1, stands: lifecycle.InService}, outcome{standing: 1, stands: lifecycle.OutOfService}
	differs, isMissing := outcome{different: 1, doubtful: 1, standing: 1}, outcome{missing: 1, missed: 1}
	isBoth := outcome{doubtful: 1, standing: 2, stands: lifecycle.InService}
	type row struct {
		reason string
		steps  []step
		want   outcome
	}
	expect.Each(t, map[string]row{
		"as it was acknowledged":   {"nothing is to be done", []step{registered, lists(in, 7)}, isIn},
		"taken out":                {"somebody has done it", []step{registered, lists(out, 7)}, differs},
		"with another weight":      {"somebody has changed it", []step{registered, lists(in, 3)}, differs},
		"put in":                   {"somebody has done it", []step{drained, lists(in, 7)}, differs},
		"out with another weight":  {"clients are not given it", []step{drained, lists(out, 3)}, isOut},
		"put in again":             {"somebody has done it", []step{removed, lists(in, 7)}, differs},
		"listed twice":             {"what is known stays", []step{registered, lists(in, 7), lists(in, 7)}, isIn},
		"with a second entry":      {"it has to be looked at, and the first is there", []step{registered, lists(in, 7, stray)}, isBoth},
		"never acknowledged":       {"it has to be looked at, and nothing differs", []step{lists(in, 7)}, outcome{doubtful: 1, standing: 1}},
		"of unknown outcome":       {"the same", []step{begun, lists(in, 7)}, outcome{doubtful: 1, standing: 1}},
		"let go":                   {"it is on its way out", []step{registered, letsGo, lists(out, 7)}, outcome{standing: 1}},
		"listed before the change": {"the change counts", []step{registered, lists(out, 7, old)}, isIn},
		"left since the list":      {"it is there no more", []step{removed, lists(in, 7, old)}, outcome{stands: lifecycle.Absent}},
		"entered since the list":   {"its name counts", []step{registered, lists(in, 7, old)}, isIn},

		"without a place for a weight": {
			"a third Register would change nothing either", []step{registered, lists(in, 0), registered, lists(in, 0)},
			isIn,
		},
		"with a third weight": {
			"so there is a place", []step{registered, lists(in, 0), registered, lists(in, 3)}, differs,
		},
		"with a place, after all": {
			"it was there", []step{registered, lists(in, 0), registered, lists(in, 7), lists(in, 0)}, differs,
		},
		"after another weight was asked for": {
			"the registry may have a place for that", []step{registered, lists(in, 0), acknowledged(lifecycle.InService, 8), lists(in, 0)},
			differs,
		},

		"missing":                       {"it is registered again", []step{registered, lists(absent, 0)}, isMissing},
		"missing, and once more":        {"it is known", []step{registered, lists(absent, 0), lists(absent, 0)}, outcome{}},
		"out of service, and missing":   {"no client misses it", []step{drained, lists(absent, 0)}, outcome{stands: lifecycle.OutOfService}},
		"missing while it is taken out": {"it is missing, and what is wanted is not", []step{registered, begunOut, lists(absent, 0)}, isMissing},
		"not in a list of before": {
			"the change counts", []step{registered, lists(absent, 0, old)}, outcome{stands: lifecycle.InService},
		},
	}, func(t *testing.T, tc row) {
		s := play(tc.steps)
		missed, doubtful := s.tr.TakeDoubted()
		got := outcome{s.found.Different, len(s.found.Missing), len(missed), len(doubtful), len(s.found.Standing), ""}
		if want, acknowledged := s.pod.Standing(key()).shows(); acknowledged && s.pod.Standing(key()).attempted() {
			got.stands = want
		}
		if got != tc.want {
			t.Errorf("got %+v, want %+v: %s", got, tc.want, tc.reason)
		}
	})
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	const in, out, absent = registry.InService, registry.OutOfService, registry.Absent
	confirms := func(l *Listing) { l.Confirms = true }
	starts := func(s *scene) { s.tr = New() } // a process that has come to no pod
	type row struct {
		reason string
		steps  []step
		want   bool
	}
	expect.Each(t, map[string]row{
		"in service":                    {"a new manager need not register it", []step{lists(in, 7, confirms)}, true},
		"in a list that confirms not":   {"it may be stale, or the entry another process's", []step{lists(in, 7)}, false},
		"out of service":                {"the pod is to be in service", []step{lists(out, 7, confirms)}, false},
		"with another weight":           {"clients read that", []step{lists(in, 3, confirms)}, false},
		"in no list":                    {"nothing is known", nil, false},
		"before the first look":         {"the list has waited for it", []step{starts, lists(in, 7, confirms)}, true},
		"out, and then in service":      {"the youngest list counts", []step{lists(out, 7, confirms), lists(in, 7, confirms)}, true},
		"in service, and then missing":  {"the youngest list counts", []step{lists(in, 7, confirms), lists(absent, 0)}, false},
		"missing before the first look": {"the same", []step{starts, lists(in, 7, confirms), lists(absent, 0)}, false},
	}, func(t *testing.T, tc row) {
		s := play(tc.steps)
		pod := s.tr.Open(Target{Instance: told(7)}.Pod())
		got := pod.Adopt(Target{Registry: "default", Instance: told(7)})
		stands := pod.Standing(key())
		if got != tc.want || stands.Says(lifecycle.InService, told(7)) != tc.want || stands.AcknowledgedAt.Equal(s.now) != tc.want {
			t.Errorf("adopted %t: %+v, want %t: %s", got, stands, tc.want, tc.reason)
		}
		if kept := len(s.tr.Kept("default")); (kept == 1) != tc.want {
			t.Errorf("%d entries are kept alive: %s", kept, tc.reason)
		}
	})
}

// TestCompareBeforeTheFirstLook: whether such a pod is there has to be found out.
func TestCompareBeforeTheFirstLook(t *testing.T) {
	t.Parallel()
	tr := New()
	for looks := range 2 {
		got := tr.Compare(listed(registry.InService, epoch()))
		_, doubtful := tr.TakeDoubted()
		if len(got.Unknown) != 1-looks || len(doubtful) != looks || len(tr.Signal) != looks {
			t.Errorf("after %d looks: got %+v, and %v are to be looked at, with %d signals", looks, got, doubtful, len(tr.Signal))
		}
		tr.Open(Target{Instance: in()}.Pod())
	}
}

func TestRecordIsRecalledOnce(t *testing.T) {
	t.Parallel()
	s := play(nil)
	recall := func() int {
		s.pod.Recall(lifecycle.InService, func() []Target { return []Target{{Registry: "default", Instance: told(7)}} }, s.now)
		return len(s.tr.Kept("default"))
	}
	if kept := recall(); kept != 1 {
		t.Errorf("%d entries are kept alive, want the recorded one", kept)
	}
	s.pod.LetGo(key())
	if kept := recall(); kept != 0 {
		t.Errorf("%d entries are kept alive, want none: it is taken away", kept)
	}
}

// TestShownByTheListThatWasAskedForFirst: it may be compared last.
func TestShownByTheListThatWasAskedForFirst(t *testing.T) {
	t.Parallel()
	tr := New()
	p := tr.Open(lifecycle.PodID{UID: "1"})
	for _, name := range []string{"second", "first"} {
		l := Listing{Registry: name, Asked: epoch()}
		if name == "second" {
			l.Asked = epoch().Add(time.Millisecond)
		}
		tr.Compare(l)
		if !p.Known().Shown(lifecycle.Key{Registry: name, Service: "web"}) {
			t.Errorf("the list of the %s registry shows nothing of what leaders before this one left", name)
		}
	}
}

// TestShownOnceAListCanNotBeOlder: what a registry lists may be from before this process led.
func TestShownOnceAListCanNotBeOlder(t *testing.T) {
	t.Parallel()
	tr := New()
	p := tr.Open(lifecycle.PodID{UID: "1"})
	for _, later := range []time.Duration{0, time.Minute} {
		tr.Compare(Listing{Registry: "default", Asked: epoch().Add(later), Staleness: time.Minute})
		expect.Equal(t, later > 0, p.Known().Listed("default"), "a list %s after the first shows what leaders before this one left", later)
	}
}

// TestForeignNames: an instance need not be known when the list comes that has its endpoint.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	comes := func(s *scene) { s.tr.Arrived(Target{Instance: in()}.Pod(), true) }
	opens := func(s *scene) { s.pod = s.tr.Open(Target{Instance: in()}.Pod()) }
	starts := func(s *scene) { s.tr = New() }
	has := func(names ...string) step {
		return func(s *scene) {
			l := Listing{Registry: "default", Asked: s.now}
			for _, name := range names {
				l.Foreign = append(l.Foreign, registry.Entry{Instance: registry.Instance{Service: name, Address: in().Address, Port: in().Port}})
			}
			s.tr.TakeDoubted()
			s.tr.Compare(l)
		}
	}
	copied := func(names ...string) step {
		return func(s *scene) {
			l := Listing{Registry: "default", Names: map[string]bool{"default": true, "new": true}, Asked: s.now}
			for _, name := range names {
				of := in()
				of.Registry = name
				l.Foreign = append(l.Foreign, registry.Entry{Instance: of, ID: "copy"})
			}
			s.tr.TakeDoubted()
			s.tr.Compare(l)
		}
	}
	begun := func(s *scene) { s.pod.Begin(key(), lifecycle.InService, told(7), s.now) }
	type row struct {
		reason   string
		steps    []step
		registry string
		want     string
		looks    bool
	}
	expect.Each(t, map[string]row{
		"no instance is known":             {"it may be known later", []step{has("web", "api")}, "default", "[api web]", false},
		"before the first look":            {"a leader's first list comes before that", []step{starts, has("web"), opens}, "default", "[web]", false},
		"of a pod that came after":         {"whoever had its address before", []step{starts, has("web"), comes, opens}, "default", "[]", false},
		"of a pod that came before":        {"clients are given it", []step{starts, comes, has("web"), opens}, "default", "[web]", false},
		"of a pod that came before, again": {"the last list counts", []step{starts, has("web"), comes, opens, has("web")}, "default", "[web]", false},
		"new":                              {"it has to be looked at", []step{begun, has("web")}, "default", "[web]", true},
		"as before":                        {"that is known", []step{begun, has("web"), has("web")}, "default", "[web]", false},
		"gone":                             {"its hook may go on", []step{begun, has("web"), has()}, "default", "[]", true},
		"the application's":                {"it is as expected", []step{has("web")}, "default by app", "[]", false},
		"the application's, twice":         {"there is one too many", []step{has("web", "web")}, "default by app", "[web web]", false},
		"with our tag":                     {"no call removes it", []step{begun, copied("default", "", "gone")}, "default", "[web web web]", true},
		"with our tag, of another section": {"its registry is asked about it", []step{begun, copied("new")}, "default", "[]", false},
		"with our tag, an application's":   {"the application did not write it", []step{begun, copied("default")}, "default by app", "[web]", true},
		"the application's, another name":  {"it is not found by the pod's", []step{has("api")}, "default by app", "[api]", false},
	}, func(t *testing.T, tc row) {
		s := play(tc.steps)
		at := key()
		var byApp bool
		if at.Registry, byApp = strings.CutSuffix(tc.registry, " by app"); byApp {
			at.Writer = lifecycle.Application
		}
		if got := fmt.Sprint(s.pod.ForeignNames(at)); got != tc.want {
			t.Errorf("got %s, want %s: %s", got, tc.want, tc.reason)
		}
		if _, doubtful := s.tr.TakeDoubted(); len(doubtful) > 0 != tc.looks {
			t.Errorf("%v are to be looked at, want any: %t: %s", doubtful, tc.looks, tc.reason)
		}
	})
}

// TestForeignIsKeptOnlyOfListedRegistries: a record, which a tenant can write, names registries that there never were.
func TestForeignIsKeptOnlyOfListedRegistries(t *testing.T) {
	t.Parallel()
	tr := New()
	opens := func() *Pod { return tr.Open(Target{Instance: in()}.Pod()) }
	opens().Recall(lifecycle.InService, func() []Target {
		return []Target{{Registry: "forged", Instance: in()}, {Registry: "default", Instance: in()}}
	}, epoch())
	opens()
	if len(tr.lists.foreign) > 0 {
		t.Errorf("%d registries are kept, want none: no list has come", len(tr.lists.foreign))
	}
}

// TestMark: under which name an entry was written is what its removal has to say.
func TestMark(t *testing.T) {
	t.Parallel()
	const in, out, absent = registry.InService, registry.OutOfService, lifecycle.Absent
	registered, removed := acknowledged(lifecycle.InService, 7), acknowledged(absent, 7)
	begun := func(s *scene) { s.pod.Begin(key(), lifecycle.InService, told(7), s.now) }
	marked := func(l *Listing) { l.Entries[0].Registry = "former" }
	old := func(l *Listing) { l.Staleness, l.Entries[0].Registry = 2*time.Second, "former" }
	type row struct {
		reason string
		steps  []step
		want   string
	}
	expect.Each(t, map[string]row{
		"nothing known":           {"no list has it", nil, "default"},
		"registered":              {"it was written so", []step{registered}, "default"},
		"listed":                  {"another process wrote it", []step{lists(in, 7, marked)}, "former"},
		"listed out of service":   {"so it is there", []step{lists(out, 7, marked)}, "former"},
		"listed, then begun":      {"it may not have been written", []step{lists(in, 7, marked), begun}, ""},
		"listed, begun, listed":   {"it may be written yet", []step{lists(in, 7, marked), begun, lists(in, 7, marked)}, ""},
		"listed, begun, there":    {"it was written", []step{lists(in, 7, marked), begun, lists(in, 7)}, "default"},
		"listed, begun, removed":  {"it may be written yet", []step{lists(in, 7, marked), begun, removed}, ""},
		"listed, then registered": {"that has changed the mark", []step{lists(in, 7, marked), registered}, "default"},
		"listed before":           {"the change counts", []step{registered, lists(in, 7, old)}, "default"},
	}, func(t *testing.T, tc row) {
		if got := play(tc.steps).pod.Known().Mark(key()); got != tc.want {
			t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
		}
	})
}

// covering has a list of places, and whether each answered.
func covering(places map[string]bool) func(*Listing) {
	return func(l *Listing) { l.Coverage = lifecycle.Coverage{Template: "{namespace}", Places: places} }
}

// TestListThatDoesNotCoverAPlaceProvesNothingOfIt: the namespace's label may have changed to a place that the registry refuses, and
// without heartbeats the entries in the old one expire.
func TestListThatDoesNotCoverAPlaceProvesNothingOfIt(t *testing.T) {
	t.Parallel()
	at := key()
	at.Service = "old/web"
	type row struct {
		reason   string
		coverage func(*Listing)
		missing  int
	}
	expect.Each(t, map[string]row{
		"it answered":      {"the entry is not there", covering(map[string]bool{"old": true}), 1},
		"it did not":       {"what it has is not known", covering(map[string]bool{"old": false, "new": true}), 0},
		"it was not asked": {"the same", covering(map[string]bool{"new": true}), 0},
	}, func(t *testing.T, tc row) {
		in := told(7)
		in.Service = string(at.Service)
		s := play([]step{func(s *scene) {
			s.pod.Begin(at, lifecycle.InService, in, s.now)
			s.pod.Acknowledged(at, s.now)
		}, lists(registry.Absent, 0, tc.coverage)})
		if got := len(s.found.Missing); got != tc.missing {
			t.Errorf("%d are missing, want %d: %s", got, tc.missing, tc.reason)
		}
		if kept := len(s.tr.Kept("default")); kept != 1-tc.missing {
			t.Errorf("%d entries are kept alive, want %d: %s", kept, 1-tc.missing, tc.reason)
		}
		if stands := s.pod.Standing(at).Stands(lifecycle.InService); stands != (tc.missing == 0) {
			t.Errorf("acknowledged: %t: %s", stands, tc.reason)
		}
	})
}

// TestShownIsWhatListsCover: an earlier leader may have registered a pod in a place that did not answer.
func TestShownIsWhatListsCover(t *testing.T) {
	t.Parallel()
	tr := New()
	p := tr.Open(lifecycle.PodID{UID: "1"})
	l := Listing{Registry: "default", Asked: epoch()}
	covering(map[string]bool{"a": true, "b": false})(&l)
	tr.Compare(l)
	known := p.Known()
	for service, want := range map[lifecycle.Service]bool{"a/web": true, "b/web": false, "c/web": false, "web": false} {
		if known.Shown(lifecycle.Key{Registry: "default", Service: service}) != want {
			t.Errorf("%s is shown, or not: want %t", service, want)
		}
	}
	if !known.Listed("default") || known.Listed("other") || known.Shown(lifecycle.Key{Registry: "other", Service: "a/web"}) {
		t.Error("one registry was listed, and the other was not")
	}
}

// TestPlaceThatDoesNotAnswerKeepsWhatWasSeenThere: a hook that waits for another's entry to go is not released because of an error.
func TestPlaceThatDoesNotAnswerKeepsWhatWasSeenThere(t *testing.T) {
	t.Parallel()
	at := key()
	at.Service = "a/web"
	has := func(places map[string]bool, foreign ...registry.Entry) step {
		return func(s *scene) {
			l := Listing{Registry: "default", Asked: s.now, Foreign: foreign}
			covering(places)(&l)
			s.tr.Compare(l)
		}
	}
	there := registry.Entry{Instance: registry.Instance{
		Service: string(at.Service), Address: at.Address, Port: at.Port, Metadata: map[string]string{registry.MetaIPv6: "fd00::1"},
	}}
	answers, fails := map[string]bool{"a": true}, map[string]bool{"a": false, "b": true}
	type row struct {
		reason string
		steps  []step
		want   bool
	}
	expect.Each(t, map[string]row{
		"it answers":                  {"it is there", []step{has(answers, there)}, true},
		"it fails":                    {"it may be there", []step{has(answers, there), has(fails)}, true},
		"it fails twice":              {"the same", []step{has(answers, there), has(fails), has(fails)}, true},
		"it answers again":            {"it is gone", []step{has(answers, there), has(fails), has(answers)}, false},
		"nobody asks for it any more": {"no pod can be given there", []step{has(answers, there), has(map[string]bool{"b": true})}, false},
	}, func(t *testing.T, tc row) {
		s := play(tc.steps)
		if got := len(s.pod.Foreign(at)) > 0; got != tc.want || s.pod.ForeignIPv6(at) != tc.want {
			t.Errorf("foreign: %t, want %t: %s", got, tc.want, tc.reason)
		}
		if !tc.want && !s.tr.lists.foreign["default"].isEmpty() {
			t.Errorf("something of it is kept: %s", tc.reason)
		}
	})
}

// TestUnopenedPodsKeepWhatAPlaceListedThatDoesNotAnswer: a new leader may not have come to the pod yet.
func TestUnopenedPodsKeepWhatAPlaceListedThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	listing := func(places map[string]bool, services ...string) Listing {
		l := listed(registry.Absent, epoch())
		for _, service := range services {
			entry := registry.Entry{Instance: told(7), State: registry.InService}
			entry.Service = service
			l.Entries = append(l.Entries, entry)
		}
		covering(places)(&l)
		return l
	}
	tr := New()
	tr.Compare(listing(map[string]bool{"a": true, "b": true}, "a/web", "b/web"))
	tr.Compare(listing(map[string]bool{"a": false, "b": true}))
	if got := fmt.Sprint(tr.Whereabouts("default")[in().Namespace]); got != "map[a/web:true]" {
		t.Errorf("the pod is at %s, want where no list has said otherwise", got)
	}
}

// TestWhereabouts are where lists have to be asked for.
func TestWhereabouts(t *testing.T) {
	t.Parallel()
	const absent = lifecycle.Absent
	recorded := func(s *scene) {
		s.pod.Recall(lifecycle.InService, func() []Target { return []Target{{Registry: "default", Instance: told(7)}} }, s.now)
	}
	type row struct {
		reason string
		steps  []step
		there  bool
	}
	expect.Each(t, map[string]row{
		"nothing known":      {"it may be anywhere", nil, false},
		"recorded":           {"heartbeats keep it there", []step{recorded}, true},
		"registered":         {"it is there", []step{acknowledged(lifecycle.InService, 7)}, true},
		"taken out":          {"some registries keep it", []step{acknowledged(lifecycle.OutOfService, 7)}, true},
		"of unknown outcome": {"it may be there", []step{func(s *scene) { s.pod.Begin(key(), lifecycle.InService, told(7), s.now) }}, true},
		"listed":             {"it is there", []step{lists(registry.OutOfService, 7)}, true},
		"removed":            {"it is not", []step{acknowledged(lifecycle.InService, 7), acknowledged(absent, 7)}, false},
	}, func(t *testing.T, tc row) {
		s := play(tc.steps)
		if got := s.tr.Whereabouts("default")[s.pod.pod.id.Namespace]["web"]; got != tc.there {
			t.Errorf("got %t, want %t: %s", got, tc.there, tc.reason)
		}
		if others := s.tr.Whereabouts("other"); len(others) > 0 {
			t.Errorf("another registry has %v", others)
		}
	})
}

// TestJoined: a list that was asked for before the pod's namespace was taken in had no entry of it, whatever the registry has.
func TestJoined(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
	tracker, there, joins := New(), lifecycle.PodID{UID: "there"}, lifecycle.PodID{UID: "joins"}
	list := func(asked time.Time) { tracker.Compare(Listing{Registry: "a", Asked: asked}) }
	expectListed := func(reason string, id lifecycle.PodID, want bool) {
		t.Helper()
		if got := tracker.Open(id).Known().Listed("a"); got != want {
			t.Errorf("pod %s is covered by a list: %t, want %t: %s", id.UID, got, want, reason)
		}
	}
	tracker.Arrived(there, false)
	list(at(1))
	tracker.Joined(joins, at(2))
	list(at(1)) // compared late
	expectListed("it was there", there, true)
	expectListed("its namespace was left out", joins, false)
	list(at(3))
	expectListed("its namespace is in", joins, true)
}
