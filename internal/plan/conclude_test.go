package plan

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// concluding is a pod with a hook at each point and two registries, and what a visit of it has come to.
type concluding struct {
	change  func(*lifecycle.Pod)
	now     time.Time
	state   appspub.LifecycleStateType
	tracked *tracker.Pod
	o       Outcome
}

const (
	concludeDrain = 30 * time.Second
	preDelete     = "example.com/pre-delete"
	preNormal     = "example.com/pre-normal"
)

func concludeAt(state appspub.LifecycleStateType) *concluding {
	c := &concluding{now: time.Unix(1_000_000, 0), state: state, tracked: tracker.New().Open(lifecycle.PodID{})}
	c.o.Drain.Policy = drain.Fixed(concludeDrain)
	return c
}

// acknowledged: the registries took the pod in or out so long ago.
func (c *concluding) acknowledged(want lifecycle.Want, ago time.Duration, registries ...string) *concluding {
	for _, name := range registries {
		in := concludeKey(name)
		c.tracked.Begin(in, want, target(in).Instance, c.now.Add(-ago))
		c.tracked.Acknowledged(in, c.now.Add(-ago))
	}
	return c
}

// wasIn: before that, clients were given it.
func (c *concluding) wasIn(registries ...string) *concluding {
	return c.acknowledged(lifecycle.InService, time.Hour, registries...)
}

func (c *concluding) tried(want lifecycle.Want, name string) *concluding {
	c.tracked.Begin(concludeKey(name), want, target(concludeKey(name)).Instance, c.now)
	return c
}

// changed: the pod differs from the usual.
func (c *concluding) changed(change func(*lifecycle.Pod)) *concluding {
	c.change = change
	return c
}

func (c *concluding) with(change func(*Outcome)) *concluding {
	change(&c.o)
	return c
}

func concludeKey(name string) lifecycle.Key {
	return lifecycle.Key{Registry: name, Service: "web", Address: "10.0.0.2", Port: 80}
}

func (c *concluding) conclude() Write {
	owned := lifecycle.Ownership{Owned: []string{preDelete, preNormal}}
	hooks := lifecycle.Hooks{PreDelete: []lifecycle.Handler{{Finalizer: preDelete}}, PreNormal: []lifecycle.Handler{{Label: preNormal, Value: "true"}}}
	pod := &lifecycle.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: "1", Finalizers: []string{preDelete}, Labels: map[string]string{appspub.LifecycleStateKey: string(c.state)},
		Annotations: map[string]string{lifecycle.AnnotationSkip: "registry is gone"},
	}, Status: lifecycle.PodStatus{
		PodIP: "10.0.0.2", Conditions: []lifecycle.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}}
	if c.change != nil {
		c.change(pod)
	}
	o := c.o
	o.Now, o.Input.Pod, o.Input.Hooks, o.Input.Ownership = c.now, pod, hooks, owned
	o.Decision = lifecycle.Decide(o.Input)
	o.Facts = Facts{
		Pod: pod, Record: o.Input.Record, Known: c.tracked.Known(), Configuration: all{},
		Targets: []tracker.Target{target(concludeKey("consul")), target(concludeKey("nacos"))},
	}
	o.Rows = Of(o.Facts, o.Decision)
	o.Certain = func(row Row) bool { return o.Facts.Known.Of(row.Key()).Says(row.Want, row.Instance) }
	last := o.Drain.Last
	o.Drain = DrainOf(o.Facts, o.Rows, o.Drain.Policy, 0, c.now)
	o.Drain.Last = last
	return Conclude(o)
}

func held(b ...waiting.Blocker) func(*Outcome) {
	return func(o *Outcome) { o.Held = b }
}

func failing(o *Outcome) {
	o.Held = []waiting.Blocker{{Reason: reason.RegistryUnavailable, Message: "no answer", After: 10 * time.Second}}
}

func joinFails(o *Outcome) {
	failing(o)
	o.Joining = o.Held[0]
}

// recorded: the pod has a record, out since then.
func recorded(outSince *time.Time) func(*Outcome) {
	return func(o *Outcome) {
		o.Input.Record = lifecycle.Record{Version: 1, Stamp: lifecycle.Stamp{UID: "1"}, Want: lifecycle.OutOfService, OutSince: outSince}
	}
}

// untilIdle: the pod drains until it is idle, from 30 s to 10 min, and last answered so long ago.
func untilIdle(ago time.Duration, last drain.Answer) func(*Outcome) {
	last.Asked = time.Unix(1_000_000, 0).Add(-ago)
	return func(o *Outcome) {
		o.Drain.Policy = drain.Policy{Min: concludeDrain, Max: 10 * time.Minute, Until: drain.Until{Port: 8080, Path: "/idle"}}
		o.Drain.Last = last
	}
}

// asserted: OpenKruise counted on the pod once.
func asserted(pod *lifecycle.Pod) { pod.Labels[preNormal] = "true" }

// dies: its containers stop, whatever OpenKruise waits for.
func dies(pod *lifecycle.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_000_000, 0)} }

func skipped(o *Outcome) { o.Skip = lifecycle.Skip{Hooks: []lifecycle.Hook{lifecycle.PreDelete}} }

func proceedAfter(waited time.Duration) func(*Outcome) {
	return func(o *Outcome) { o.Since, o.ProceedAfter = time.Unix(1_000_000, 0).Add(-waited), time.Minute }
}

type conclusion struct {
	reason string
	of     *concluding
	// sets and clears are whether the edit has handlers to set and to clear.
	sets, clears bool
	released     Excuse
	// record is how many instances it has; -1 is no record.
	record   int
	outSince time.Duration // ago; zero is none
	held     reason.Reason
	after    time.Duration
	asks     bool
	drained  drain.By
}

func (c conclusion) expectRecord(t *testing.T, got *lifecycle.Record) {
	t.Helper()
	switch {
	case got == nil:
		if c.record >= 0 {
			t.Errorf("%s: no record", c.reason)
		}
		return
	case len(got.Instances) != c.record:
		t.Errorf("%s: the record has %v, want %d instances", c.reason, got.Instances, c.record)
	}
	if len(got.Unfound) > 0 {
		t.Errorf("%s: %v counts as not found, and Rollcall wrote it", c.reason, got.Unfound)
	}
	if got.Want == lifecycle.InService && got.NeverInService {
		t.Errorf("%s: the record has it in service, and never in service", c.reason)
	}
	var want *time.Time
	if c.outSince > 0 {
		want = new(c.of.now.Add(-c.outSince))
	}
	if got.OutSince != want && (got.OutSince == nil || want == nil || !got.OutSince.Equal(*want)) {
		t.Errorf("%s: the record has it out since %v, want %v", c.reason, got.OutSince, want)
	}
}

func TestConclude(t *testing.T) {
	t.Parallel()
	const joins, stays, goes = appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingDelete
	expect.Each(t, map[string]conclusion{
		"joined": {
			reason: "OpenKruise may count on a pod that all registries have acknowledged",
			of:     concludeAt(joins).acknowledged(lifecycle.InService, 0, "consul", "nacos"), sets: true, record: 2,
		},
		"one registry fails": {
			reason: "the next leader must not wait for the registry that was never asked",
			of:     concludeAt(stays).acknowledged(lifecycle.InService, 0, "consul").with(joinFails), record: 1, held: reason.RegistryUnavailable,
			after: 10 * time.Second,
		},
		"one registry fails, and what became of the other's call is unknown": {
			reason: "the record would have the pod in service where it may not be", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(stays).tried(lifecycle.InService, "consul").with(joinFails),
		},
		"one registry fails, as it is recorded": {
			reason: "each record is a write", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(stays).acknowledged(lifecycle.InService, 0, "consul").with(joinFails).with(func(o *Outcome) {
				o.Input.Record = lifecycle.Record{
					Version: 1, Stamp: lifecycle.Stamp{UID: "1"}, Want: lifecycle.InService, Instances: []lifecycle.Key{concludeKey("consul")},
				}
			}),
		},
		"asked out, and no registry answers": {
			reason: "clients may lack it, so OpenKruise must not count on it", clears: true, record: -1, held: reason.RegistryUnavailable,
			after: 10 * time.Second, of: concludeAt(goes).wasIn("consul").tried(lifecycle.Absent, "consul").changed(asserted).with(failing),
		},
		"no registry was asked": {
			reason: "clients are given it", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(goes).wasIn("consul").changed(asserted).with(failing),
		},
		"out, and dies": {
			reason: "kubelet waits for no drain", clears: true, record: 2, outSince: 10 * time.Second,
			of: concludeAt(stays).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul", "nacos").changed(dies),
		},
		"dies, and proceedAfter has passed": {
			reason: "the same", clears: true, released: Proceeded, record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(stays).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul").changed(dies).with(failing).
				with(proceedAfter(time.Hour)),
		},
		"out again since it was recorded": {
			reason: "clients were given it until then", record: 2, outSince: 10 * time.Second, held: reason.Draining, after: 20 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul", "nacos").
				with(recorded(new(time.Unix(1_000_000, 0).Add(-40 * time.Second)))),
		},
		"both fail": {
			reason: "there is nothing to record", of: concludeAt(joins).with(joinFails), record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
		},
		"one is yet to be asked": {
			reason: "a turn that will come is no failure, and each record is a write", record: -1, held: reason.Queued,
			of: concludeAt(stays).acknowledged(lifecycle.InService, 0, "consul").with(held(waiting.Blocker{Reason: reason.Queued, Unasked: true})).
				with(func(o *Outcome) { o.Joining = o.Held[0] }),
		},
		"one is yet to be asked, and the process ends": {
			reason: "no turn will come", record: 1, held: reason.Queued,
			of: concludeAt(stays).acknowledged(lifecycle.InService, 0, "consul").with(held(waiting.Blocker{Reason: reason.Queued, Unasked: true})).
				with(func(o *Outcome) { o.Joining, o.Stops = o.Held[0], true }),
		},
		"joined, and warms up": {
			reason: "the next leader continues the warm-up", record: 2, held: reason.WarmingUp, after: time.Minute,
			of: concludeAt(joins).acknowledged(lifecycle.InService, 0, "consul", "nacos").with(held(waiting.WarmingUp(time.Minute))),
		},
		"out, and drains": {
			reason: "clients have had 10 of their 30 s", record: 2, outSince: 10 * time.Second, held: reason.Draining, after: 20 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 20*time.Second, "consul").
				acknowledged(lifecycle.Absent, 10*time.Second, "nacos"),
		},
		"drained": {
			reason: "nothing is missing", clears: true, drained: drain.ByTime, record: 2, outSince: 30 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 30*time.Second, "consul", "nacos"),
		},
		"out, and one registry fails": {
			reason: "the next leader may reach neither, and continues the drain that has begun", record: 0, outSince: 10 * time.Second,
			held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul").with(failing).
				with(func(o *Outcome) {
					o.Input.Record = lifecycle.Record{Version: 1, Stamp: lifecycle.Stamp{UID: "1"}, Want: lifecycle.InService}
				}),
		},
		"out, and one registry was not asked yet": {
			reason: "its turn will come, and each record is a write", record: -1, held: reason.Queued,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul").
				with(held(waiting.Blocker{Reason: reason.Queued, Unasked: true})).with(recorded(nil)),
		},
		"out, and one registry fails, as the record shows": {
			reason: "nothing is new", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul").with(failing).
				with(recorded(new(time.Unix(1_000_000, 0).Add(-10 * time.Second)))),
		},
		"out, and one registry fails, without a drain": {
			reason: "there is none to continue", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul").with(failing).
				with(recorded(nil)).with(func(o *Outcome) { o.Drain.Policy = drain.Policy{} }),
		},
		"out, without a drain": {
			reason: "nobody waits for one", clears: true, record: 2,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 0, "consul", "nacos").
				with(func(o *Outcome) { o.Drain.Policy = drain.Policy{} }),
		},
		"out, and drained by the last leader's record": {
			reason: "OutSince never moves back", clears: true, drained: drain.ByTime, record: 2, outSince: 40 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul", "nacos").
				with(recorded(new(time.Unix(1_000_000, 0).Add(-40 * time.Second)))),
		},
		"drains until idle, before min": {
			reason: "clients have 20 s left to notice", record: 2, outSince: 10 * time.Second, held: reason.Draining, after: 20 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, "consul", "nacos").
				with(untilIdle(time.Second, drain.Answer{Idle: true})),
		},
		"drains until idle, and is busy": {
			reason: "it is asked, and looked at again if no answer comes", record: 2, outSince: time.Minute, held: reason.Draining, after: 30 * time.Second,
			asks: true,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul", "nacos").
				with(untilIdle(time.Second, drain.Answer{Left: 3})),
		},
		"drains until idle, and is idle": {
			reason: "nothing is missing", clears: true, record: 2, outSince: time.Minute, drained: drain.ByIdle,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul", "nacos").
				with(untilIdle(time.Second, drain.Answer{Idle: true})),
		},
		"drains until idle, and the time is up": {
			reason: "it may not stay any longer", clears: true, record: 2, outSince: 10 * time.Minute, drained: drain.ByMax,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Minute, "consul", "nacos").
				with(untilIdle(time.Second, drain.Answer{Left: 3})),
		},
		"drains until idle, and another registry took it out later": {
			reason: "an answer of before min counts for nothing", record: 2, outSince: 31 * time.Second, held: reason.Draining, after: 30 * time.Second,
			asks: true,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Hour, "consul").
				acknowledged(lifecycle.Absent, 31*time.Second, "nacos").with(untilIdle(2*time.Second, drain.Answer{Idle: true})),
		},
		"never given to clients, and drains until idle": {
			reason: "no client has to notice, and no pod is asked", clears: true, record: 2,
			of: concludeAt(goes).with(recorded(nil)).with(untilIdle(0, drain.Answer{})),
		},
		"proceedAfter has passed, and the pod is busy": {
			reason: "it is asked, since no registry's answer will end its wait", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			asks: true,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul").with(failing).
				with(proceedAfter(time.Hour)).with(untilIdle(time.Second, drain.Answer{Left: 3})),
		},
		"proceedAfter has passed, and the pod is idle": {
			reason: "nothing is missing but a registry's word", clears: true, released: Proceeded, record: -1,
			held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul").with(failing).
				with(proceedAfter(time.Hour)).with(untilIdle(time.Second, drain.Answer{Idle: true})),
		},
		"busy, and a registry fails that it waits for": {
			reason: "it would be asked in vain", record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul").with(failing).
				with(untilIdle(time.Second, drain.Answer{Left: 3})),
		},
		"busy, and skipped": {
			reason: "a person decides", clears: true, released: Skipped, record: 2, outSince: time.Minute, held: reason.Draining,
			after: 30 * time.Second, asks: true,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, time.Minute, "consul", "nacos").
				with(untilIdle(time.Second, drain.Answer{Left: 3})).with(skipped),
		},
		"taken out before it was ever given to clients": {
			reason: "no client has to notice", clears: true, record: 2, of: concludeAt(goes).with(recorded(nil)),
		},
		"never registered": {
			reason: "no registry ever knew the pod, so there is nothing to write down", of: concludeAt(goes), clears: true, record: -1,
		},
		"skipped": {
			reason: "a person decides", of: concludeAt(goes).wasIn("consul").tried(lifecycle.Absent, "consul").with(failing).with(skipped),
			clears: true, released: Skipped, record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
		},
		"proceedAfter is yet to pass": {
			reason: "it is looked at again then", of: concludeAt(goes).wasIn("consul").with(failing).with(proceedAfter(55 * time.Second)),
			record: -1, held: reason.RegistryUnavailable, after: 5 * time.Second,
		},
		"proceedAfter is yet to pass, and nothing else is due": {
			reason: "the same", of: concludeAt(goes).wasIn("consul").with(held(waiting.Blocker{Reason: reason.RegistryUnavailable})).
				with(proceedAfter(55 * time.Second)), record: -1, held: reason.RegistryUnavailable, after: 5 * time.Second,
		},
		"proceedAfter has passed": {
			reason: "the registry was asked in vain for long enough",
			of:     concludeAt(goes).wasIn("consul").with(failing).with(proceedAfter(time.Minute)),
			clears: true, released: Proceeded, record: -1, held: reason.RegistryUnavailable, after: 10 * time.Second,
		},
		"proceedAfter has passed, and a drain has not": {
			reason: "clients of the registry that answered still send requests", record: -1, held: reason.RegistryUnavailable, after: 5 * time.Second,
			of: concludeAt(goes).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 25*time.Second, "consul").with(failing).
				with(proceedAfter(time.Hour)),
		},
		"proceedAfter has passed, and the registry was never asked": {
			reason: "after a start, most pods of a storm would be released that way",
			of: concludeAt(goes).wasIn("consul").with(held(waiting.Blocker{Reason: reason.RegistryUnavailable, Unasked: true})).
				with(proceedAfter(time.Hour)),
			record: -1, held: reason.RegistryUnavailable,
		},
		"proceedAfter has passed, and no registry is to blame": {
			reason: "the manifest is, and a person mends it", of: concludeAt(goes).wasIn("consul").
				with(held(waiting.Described(reason.InvalidPod, "no port"))).with(proceedAfter(time.Hour)),
			record: -1, held: reason.InvalidPod,
		},
		"a dry run": {
			reason: "it goes on as if the registry had acknowledged", record: -1, clears: true, held: reason.DryRun,
			of: concludeAt(goes).wasIn("consul").with(held(waiting.Blocker{Reason: reason.DryRun})),
		},
	}, func(t *testing.T, tc conclusion) {
		got := tc.of.conclude()
		if sets := len(got.Edit.Set) > 0; sets != tc.sets {
			t.Errorf("%s: sets %v", tc.reason, got.Edit.Set)
		}
		if clears := len(got.Edit.Clear) > 0; clears != tc.clears || got.Released.By != tc.released {
			t.Errorf("%s: clears %v, released as %d", tc.reason, got.Edit.Clear, got.Released.By)
		}
		if want := tc.released == Skipped; got.Edit.ClearSkip != want {
			t.Errorf("%s: takes the annotation off: %t", tc.reason, got.Edit.ClearSkip)
		}
		tc.expectRecord(t, got.Record)
		if got.Ask != tc.asks || got.Drained != tc.drained {
			t.Errorf("%s: asks %t, drained by %q, want %t, %q", tc.reason, got.Ask, got.Drained, tc.asks, tc.drained)
		}
		if b := waiting.First(got.Held...); b.Reason != tc.held || b.After != tc.after {
			t.Errorf("%s: waits for %q, again in %s; want %q, %s", tc.reason, b.Reason, b.After, tc.held, tc.after)
		}
	})
}

// TestConclude_FoundElsewhere: the application's entry was found at another address after the rows were made. The record must not tell the
// next leader that it was found where the rows have it: its absence there would count as being out.
func TestConclude_FoundElsewhere(t *testing.T) {
	t.Parallel()
	looked := concludeKey("consul").By(lifecycle.Application)
	found := looked
	found.Address = "fd00::2"
	c := concludeAt(appspub.LifecycleStateNormal)
	c.tracked.Saw(found, c.now)
	pod := &lifecycle.Pod{Status: lifecycle.PodStatus{PodIP: "10.0.0.2", PodIPs: []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}}}
	facts := Facts{Pod: pod, Known: c.tracked.Known(), Configuration: all{}, Targets: []tracker.Target{target(looked)}}
	o := Outcome{Facts: facts, Input: lifecycle.Input{Pod: pod}, Decision: lifecycle.Decision{Want: lifecycle.InService}, Now: c.now}
	o.Rows = Of(facts, o.Decision)
	o.Facts.Targets = []tracker.Target{target(found)}
	o.Certain = func(Row) bool { return true }
	if got := Conclude(o).Record; got == nil || len(got.Unfound) != 1 || got.Unfound[0] != looked {
		t.Errorf("the record is %v, want %v unfound", got, looked)
	}
}

// TestConclude_Record: what the next leader can know of the time in rotation.
func TestConclude_Record(t *testing.T) {
	t.Parallel()
	now, earlier, later := time.Unix(1_000_000, 0).UTC(), time.Unix(999_000, 0).UTC(), time.Unix(1_000_500, 0).UTC()
	const stays, goes = appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingDelete
	in := func(c *concluding) *concluding { return c.acknowledged(lifecycle.InService, 0, "consul", "nacos") }
	out := func(c *concluding) *concluding { return c.acknowledged(lifecycle.Absent, 0, "consul", "nacos") }
	grows := func(o *Outcome) { o.Grows = true }
	was := func(want lifecycle.Want, never bool, inSince time.Time) func(*Outcome) {
		return func(o *Outcome) {
			o.Input.Record = lifecycle.Record{Version: 1, Stamp: lifecycle.Stamp{UID: "1"}, Want: want, NeverInService: never, InSince: inSince}
		}
	}
	for name, tc := range map[string]struct {
		reason  string
		of      *concluding
		never   bool
		inSince time.Time
	}{
		"joins":                    {reason: "it is in", of: in(concludeAt(stays))},
		"out, and was never in":    {reason: "a panic must not count it", of: out(concludeAt(goes)), never: true},
		"out, and was in":          {reason: "this process had put it in", of: out(concludeAt(goes).wasIn("consul"))},
		"out, and was in before":   {reason: "by the record", of: out(concludeAt(goes).with(was(lifecycle.InService, false, time.Time{})))},
		"out again, and never in":  {reason: "by the record", of: out(concludeAt(goes).with(was(lifecycle.OutOfService, true, time.Time{}))), never: true},
		"joins, and warms up":      {reason: "its weight grows from now on", of: in(concludeAt(stays).with(grows)), inSince: now},
		"warms up":                 {reason: "it goes on", of: in(concludeAt(stays).with(grows).with(was(lifecycle.InService, false, earlier))), inSince: earlier},
		"comes back, and warms up": {reason: "it begins anew", of: in(concludeAt(stays).with(grows).with(was(lifecycle.OutOfService, false, earlier))), inSince: now},
		"joins nowhere":            {reason: "other pods' applications have all its endpoints", of: concludeAt(stays)},
		"stays out, and would warm up": {reason: "the same record as before, without a write",
			of: out(concludeAt(goes).with(grows).with(was(lifecycle.OutOfService, false, earlier))), inSince: earlier},
		"out, and would warm up": {reason: "it does so once it is back", of: out(concludeAt(goes).with(grows).with(was(lifecycle.InService, false, earlier))), inSince: earlier},
		"has warmed up":          {reason: "since then", of: in(concludeAt(stays).with(was(lifecycle.InService, false, earlier))), inSince: earlier},
		"has warmed up in the past": {reason: "the clock was set back, and it must not warm up once that time comes",
			of: in(concludeAt(stays).with(was(lifecycle.InService, false, later)))},
		"warms up by another clock": {reason: "that is ahead, and the weight does not grow until then",
			of: in(concludeAt(stays).with(grows).with(was(lifecycle.InService, false, later))), inSince: later},
	} {
		got := tc.of.conclude().Record
		if got == nil || got.NeverInService != tc.never || !got.InSince.Equal(tc.inSince) {
			t.Errorf("%s: %s: the record is %+v", name, tc.reason, got)
		}
	}
}

// TestConclude_SkippedNote: whoever skips a hook reads what was not waited for.
func TestConclude_SkippedNote(t *testing.T) {
	t.Parallel()
	const left = "the drain, of which 20s are left"
	out := func(registries ...string) *concluding {
		return concludeAt(appspub.LifecycleStatePreparingDelete).wasIn("consul", "nacos").acknowledged(lifecycle.Absent, 10*time.Second, registries...)
	}
	if got := out("consul").with(failing).with(skipped).conclude().Released.Message; !strings.Contains(got, left) {
		t.Errorf("a registry fails, and clients of the other have 20 s left: %s", got)
	}
	if got := out("consul", "nacos").with(skipped).conclude().Released.Message; strings.Contains(got, left) || !strings.Contains(got, "drains for 30s") {
		t.Errorf("the drain is all that is missing: %s", got)
	}
}

// TestOutcome_recorded: of where the pod does not belong, a record has what it has yet to leave.
func TestOutcome_recorded(t *testing.T) {
	t.Parallel()
	row := func(name string, want lifecycle.Want) Row { return Row{Target: target(concludeKey(name)), Want: want} }
	for reason, tc := range map[string]struct {
		rows    Plan
		certain bool
		want    int
	}{
		"where it belongs":                             {Plan{Present: []Row{row("a", lifecycle.InService)}}, true, 1},
		"what it has left":                             {Plan{Present: []Row{row("a", lifecycle.InService)}, Departing: []Row{row("b", lifecycle.Absent)}}, true, 1},
		"what it has yet to leave":                     {Plan{Present: []Row{row("a", lifecycle.InService)}, Departing: []Row{row("b", lifecycle.Absent)}}, false, 2},
		"what stays out while it is":                   {Plan{Present: []Row{row("a", lifecycle.OutOfService)}, Departing: []Row{row("b", lifecycle.OutOfService)}}, true, 2},
		"a former address that it has yet to leave":    {Plan{Present: []Row{row("a", lifecycle.InService)}, Former: []Row{row("b", lifecycle.Absent)}}, false, 2},
		"all that was taken out, if no place is known": {Plan{Departing: []Row{row("b", lifecycle.Absent)}}, true, 1},
		"what may be one with where it belongs":        {Plan{Present: []Row{row("a", lifecycle.InService)}, Spared: []lifecycle.Key{concludeKey("b")}}, true, 2},
		"what is left for the next visit":              {Plan{Present: []Row{row("a", lifecycle.InService)}, Unheard: []lifecycle.Key{concludeKey("b")}}, true, 2},
	} {
		o := Outcome{Certain: func(Row) bool { return tc.certain }}
		if got := o.recorded(tc.rows); len(got) != tc.want {
			t.Errorf("%s: got %v", reason, got)
		}
	}
}
