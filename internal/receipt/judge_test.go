package receipt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const gate = "label gate=true"

// log makes lines of one pod; each comes a second after the one before it.
type log struct {
	now    time.Time
	killed int
	moved  int
	lines  []Line
}

func (g *log) add(l Line) *log {
	g.now = g.now.Add(time.Second)
	l.Asked, l.At, l.Chain = g.now.Add(-100*time.Millisecond), g.now, fmt.Sprint("m", strings.Repeat("'", g.killed), "/", g.moved)
	g.lines = append(g.lines, l)
	return g
}

// asked has the last line be of a call or run that began so long before.
func (g *log) asked(before time.Duration) *log {
	last := &g.lines[len(g.lines)-1]
	last.Asked = last.At.Add(-before)
	return g
}

// kill has another manager write from then on.
func (g *log) kill() *log {
	g.killed++
	return g
}

// move has the manager begin a new file.
func (g *log) move() *log {
	g.moved++
	return g
}

func (g *log) sleep(d time.Duration) *log {
	g.now = g.now.Add(d)
	return g
}

func entry() Entry {
	return Entry{Registry: "default", Namespace: "prod", Pod: "web-1", UID: "1", Service: "web", Address: "10.0.0.1", Port: 80}
}

func pod(kind Kind, state string) Line {
	e := entry()
	return Line{
		Kind: kind, Entry: e, Workload: "web", State: state, Ready: true, Instances: []Entry{e}, Seconds: 5,
		Hooks: Hooks{InPlaceUpdate: {gate}},
	}
}

func call(op Op, state, outcome string) Line {
	l := pod(Called, state)
	l.Operation, l.Outcome = op, outcome
	return l
}

func flip(state string, set bool) Line {
	l := pod(Flip, state)
	if l.Set = []string{gate}; !set {
		l.Set, l.Cleared = nil, l.Set
	}
	return l
}

func wait(reason string) Line {
	l := pod(Waits, "PreparingUpdate")
	l.Hook, l.Reason = InPlaceUpdate, reason
	return l
}

func run(missing, gone []Entry, outcome string) Line {
	return Line{Kind: Ran, Entry: Entry{Registry: "default"}, Missing: missing, Gone: gone, Outcome: outcome, Seconds: 60}
}

func leads() Line { return Line{Kind: Leads, Entry: Entry{Registry: "default"}, Seconds: 60} }

// under is a line with a registry's name of now.
func under(name string, l Line) Line {
	l.Registry, l.Instances = name, slices.Clone(l.Instances)
	for i := range l.Instances {
		l.Instances[i].Registry = name
	}
	return l
}

func TestFaults(t *testing.T) {
	t.Parallel()
	began := func() *log {
		return (&log{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}).add(leads()).add(run(nil, nil, Acknowledged))
	}
	sound := func() *log {
		return began().add(call(Register, "PreparingNormal", Acknowledged)).add(flip("PreparingNormal", true))
	}
	out := func() *log { return sound().add(call(FailOver, "PreparingUpdate", Acknowledged)) }
	reaped := call(Deregister, "", Acknowledged)
	reaped.Workload, reaped.Instances = "", nil
	skipped := flip("PreparingUpdate", false)
	skipped.Excuse = "skip"
	shared := flip("PreparingDelete", false)
	shared.Hooks = Hooks{PreNormal: {gate}, InPlaceUpdate: {gate}}
	waited := flip("Updated", true)
	waited.Since = time.Date(2025, 12, 31, 23, 59, 0, 0, time.UTC)
	told := pod(Told, "PreparingUpdate")
	told.Says = "Absent"
	departs := call(Deregister, "Normal", Acknowledged)
	departs.Instances = under("second", departs).Instances
	readdressed := departs
	readdressed.Instances = slices.Clone(departs.Instances)
	readdressed.Instances[0].Address = "10.0.0.2"
	// A manager has written since another one did; it continues a file that is gone, or has no other.
	after := func(first Line, continues bool) *log {
		return (&log{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}).add(first).sleep(time.Hour).kill().add(Line{Kind: Begin, Continues: continues})
	}
	moved := func(l Line, minute int) Line {
		l.Since = time.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC)
		return l
	}
	for name, c := range map[string]struct {
		reason, want string
		log          *log
	}{
		"registered before the log begins": {"its file is gone, and the pod waited for readers", "", began().add(waited)},
		"never registered":                 {"the pod came after the log began", "was never told of", began().add(flip("Updated", true))},
		"stopped after its file was moved": {
			"no manager leads in a maintenance", "", sound().move().add(Line{Kind: End}).sleep(time.Hour).kill().add(leads()).add(run(nil, nil, Acknowledged)),
		},
		"an update":        {"out, drained, back", "", out().sleep(5 * time.Second).add(flip("PreparingUpdate", false)).add(call(Register, "Updated", Acknowledged)).add(flip("Updated", true))},
		"not out":          {"a release rests on an acknowledgement", "hook inPlaceUpdate was released", sound().add(flip("PreparingUpdate", false))},
		"not acknowledged": {"an error is none", "had not acknowledged that web at 10.0.0.1:80", sound().add(call(FailOver, "PreparingUpdate", "timeout")).sleep(5 * time.Second).add(flip("PreparingUpdate", false))},
		"told":             {"the registry was asked instead", "", sound().add(call(FailOver, "PreparingUpdate", "timeout")).add(told).sleep(5 * time.Second).add(flip("PreparingUpdate", false))},
		"renamed meanwhile": {
			"it is the same server", "",
			sound().add(Line{Kind: Renamed, Former: "default", Entry: Entry{Registry: "main"}}).
				add(call(Register, "Normal", Acknowledged)). // under way by then
				add(under("main", call(FailOver, "PreparingUpdate", Acknowledged))).
				sleep(5 * time.Second).add(under("main", flip("PreparingUpdate", false))).
				add(under("main", call(Register, "Updated", Acknowledged))).add(under("main", flip("Updated", true))),
		},
		"renamed by a restart": {
			"the first list of the next manager says so, after a change", "",
			sound().kill().add(under("main", leads())).add(under("main", call(FailOver, "PreparingUpdate", Acknowledged))).
				add(Line{Kind: Renamed, Former: "default", Entry: Entry{Registry: "main"}}).add(under("main", run(nil, nil, Acknowledged))).
				sleep(5 * time.Second).add(under("main", flip("PreparingUpdate", false))).
				sleep(time.Minute).add(under("main", run(nil, nil, Acknowledged))).sleep(time.Minute).add(under("main", run(nil, nil, Acknowledged))),
		},
		"renamed, and not out": {
			"a release rests on an acknowledgement from the server", "web at 10.0.0.1:80 in registry main is out",
			sound().add(Line{Kind: Renamed, Former: "default", Entry: Entry{Registry: "main"}}).add(under("main", flip("PreparingUpdate", false))),
		},
		"skipped":     {"a person took it on", "", sound().add(skipped)},
		"not drained": {"clients need time to notice", "the drain is 5s", out().add(flip("PreparingUpdate", false))},
		"moved on":    {"the API server's answer counts", `cleared in state "Normal"`, out().sleep(5 * time.Second).add(flip("Normal", false))},
		"scaled in, with one key for preNormal and inPlaceUpdate": {
			"preNormal is cleared there, and Kruise waits for neither", "", sound().add(shared),
		},
		"scaled in, and inPlaceUpdate is cleared": {
			"the table leaves it as it is", `cleared in state "PreparingDelete"`, sound().add(flip("PreparingDelete", false)),
		},
		"set while it goes": {"the same", `set in state "PreparingUpdate"`, sound().add(flip("PreparingUpdate", true))},
		"not back":          {"an assertion rests on one too", "hook inPlaceUpdate was asserted", out().sleep(5 * time.Second).add(flip("PreparingUpdate", false)).add(flip("Updated", true))},
		"taken out":         {"a pod that serves stays", "while the pod was Normal and ready", sound().add(call(Deregister, "Normal", Acknowledged))},
		"departs":           {"clients find it in the other registry", "", sound().add(under("second", call(Register, "Normal", Acknowledged))).add(departs)},
		"departs before it joins": {
			"clients find it nowhere", "was taken out, from where the pod departs, and the registry was never told of", sound().add(departs),
		},
		"departs after a failure": {
			"an error is no acknowledgement", "from where the pod departs", sound().add(under("second", call(Register, "Normal", "timeout"))).add(departs),
		},
		"departs when it is out":                {"there is nothing to lose", "", out().add(departs)},
		"leaves an address that it has no more": {"another pod may have it soon", "", sound().add(readdressed)},
		"reaped":                                {"resync removes only what is gone", "as if its pod were gone", sound().add(reaped).add(call(Register, "Normal", Acknowledged))},
		"reaped for good":                       {"this one was", "", sound().add(reaped)},
		"drains forever":                        {"a drain ends", "has not ended", out().add(wait("Draining")).sleep(time.Minute).add(run(nil, nil, Acknowledged))},
		"drains forever, by another manager": {
			"the next leader ends it", "has not ended", out().add(wait("Draining")).kill().sleep(2 * time.Minute).add(run(nil, nil, Acknowledged)),
		},
		"drained by another manager": {
			"it waits until the lease of the first has ended", "",
			out().add(wait("Draining")).kill().sleep(25 * time.Second).add(flip("PreparingUpdate", false)).sleep(time.Minute).add(run(nil, nil, Acknowledged)),
		},
		"drained late": {
			"the manager was there", "has not ended",
			out().add(wait("Draining")).sleep(25 * time.Second).add(flip("PreparingUpdate", false)).add(run(nil, nil, Acknowledged)),
		},
		"drained":   {"the flip ends it", "", out().add(wait("Draining")).sleep(5 * time.Second).add(flip("PreparingUpdate", false)).sleep(time.Minute).add(run(nil, nil, Acknowledged))},
		"lost":      {"resync repairs", "did not register it again", sound().add(run([]Entry{entry()}, nil, Acknowledged)).sleep(time.Minute).add(run(nil, nil, Acknowledged))},
		"repaired":  {"it did", "", sound().add(run([]Entry{entry()}, nil, Acknowledged)).add(call(Register, "Normal", Acknowledged)).sleep(time.Minute).add(run(nil, nil, Acknowledged))},
		"leaked":    {"resync removes what is gone", "did not remove it", sound().add(run(nil, []Entry{entry()}, Acknowledged))},
		"held back": {"a person has to approve", "", sound().add(run(nil, []Entry{entry()}, RemovalsBlocked))},
		"no resync": {"the registry is compared in time", "not compared with the cluster", sound().sleep(time.Hour).add(wait("NotReady"))},
		"registered before its manager's file begins": {
			"the file before is gone, and another manager's is older", "", after(Line{Kind: Begin}, true).add(moved(flip("Updated", true), 30)),
		},
		"not registered by a manager of which all is there": {
			"it has to have the acknowledgement itself", "was never told of", after(Line{Kind: Begin}, false).add(moved(flip("Updated", true), 30)),
		},
		"put back before its manager's file begins": {
			"what another did before says nothing", "", after(call(FailOver, "PreparingUpdate", Acknowledged), true).add(moved(flip("Updated", true), 30)),
		},
		"taken out before its manager's file begins": {
			"the same", "", after(call(Register, "Updated", Acknowledged), true).add(moved(flip("PreparingUpdate", false), 30)),
		},
		"not out, in a manager's second file": {
			"the pod moved after that began", "had not acknowledged that",
			after(call(Register, "Updated", Acknowledged), true).add(call(FailOver, "PreparingUpdate", "timeout")).add(moved(flip("PreparingUpdate", false), 61)),
		},
		"not acknowledged, and registered before the log begins": {
			"it was asked for, so the pod may be in", "had not acknowledged the call of 00:00:02.900 that takes out web at 10.0.0.1:80",
			began().add(call(FailOver, "PreparingUpdate", "timeout")).sleep(20 * time.Second).add(flip("PreparingUpdate", false)),
		},
		"told, and registered before the log begins": {
			"the registry was asked instead", "",
			began().add(call(FailOver, "PreparingUpdate", "timeout")).add(told).sleep(20 * time.Second).add(flip("PreparingUpdate", false)),
		},
		"taken out again after the log begins": {
			"its drain may have begun before", "", began().add(call(FailOver, "PreparingUpdate", Acknowledged)).add(flip("PreparingUpdate", false)),
		},
		"not drained by a second": {
			"one manager has one clock", "the drain is 5s", out().sleep(3300 * time.Millisecond).add(flip("PreparingUpdate", false)),
		},
		"not drained by a second, by another manager": {
			"its clock may be behind", "", out().kill().sleep(3300 * time.Millisecond).add(flip("PreparingUpdate", false)),
		},
		"not drained by two, by another manager": {
			"clocks agree within a second", "3.4s after", out().kill().sleep(2500 * time.Millisecond).add(flip("PreparingUpdate", false)),
		},
		"leaked from a file that is gone": {
			"so may be the lines of its removals", "",
			after(Line{Kind: Begin}, true).add(run(nil, []Entry{entry()}, Acknowledged)).asked(2 * time.Second),
		},
		"lost while removals are held back": {
			"the registry is not down", "did not register it again",
			sound().add(run([]Entry{entry()}, nil, RemovalsBlocked)).sleep(time.Minute).add(run(nil, nil, RemovalsBlocked)),
		},
		"lost while the registry is down": {
			"it can't be told", "", sound().add(run([]Entry{entry()}, nil, Acknowledged)).sleep(time.Minute).add(run(nil, nil, "timeout")),
		},
		"no resync in a second file": {
			"the line that leads is gone", "not compared with the cluster",
			after(Line{Kind: Begin}, true).add(run(nil, nil, Acknowledged)).sleep(time.Hour).add(wait("NotReady")),
		},
		"no resync meanwhile": {
			"the same", "not compared with the cluster for 10m", sound().sleep(10 * time.Minute).add(run(nil, nil, Acknowledged)),
		},
		"a run that takes long": {
			"the registry was asked in time", "", sound().sleep(3 * time.Minute).add(run(nil, nil, Acknowledged)).asked(2 * time.Minute),
		},
	} {
		var said []string
		for _, f := range NewHistory(c.log.lines, time.Time{}).Faults() {
			said = append(said, f.Text)
		}
		switch {
		case c.want == "" && len(said) > 0, c.want != "" && !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, c.want) }):
			t.Errorf("%s: %s, so the receipt must say %q, and it says %q", name, c.reason, c.want, said)
		}
	}
}

func TestRollouts(t *testing.T) {
	t.Parallel()
	of := func(revision string, l Line) Line {
		l.Revision = revision
		return l
	}
	g := (&log{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}).
		add(of("a", call(FailOver, "PreparingUpdate", Acknowledged))).sleep(5 * time.Second).add(of("a", flip("PreparingUpdate", false))).
		add(of("b", call(Register, "Updated", Acknowledged))).add(of("b", flip("Updated", true)))
	updated := "rev a→b: 1 pod, 2 transitions, 0 before acknowledgement, in rotation at least 0 of 1, longest wait 0 s: PASS"
	stuck := (&log{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}).add(of("a", call(FailOver, "PreparingUpdate", Acknowledged))).
		add(of("a", wait("Draining"))).sleep(time.Minute).add(run(nil, nil, Acknowledged))
	leaked := Entry{Registry: "default", Namespace: "prod", Pod: "gone", UID: "9"}
	evicted := flip("Normal", false)
	evicted.Revision, evicted.Deleting, evicted.Since = "a", true, time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	ends := (&log{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}).add(of("a", call(Deregister, "Normal", Acknowledged))).add(evicted)
	ends.lines[0].Deleting = true
	for name, c := range map[string]struct {
		reason string
		lines  []Line
		want   []string
	}{
		"updated": {"its pod was in rotation before the log begins", g.lines, []string{updated}},
		"stuck": {"no hook was flipped, and that is what is wrong", stuck.lines,
			[]string{"rev a: 1 pod, 0 transitions, 0 before acknowledgement, longest wait 0 s: FAIL"}},
		"leaked": {"no line says whose pod it was", (&log{now: g.now, lines: slices.Clone(g.lines)}).add(run(nil, []Entry{leaked}, Acknowledged)).lines,
			[]string{strings.Replace(updated, "PASS", "FAIL", 1)}},
		"evicted": {"it has been Normal for a year, and waited at no hook", ends.lines,
			[]string{"rev a: 1 pod, 1 transition, 0 before acknowledgement, longest wait 0 s: PASS"}},
		"another's": {"nothing is known of it", nil, nil},
	} {
		var got []string
		for _, r := range NewHistory(c.lines, time.Time{}).Rollouts("prod", "web") {
			got = append(got, r.String(func(name string) string { return name }))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %s; the receipt says %q, want %q", name, c.reason, got, c.want)
		}
	}
}
