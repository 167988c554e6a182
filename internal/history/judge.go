package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// slack is what two times of one process may be apart that are of the same moment, and skew the clocks of two managers.
	slack = 25 * time.Millisecond
	skew  = time.Second
	// patience is how long the logs must continue before what they lack counts as not done.
	patience = 10 * time.Second
)

// The rules.
const (
	ReleasedEarly  = "released before acknowledged"
	DrainCutShort  = "drain cut short"
	LeftInRotation = "left in rotation"
)

// History is what logs show, in the order of time.
type History struct {
	lines []Line
	// begin is the first time of each log, and until the last of all.
	begin []time.Time
	until time.Time
}

// Finding is something that must not have happened.
type Finding struct {
	At   time.Time
	Rule string
	Pod
	Text string
}

// Lines returns all lines.
func (h *History) Lines() []Line { return h.lines }

// Begin is the first time that a log has.
func (h *History) Begin() (begin time.Time) {
	for _, at := range h.begin {
		if begin.IsZero() || !at.IsZero() && at.Before(begin) {
			begin = at
		}
	}
	return begin
}

// Until is the last time that a log has, or when it was read.
func (h *History) Until() time.Time { return h.until }

// AsOf notes that the logs have all lines up to then.
func (h *History) AsOf(then time.Time) {
	if then.After(h.until) {
		h.until = then
	}
}

// Of returns what is about pods that match, and about the names of registries.
func (h *History) Of(match func(Pod) bool) *History {
	of := *h
	of.lines = slices.DeleteFunc(slices.Clone(h.lines), func(l Line) bool { return l.Pod != (Pod{}) && !match(l.Pod) })
	return &of
}

// rename gives the registries of earlier lines the names that they got later.
func (h *History) rename() {
	for i, renamed := range h.lines {
		if renamed.Kind != Renamed {
			continue
		}
		for j := range h.lines[:i] {
			l := &h.lines[j]
			if l.Registry == renamed.Former {
				l.Registry = renamed.Registry
			}
			for k, listed := range l.Entries {
				if rest, is := strings.CutPrefix(listed, renamed.Former+" "); is {
					l.Entries[k] = renamed.Registry + " " + rest
				}
			}
		}
	}
}

// Findings returns what is wrong, in the order of time:
//
//	released before acknowledged  a release rests on an entry whose last line shows otherwise, or on one of a new pod without a line
//	drain cut short               a release came sooner after its entries were out than its shortest drain
//	left in rotation              an entry was in rotation when its pod was updated or deleted without the acknowledgement, or stays
//	                              there after its pod could be deleted, unless the pod was kept and registered again
func (h *History) Findings() (all []Finding) {
	byPod := map[string][]Line{}
	for _, l := range h.lines {
		byPod[l.UID] = append(byPod[l.UID], l)
	}
	for uid, lines := range byPod {
		if uid != "" {
			all = append(all, h.judge(lines)...)
		}
	}
	slices.SortStableFunc(all, func(a, b Finding) int { return a.At.Compare(b.At) })
	return all
}

// judge finds what is wrong with one pod.
func (h *History) judge(lines []Line) (all []Finding) {
	for i, l := range lines {
		if l.Kind != Released {
			continue
		}
		p := past{h, lines[:i], lines[i+1:], l}
		find := func(rule, why string) {
			if why != "" {
				all = append(all, Finding{l.At, rule, l.Pod, fmt.Sprintf("hook %s was released %s", l.Hook, why)})
			}
		}
		switch {
		case l.By != ByAcknowledgement:
			find(LeftInRotation, p.leftIn())
		case l.Rotation == In:
			find(ReleasedEarly, p.notIn())
		default:
			find(ReleasedEarly, p.notOut())
			find(DrainCutShort, p.cutShort())
		}
	}
	return append(all, h.leftBehind(lines)...)
}

// past is a release with what came before it and after it.
type past struct {
	*History

	before, after []Line
	of            Line
}

// last returns the last line about an entry.
func last(lines []Line, entry string) (l Line, found bool) {
	for _, l := range slices.Backward(lines) {
		if l.isOf(entry) {
			return l, true
		}
	}
	return Line{}, false
}

func (l *Line) isOf(entry string) bool {
	return (l.Kind == Registered || l.Kind == TakenOut || l.Kind == Removed) && l.Listed() == entry
}

// notIn returns which entry was not in rotation. Of one without a line nothing is known, unless the pod is new and the log is older.
func (p past) notIn() string {
	for _, entry := range p.of.Entries {
		l, found := last(p.before, entry)
		switch {
		case found && l.Kind != Registered:
			return fmt.Sprintf("although %s was %s %s before%s", entry, l.Kind, p.of.since(l), p.later(entry, Registered))
		case !found && p.isNew():
			return fmt.Sprintf("although no registry had acknowledged %s%s", entry, p.later(entry, Registered))
		}
	}
	return ""
}

// isNew reports whether the log has all lines of the pod.
func (p past) isNew() bool {
	began := p.of.At.Add(-duration(p.of.Took))
	return p.of.State == "PreparingNormal" && began.After(p.begin[p.of.source])
}

func (p past) notOut() string {
	for _, entry := range p.of.Entries {
		if l, found := last(p.before, entry); found && l.Kind == Registered {
			return fmt.Sprintf("although %s was in rotation%s", entry, p.later(entry, TakenOut, Removed))
		}
	}
	return ""
}

// leftIn returns which entry was in rotation when the release did not wait for the acknowledgement, and for how long. An entry that stays
// in rotation although its pod could be deleted is found at the end.
func (p past) leftIn() string {
	for _, entry := range entriesOf(p.before) {
		if l, _ := last(p.before, entry); l.Kind == Registered {
			if later := p.later(entry, TakenOut, Removed); later != "" || p.of.Rotation != Gone {
				return fmt.Sprintf("by %s although %s was in rotation%s", p.of.By, entry, later)
			}
		}
	}
	return ""
}

func entriesOf(lines []Line) (all []string) {
	for _, l := range lines {
		if entry := l.Listed(); l.isOf(entry) && !slices.Contains(all, entry) {
			all = append(all, entry)
		}
	}
	return all
}

// later returns when the registry acknowledged it after all.
func (p past) later(entry string, kinds ...Kind) string {
	for _, l := range p.after {
		if l.isOf(entry) && slices.Contains(kinds, l.Kind) {
			return fmt.Sprintf(", which was %s %s later", l.Kind, l.since(p.of))
		}
	}
	return ""
}

// cutShort returns how long the entries were out, if that is too short. A drain may have begun in a log that is gone.
func (p past) cutShort() string {
	var out Line
	for _, entry := range p.of.Entries {
		if l, found := p.firstOut(entry); found && l.At.After(out.At) {
			out = l
		}
	}
	if out.At.IsZero() {
		return ""
	}
	since := out.At
	for _, l := range p.before {
		if l.Kind == DrainBegun && l.Since.Before(since) && l.At.After(p.lastIn()) {
			since = l.Since
		}
	}
	allowed, least := slack, duration(p.of.DrainMin)
	if out.source != p.of.source {
		allowed = skew
	}
	drained := p.of.At.Sub(since)
	if drained >= least-allowed {
		return ""
	}
	return fmt.Sprintf("%s after %s was %s, and its drain is %s", rounded(drained), out.Listed(), out.Kind, least)
}

// firstOut returns the line by which the entry left the rotation.
func (p past) firstOut(entry string) (out Line, found bool) {
	for _, l := range p.before {
		switch {
		case !l.isOf(entry):
		case l.Kind == Registered:
			out, found = Line{}, true
		case found && out.At.IsZero():
			out = l
		}
	}
	return out, !out.At.IsZero()
}

// lastIn is when the pod was last registered.
func (p past) lastIn() (at time.Time) {
	for _, l := range p.before {
		if l.Kind == Registered {
			at = l.At
		}
	}
	return at
}

// leftBehind finds entries that stay in rotation although OpenKruise could delete the pod. A pod that is registered again in another state
// was kept.
func (h *History) leftBehind(lines []Line) (all []Finding) {
	i := -1
	for at, l := range lines {
		if l.Kind == Released {
			i = at
		}
	}
	if i < 0 || lines[i].Rotation != Gone || h.until.Sub(lines[i].At) < patience {
		return nil
	}
	released := lines[i]
	for _, entry := range entriesOf(lines) {
		l, _ := last(lines, entry)
		asked := l.At.Add(-duration(l.Took))
		if l.Kind != Registered || asked.After(released.At) && l.State != released.State {
			continue
		}
		since := l.At
		if released.At.After(since) {
			since = released.At
		}
		all = append(all, Finding{since, LeftInRotation, l.Pod, fmt.Sprintf(
			"%s is in rotation since %s, and no line shows that it was removed after hook %s was released at %s",
			entry, clock(l.At), released.Hook, clock(released.At))})
	}
	return all
}

// since is how long after another line this one is.
func (l *Line) since(other Line) time.Duration { return rounded(l.At.Sub(other.At)) }

func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }

func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
