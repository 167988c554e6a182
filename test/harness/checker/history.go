package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// line is one thing that happened to a pod.
type line struct {
	at   time.Time
	text string
}

// History tells what happened to a pod, in the order of time.
func (j *Journal) History(uid string, at func(time.Time) string) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.pods[uid]
	if p == nil {
		return "no such pod was ever seen"
	}
	var lines []line
	for i, s := range p.sightings {
		lines = append(lines, line{s.At, "pod    " + s.describe(p.sightings[:i])})
	}
	for _, w := range p.patches {
		answer := "no answer"
		if w.Status != 0 {
			answer = fmt.Sprintf("%d, version %d", w.Status, w.version)
		}
		if w.finished.IsZero() {
			answer = "under way"
		}
		lines = append(lines, line{w.Received, fmt.Sprintf("patch  of %s: %s -> %s at %s", w.manager, w.Changes(), answer, at(w.finished))})
	}
	for _, c := range p.calls {
		lines = append(lines, line{c.Received, "call   " + c.describe(at)})
	}
	for _, a := range p.appeared {
		lines = append(lines, line{a.at, fmt.Sprintf("app    put %s in service itself", a.key)})
	}
	for _, w := range p.wipes {
		lines = append(lines, line{w.at, fmt.Sprintf("WIPED  %s, by the harness itself, or expired", w.key)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	fmt.Fprintf(&text, "pod %s/%s, UID %s\n", p.name.Namespace, p.name.Name, p.uid)
	for _, l := range lines {
		fmt.Fprintf(&text, "  %s  %s\n", at(l.at), l.text)
	}
	return text.String()
}

func (s Sighting) describe(before []Sighting) string {
	words := []string{fmt.Sprintf("version %d", s.Version)}
	for _, w := range []struct {
		is   bool
		word string
	}{{s.Gone, "GONE"}, {s.Gap, "(after a gap)"}, {s.Deleting, "being deleted"}, {s.Ready, "ready"}, {!s.Ready, "not ready"}} {
		if w.is {
			words = append(words, w.word)
		}
	}
	words = append(words, s.State, s.Stamp, s.Address, s.Image, "handlers "+strings.Join(slices.Sorted(maps.Keys(s.Set)), " "))
	if len(before) == 0 || before[len(before)-1].Record != s.Record {
		words = append(words, "record "+s.Record)
	}
	return strings.Join(words, "  ")
}

func (c *Call) describe(at func(time.Time) string) string {
	times := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return at(t)
	}
	answer := fmt.Sprintf("answered %d at %s", c.Status, times(c.Answered))
	if c.Status == 0 {
		answer = "never answered"
	}
	text := fmt.Sprintf("#%d of %s: %s %s, done %s, %s",
		c.number, c.Manager, c.Op, c.Key(), times(c.Applied), answer)
	if c.Fault != "" {
		text += " (" + c.Fault + ")"
	}
	return text
}
