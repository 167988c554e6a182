package main

import (
	"fmt"
	"sync"
	"time"
)

const (
	// enough is what a run must have done for its result to mean something.
	enoughTime        = 5 * time.Minute
	enoughTransitions = 500
	enoughKills       = 10
	// historiesShown bounds how much is told of a run that failed.
	historiesShown = 5
)

// report is what is wrong in the end.
type report struct {
	mu     sync.Mutex
	early  []violation
	lost   []finding
	leaked []finding
	stuck  []finding
	other  []string
}

// finding is one thing that the calm did not mend.
type finding struct {
	uid  string // of the pod with a history, if there is one
	text string
}

func (r *report) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.early)+len(r.lost)+len(r.leaked)+len(r.stuck)+len(r.other) > 0
}

// note writes down anything else that is wrong, for which there is no word in the last line.
func (r *report) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = append(r.other, text)
}

// tooLittle makes a run fail in which too little happened for its length. Short runs are not held to it.
func (g *game) tooLittle() {
	if g.length < enoughTime || g.report.failed() {
		return
	}
	transitions := g.journal.counts().transitions
	share := g.length.Seconds() / enoughTime.Seconds()
	for _, c := range []struct {
		what      string
		had, need int
	}{
		{"transitions", transitions, int(enoughTransitions * share)}, {"kills", g.done.kills(), int(enoughKills * share)},
	} {
		if c.had < c.need {
			g.report.note(fmt.Sprintf(
				"TOO LITTLE HAPPENED: %d %s in %s, and %d are needed for the result to mean something", c.had, c.what, g.length, c.need))
		}
	}
}

// verdict writes what is wrong, with the history of so many pods at most, and the last line.
func (g *game) verdict(replay string, histories int) error {
	r := &g.report
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range g.managers.panics() {
		r.other = append(r.other, "a manager panicked:\n"+text)
	}
	shown := 0
	tell := func(kind, uid, text string) {
		if shown++; shown > histories {
			return
		}
		g.out.plain("")
		g.out.plain(kind + ": " + text)
		if uid != "" {
			g.out.plain(g.journal.history(uid, g.out))
		}
	}
	for _, v := range r.early {
		tell("EARLY FLIP at "+g.out.at(v.at), v.uid, v.text)
	}
	for kind, findings := range map[string][]finding{"LOST": r.lost, "LEAKED": r.leaked, "STUCK": r.stuck} {
		for _, f := range findings {
			tell(kind, f.uid, f.text)
		}
	}
	for _, text := range r.other {
		g.out.plain(text)
	}
	bad := len(r.early)+len(r.lost)+len(r.leaked)+len(r.stuck)+len(r.other) > 0
	if bad {
		g.out.plain("logs are in " + g.dir)
	}
	n := g.journal.counts()
	g.out.printf("checked %d flips against %d calls; %d addresses were used again", n.flips, n.calls, n.reused)
	g.out.plain("the same plan again: " + replay)
	g.out.plain(fmt.Sprintf("chaos: %d transitions, %d kills, %d faults, %d early flips, %d lost, %d leaked, %d stuck",
		n.transitions, g.done.kills(), g.done.faults(), len(r.early), len(r.lost), len(r.leaked), len(r.stuck)))
	if bad {
		return errFailed
	}
	return nil
}
