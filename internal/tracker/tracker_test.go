package tracker

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func epoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}}
}

func key() lifecycle.Key { return Target{Registry: "default", Instance: in()}.Key() }

// listed is a list with one entry, or with none where the state is Absent.
func listed(state registry.State, asked time.Time) Listing {
	l := Listing{Registry: "default", Names: map[string]bool{"default": true}, Asked: asked}
	if state != registry.Absent {
		l.Entries = []registry.Entry{{Instance: in(), State: state}}
	}
	return l
}

// TestRecallRemoval: another manager's record continues its drain here, unless a list shows that the entry was put back since.
func TestRecallRemoval(t *testing.T) {
	t.Parallel()
	const ago = 5 * time.Second
	type row struct {
		reason  string
		listed  registry.State
		before  time.Duration // how long before now it was listed
		ahead   time.Duration
		recalls bool
	}
	expect.Each(t, map[string]row{
		"no list":            {"the record is all that is known", "", 0, 0, true},
		"listed since, in":   {"it was put back", registry.InService, time.Second, 0, false},
		"listed since, out":  {"it is still out", registry.OutOfService, time.Second, 0, true},
		"listed before, in":  {"the list is older than the record", registry.InService, 2 * ago, 0, true},
		"by a clock ahead":   {"the list comes after the record, whatever the bound", registry.InService, time.Second, time.Hour, false},
		"by a clock behind":  {"the record may be older than it reads, so the list may have come after it", registry.InService, 2 * ago, -time.Hour, false},
		"by one just behind": {"even then it came before", registry.InService, 2 * ago, -time.Second, true},
	}, func(t *testing.T, tc row) {
		s := play([]step{func(s *scene) {
			if tc.listed != "" {
				s.tr.Compare(listed(tc.listed, s.now.Add(-tc.before)))
			}
			since := s.now.Add(-ago)
			s.pod.RecallRemoval(key(), &since, tc.ahead)
			s.pod.Begin(key(), lifecycle.Absent, told(7), s.now)
			s.pod.Acknowledged(key(), s.now)
		}})
		recorded, _ := s.pod.Standing(key()).RemovedAt(0)
		if recalls := recorded.Equal(s.now.Add(-ago)); recalls != tc.recalls {
			t.Errorf("%s: out since %v, %v before the call", tc.reason, recorded, s.now.Sub(recorded))
		}
	})
}

// TestReturned: nobody has looked after the entries of a registry that the configuration had dropped for a while.
func TestReturned(t *testing.T) {
	t.Parallel()
	call := func(want lifecycle.Want) step {
		return func(s *scene) { s.pod.Begin(key(), want, told(7), s.now); s.pod.Acknowledged(key(), s.now) }
	}
	type row struct {
		reason string
		before step
		want   func(Instance) bool
		kept   int
	}
	expect.Each(t, map[string]row{
		"in service": {"it is asked for again, and kept alive if it is still there", call(lifecycle.InService),
			func(i Instance) bool { return !i.Stands(lifecycle.InService) && i.WasIn }, 1},
		"out of service": {"an application may have put it back for a while, so that its drain begins again", call(lifecycle.OutOfService),
			func(i Instance) bool {
				_, counted := i.RemovedAt(0)
				return !i.Stands(lifecycle.OutOfService) && counted.IsZero()
			}, 1},
		"gone": {"the same", call(lifecycle.Absent), func(i Instance) bool { return !i.Stands(lifecycle.Absent) && i.Known() }, 0},
		"a call that timed out": {"it may still be carried out", func(s *scene) {
			s.pod.Begin(key(), lifecycle.InService, told(7), s.now)
			s.pod.Failed(key(), s.now.Add(time.Minute))
			s.pod.Begin(key(), lifecycle.Absent, told(7), s.now)
		}, func(i Instance) bool { return i.settledAfter(Goal{}).After(epoch()) }, 0},
	}, func(t *testing.T, tc row) {
		s := play([]step{tc.before, func(s *scene) { s.tr.Returned("other"); s.tr.Returned("default") }})
		if i := s.pod.Standing(key()); !tc.want(i) {
			t.Errorf("got %+v: %s", i, tc.reason)
		}
		if kept := s.tr.Kept("default"); len(kept) != tc.kept {
			t.Errorf("%v is kept alive, want %d: %s", kept, tc.kept, tc.reason)
		}
	})
}

func TestFail_a_shorter_timeout_settles_nothing_sooner(t *testing.T) {
	t.Parallel()
	lands := epoch().Add(time.Minute)
	i := Instance{}.begin(lifecycle.InService, in(), epoch()).fail(lands)
	again := epoch().Add(10 * time.Second) // with the timeout of a new configuration
	i = i.begin(lifecycle.InService, in(), again).fail(again.Add(2 * time.Second))
	out := again.Add(5 * time.Second)
	i = i.begin(lifecycle.Absent, in(), out).acknowledge(out)
	if got, want := i.settledAfter(Goal{}).Sub(out), lands.Sub(out); i.settled(Goal{}) || got != want {
		t.Errorf("settled %t, settles in %v, want in %v: the first Register may still be carried out", i.settled(Goal{}), got, want)
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		begins func(tr *Tracker, p *Pod)
		want   lifecycle.Want
		sure   bool
	}
	expect.Each(t, map[string]row{
		"nothing was done": {"there is nothing to show", func(*Tracker, *Pod) {}, "", false},
		"a record alone": {"only a call or a list tells", func(_ *Tracker, p *Pod) {
			p.Recall(lifecycle.InService, func() []Target { return []Target{{Registry: "default", Instance: in()}} }, epoch())
		}, "", false},
		"a change": {"its outcome is unknown", func(_ *Tracker, p *Pod) {
			p.Begin(key(), lifecycle.OutOfService, in(), epoch())
		}, lifecycle.OutOfService, false},
		"acknowledged": {"", func(_ *Tracker, p *Pod) {
			p.Begin(key(), lifecycle.OutOfService, in(), epoch())
			p.Acknowledged(key(), epoch())
		}, lifecycle.OutOfService, true},
		"gone": {"the registry has it no more", func(_ *Tracker, p *Pod) {
			p.Begin(key(), lifecycle.Absent, in(), epoch())
			p.Acknowledged(key(), epoch())
		}, "", false},
		"listed": {"another manager has registered it", func(tr *Tracker, _ *Pod) {
			tr.Compare(listed(registry.InService, epoch()))
		}, lifecycle.InService, true},
	}, func(t *testing.T, tc row) {
		tr := New()
		id := lifecycle.PodID{UID: types.UID(in().UID)}
		tc.begins(tr, tr.Open(id))
		var want, got []Seen
		if tc.want != "" {
			want = []Seen{{Pod: id, In: key(), Want: tc.want, Acknowledged: tc.sure}}
		}
		tr.EachSeen(func(one Seen) { got = append(got, one) })
		if !slices.Equal(got, want) {
			t.Errorf("got %+v, want %+v: %s", got, want, tc.reason)
		}
	})
}

// TestServes: what shows that clients are given an entry: the last change, else a list, else the record.
func TestServes(t *testing.T) {
	t.Parallel()
	const in, out = registry.InService, registry.OutOfService
	records := func(want lifecycle.Want) step {
		return func(s *scene) {
			s.pod.Recall(want, func() []Target { return []Target{{Registry: "default", Instance: told(7)}} }, s.now.Add(-time.Hour))
		}
	}
	call := func(want lifecycle.Want, answered bool) step {
		return func(s *scene) {
			s.pod.Begin(key(), want, told(7), s.now)
			if answered {
				s.pod.Acknowledged(key(), s.now)
			}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		steps  []step
		serves bool
	}{
		"nothing":                  {"no one put it there", nil, false},
		"recorded":                 {"the manager before did", []step{records(lifecycle.InService)}, true},
		"recorded as out":          {"the manager before took it out", []step{records(lifecycle.OutOfService)}, false},
		"recorded, and listed out": {"somebody took it out since", []step{records(lifecycle.InService), lists(out, 7)}, false},
		"recorded, and not listed": {"somebody removed it since", []step{records(lifecycle.InService), lists(registry.Absent, 0)}, false},
		"listed":                   {"the list shows it", []step{lists(in, 7)}, true},
		"registered":               {"the registry says so", []step{call(lifecycle.InService, true)}, true},
		"registered, no answer":    {"no one knows", []step{call(lifecycle.InService, false)}, false},
		"removed, no answer":       {"the call may have been carried out", []step{call(lifecycle.InService, true), call(lifecycle.Absent, false)}, false},
		"registered, and lost":     {"the list lacks it", []step{call(lifecycle.InService, true), lists(registry.Absent, 0)}, false},
	} {
		if got := play(tc.steps).pod.Standing(key()).Serves(); got != tc.serves {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

func TestDepartures(t *testing.T) {
	t.Parallel()
	web := podNamed("web-1")
	id := lifecycle.PodIDOf(lifecycle.PodOf(web))
	type row struct {
		reason string
		happen func(tr *Tracker)
		want   int
	}
	expect.Each(t, map[string]row{
		"never heard of": {"nothing tells that it was registered", func(tr *Tracker) { tr.Uncached(lifecycle.PodOf(web)) }, 0},
		"before the first look": {"the reconciler has made no call for it", func(tr *Tracker) {
			tr.Arrived(id, true)
			tr.Uncached(lifecycle.PodOf(web))
		}, 0},
		"listed": {"a process before this one has registered it", func(tr *Tracker) {
			l := listed(registry.InService, epoch())
			l.Entries[0].UID = string(web.UID)
			tr.Compare(l)
			tr.Uncached(lifecycle.PodOf(web))
		}, 1},
		"while it is looked at": {"its traces are to be undone", func(tr *Tracker) {
			p := tr.Open(id)
			tr.Uncached(lifecycle.PodOf(web))
			if _, forgotten := p.Uncached(); forgotten {
				t.Error("the departure is forgotten with the pod")
			}
		}, 1},
		"found, and its departure not noted yet": {"the event is on its way", func(tr *Tracker) {
			p := tr.Open(id)
			p.Found(lifecycle.ReachOf(&lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: in().Address}}))
			if _, forgotten := p.Uncached(); forgotten {
				t.Error("the pod is forgotten before its departure is noted")
			}
			tr.Uncached(lifecycle.PodOf(web))
		}, 1},
		"back again": {"the cache has it", func(tr *Tracker) {
			tr.Open(id)
			tr.Uncached(lifecycle.PodOf(web))
			tr.Arrived(id, false)
		}, 0},
		"dying without the label": {"no event tells when it goes", func(tr *Tracker) { tr.Dying(lifecycle.PodOf(web)) }, 1},
	}, func(t *testing.T, tc row) {
		tr := New()
		tc.happen(tr)
		if got := len(tr.AllUncached()); got != tc.want {
			t.Errorf("%d departures, want %d: %s", got, tc.want, tc.reason)
		}
	})
}

func TestClose_is_remembered_for_as_long_as_a_list_may_be_old(t *testing.T) {
	t.Parallel()
	tr, now := New(), epoch()
	const each = 5
	for batch := range 4 {
		for n := range each {
			p := tr.Open(lifecycle.PodID{UID: types.UID(fmt.Sprint(batch, n))})
			p.Begin(key(), lifecycle.InService, in(), now)
			tr.Close(types.UID(fmt.Sprint(batch, n)), now)
		}
		now = now.Add(2 * remembered)
	}
	if got := len(tr.closed); got > each {
		t.Errorf("%d pods are remembered, want those of the last hours: %d", got, each)
	}
}

// TestPodIsLookedAtUnderItsOwnName has an entry with the UID of one pod that names another.
func TestPodIsLookedAtUnderItsOwnName(t *testing.T) {
	t.Parallel()
	own := lifecycle.PodID{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web-1"}, UID: types.UID(in().UID)}
	arrives := func(tr *Tracker) { tr.Arrived(own, false) }
	lists := func(tr *Tracker) {
		l := listed(registry.InService, epoch())
		l.Entries[0].Pod = "another"
		tr.Compare(l)
	}
	for name, steps := range map[string][]func(*Tracker){
		"the first list comes before the pods": {lists, arrives},
		"the pods come before the first list":  {arrives, lists},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, now := New(), epoch()
			for _, step := range steps {
				step(tr)
			}
			p := tr.Open(own)
			p.Begin(key(), lifecycle.InService, in(), now)
			p.Acknowledged(key(), now)
			tr.TakeDoubted()

			tr.Compare(listed(registry.Absent, now.Add(time.Second)))
			if lost, _ := tr.TakeDoubted(); !slices.Equal(lost, []lifecycle.PodID{own}) {
				t.Errorf("looks at %v, want %v, whose entry is lost: no pod is found under another name", lost, own)
			}
		})
	}
}

// TestKnownStays: a visit decides on what was known at one moment, while lists and calls go on.
func TestKnownStays(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(tr *Tracker, p *Pod){
		"acknowledged":  func(_ *Tracker, p *Pod) { p.Acknowledged(key(), epoch()) },
		"another entry": func(_ *Tracker, p *Pod) { p.Begin(lifecycle.Key{Registry: "other"}, lifecycle.Absent, in(), epoch()) },
		"stays":         func(_ *Tracker, p *Pod) { p.Stay(func(lifecycle.Key) bool { return true }) },
		"returned":      func(tr *Tracker, _ *Pod) { tr.Returned("default") },
		"listed":        func(tr *Tracker, _ *Pod) { tr.Compare(listed(registry.OutOfService, epoch().Add(time.Second))) },
	}, func(t *testing.T, change func(tr *Tracker, p *Pod)) {
		tr := New()
		p := tr.Open(lifecycle.PodID{UID: types.UID(in().UID)})
		p.Begin(key(), lifecycle.OutOfService, in(), epoch())
		p.Acknowledged(key(), epoch())
		p.LetGo(key())
		known := p.Known()
		before := slices.Clone(known.instances)
		change(tr, p)
		if !reflect.DeepEqual(known.instances, before) {
			t.Errorf("what was known became %+v, and was %+v", known.instances, before)
		}
		if reflect.DeepEqual(p.Known(), known) {
			t.Error("nothing has changed")
		}
	})
}

// TestInstancesThatHaveGoneAreForgottenWhereThereAreMany: a tenant who can write a pod's record can name what is not there.
func TestInstancesThatHaveGoneAreForgottenWhereThereAreMany(t *testing.T) {
	t.Parallel()
	tr, id := New(), lifecycle.PodID{UID: types.UID(in().UID)}
	p := tr.Open(id)
	p.Begin(key(), lifecycle.InService, in(), epoch())
	p.Acknowledged(key(), epoch())
	for i := range manyInstances {
		other := key()
		other.Port = 1000 + i
		p.LetGo(other)
		p.Begin(other, lifecycle.Absent, in(), epoch())
		p.Acknowledged(other, epoch())
	}
	known := tr.Open(id).Known()
	if len(known.instances) != 1 || !known.Of(key()).Stands(lifecycle.InService) {
		t.Errorf("%d instances are known, want the one that is in service", len(known.instances))
	}
	p.LetGo(lifecycle.Key{Registry: "invented"})
	if n := len(p.pod.instances); n != 1 {
		t.Errorf("%d instances after one was let go of which nothing was known, want 1", n)
	}
}

// TestAStepOfTheClockChangesNoDrain: a person or NTP can set the wall clock.
func TestAStepOfTheClockChangesNoDrain(t *testing.T) {
	t.Parallel()
	out := Instance{}.begin(lifecycle.OutOfService, in(), time.Now()).acknowledge(time.Now())
	if _, counted := out.RemovedAt(time.Second); !strings.Contains(counted.String(), " m=") {
		t.Errorf("a drain counts from %s by the wall clock", counted)
	}
}
