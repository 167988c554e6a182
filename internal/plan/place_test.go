package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
)

const here, before = "10.0.0.2", "10.0.0.1"

// cell is one pod with one entry: at a place, and either known to be out of service or nothing known of it.
type cell struct {
	place Place
	out   bool
	// pod is what the pod must be; hook: OpenKruise waits for it.
	pod  lifecycle.Want
	hook bool
}

func cells() (all []cell) {
	for _, place := range []Place{Here, Same, Former, Elsewhere} {
		for _, out := range []bool{false, true} {
			for _, want := range []lifecycle.Want{lifecycle.InService, lifecycle.Keep, lifecycle.OutOfService, lifecycle.Absent} {
				all = append(all, cell{place, out, want, false}, cell{place, out, want, true})
			}
		}
	}
	return all
}

// entry is at the place, as seen from a pod at 10.0.0.2 that belongs to the service web, where its application registers it.
func (c cell) entry() lifecycle.Key {
	in := lifecycle.Key{Registry: "default", Service: "web", Address: here, Port: 80}
	switch c.place {
	case Here:
		return in.By(lifecycle.Application)
	case Same:
		in.Service = "WEB"
		return in.By(lifecycle.Application)
	case Former:
		in.Address = before
	case Elsewhere:
		in.Service = "shop"
	}
	return in
}

func (c cell) tracked() *tracker.Pod {
	pod, now := tracker.New().Open(lifecycle.PodID{}), time.Now()
	belongs := (&cell{}).entry()
	if c.pod == lifecycle.Keep { // it has arrived, so it can depart
		pod.Begin(belongs, lifecycle.InService, target(belongs).Instance, now)
		pod.Acknowledged(belongs, now)
	}
	if in := c.entry(); c.out && in != belongs {
		pod.Begin(in, lifecycle.OutOfService, target(in).Instance, now)
		pod.Acknowledged(in, now)
	}
	return pod
}

// plan is the pod's, and its stages.
func (c cell) plan(known tracker.Known) (Plan, []Stage) {
	belongs := target((&cell{}).entry())
	f := Facts{
		Pod: &lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: here}}, Targets: []tracker.Target{belongs}, Configuration: all{}, Known: known,
		Record: lifecycle.Record{Instances: []lifecycle.Key{c.entry()}},
	}
	d := lifecycle.Decision{Want: c.pod, Row: lifecycle.RowNormal}
	if c.hook {
		d.Waiting, d.Releases = lifecycle.PreDelete, c.pod != lifecycle.InService
	}
	p := Of(f, d)
	return p, Stages(p, c.pod)
}

// becomes says in which stage the entry gets what; empty if it is left alone.
func (c cell) becomes(known tracker.Known) string {
	_, stages := c.plan(known)
	for _, s := range stages {
		for _, row := range s.Rows {
			if row.Key() == c.entry() {
				return fmt.Sprintf("%s, %s", row.Want, s.Name)
			}
		}
	}
	return ""
}

// TestPlaces holds what becomes of an entry against the table in docs/architecture.md: every place, whatever the pod must be.
func TestPlaces(t *testing.T) {
	t.Parallel()
	var table strings.Builder
	for _, c := range cells() {
		if c.hook || c.place == Here && c.out {
			continue
		}
		if c.pod == lifecycle.InService {
			fmt.Fprintf(&table, "| *%s*%s", c.place, map[bool]string{true: ", out already"}[c.out])
		}
		fmt.Fprintf(&table, " | %s", cmp.Or(c.becomes(c.tracked().Known()), "left alone"))
		if c.pod == lifecycle.Absent {
			table.WriteString(" |\n")
		}
	}
	expectDocumented(t, "places", table.String())
}

// TestPlaceOf: what may be a target's by another key is so only at the pod's addresses.
func TestPlaceOf(t *testing.T) {
	t.Parallel()
	belongs := belongsIn(called(here))
	for reason, tc := range map[string]struct {
		in   lifecycle.Key
		want Place
	}{
		"Rollcall's own is another entry":   {called(here).By(""), Elsewhere},
		"another name of the application":   {func() lifecycle.Key { in := called(here); in.Service = "shop"; return in }(), Same},
		"what answers there is another pod": {called(before), Former},
	} {
		if got := steer(belongs).f.placeOf(tc.in); got != tc.want {
			t.Errorf("%s: got %s, want %s", reason, got, tc.want)
		}
	}
}

// TestPlaces_Promises: what holds in every cell.
func TestPlaces_Promises(t *testing.T) {
	t.Parallel()
	for _, c := range cells() {
		tracked := c.tracked()
		rows, stages := c.plan(tracked.Known())
		serves := c.pod == lifecycle.InService || c.pod == lifecycle.Keep
		for _, s := range stages {
			for _, row := range s.Rows {
				mine := row.Key() == c.entry() && c.place != Here
				if mine && row.Want == lifecycle.InService {
					t.Errorf("%+v: %s would be put in service, where the pod does not belong", c, row)
				}
				if mine && serves && c.place == Elsewhere && (s.Holds || s.Name != "depart") {
					t.Errorf("%+v: a hook waits for a place that the pod leaves, or it leaves before it has arrived", c)
				}
				if !serves && row.Want == lifecycle.InService {
					t.Errorf("%+v: %s would be put in service while the pod is out", c, row)
				}
			}
		}
		if serves && c.place == Same && slices.ContainsFunc(rows.All(), func(row Row) bool { return row.Key() == c.entry() }) {
			t.Errorf("%+v: what may be the entry where the pod belongs would be taken out", c)
		}
		c.decideAgain(t, tracked, rows)
	}
}

// decideAgain acknowledges each row. Then nothing is left to do, and to decide again finds nothing else.
func (c cell) decideAgain(t *testing.T, tracked *tracker.Pod, rows Plan) {
	t.Helper()
	now := time.Now()
	for _, row := range rows.All() {
		tracked.Begin(row.Key(), row.Want, row.Instance, now)
		tracked.Acknowledged(row.Key(), now)
		tracked.Saw(row.Key(), now)
	}
	again, _ := c.plan(tracked.Known())
	for _, row := range again.All() {
		goal := tracker.Goal{Want: row.Want, Told: row.Instance, MustBeSeen: row.Proof == Sought}
		if step := tracked.Standing(row.Key()).Next(goal, now); step.Act != tracker.Nothing {
			t.Errorf("%+v: all was acknowledged, and %s has another step: %+v", c, row, step)
		}
	}
}

// TestProofs: what shows that an entry is out, and in which order that is looked at. docs/architecture.md has each.
func TestProofs(t *testing.T) {
	t.Parallel()
	mine := lifecycle.Key{Registry: "default", Service: "web", Address: here, Port: 80}
	apps, called := mine.By(lifecycle.Application), lifecycle.Key{
		Registry: "pods", Writer: lifecycle.Application, Service: "web", Address: here, Port: 80,
	}
	for _, tc := range []struct {
		reason string
		in     lifecycle.Key
		want   lifecycle.Want
		gone   bool
		born   bool
		passed bool
		ready  bool
		proof  Proof
	}{
		{reason: "the registry says so", in: mine, want: lifecycle.OutOfService, ready: true, proof: Plain},
		{reason: "it goes into service", in: apps, want: lifecycle.InService, ready: true, proof: Plain},
		{reason: "the pod came while this process watched, and was not registered", in: mine, want: lifecycle.OutOfService, born: true, proof: Never},
		{reason: "another pod's application has the endpoint", in: apps, want: lifecycle.Absent, passed: true, ready: true, proof: Lost},
		{reason: "nothing is left to call", in: called, want: lifecycle.Absent, gone: true, proof: Lost},
		{reason: "the registry may remember it", in: apps, want: lifecycle.Absent, gone: true, proof: Remains},
		{reason: "Rollcall's own is acknowledged", in: mine, want: lifecycle.Absent, gone: true, proof: Plain},
		{reason: "it may be under way to the registry", in: apps, want: lifecycle.OutOfService, ready: true, proof: Sought},
		{reason: "a pod that never was ready is left to its application", in: apps, want: lifecycle.OutOfService, proof: Plain},
	} {
		pod := &lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: here}}
		if tc.ready {
			pod.Status.Conditions = []lifecycle.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		known := tracker.New()
		known.Arrived(lifecycle.PodID{}, tc.born)
		f := Facts{
			Pod: pod, Gone: tc.gone, Targets: []tracker.Target{target(tc.in)}, Configuration: all{}, Known: known.Open(lifecycle.PodID{}).Known(),
			PassedOn: map[lifecycle.Key]bool{tc.in: tc.passed},
		}
		if got := f.entry(tc.in).proof(tc.want); got != tc.proof {
			t.Errorf("%s: got %s, want %s", tc.reason, got, tc.proof)
		}
		expectDocumented(t, "proofs", "\n| *"+tc.proof.String()+"* |")
	}
}
