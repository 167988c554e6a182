package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	rollcall "github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
)

const (
	// enough is what a run must have done for its result to mean something. Of enoughMet there must be as many for each fault
	// of the registry, connections or calls that met it.
	enoughTime        = 5 * time.Minute
	enoughTransitions = 500
	enoughFlips       = 250
	enoughKills       = 10
	enoughMet         = 3
	// historiesShown bounds how much a failed run shows.
	historiesShown = 5
)

// report is what is wrong in the end. It is safe for concurrent use.
type report struct {
	mu sync.Mutex
	// seen is what the journal shows at once, and found what a calm did not repair.
	seen  []finding
	found []finding
	other []string
}

// finding is an invariant that did not hold for a pod, or what a calm did not repair.
type finding struct {
	kind grievanceKind
	uid  string    // of the pod with a history, if there is one
	at   time.Time // zero in a calm
	text string
}

func (r *report) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)+len(r.found)+len(r.other) > 0
}

// note writes down anything else that is wrong, for which there is no word in the last line.
func (r *report) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = append(r.other, text)
}

// find writes down what a calm did not repair.
func (r *report) find(all []finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = append(r.found, all...)
}

// flipped writes down all flips that were early, or whose ground was taken away, and pods that were taken out for no reason,
// which are lost while that lasts, as others' entries are. The rest is of what clients are told of a pod, and of the lease.
func (r *report) flipped(all []checker.Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = nil
	for _, v := range all {
		kind := wrong
		switch rule, _, _ := strings.Cut(v.Text, ":"); rule {
		case "I1", "I2", "I3":
			kind = early
		case "I9", "I10":
			kind = lost
		}
		r.seen = append(r.seen, finding{kind: kind, uid: v.UID, at: v.At, text: v.Text})
	}
}

func (r *report) count(k grievanceKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, f := range slices.Concat(r.seen, r.found) {
		if f.kind == k {
			n++
		}
	}
	return n
}

// tooLittle makes a run fail in which too little happened for its length. Short runs are not held to it.
func (g *game) tooLittle(n checker.Counts) {
	if g.length < enoughTime || g.report.failed() {
		return
	}
	share := g.length.Seconds() / enoughTime.Seconds()
	for _, c := range []struct {
		what      string
		had, need int
	}{
		{"transitions", n.Transitions, int(enoughTransitions * share)},
		{"flips by managers", n.Flips, int(enoughFlips * share)},
		{"kills", g.done.kills(), int(enoughKills * share)},
		{"addresses that were used again", n.Reused, 1},
	} {
		if c.had < c.need {
			g.report.note(fmt.Sprintf("TOO LITTLE HAPPENED: %d %s in %s, and %d are needed for the result to mean something",
				c.had, c.what, g.length, c.need))
		}
	}
	met := g.met(n)
	for _, k := range g.registry.met() {
		if need := int(enoughMet * share); met[k] < need {
			g.report.note(fmt.Sprintf("TOO LITTLE HAPPENED: %q met %d calls or connections in %s, and %d are needed", k, met[k], g.length, need))
		}
	}
	for _, k := range g.done.missing(g.registry.promised()) {
		g.report.note(fmt.Sprintf("TOO LITTLE HAPPENED: not once in %s: %s", g.length, k))
	}
}

// verdict is given once nothing runs any more. It writes what is wrong, with the history of so many pods at most, and the
// last line.
func (g *game) verdict(replay string, histories int) error {
	g.journal.Conclude(time.Now())
	g.report.flipped(g.journal.Broken())
	g.panicked()
	g.logged()
	g.tell(histories)
	r, n := &g.report, g.journal.Counts()
	met := g.met(n)
	g.out.plain("what was done: " + counted(g.registry.promised(), g.done.of))
	g.out.plain("calls, or connections, that met a fault of the registry: " +
		counted(g.registry.met(), func(k ...kind) int { return met[k[0]] }))
	g.out.printf("checked %d flips against %s; %d addresses were used again", n.Flips, g.registry.evidence(n), n.Reused)
	g.out.plain("the same plan again: " + replay)
	g.out.plain(fmt.Sprintf("chaos: %d transitions, %d kills, %d faults, %d early flips, %d lost, %d leaked, %d stuck, %d wrong",
		n.Transitions, g.done.kills(), g.done.faults(), r.count(early), r.count(lost), r.count(leaked), r.count(stuck), r.count(wrong)) +
		g.registry.sum(&g.done))
	if r.failed() {
		return errFailed
	}
	return nil
}

// met is how many calls met each fault that the registry makes itself, and how many connections each of the network.
func (g *game) met(n checker.Counts) map[kind]int {
	met := map[kind]int{}
	for fault, connections := range g.registry.hits() {
		met[kind(fault)] = connections
	}
	for fault, calls := range n.Met {
		met[kind(fault)] += calls
	}
	return met
}

// tell writes what is wrong, the worst first.
func (g *game) tell(histories int) {
	if !g.report.failed() {
		return
	}
	all := slices.Clone(g.report.seen)
	for _, k := range []grievanceKind{lost, leaked, wrong, stuck} {
		all = append(all, slices.DeleteFunc(slices.Clone(g.report.found), func(f finding) bool { return f.kind != k })...)
	}
	for _, f := range all[:min(histories, len(all))] {
		g.out.plain("")
		title := strings.ToUpper(string(f.kind))
		if !f.at.IsZero() {
			title += " at " + g.out.at(f.at)
		}
		g.out.plain(title + ": " + f.text)
		if f.uid != "" {
			g.out.plain(g.journal.History(f.uid, g.out.at))
		}
	}
	if more := len(all) - histories; more > 0 {
		g.out.plain(fmt.Sprintf("and %d more", more))
	}
	for _, text := range g.report.other {
		g.out.plain(text)
	}
	g.out.plain("logs are in " + g.dir)
}

// panicked looks through all that the managers wrote.
func (g *game) panicked() {
	for _, one := range g.managers.all {
		if fault := one.manager.Fault(); fault != "" {
			g.report.note(fmt.Sprintf("manager %s panicked, see %s:\n%s", one.name, one.manager.LogPath(), fault))
		}
	}
}

// logged holds what the managers logged to the rules of their history, which must show nothing that chaos does not see.
func (g *game) logged() {
	var logs [][]byte
	for _, one := range g.managers.all {
		logs = append(logs, []byte(one.manager.Log()))
	}
	lines, found := inLogs(logs...)
	g.out.plain(fmt.Sprintf("history: %d lines in the managers' logs, %d findings", lines, len(found)))
	g.report.find(found)
	if lines == 0 && g.journal.Counts().Transitions > 0 {
		g.report.note("the managers' logs have no line about a pod, see " + g.dir)
	}
}

// inLogs is what kubectl rollcall history finds in logs, and in how many lines.
func inLogs(logs ...[]byte) (lines int, found []finding) {
	told := rollcall.Read(logs...)
	for _, f := range told.Findings() {
		text := fmt.Sprintf("history: %s: pod %s: %s", f.Rule, f.Pod.Name, f.Text)
		found = append(found, finding{kind: wrong, uid: f.UID, at: f.At, text: text})
	}
	return len(told.Lines()), found
}
