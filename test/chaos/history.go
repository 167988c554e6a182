package main

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

// history tells what happened to a pod, in the order of time.
func (j *journal) history(uid string, out *output) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.pods[uid]
	if p == nil {
		return "no such pod was ever seen"
	}
	var lines []line
	for i, s := range p.sightings {
		lines = append(lines, line{s.at, "pod    " + s.describe(p.sightings[:i])})
	}
	for _, w := range p.patches {
		answer := "no answer"
		if w.status != 0 {
			answer = fmt.Sprintf("%d, version %d", w.status, w.version)
		}
		if w.finished.IsZero() {
			answer = "under way"
		}
		lines = append(lines, line{w.received, fmt.Sprintf("patch  of %s: %s -> %s at %s", w.manager, w.summary(), answer, out.at(w.finished))})
	}
	for _, c := range p.calls {
		lines = append(lines, line{c.received, "call   " + c.describe(out)})
	}
	for _, w := range p.wipes {
		lines = append(lines, line{w.at, fmt.Sprintf("WIPED  %s, by chaos itself, or expired", w.key)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var text strings.Builder
	fmt.Fprintf(&text, "pod %s/%s, UID %s\n", p.namespace, p.name, p.uid)
	for _, l := range lines {
		fmt.Fprintf(&text, "  %s  %s\n", out.at(l.at), l.text)
	}
	return text.String()
}

func (s sighting) describe(before []sighting) string {
	words := []string{fmt.Sprintf("version %d", s.version)}
	for _, w := range []struct {
		is   bool
		word string
	}{{s.gone, "GONE"}, {s.gap, "(after a gap)"}, {s.deleting, "being deleted"}, {s.ready, "ready"}, {!s.ready, "not ready"}} {
		if w.is {
			words = append(words, w.word)
		}
	}
	words = append(words, s.state, s.stamp, s.address, s.image, "handlers "+strings.Join(slices.Sorted(maps.Keys(s.set)), " "))
	if len(before) == 0 || before[len(before)-1].record != s.record {
		words = append(words, "record "+s.record)
	}
	return strings.Join(words, "  ")
}

func (c *call) describe(out *output) string {
	times := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return out.at(t)
	}
	answer := fmt.Sprintf("answered %d at %s", c.status, times(c.answered))
	if c.status == 0 {
		answer = "never answered"
	}
	text := fmt.Sprintf("#%d of %s: %s %s, done %s, %s",
		c.number, c.manager, c.op, c.key(), times(c.applied), answer)
	if c.fault != "" {
		text += " (" + c.fault + ")"
	}
	return text
}

// summary is the patch without its tests and the record.
func (w *patch) summary() string {
	operations := w.operations()
	if len(operations) == 0 {
		return w.body
	}
	var text []string
	tests := 0
	for _, o := range operations {
		switch {
		case o.Op == "test":
			tests++
		case strings.HasSuffix(o.Path, "~1registration"):
			text = append(text, "record")
		default:
			text = append(text, o.Op+" "+o.Path)
		}
	}
	return fmt.Sprintf("%s (%d tests)", strings.Join(text, ", "), tests)
}
