package lifecycle

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// checker checks the rows of one shape.
type checker struct {
	t     *testing.T
	hooks Hooks
	// guarded are the patches whose guards were checked.
	guarded map[string]bool
	// outcomes are the metadata and decisions whose outcome was checked: the status is not in a patch.
	outcomes map[outcome]bool
	// records are those that were read, by their text.
	records map[string]Record

	row row
	pod *Pod
}

func (c *checker) check(r row) {
	c.row, c.pod = r, r.pod()
	d := Decide(c.input(c.pod))
	c.checkTable(d)
	c.checkWaiting(d)
	c.checkEdits(d)
	c.checkReleases(d)
	c.checkAsserts(d)
	if key := c.outcome(d); !c.outcomes[key] {
		c.outcomes[key] = true
		if r.mark.name == "none" && !r.crowded {
			c.checkPure(d)
			c.checkPolicies(d)
			c.checkBlocked(d)
			c.checkEnding()
			c.checkSkips(d)
		}
		c.checkOutcome(d)
	}
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// checkPure: the same again for the same, and the input is as it was.
func (c *checker) checkPure(d Decision) {
	before := c.pod.DeepCopy()
	if again := Decide(c.input(c.pod)); !reflect.DeepEqual(d, again) {
		c.fail("deciding twice differs: %s", cmp.Diff(d, again))
	}
	if !reflect.DeepEqual(before, c.pod) {
		c.fail("the pod of the input was changed: %s", cmp.Diff(before, c.pod))
	}
}

// outcome identifies the pod's metadata within a shape, and what was decided.
type outcome struct {
	state, record, mark string
	deleting, crowded   bool
	set                 int
	row                 Row
	want                Want
	guard               Guard
	guarded             bool
}

func (c *checker) outcome(d Decision) outcome {
	o := outcome{state: c.row.state.name, record: c.row.record.name, mark: c.row.mark.name,
		deleting: c.pod.DeletionTimestamp != nil, crowded: c.row.crowded, set: c.row.set, row: d.Row, want: d.Want,
		guard: c.row.guard, guarded: c.row.guarded}
	if o.row == RowGone || o.row == RowUnknownState {
		o.state = ""
	}
	o.crowded = o.crowded && c.row.shape.hasFinalizers()
	return o
}

func (c *checker) input(pod *Pod) Input {
	text := pod.Annotations[AnnotationRecord]
	if _, read := c.records[text]; !read {
		c.records[text] = RecordOf(pod) // of the one UID that the pods have
	}
	return Input{Pod: pod, Hooks: c.hooks, Record: c.records[text], Ownership: testOwnership(),
		Circumstances: Circumstances{KeepUnready: c.row.keepUnready}, Guard: c.row.guard}
}

// checkPolicies: the policy for pods that are not ready has a part in row 10 alone.
func (c *checker) checkPolicies(d Decision) {
	if d.Row == RowNormalNotReady {
		return
	}
	in := c.input(c.pod)
	for _, in.KeepUnready = range []bool{false, true} {
		if other := Decide(in); !reflect.DeepEqual(d, other) {
			c.fail("keeping unready pods (%t) decides otherwise: %s", in.KeepUnready, cmp.Diff(d, other))
		}
	}
}

// checkBlocked: a pod that can't be put in service stays where it is and is armed; everything else goes on.
func (c *checker) checkBlocked(d Decision) {
	in := c.input(c.pod)
	in.Blocked = true
	blocked := Decide(in)
	if d.Want == InService {
		if armed := without(d.Arm.Set, []Handler{guardHandler()}); !slices.Equal(armed, blocked.Arm.Set) {
			c.fail("arms %v where the pod is blocked, want %v", blocked.Arm.Set, armed)
		}
		if len(blocked.Then.Set) > 0 || len(blocked.Then.ClearMarks) > 0 || !slices.Equal(blocked.Then.Clear, d.Then.Clear) {
			c.fail("does %+v to a pod that is blocked", blocked.Then)
		}
		d.Want, d.Arm.Set, d.Then = Keep, blocked.Arm.Set, blocked.Then
	}
	if !reflect.DeepEqual(d, blocked) {
		c.fail("a pod that is blocked is decided otherwise: %s", cmp.Diff(d, blocked))
	}
}

// checkEnding: a pod that ends is one that is not ready, and that nothing keeps.
func (c *checker) checkEnding() {
	in := c.input(c.pod)
	in.Ending, in.KeepUnready = "its node is shutting down", true
	ends := Decide(in)
	in.Ending, in.KeepUnready = "", false
	in.Pod = in.Pod.DeepCopy()
	in.Pod.Status.Conditions = nil
	if unready := Decide(in); !reflect.DeepEqual(ends, unready) {
		c.fail("a pod that ends is decided otherwise than one that is not ready: %s", cmp.Diff(unready, ends))
	}
}

func (c *checker) fail(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%s\n\t%s", fmt.Sprintf(format, args...), c.row)
}

// checkSkips: what a skip releases is what Kruise waits for; it asserts nothing, and releases nothing a second time.
func (c *checker) checkSkips(d Decision) {
	edit := d.Skip()
	if edit.Empty() {
		return
	}
	releases := d.Row == RowGone || d.Row == RowPreparingDelete || d.Row == RowPreparingUpdate
	if len(edit.Set) > 0 || d.Waiting == "" || !releases {
		c.fail("a skip in row %d, where Kruise waits for %q, makes %+v", d.Row, d.Waiting, edit)
	}
	hook := map[Row][]Handler{RowPreparingDelete: c.hooks.PreDelete, RowPreparingUpdate: c.hooks.InPlaceUpdate}[d.Row]
	if d.Row != RowGone && len(without(hook, edit.Clear)) == len(hook) {
		c.fail("skips %s and clears none of its handlers: %v", d.Waiting, edit.Clear)
	}
	pod := c.pod.DeepCopy()
	annotate(pod, AnnotationSkip, string(d.Waiting))
	edit.ClearSkip = true
	done := c.apply(pod, edit, nil)
	if done.Annotations[AnnotationSkip] != "" || !Decide(c.input(done)).Skip().Empty() {
		c.fail("skipped, and would skip again")
	}
}

// checkTable compares with the table of the design, written down a second time.
func (c *checker) checkTable(d Decision) {
	type key struct {
		state string
		ready bool
	}
	type verdict struct {
		Row  Row
		Want Want
	}
	table := map[key]verdict{
		{`"PreparingNormal"`, false}: {7, OutOfService}, {`"PreparingNormal"`, true}: {8, InService},
		{`"Normal"`, false}: {10, OutOfService}, {`"Normal"`, true}: {9, InService},
		{`"PreparingUpdate"`, false}: {3, OutOfService}, {`"PreparingUpdate"`, true}: {3, OutOfService},
		{`"Updating"`, false}: {4, OutOfService}, {`"Updating"`, true}: {4, OutOfService},
		{`"Updated"`, false}: {5, OutOfService}, {`"Updated"`, true}: {6, InService},
		{`"PreparingDelete"`, false}: {2, Absent}, {`"PreparingDelete"`, true}: {2, Absent},
	}
	want, known := table[key{c.row.state.name, c.row.ready}]
	switch {
	case !known:
		want = verdict{11, Keep}
	case want.Row == 10 && c.row.keepUnready:
		want.Want = Keep
	}
	if c.row.ending.name != "alive" {
		want = verdict{1, Absent}
	}
	if got := (verdict{d.Row, d.Want}); got != want {
		c.fail("decided %+v, want %+v", got, want)
	}
}

// checkWaiting: Kruise waits, by its own reading, for handlers that Rollcall owns, those that are refused among them.
func (c *checker) checkWaiting(d Decision) {
	if c.row.shape.name == "refused: no value" {
		return // Kruise takes a label that is missing for one without a value, and never goes on
	}
	set := func(h Handler) bool { return carries(c.pod, h) }
	unset := func(h Handler) bool { return !carries(c.pod, h) }
	waits := func(hook Hook, because func(Handler) bool) Hook {
		if w := c.row.shape.workload; w == nil || !slices.ContainsFunc(HandlersOf(w.Lifecycle), func(n Named) bool {
			return n.Hook == hook && testOwnership().Owns(n.Key()) && because(n.Handler)
		}) {
			return ""
		}
		return hook
	}
	want := map[string]Hook{
		`"PreparingNormal"`: waits(PreNormal, unset), `"PreparingUpdate"`: waits(InPlaceUpdate, set),
		`"Updated"`: waits(InPlaceUpdate, unset), `"PreparingDelete"`: waits(PreDelete, set),
	}[c.row.state.name]
	if c.row.ending.name != "alive" {
		asks := slices.Contains([]appspub.LifecycleStateType{appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStatePreparingDelete}, State(c.pod))
		labels := c.pod.DeletionTimestamp == nil && !d.Then.Empty() // they hold no pod that is being deleted
		switch held := labels || slices.ContainsFunc(c.pod.Finalizers, ourFinalizer); {
		case !held:
			want = ""
		case c.pod.DeletionTimestamp != nil || !asks:
			want = PreDelete
		}
	}
	if d.Waiting != want {
		c.fail("Kruise is said to wait for %q, want %q", d.Waiting, want)
	}
}

// checkEdits: an edit holds only what differs, and only what is ours.
func (c *checker) checkEdits(d Decision) {
	o := testOwnership()
	accepted, named := c.hooks.all(), c.row.shape.handlers
	for _, h := range slices.Concat(d.Arm.Set, d.Then.Set) {
		if !slices.Contains(accepted, h) && h != guardHandler() {
			c.fail("sets %s, which no owned hook names", h)
		}
		if carries(c.pod, h) {
			c.fail("sets %s, which is set", h)
		}
	}
	for _, h := range slices.Concat(d.Arm.Clear, d.Then.Clear) {
		if !o.Owns(h.Key()) && h != guardHandler() {
			c.fail("clears %s of another owner", h)
		}
		if !carries(c.pod, h) {
			c.fail("clears %s, which is not set", h)
		}
		if slices.Contains(named, h) && !slices.Contains(accepted, h) {
			c.fail("clears %s, which was refused", h)
		}
	}
	for _, key := range slices.Concat(d.Arm.ClearMarks, d.Then.ClearMarks) {
		if !slices.Contains(o.NewlyCreated, key) {
			c.fail("clears the mark %s, which is none", key)
		}
		if slices.ContainsFunc(named, func(h Handler) bool { return h.Label == key }) {
			c.fail("clears the mark %s, which is a handler", key)
		}
	}
	if d.Row == RowUnknownState && !(d.Arm.Empty() && d.Then.Empty()) {
		c.fail("does something in a state that it does not know")
	}
}

// checkReleases is I1: what Kruise waits for before it touches a pod goes only after the pod was taken out.
func (c *checker) checkReleases(d Decision) {
	c.checkGuard(d)
	c.checkTakenBack(d)
	out := d.Want == OutOfService || d.Want == Absent
	for _, h := range d.Then.Clear {
		if slices.Contains(c.hooks.InPlaceUpdate, h) && !out {
			c.fail("releases %s of inPlaceUpdate although the registry must say %s", h, d.Want)
		}
		if slices.Contains(c.hooks.PreDelete, h) && d.Want != Absent && (!slices.Contains(c.hooks.InPlaceUpdate, h) || !out) {
			c.fail("releases %s of preDelete although the registry must say %s", h, d.Want)
		}
	}
}

// checkTakenBack: before the registry has acknowledged nothing is cleared but, in Updating and Updated, what says there that the pod
// is back, or would say so in PreparingNormal; all of that is, and the guard is another matter.
func (c *checker) checkTakenBack(d Decision) {
	var says []Handler
	if d.Row == RowUpdating || d.Row == RowUpdatedNotReady {
		says = filter(union(c.hooks.InPlaceUpdate, without(c.hooks.PreNormal, c.hooks.PreDelete)), func(h Handler) bool { return carries(c.pod, h) })
	}
	if cleared := without(d.Arm.Clear, []Handler{guardHandler()}); !slices.Equal(cleared, says) || len(d.Arm.ClearMarks) > 0 {
		c.fail("clears %v %v before the registry has acknowledged, want %v", cleared, d.Arm.ClearMarks, says)
	}
}

// checkGuard: it goes with the registry's word that the pod is absent, or because the configuration does not want it; and stands before the pod
// is registered where somebody does.
func (c *checker) checkGuard(d Decision) {
	g := guardHandler()
	before, after := slices.Contains(d.Arm.Clear, g), slices.Contains(d.Then.Clear, g)
	if (before || after) && d.Want != Absent && c.row.guard != GuardFree || before && c.row.guard != GuardFree {
		c.fail("takes off the guard, which is to %q: before %t, after %t", c.row.guard, before, after)
	}
	if slices.Contains(d.Unacknowledged().Clear, g) {
		c.fail("takes off the guard without an acknowledgement")
	}
	put := d.Want == InService && c.row.guard == GuardPut && !c.row.guarded
	if slices.Contains(d.Arm.Set, g) != put || slices.Contains(d.Then.Set, g) {
		c.fail("puts the guard on: %+v, and then %+v", d.Arm.Set, d.Then.Set)
	}
}

// checkAsserts is I2, and arming.
func (c *checker) checkAsserts(d Decision) {
	for _, h := range c.hooks.PreNormal {
		// Elsewhere Kruise does not ask for preNormal: a key that it shares with another hook is armed there.
		shared := slices.Contains(c.hooks.PreDelete, h) || slices.Contains(c.hooks.InPlaceUpdate, h)
		if slices.Contains(d.Arm.Set, h) && (c.row.state.name == `"PreparingNormal"` || !shared) {
			c.fail("asserts %s of preNormal before the registry has acknowledged", h)
		}
		if slices.Contains(d.Then.Set, h) && d.Want != InService {
			c.fail("asserts %s of preNormal although the registry must say %s", h, d.Want)
		}
	}
	if c.row.state.name == `"Updated"` {
		for _, h := range c.hooks.InPlaceUpdate {
			if slices.Contains(d.Arm.Set, h) {
				c.fail("asserts %s of inPlaceUpdate before the registry has acknowledged", h)
			}
		}
	}
	// These may be in service.
	kept := c.row.state.name == `"Normal"` && d.Want == Keep && !c.row.ready
	updated := (d.Row == RowUpdating || d.Row == RowUpdatedNotReady) && RecordOf(c.pod).Want == InService
	if d.Want != InService && (len(d.Arm.Set) > 0 && !kept && !updated || len(d.Then.Set) > 0) {
		c.fail("sets %v %v although the registry must say %s", d.Arm.Set, d.Then.Set, d.Want)
	}
	deletes := filter(without(c.hooks.PreDelete, union(c.hooks.InPlaceUpdate, c.hooks.PreNormal)), func(h Handler) bool { return !carries(c.pod, h) })
	if updated && !slices.Equal(d.Arm.Set, deletes) {
		c.fail("arms %v of a pod whose update may have begun in rotation, want %v", d.Arm.Set, deletes)
	}
	if d.Want == InService && !c.row.ready {
		c.fail("puts a pod in rotation that is not ready")
	}
	if d.Want == InService {
		c.checkArmedFirst(d)
	}
}

// checkArmedFirst: all that can be armed before the registry is called is armed then. What says "go on" in this very
// state can't.
func (c *checker) checkArmedFirst(d Decision) {
	needed := slices.Concat(c.hooks.PreDelete, c.hooks.InPlaceUpdate)
	var says []Handler
	switch d.Row {
	case RowPreparingNormal:
		says = c.hooks.PreNormal
	case RowUpdated:
		says = c.hooks.InPlaceUpdate
	case RowNormal:
	default:
		c.fail("row %d puts the pod in rotation", d.Row)
	}
	for _, h := range needed {
		if !carries(c.pod, h) && !slices.Contains(d.Arm.Set, h) && !slices.Contains(says, h) {
			c.fail("tells the registry before %s is armed", h)
		}
	}
}

// checkOutcome applies the decision as the API server would, and is I7.
func (c *checker) checkOutcome(d Decision) {
	armed := c.apply(c.pod, d.Arm, nil)
	next := Decide(c.input(armed))
	want := Decision{Row: d.Row, Want: d.Want, Out: d.Out, Then: remaining(d.Then, d.Arm), Waiting: d.Waiting,
		Releases: d.Releases}
	switch {
	case d.Row == RowUpdatedNotReady && slices.ContainsFunc(d.Arm.Clear, func(h Handler) bool { return slices.Contains(c.hooks.InPlaceUpdate, h) }):
		want.Waiting = InPlaceUpdate // Kruise waits again
	case slices.Contains(d.Arm.Clear, guardHandler()) && want.Then.Empty():
		want.Waiting, want.Releases = "", false // the guard was all that held the pod
	}
	if !reflect.DeepEqual(want, next) {
		c.fail("arming changed the decision: %s", cmp.Diff(want, next))
	}
	if !next.Arm.Empty() || next.Want != d.Want {
		c.fail("armed, and still arms %v (wants %s)", next.Arm, next.Want)
	}
	c.checkOut(armed, next)
	record := c.recordOf(armed, d)
	done := c.apply(armed, next.Then, record)
	last := Decide(c.input(done))
	if last.Want != d.Want || !last.Arm.Empty() || !last.Then.Empty() {
		c.fail("done, and still wants %s, arm %+v, then %+v", last.Want, last.Arm, last.Then)
	}
	if patch, err := patchOf(done, c.hooks, last.Then, c.recordOf(done, last)); err != nil || patch != nil {
		c.fail("done, and still patches: %s %v", patch, err)
	}
	if record != nil && done.DeletionTimestamp == nil { // else it goes with the pod
		if written := RecordOf(done); written.Stamp.UID != testUID || !written.sameBut(*record) {
			c.fail("the record on the pod is another one: %s", cmp.Diff(*record, written))
		}
	}
	c.checkDone(d, done)
	c.checkSpared(done)
}

// checkOut: what is written while the drain runs keeps Kruise from counting the pod available, releases nothing, and forgets no
// handler that is to be released after.
func (c *checker) checkOut(pod *Pod, d Decision) {
	if len(d.Out.Set) > 0 || len(without(d.Out.Clear, c.hooks.PreNormal)) > 0 || len(without(d.Out.Clear, d.Then.Clear)) > 0 {
		c.fail("writes %+v while the pod drains, and %+v after", d.Out, d.Then)
	}
	other := union(c.hooks.PreDelete, c.hooks.InPlaceUpdate)
	if d.Row == RowPreparingDelete {
		other = c.hooks.PreDelete // Kruise looks at no other
	}
	expected := filter(without(c.hooks.PreNormal, other), func(h Handler) bool { return carries(pod, h) })
	isOut := d.Want == OutOfService && d.Row != RowNormalNotReady || d.Row == RowPreparingDelete
	if isOut && !slices.Equal(expected, d.Out.Clear) {
		c.fail("clears %v of preNormal while the pod is out, want %v", d.Out.Clear, expected)
	}
	next := Decide(c.input(c.apply(pod, d.Out, c.recordOf(pod, d))))
	want := d
	want.Out, want.Then = Edit{}, remaining(d.Then, d.Out)
	if d.Row == RowPreparingNormalUnfit && len(d.Out.Clear) > 0 {
		want.Waiting = PreNormal // it waits again
	}
	if !reflect.DeepEqual(want, next) {
		c.fail("what is written while the pod drains changed the decision: %s", cmp.Diff(want, next))
	}
}

// remaining is what is left of the edit once the other was written.
func remaining(edit, written Edit) Edit {
	edit.Set, edit.Clear = without(edit.Set, written.Set), without(edit.Clear, written.Clear)
	return edit
}

func (c *checker) recordOf(pod *Pod, d Decision) *Record {
	if d.Want == Keep {
		return nil
	}
	record := NewRecord(pod, c.hooks, d.Want, testInstances(), nil)
	return &record
}

// checkDone: what the row promises is so.
func (c *checker) checkDone(d Decision, done *Pod) {
	set := func(h Handler) bool { return carries(done, h) }
	unset := func(h Handler) bool { return !carries(done, h) }
	expect := func(want string, list []Handler, bad func(Handler) bool) {
		if i := slices.IndexFunc(list, bad); i >= 0 {
			c.fail("done, and %s is not %s", list[i], want)
		}
	}
	owned := ourFinalizer
	if d.Want == Absent && slices.Contains(done.Finalizers, GuardFinalizer) {
		c.fail("the pod is absent, and guarded still")
	}
	switch d.Row {
	case RowGone:
		if slices.ContainsFunc(done.Finalizers, owned) {
			c.fail("a pod that ends keeps owned finalizers: %v", done.Finalizers)
		}
		if done.DeletionTimestamp == nil {
			expect("clear", c.hooks.all(), set)
		}
	case RowPreparingDelete:
		expect("clear", slices.Concat(c.hooks.PreDelete, c.hooks.PreNormal), set)
	case RowPreparingUpdate:
		expect("clear", c.hooks.InPlaceUpdate, set)
		expect("clear", without(c.hooks.PreNormal, c.hooks.PreDelete), set)
	case RowNormal, RowPreparingNormal, RowUpdated:
		expect("set", c.hooks.all(), unset)
	case RowUpdating, RowUpdatedNotReady, RowPreparingNormalUnfit, RowNormalNotReady, RowUnknownState:
	}
	if d.Row != RowUnknownState && d.Row != RowGone && c.row.record.name == "forgets handlers" {
		if carries(done, forgottenFinalizer) {
			c.fail("keeps %s, which no workload names", forgottenFinalizer)
		}
		if carries(done, forgottenLabel) != (c.row.shape.name == "a forgotten key in the selector") {
			c.fail("wrong about %s, which no hook names", forgottenLabel)
		}
	}
	if d.Row == RowPreparingNormal || d.Row == RowNormal {
		c.checkMarks(done)
	}
}

func (c *checker) checkMarks(done *Pod) {
	for _, key := range testOwnership().NewlyCreated {
		named := slices.ContainsFunc(c.row.shape.handlers, func(h Handler) bool { return h.Label == key })
		if !named && c.row.shape.name != "a mark in the selector" && marked(done, key) {
			c.fail("keeps the mark %s", key)
		}
	}
}

// checkSpared: nothing but our own handlers, the marks and the record has changed.
func (c *checker) checkSpared(done *Pod) {
	o := testOwnership()
	foreign := func(list []string) []string {
		return slices.DeleteFunc(slices.Clone(list), ourFinalizer)
	}
	if before, after := foreign(c.pod.Finalizers), foreign(done.Finalizers); !slices.Equal(before, after) {
		c.fail("other owners' finalizers were %v and are %v", before, after)
	}
	ours := slices.Concat(c.hooks.all(), []Handler{forgottenLabel})
	mayChange := func(key string) bool {
		return slices.Contains(o.NewlyCreated, key) ||
			slices.ContainsFunc(ours, func(h Handler) bool { return h.Label == key })
	}
	rest := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		maps.DeleteFunc(m, func(key, _ string) bool { return mayChange(key) || key == AnnotationRecord })
		return m
	}
	if before, after := rest(c.pod.Labels), rest(done.Labels); !maps.Equal(before, after) {
		c.fail("other labels were %v and are %v", before, after)
	}
	if before, after := rest(c.pod.Annotations), rest(done.Annotations); !maps.Equal(before, after) {
		c.fail("other annotations were %v and are %v", before, after)
	}
	for _, h := range c.row.shape.handlers {
		refused := !slices.Contains(c.hooks.all(), h)
		sharedKey := slices.ContainsFunc(c.hooks.all(), func(o Handler) bool { return o.Key() == h.Key() })
		gone := c.row.ending.name != "alive" && h.Finalizer != "" && o.Owns(h.Finalizer)
		if refused && !sharedKey && !gone && carries(c.pod, h) != carries(done, h) {
			c.fail("touched %s, which is refused or another's", h)
		}
	}
	c.checkTemplate(done)
}

// checkTemplate: a label that was cleared looks as the template has it, unless that would set it again.
func (c *checker) checkTemplate(done *Pod) {
	if c.row.shape.workload == nil {
		return
	}
	for _, h := range c.hooks.all() {
		value, found := c.row.shape.workload.TemplateLabels[h.Label]
		if found = found && value != h.Value; !found {
			value = ""
		}
		left, there := done.Labels[h.Label]
		if h.Label != "" && carries(c.pod, h) && !carries(done, h) && (there != found || left != value) {
			c.fail("cleared %s and left %q (%t), and the template says %q (%t)", h, left, there, value, found)
		}
	}
}

// apply writes the edit, and tries the patch on pods that have moved on.
func (c *checker) apply(pod *Pod, edit Edit, record *Record) *Pod {
	patch, err := patchOf(pod, c.hooks, edit, record)
	if err != nil {
		c.fail("making the patch: %v", err)
		return pod
	}
	if patch == nil {
		if !edit.Empty() {
			c.fail("no patch for %+v", edit)
		}
		return pod
	}
	done, err := applyPatch(c.t, pod, patch)
	if err != nil {
		c.fail("the API server refuses the patch: %v\n%s", err, patch)
		return pod
	}
	if key := c.guardKey(pod, edit); !c.guarded[key] {
		c.guarded[key] = true
		c.checkGuards(pod, patch, edit)
	}
	return done
}

// guardKey is the same for patches with the same guards: those of where the pod is, and those of its finalizers.
func (c *checker) guardKey(pod *Pod, edit Edit) string {
	_, stamped := pod.Annotations[appspub.LifecycleTimestampKey]
	isFinalizer := func(h Handler) bool { return h.Finalizer != "" }
	return fmt.Sprint(c.row.state.name, pod.Finalizers, filter(edit.Set, isFinalizer), filter(edit.Clear, isFinalizer),
		stamped, pod.DeletionTimestamp == nil, len(pod.Labels) == 0, len(pod.Annotations) == 0)
}

// checkGuards: the patch does nothing to a pod that is not where it was decided on, and spares a change beside it.
func (c *checker) checkGuards(pod *Pod, patch []byte, edit Edit) {
	moved := map[string]func(*Pod){
		"another pod":       func(p *Pod) { p.UID = "9999" },
		"another state":     func(p *Pod) { setHandler(p, label(appspub.LifecycleStateKey, "Moved")) },
		"another timestamp": func(p *Pod) { annotate(p, appspub.LifecycleTimestampKey, "2026-01-02T03:04:06Z") },
	}
	if pod.DeletionTimestamp == nil {
		moved["deleted by now"] = func(p *Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)} }
	}
	if pod.Labels != nil && c.row.state.name != "none" {
		moved["labels lost"] = func(p *Pod) { p.Labels = nil }
	}
	if _, found := pod.Annotations[appspub.LifecycleTimestampKey]; found {
		moved["annotations lost"] = func(p *Pod) { p.Annotations = nil }
	}
	if len(edit.Set) > 0 && len(pod.Status.Conditions) > 0 {
		moved["not ready by now"] = withConditions(func(is *PodCondition) { is.Status = corev1.ConditionFalse })
		moved["ready again by now"] = withConditions(func(is *PodCondition) {
			is.LastTransitionTime = metav1.Unix(1_800_000_000, 0)
		})
		moved["another condition in its place"] = withConditions(func(is *PodCondition) { is.Type = corev1.PodInitialized })
	}
	if len(edit.Set) > 0 {
		moved["another address"] = func(p *Pod) { p.Status.PodIP = "10.9.9.9" }
	}
	adds := slices.ContainsFunc(edit.Set, func(h Handler) bool { return h.Finalizer != "" })
	removes := slices.ContainsFunc(edit.Clear, func(h Handler) bool { return h.Finalizer != "" })
	if adds || removes {
		moved["another finalizer in front"] = func(p *Pod) { p.Finalizers = slices.Insert(p.Finalizers, 0, "other.io/new") }
	}
	if adds {
		moved["another finalizer behind"] = func(p *Pod) { p.Finalizers = append(p.Finalizers, "other.io/new") }
	}
	if (adds || removes) && len(pod.Finalizers) > 0 {
		moved["finalizers lost"] = func(p *Pod) { p.Finalizers = nil }
	}
	for name, move := range moved {
		p := pod.DeepCopy()
		move(p)
		if _, err := applyPatch(c.t, p, patch); err == nil {
			c.fail("%s: the patch was applied all the same: %s", name, patch)
		}
	}
	beside := pod.DeepCopy()
	setHandler(beside, label("other.io/beside", "1"))
	if c.row.state.name == "none" && pod.Labels == nil {
		return // labels appeared on a pod that had none: it may have got a state too
	}
	done, err := applyPatch(c.t, beside, patch)
	if err != nil || done.Labels["other.io/beside"] != "1" {
		c.fail("another owner's label beside it: %v %v", done, err)
	}
}

// withConditions changes each of the pod's conditions.
func withConditions(change func(*PodCondition)) func(*Pod) {
	return func(pod *Pod) {
		for i := range pod.Status.Conditions {
			change(&pod.Status.Conditions[i])
		}
	}
}

func annotate(pod *Pod, key, value string) {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
}
