package plan

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestDrainOf: another manager took the pod out and recorded it, by its own clock; this one has just taken it out again.
func TestDrainOf(t *testing.T) {
	t.Parallel()
	const length = 15 * time.Second
	type row struct {
		reason string
		// recorded is how long ago the record says that it was, and ahead how far this clock can be ahead of the other.
		recorded, ahead time.Duration
		left            time.Duration
	}
	expect.Each(t, map[string]row{
		"the same clock":            {"it goes on where it was", 5 * time.Second, 0, 10 * time.Second},
		"this one is ahead":         {"5 s have passed, whatever the clocks read", 13 * time.Second, 8 * time.Second, 10 * time.Second},
		"this one is behind":        {"the same", 2 * time.Second, -3 * time.Second, 10 * time.Second},
		"the bound is loose":        {"it may take longer, and never less", 13 * time.Second, 9 * time.Second, 11 * time.Second},
		"nothing is known":          {"it begins anew", 13 * time.Second, time.Hour, length},
		"the record is of later":    {"no pod waits for longer than a drain", -1000 * time.Hour, 0, length},
		"taken out for a long time": {"it is over", time.Hour, 0, length - time.Hour},
	}, func(t *testing.T, tc row) {
		now := time.Unix(1_000_000, 0)
		in := concludeKey("consul")
		tracked := tracker.New().Open(lifecycle.PodID{})
		since := now.Add(-tc.recorded)
		pod := &lifecycle.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: "1", Labels: map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingDelete)},
		}, Status: lifecycle.PodStatus{PodIP: in.Address}}
		facts := Facts{
			Pod: pod, Configuration: all{}, Targets: []tracker.Target{target(in)}, Known: tracked.Known(), Record: lifecycle.Record{
				Version: 1, Stamp: lifecycle.StampOf(pod), Want: lifecycle.Absent, Instances: []lifecycle.Key{in}, OutSince: &since,
			},
		}
		rows := Of(facts, lifecycle.Decision{Want: lifecycle.Absent})
		for _, r := range rows.All() {
			tracked.RecallRemoval(r.Key(), r.OutSince, tc.ahead)
			tracked.Begin(r.Key(), r.Want, r.Instance, now)
			tracked.Acknowledged(r.Key(), now)
		}
		facts.Known = tracked.Known()
		d := DrainOf(facts, rows, drain.Fixed(length), tc.ahead, now)
		if got := d.state(now).Most.Sub(now); got != tc.left {
			t.Errorf("%s: %s are left, want %s", tc.reason, got, tc.left)
		}
	})
}

// TestDrain_ends: a hook that is released without the registry's word still waits for the drain, by whoever's record.
func TestDrain_ends(t *testing.T) {
	t.Parallel()
	const length = 30 * time.Second
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) *time.Time { return new(now.Add(-d)) }
	type row struct {
		reason string
		// recorded is what the record says, ahead how far this clock can be ahead, and read how long ago this process first read it.
		recorded    *time.Time
		ahead, read time.Duration
		over        bool
	}
	expect.Each(t, map[string]row{
		"no record":        {"there is no drain to wait for", nil, 0, 0, true},
		"recorded":         {"10 s have passed", ago(10 * time.Second), 0, 0, false},
		"over":             {"31 s have", ago(31 * time.Second), 0, 0, true},
		"over, perhaps":    {"the other clock may have been behind", ago(31 * time.Second), 5 * time.Second, 0, false},
		"forged":           {"a tenant can write it, so it counts for one drain from when it was read", ago(-time.Hour), 0, length, true},
		"forged, just now": {"the same", ago(-time.Hour), 0, 10 * time.Second, false},
	}, func(t *testing.T, tc row) {
		f := Facts{Record: lifecycle.Record{OutSince: tc.recorded}}
		d := DrainOf(f, Plan{}, drain.Fixed(length), tc.ahead, now.Add(-tc.read))
		if over := !d.ends(now).After(now); over != tc.over {
			t.Errorf("%s: it ends at %s, and it is %s", tc.reason, d.ends(now), now)
		}
	})
}
