package plan

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestStages holds the order of stages against the table in docs/architecture.md.
func TestStages(t *testing.T) {
	t.Parallel()
	described := func(want lifecycle.Want) (all []string) {
		for _, s := range Stages(Plan{}, want) {
			line := s.Name
			if s.Holds {
				line += " `*`"
			}
			if s.After {
				line += " `>`"
			}
			all = append(all, line)
		}
		return all
	}
	in, kept, out := described(lifecycle.InService), described(lifecycle.Keep), described(lifecycle.Absent)
	if diff := gocmp.Diff(out, described(lifecycle.OutOfService)); diff != "" {
		t.Errorf("a pod that is updated takes other stages than one that goes (-goes +is updated):\n%s", diff)
	}
	cell := func(all []string, i int) string {
		if i < len(all) {
			return all[i]
		}
		return ""
	}
	var table strings.Builder
	for i := range max(len(in), len(kept), len(out)) {
		fmt.Fprintf(&table, "   | %s | %s | %s |\n", cell(in, i), cell(kept, i), cell(out, i))
	}
	expectDocumented(t, "stages", table.String())
}

// expectDocumented holds docs/architecture.md against a table, or rows of it.
func expectDocumented(t *testing.T, of, table string) {
	t.Helper()
	docs, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(docs), table) {
		t.Errorf("docs/architecture.md lacks the table of %s as it is:\n%s", of, table)
	}
}

// TestStages_Unarmed: if the API server refuses the handlers that protect a call, no pod is put in service and none departs, but what must
// be out goes: a former address may be another pod's, and a deleted pod may be given to clients.
func TestStages_Unarmed(t *testing.T) {
	t.Parallel()
	for _, want := range []lifecycle.Want{lifecycle.InService, lifecycle.Keep, lifecycle.OutOfService, lifecycle.Absent} {
		for _, s := range Stages(Plan{}, want) {
			takesOut := want == lifecycle.OutOfService || want == lifecycle.Absent || s.Name == "former" || s.Name == "unheard"
			if s.Armed == takesOut {
				t.Errorf("%s, %s: taken although the pod could not be armed: %t", want, s.Name, !s.Armed)
			}
		}
	}
}

// waits is a pod that belongs to a registry whose clients read from caches, and comes from another.
type waits struct {
	reason string
	now    Now
	// knows makes what this process knows of the pod.
	knows  func(p *tracker.Pod, now time.Time)
	stage  string
	waits  reason.Reason
	after  time.Duration
	probes int
	// born: the pod came while this process watched. shown: each registry has listed what it has.
	born, shown bool
	// in is the registry where it belongs, if that is not slow.
	in string
}

func TestStages_WhatTheyWaitFor(t *testing.T) {
	t.Parallel()
	slow, old := concludeKey("slow"), concludeKey("consul")
	joined := func(ago time.Duration) func(p *tracker.Pod, now time.Time) {
		return func(p *tracker.Pod, now time.Time) {
			for _, in := range []lifecycle.Key{slow, old} {
				p.Begin(in, lifecycle.InService, target(in).Instance, now.Add(-ago))
				p.Acknowledged(in, now.Add(-ago))
			}
		}
	}
	nothing := func(*tracker.Pod, time.Time) {}
	sets := lifecycle.Edit{Set: []lifecycle.Handler{{Label: preNormal}}}
	joining := lifecycle.Decision{Want: lifecycle.InService, Waiting: lifecycle.PreNormal, Then: sets}
	leaving := lifecycle.Decision{Want: lifecycle.Absent, Waiting: lifecycle.PreDelete, Releases: true}
	claimed := waiting.Described(reason.ServiceNotAllowed, "another namespace has the name")
	many := make([]lifecycle.Key, 0, MaxHeard+1)
	for i := range MaxHeard + 1 {
		many = append(many, mine(lifecycle.Service(fmt.Sprint("forged-", i)), slow.Address))
	}
	expect.Each(t, map[string]waits{
		"joined a moment ago": {
			reason: "clients that read from caches don't know the pod yet", now: Now{Decision: joining}, knows: joined(2 * time.Second),
			stage: "readers", waits: reason.NotEffective, after: 3 * time.Second,
		},
		"joined long ago": {reason: "they do", now: Now{Decision: joining}, knows: joined(5 * time.Second), stage: "readers"},
		"joined, and OpenKruise waits for nothing": {
			reason: "no hook depends on it", now: Now{Decision: lifecycle.Decision{Want: lifecycle.InService}}, knows: joined(0), stage: "readers",
		},
		"joined, and counts with its whole weight only": {
			reason: "countsAs is End", now: Now{Decision: joining, Facts: Facts{CountsIn: time.Minute}}, knows: joined(time.Hour),
			stage: "readers", waits: reason.WarmingUp, after: time.Minute,
		},
		"joins at a hook": {
			reason: "OpenKruise counts on clients being given the pod", now: Now{Decision: joining}, knows: nothing, stage: "probe", probes: 1,
		},
		"joins, and departs": {
			reason: "clients must find it where it belongs first", now: Now{Decision: lifecycle.Decision{Want: lifecycle.InService}},
			knows: joined(0), stage: "probe", probes: 1,
		},
		"joins, and has departed": {
			reason: "nothing depends on it", now: Now{Decision: lifecycle.Decision{Want: lifecycle.InService}}, stage: "probe",
			knows: func(p *tracker.Pod, now time.Time) {
				joined(time.Hour)(p, now)
				p.Begin(old, lifecycle.Absent, target(old).Instance, now)
				p.Acknowledged(old, now)
			},
		},
		"departs a moment after it joined": {
			reason: "clients of the new registry don't know it yet", now: Now{Decision: lifecycle.Decision{Want: lifecycle.InService}},
			knows: joined(time.Second), stage: "depart", waits: reason.NotEffective, after: 4 * time.Second,
		},
		"is kept, and departs": {
			reason: "nothing has asked whether clients are given it", now: Now{Decision: lifecycle.Decision{Want: lifecycle.Keep}},
			knows: joined(time.Hour), stage: "depart", probes: 1,
		},
		"goes, and may be registered under another's name": {
			reason: "once taken out, it could not be put back", now: Now{Decision: leaving, Facts: Facts{Unsteered: claimed}}, knows: nothing,
			stage: "unsteered", waits: reason.ServiceNotAllowed,
		},
		"is out, and may be registered under another's name": {
			reason: "no hook is released", now: Now{Decision: lifecycle.Decision{Want: lifecycle.OutOfService}, Facts: Facts{Unsteered: claimed}},
			knows: nothing, stage: "unsteered",
		},
		"goes, and the registry was not listed": {
			reason: "nobody knows where the last leader registered it", now: Now{Decision: leaving}, knows: nothing,
			stage: "listed", waits: reason.RegistryUnavailable,
		},
		"goes, and the registry was listed": {
			reason: "it has shown all that the last leader registered", now: Now{Decision: leaving}, knows: nothing, stage: "listed", shown: true,
		},
		"goes, and the registry lists nothing": {
			reason: "no list will come", now: Now{Decision: leaving}, knows: nothing, stage: "listed", in: "silent",
		},
		"is out, and the registry was not listed": {
			reason: "no hook is released", now: Now{Decision: lifecycle.Decision{Want: lifecycle.OutOfService}}, knows: nothing, stage: "listed",
		},
		"goes, and its record has more than one visit deals with": {
			reason: "a tenant can write it", knows: nothing, stage: "unheard", waits: reason.Queued, after: time.Second,
			now: Now{Decision: leaving, Facts: Facts{Record: lifecycle.Record{Instances: many}}},
		},
		"goes, and its record has no more": {
			reason: "all are dealt with", knows: nothing, stage: "unheard",
			now: Now{Decision: leaving, Facts: Facts{Record: lifecycle.Record{Instances: many[:MaxHeard]}}},
		},
		"goes, and came while this process watched": {
			reason: "it knows of each call", now: Now{Decision: leaving}, knows: nothing, stage: "listed", born: true,
		},
		"is kept, and has nowhere to depart from": {
			reason: "nothing depends on it", now: Now{Decision: lifecycle.Decision{Want: lifecycle.Keep}}, stage: "depart",
			knows: func(p *tracker.Pod, now time.Time) {
				p.Begin(slow, lifecycle.InService, target(slow).Instance, now)
				p.Acknowledged(slow, now)
			},
		},
		"goes, and its record shows where it was": {
			reason: "that is enough", knows: nothing, stage: "listed", now: Now{Decision: leaving, Facts: Facts{
				Record: lifecycle.Record{Stamp: lifecycle.Stamp{UID: "1"}, Want: lifecycle.InService},
			}},
		},
	}, func(t *testing.T, tc waits) {
		tc.expect(t, concludeKey(cmp.Or(tc.in, slow.Registry)))
	})
}

func (w waits) expect(t *testing.T, belongs lifecycle.Key) {
	t.Helper()
	now, tr := w.now, tracker.New()
	tr.Arrived(lifecycle.PodID{}, w.born)
	tracked := tr.Open(lifecycle.PodID{})
	now.Time = time.Unix(1_000_000, 0)
	if w.shown {
		tr.Compare(tracker.Listing{Registry: belongs.Registry, Names: map[string]bool{belongs.Registry: true}, Asked: now.Time})
	}
	w.knows(tracked, now.Time)
	now.Facts.Pod = &lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: belongs.Address}}
	now.Facts.Configuration, now.Facts.Known = all{}, tracked.Known()
	now.Facts.Targets, now.Facts.Sources = []tracker.Target{target(belongs)}, []lifecycle.Source{belongs.Source()}
	now.Rows = Of(now.Facts, now.Decision)
	stages := Stages(now.Rows, now.Decision.Want)
	s := stages[slices.IndexFunc(stages, func(s Stage) bool { return s.Name == w.stage })]
	var got waiting.Blocker
	if s.Waits != nil {
		got = s.Waits(now)
	}
	if got.Reason != w.waits || got.After != w.after {
		t.Errorf("%s: %s waits for %q, again in %s; want %q, %s", w.reason, s.Name, got.Reason, got.After, w.waits, w.after)
	}
	probes := 0
	if s.Probes != nil {
		probes = len(s.Probes(now))
	}
	if probes != w.probes {
		t.Errorf("%s: %s probes %d rows, want %d", w.reason, s.Name, probes, w.probes)
	}
}
