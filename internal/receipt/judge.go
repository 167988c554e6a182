package receipt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
)

// Patience is how long after its time something may still be done: the queue, the API server and the clock take some of it.
const Patience = 10 * time.Second

// repairs is how long it may take until the first call for what resync missed has its answer.
const repairs = Patience / 2

// skew is how far the clocks of two managers may be apart.
const skew = time.Second

// draining is the reason of a pod that only waits for its drain.
const draining = "Draining"

// Fault is something that must not have happened, or must have and did not. Pod is empty where it is about no pod.
type Fault struct {
	At       time.Time
	Pod, UID string
	Workload string
	Text     string
	// Early: a hook was flipped before the acknowledgement.
	Early bool
}

// History is all that the lines say, in the order of time.
type History struct {
	lines []Line
	until time.Time
	pods  map[string][]Line // by UID, but for runs
}

// NewHistory takes the lines of all chains. Until is when they were read, zero where they may be old: then nothing is known
// after the last of them.
func NewHistory(lines []Line, until time.Time) *History {
	h := &History{lines: slices.Clone(lines), until: until, pods: map[string][]Line{}}
	slices.SortStableFunc(h.lines, func(a, b Line) int { return a.At.Compare(b.At) })
	h.rename()
	for _, l := range h.lines {
		if l.UID != "" {
			h.pods[l.UID] = append(h.pods[l.UID], l)
		}
		if until.IsZero() && l.At.After(h.until) {
			h.until = l.At
		}
	}
	return h
}

// rename gives the registries of earlier lines, and of work that was under way, the names that they got later.
func (h *History) rename() {
	for _, renamed := range h.lines {
		if renamed.Kind != Renamed {
			continue
		}
		for i := range h.lines {
			if h.lines[i].At.After(renamed.At.Add(Patience)) {
				break
			}
			h.lines[i].rename(renamed.Former, renamed.Registry)
		}
	}
}

// Faults returns what is wrong, in the order of time.
func (h *History) Faults() []Fault {
	var faults []Fault
	for i, l := range h.lines {
		why, early := "", false
		switch l.Kind {
		case Flip:
			why, early = h.faultOfFlip(l)
		case Called:
			why = h.faultOfChange(l)
		case Waits:
			why = h.faultOfWait(l)
		case Ran:
			faults = append(faults, h.faultsOfRun(l)...)
			why = h.faultOfLeader(l, h.lines[i+1:])
		case Leads:
			why = h.faultOfLeader(l, h.lines[i+1:])
		case Begin, Renamed, Told, End:
		}
		if why != "" {
			f := h.fault(l.At, l.Entry, why)
			f.Early = early
			faults = append(faults, f)
		}
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return a.At.Compare(b.At) })
	return faults
}

func (h *History) fault(at time.Time, e Entry, text string) Fault {
	f := Fault{At: at, UID: e.UID, Text: text}
	if e.Pod != "" {
		f.Pod = e.Namespace + "/" + e.Pod
	}
	for _, l := range h.pods[e.UID] {
		f.Workload = cmp.Or(f.Workload, l.Workload)
	}
	return f
}

// faultOfFlip holds each handler that the patch changed against what the registries had acknowledged. Early is a hook that was flipped
// before that.
func (h *History) faultOfFlip(l Line) (why string, early bool) {
	for _, handler := range l.Cleared {
		hook, allowed := l.Hooks.Released(handler, l.State, l.Deleting)
		switch {
		case !allowed:
			return fmt.Sprintf("handler %s was cleared in state %q", handler, l.State), false
		case hook != "" && l.Excuse == "":
			if why := h.faultOfRelease(l, hook); why != "" {
				return fmt.Sprintf("hook %s was released (%s), %s", hook, handler, why), true
			}
		}
	}
	for _, handler := range l.Set {
		hook, allowed := l.Hooks.Asserted(handler, l.State, l.Deleting)
		switch {
		case !allowed:
			return fmt.Sprintf("handler %s was set in state %q", handler, l.State), false
		case hook != "":
			if why := h.faultOfAssert(l); why != "" {
				return fmt.Sprintf("hook %s was asserted (%s), %s", hook, handler, why), true
			}
		}
	}
	return "", false
}

func (h *History) faultOfRelease(l Line, hook string) string {
	release := Release{At: l.Asked, Stays: hook == InPlaceUpdate}
	if !l.Deleting {
		release.Drain = l.duration()
	}
	for _, k := range h.keys(l.UID) {
		if why := h.evidence(k, l).FaultOfRelease(release); why != "" {
			return why
		}
	}
	return ""
}

func (h *History) faultOfAssert(l Line) string {
	for _, e := range l.Instances {
		evidence := h.evidence(e.Key(), l)
		// What was acknowledged before the lines begin is not known: the pod may have waited since for the registry's readers.
		if !l.Since.IsZero() && l.Since.Before(h.known(l)) && evidence.Last(l.Asked, Op.Changes) == nil {
			continue
		}
		if why := evidence.FaultOfAssert(l.Asked); why != "" {
			return why
		}
	}
	return ""
}

// keys are the instances of a pod that a line speaks of.
func (h *History) keys(uid string) []Key {
	var keys []Key
	for _, l := range h.pods[uid] {
		if k := l.Key(); (l.Kind == Called || l.Kind == Told) && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// about are the lines of one instance that say something for a flip: where its manager may have acted for it in a file that is gone, not
// those of before.
func (h *History) about(k Key, flip Line) []Line {
	known := h.known(flip)
	unseen := flip.Since.Before(known) && !flip.Since.IsZero() && !flip.Deleting
	return slices.DeleteFunc(slices.Clone(h.pods[k.UID]), func(l Line) bool { return l.Key() != k || unseen && l.At.Before(known) })
}

// evidence is what the lines have of one instance for a flip. A change of unknown outcome may have been carried out from when it was
// asked for. An entry that a list had in service was put in before.
func (h *History) evidence(k Key, flip Line) Evidence {
	e := Evidence{Key: k}
	var told []Line
	for _, l := range h.about(k, flip) {
		switch {
		case l.Kind == Called:
			e.Changes = append(e.Changes, changeOf(l, processOf(flip)))
		case l.Kind == Told && registry.State(l.Says) == registry.InService:
			e.Changes = append(e.Changes, Change{
				Name: "what the registry showed at " + clock(l.Asked), Op: Register, Applied: l.Asked, Acknowledged: l.At,
			})
		case l.Kind == Told:
			told = append(told, l)
		}
	}
	e.Told = func(after, by time.Time, right func(registry.State) bool) bool {
		return slices.ContainsFunc(told, func(l Line) bool {
			return !l.Asked.Before(after) && !l.At.After(by) && right(registry.State(l.Says))
		})
	}
	return e
}

// changeOf is the change of a line, to hold against what the process wrote.
func changeOf(l Line, process string) Change {
	c := Change{Name: "the call of " + clock(l.Asked), Op: l.Operation, Applied: l.Asked}
	if l.Outcome == Acknowledged {
		c.Applied, c.Acknowledged = l.At, l.At
	}
	if processOf(l) != process {
		c.Skew = skew
	}
	return c
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }

// faultOfChange finds a pod that was taken out for no reason: by the manager while it was Normal and ready, unmoved or not yet in service
// where it moves, or by resync although it lives, which a later Register for it tells.
func (h *History) faultOfChange(l Line) string {
	if l.Operation == Register {
		return ""
	}
	steady := l.State == string(appspub.LifecycleStateNormal) && l.Ready && !l.Deleting
	if steady && slices.ContainsFunc(l.Instances, func(e Entry) bool { return e.Key() == l.Key() }) {
		return fmt.Sprintf("%s was taken out while the pod was Normal and ready", l.Key())
	}
	if why := h.faultOfDeparture(l); steady && why != "" {
		return fmt.Sprintf("%s was taken out, from where the pod departs, %s", l.Key(), why)
	}
	if byResync := l.Workload == "" && l.State == ""; byResync {
		return h.faultOfRemoval(l)
	}
	return ""
}

// faultOfRemoval finds a pod that lives although resync removed its entry.
func (h *History) faultOfRemoval(l Line) string {
	lives := slices.IndexFunc(h.pods[l.UID], func(later Line) bool {
		return later.At.After(l.At) && later.Kind == Called && later.Operation == Register && later.Key() == l.Key()
	})
	if lives < 0 {
		return ""
	}
	return fmt.Sprintf("resync removed %s as if its pod were gone, and the pod was registered again at %s", l.Key(),
		clock(h.pods[l.UID][lives].At))
}

// faultOfDeparture says where the pod was not in service yet when it left another service or registry, or nothing. Another pod may have a
// former address soon, so that is left first.
func (h *History) faultOfDeparture(l Line) string {
	stays := slices.ContainsFunc(l.Instances, func(e Entry) bool { return e.Address == l.Address })
	last := h.evidence(l.Key(), l).Last(l.Asked, Op.Changes)
	if !stays || last == nil || last.Op != Register {
		return ""
	}
	return h.faultOfAssert(l)
}

// faultOfWait finds a drain that has not ended long after its time.
func (h *History) faultOfWait(l Line) string {
	drain := l.duration()
	overdue := func(within time.Duration) bool {
		return h.until.Sub(l.At) >= within && !slices.ContainsFunc(h.pods[l.UID], func(later Line) bool {
			return later.At.After(l.At) && later.At.Before(l.At.Add(within))
		})
	}
	const takeover = 80 * time.Second // with the longest leaseDuration, a minute
	within := drain + Patience
	if l.Reason != draining || !overdue(within) || h.breaksOff(l.Chain, l.At.Add(within)) && !overdue(within+takeover) {
		return ""
	}
	return fmt.Sprintf("hook %s waits for a drain of %s that has not ended %s later", l.Hook, drain, h.until.Sub(l.At).Round(time.Second))
}

// breaksOff reports whether the chain has no end, and no line after that time.
func (h *History) breaksOff(chain string, after time.Time) bool {
	return !slices.ContainsFunc(h.lines, func(l Line) bool { return l.Chain == chain && (l.Kind == End || l.At.After(after)) })
}

// faultsOfRun finds what a run of resync saw and that nothing was done about.
func (h *History) faultsOfRun(l Line) []Fault {
	if l.Asked.Before(h.known(l)) {
		return nil // what it did may be in a file that is gone
	}
	faults := h.missed(l)
	for _, e := range l.Gone {
		removed := func(c Line) bool { return c.Kind == Called && c.Operation == Deregister && c.At.After(l.Asked) }
		if l.Outcome == Acknowledged && !slices.ContainsFunc(h.pods[e.UID], removed) {
			faults = append(faults, h.fault(l.At, e, fmt.Sprintf("resync found %s, whose pod is gone, and the manager did not remove it", e.Key())))
		}
	}
	return faults
}

// missed finds entries that a run missed and that were not registered again.
func (h *History) missed(l Line) (faults []Fault) {
	if len(l.Missing) == 0 {
		return nil
	}
	// A registry that is down by now can't be told.
	down := slices.ContainsFunc(h.lines, func(later Line) bool {
		return later.Kind == Ran && later.Registry == l.Registry && later.At.After(l.At) &&
			later.Outcome != Acknowledged && later.Outcome != RemovalsBlocked
	})
	for _, e := range l.Missing {
		acts := func(later Line) bool { return later.At.After(l.Asked) }
		if h.until.Sub(l.At) > repairs && !down && !slices.ContainsFunc(h.pods[e.UID], acts) {
			faults = append(faults, h.fault(l.At, e, fmt.Sprintf("resync found %s missing, and the manager did not register it again", e.Key())))
		}
	}
	return faults
}

// faultOfLeader finds a manager that compares a registry with the cluster too seldom, or never, from a line on that says how often it
// does.
func (h *History) faultOfLeader(l Line, after []Line) string {
	interval, until := l.duration(), h.until
	for _, later := range after {
		if later.Kind == Ran && later.Registry == l.Registry {
			until = later.Asked
			break
		}
		if later.Kind == Leads && later.Registry == l.Registry || later.Kind == End && processOf(later) == processOf(l) {
			until = later.At
			break
		}
	}
	if late := until.Sub(l.At); interval > 0 && late > 2*interval+Patience {
		return fmt.Sprintf("registry %s was not compared with the cluster for %s after %s, and resync.interval is %s",
			l.Registry, late.Round(time.Second), clock(l.At), interval)
	}
	return ""
}

// processOf is what wrote the line: a process begins a chain for each file.
func processOf(l Line) string {
	process, _, _ := strings.Cut(l.Chain, "/")
	return process
}

// known is since when all lines are there of the manager that wrote this one.
func (h *History) known(l Line) time.Time {
	i := slices.IndexFunc(h.lines, func(b Line) bool { return b.Kind == Begin && processOf(b) == processOf(l) })
	if i < 0 || !h.lines[i].Continues {
		return h.Since()
	}
	return h.lines[i].At
}

// Since is when the lines begin.
func (h *History) Since() time.Time {
	if len(h.lines) == 0 {
		return h.until
	}
	return h.lines[0].At
}

// Scope says what the receipt rests on, and which time it can't see.
func (h *History) Scope() string {
	ended, last, order := map[string]bool{}, map[string]time.Time{}, []string{}
	for _, l := range h.lines {
		if last[l.Chain].IsZero() {
			order = append(order, l.Chain)
		}
		last[l.Chain], ended[l.Chain] = l.At, ended[l.Chain] || l.Kind == End
	}
	var text strings.Builder
	fmt.Fprintf(&text, "From %s in %s, since %s. What came before is not known.", Counted(len(h.lines), "line"), Counted(len(order), "chain"),
		h.Since().UTC().Format(time.RFC3339))
	for i, chain := range order {
		if !ended[chain] && i < len(order)-1 {
			fmt.Fprintf(&text, " Chain %s breaks off at %s: its manager was killed, or began a new file.", chain, clock(last[chain]))
		}
	}
	return text.String()
}
