package receipt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// Rollout is what the lines say of one revision of a CloneSet, from the first hook that was flipped for it to the last.
type Rollout struct {
	// From is empty where the lines do not go back to it.
	From, To     string
	Began, Ended time.Time
	// Transitions are the moves that the lines show, and Excused the hooks that a person or the failure policy released.
	Pods, Transitions, Excused int
	// Least is the lowest number of pods in rotation, of the Most that there were.
	Least, Most int
	// Longest is the longest wait at a hook.
	Longest time.Duration
	Faults  []Fault
}

// String is the rollout's line in a receipt. Name names a revision for a person.
func (r *Rollout) String(name func(revision string) string) string {
	revisions := name(r.To)
	if r.From != "" {
		revisions = name(r.From) + "→" + revisions
	}
	parts := []string{
		Counted(r.Pods, "pod"), Counted(r.Transitions, "transition"), fmt.Sprintf("%d before acknowledgement", r.Early()),
	}
	if r.Excused > 0 {
		parts = append(parts, Counted(r.Excused, "hook")+" released by a person or the failure policy")
	}
	if r.From != "" {
		parts = append(parts, fmt.Sprintf("in rotation at least %d of %d", r.Least, r.Most))
	}
	verdict := "PASS"
	if len(r.Faults) > 0 {
		verdict = "FAIL"
	}
	parts = append(parts, fmt.Sprintf("longest wait %.0f s", r.Longest.Seconds()))
	return fmt.Sprintf("rev %s: %s: %s", revisions, strings.Join(parts, ", "), verdict)
}

// Early is how many hooks were flipped before the acknowledgement.
func (r *Rollout) Early() (n int) {
	for _, f := range r.Faults {
		if f.Early {
			n++
		}
	}
	return n
}

// Counted says how many there are of something.
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// hookOf returns the hook that a flip released or asserted; empty where it only armed the pod.
func hookOf(l Line) (hook string, asserted bool) {
	for _, handler := range l.Set {
		if hook, _ = l.Hooks.Asserted(handler, l.State, l.Deleting); hook != "" {
			return hook, true
		}
	}
	for _, handler := range l.Cleared {
		if hook, _ = l.Hooks.Released(handler, l.State, l.Deleting); hook != "" {
			return hook, false
		}
	}
	return "", false
}

// Rollouts returns the rollouts of a CloneSet. Faults that belong to no rollout are those of the last one before them.
func (h *History) Rollouts(namespace, workload string) []Rollout {
	var all []Rollout
	for _, flips := range h.segments(namespace, workload) {
		r := rolloutOf(flips)
		if before := flips[0].Revision; len(all) > 0 {
			r.From = all[len(all)-1].To
		} else if before != r.To {
			r.From = before
		}
		h.count(&r, namespace, workload)
		all = append(all, r)
	}
	for _, f := range h.Faults() {
		at := slices.IndexFunc(all, func(r Rollout) bool { return !r.Ended.Before(f.At) })
		switch {
		case !f.concerns(namespace, workload):
			continue
		case len(all) == 0:
			all, at = h.begun(namespace, workload), 0
		case at < 0:
			at = len(all) - 1
		}
		if len(all) > 0 {
			all[at].Faults = append(all[at].Faults, f)
		}
	}
	return all
}

// concerns reports whether the fault is one of the CloneSet, or of what no line says whose it is.
func (f Fault) concerns(namespace, workload string) bool {
	return f.Pod == "" || (f.Workload == workload || f.Workload == "") && strings.HasPrefix(f.Pod, namespace+"/")
}

// begun returns the rollout of a CloneSet that no hook was flipped for yet; none where no line speaks of it.
func (h *History) begun(namespace, workload string) []Rollout {
	pods := map[string]bool{}
	var r Rollout
	for _, l := range h.lines {
		if l.Namespace == namespace && l.Workload == workload {
			pods[l.UID], r.To = true, l.Revision
		}
	}
	if r.Pods = len(pods); r.Pods == 0 {
		return nil
	}
	return []Rollout{r}
}

// rolloutOf is what the flips of its hooks say of a rollout.
func rolloutOf(flips []Line) Rollout {
	r := Rollout{Began: flips[0].Asked, Ended: flips[len(flips)-1].At}
	pods := map[string]bool{}
	for _, l := range flips {
		pods[l.UID] = true
		if _, asserted := hookOf(l); asserted {
			r.To = l.Revision
		} else if l.Excuse != "" {
			r.Excused++
		}
		r.Longest = max(r.Longest, waited(l))
	}
	if r.Pods = len(pods); r.To == "" {
		r.To = flips[0].Revision
	}
	return r
}

// waited is how long Kruise has waited for the hook that a flip released or asserted. A pod that Kruise did not move before it ended
// has waited at none since its last move.
func waited(l Line) time.Duration {
	if l.Since.IsZero() || l.Deleting && !Leaving(l.State) {
		return 0
	}
	return l.Asked.Sub(l.Since)
}

// segments are the flips of hooks of each rollout. One begins with the first release after the last assertion of the revision
// before: its pods still have that.
func (h *History) segments(namespace, workload string) [][]Line {
	var all [][]Line
	var now, releases []Line
	revision := ""
	for _, l := range h.lines {
		hook, asserted := "", false
		if l.Kind == Flip && l.Namespace == namespace && l.Workload == workload {
			hook, asserted = hookOf(l)
		}
		switch {
		case hook == "":
		case !asserted:
			releases = append(releases, l)
		case revision != "" && l.Revision != revision:
			all = append(all, now)
			now, releases, revision = append(slices.Clone(releases), l), nil, l.Revision
		default:
			now, releases, revision = append(append(now, releases...), l), nil, l.Revision
		}
	}
	if now = append(now, releases...); len(now) > 0 {
		all = append(all, now)
	}
	return all
}

// count replays who was in rotation.
func (h *History) count(r *Rollout, namespace, workload string) {
	in, moves := h.before(namespace, workload), map[string]bool{}
	r.Least = -1
	for _, l := range h.lines {
		if l.At.After(r.Ended) {
			break
		}
		within := !l.At.Before(r.Began)
		if within && r.Least < 0 {
			in.look(r)
		}
		for _, e := range l.Missing {
			delete(in, e.Key())
		}
		if l.Namespace != namespace || l.Workload != workload {
			continue
		}
		if in.follow(l); within {
			moves[fmt.Sprint(l.UID, l.State, l.Since.Unix(), l.Deleting)] = true
			in.look(r)
		}
	}
	r.Transitions, r.Least = len(moves), max(r.Least, 0)
}

// before returns what was in rotation before the first line: what a pod that leaves is taken out of without ever having been put in.
func (h *History) before(namespace, workload string) rotation {
	in, known := rotation{}, map[Key]bool{}
	for _, l := range h.lines {
		if l.Kind != Called && l.Kind != Told || l.Namespace != namespace || l.Workload != workload || known[l.Key()] {
			continue
		}
		if known[l.Key()] = true; l.Kind == Called && l.Operation != Register && Leaving(l.State) {
			in[l.Key()] = true
		}
	}
	return in
}

// rotation are the instances in service.
type rotation map[Key]bool

func (in rotation) follow(l Line) {
	switch {
	case l.Kind == Called && l.Operation == Register && l.Outcome == Acknowledged,
		l.Kind == Told && registry.State(l.Says) == registry.InService:
		in[l.Key()] = true
	case l.Kind == Called && l.Operation != Register:
		delete(in, l.Key())
	}
}

func (in rotation) look(r *Rollout) {
	pods := map[string]bool{}
	for k := range in {
		pods[k.UID] = true
	}
	r.Most = max(r.Most, len(pods))
	if r.Least < 0 || len(pods) < r.Least {
		r.Least = len(pods)
	}
}
