package lifecycle

import (
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestTrafficOf(t *testing.T) {
	t.Parallel()
	rolling, done := &Revisions{"web-a", "web-b"}, &Revisions{"web-a", "web-a"}
	type row struct {
		reason    string
		text      string
		revisions *Revisions
		// stable and canary are the shares of pods of revisions a and b, or the first is why the annotation is refused.
		want string
	}
	expect.Each(t, map[string]row{
		"a canary":            {"as people write it", "stable=80,canary=20", rolling, "80 20"},
		"the other way round": {"the order says nothing", " canary=20 , stable=80", rolling, "80 20"},
		"blue-green":          {"the new pods wait", "stable=100,canary=0", rolling, "100 0"},
		"all to the canary":   {"the old pods are spared", "stable=0,canary=100", rolling, "0 100"},
		"one revision":        {"a canary of which the update was rolled back is one still", "stable=100,canary=0", done, "100 0"},
		"the update is over":  {"the canary is the stable revision by now: all would be out", "stable=0,canary=100", done, "none"},
		"not counted yet":     {"which revision is stable is not known", "stable=100,canary=0", &Revisions{}, "none"},
		"not a CloneSet":      {"its revisions are not read", "stable=80,canary=20", nil, "on CloneSets only"},
		"one share":           {"the other can be guessed, and guessing wrong sends clients", "canary=20", rolling, "100 together"},
		"more than there is":  {"weights have no sum of 120", "stable=100,canary=20", rolling, "100 together"},
		"less than there is":  {"nobody would have the rest", "stable=50,canary=20", rolling, "100 together"},
		"a part of a percent": {"whole percent are enough", "stable=99.5,canary=0.5", rolling, "whole percent"},
		"with a unit":         {"it is always percent", "stable=80%,canary=20%", rolling, "whole percent"},
		"negative":            {"no share", "stable=110,canary=-10", rolling, "whole percent"},
		"twice":               {"which one counts?", "stable=80,stable=20", rolling, "100 together"},
		"another name":        {"there are two", "blue=80,green=20", rolling, "100 together"},
		"nothing":             {"a variable that was not set is no share", "", rolling, "100 together"},
		"longer than any":     {"it is not read whole", strings.Repeat(" ", MaxWord) + "stable=80,canary=20", rolling, "use at most"},
	}, func(t *testing.T, tc row) {
		got, err := TrafficOf(&Workload{Annotations: map[string]string{AnnotationTraffic: tc.text}, Revisions: tc.revisions})
		if err != nil {
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), AnnotationTraffic) {
				t.Errorf("got error %v, want one about %q: %s", err, tc.want, tc.reason)
			}
			return
		}
		shown := "none"
		if got.Shared() {
			stable, _ := got.ShareOf(ofRevision("a"))
			canary, _ := got.ShareOf(ofRevision("web-b"))
			older, _ := got.ShareOf(ofRevision("c"))
			expect.Equal(t, canary, older, "a third revision is not stable either")
			shown = strings.Join(strings.Fields(strings.NewReplacer("stable=", "", "canary=", "", ",", " ").Replace(Traffic{Stable: stable, Canary: canary}.String())), " ")
		}
		expect.Equal(t, tc.want, shown, "%s", tc.reason)
	})
	for _, w := range []*Workload{nil, {}} {
		if got, err := TrafficOf(w); got.Shared() || err != nil {
			t.Errorf("without the annotation: got %v, %v", got, err)
		}
	}
}

func TestLeftOverTraffic(t *testing.T) {
	t.Parallel()
	rolling, done := &Revisions{"web-a", "web-b"}, &Revisions{"web-a", "a"}
	type row struct {
		reason    string
		text      string
		revisions *Revisions
		want      bool
	}
	expect.Each(t, map[string]row{
		"after an update":   {"the next one would begin with all requests for its first pod", "stable=0,canary=100", done, true},
		"in a manifest":     {"each update would begin so", "canary=100, stable=0", &Revisions{}, true},
		"during the update": {"it is what the person wants now", "stable=0,canary=100", rolling, false},
		"a preview":         {"the next update waits", "stable=100,canary=0", done, false},
		"a share for each":  {"the next update gets it", "stable=80,canary=20", done, false},
		"a typo":            {"it is refused", "stable=0,canary=10", done, false},
		"no CloneSet":       {"it is refused", "stable=0,canary=100", nil, false},
	}, func(t *testing.T, tc row) {
		w := &Workload{Annotations: map[string]string{AnnotationTraffic: tc.text}, Revisions: tc.revisions}
		if got := LeftOverTraffic(w); (got != "") != tc.want {
			t.Errorf("got %q, want one: %t: %s", got, tc.want, tc.reason)
		}
	})
	expect.Equal(t, "", LeftOverTraffic(nil), "without a workload")
}

func ofRevision(name string) *Pod {
	pod := podIn(appspub.LifecycleStateNormal)
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = name
	return pod
}

// TestLeaveOut: hooks of a pod without a share pass on its way out, and wait on its way in.
func TestLeaveOut(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		state  appspub.LifecycleStateType
		row    Row
		want   Want
	}
	shares := Traffic{Stable: 100, current: "a"}
	expect.Each(t, map[string]row{
		"serving":               {"it leaves", appspub.LifecycleStateNormal, RowNormalNotReady, OutOfService},
		"new":                   {"OpenKruise must not take it for available: it would replace the pods that serve", appspub.LifecycleStatePreparingNormal, RowPreparingNormalUnfit, OutOfService},
		"updated":               {"as a new one", appspub.LifecycleStateUpdated, RowUpdatedNotReady, OutOfService},
		"about to be updated":   {"its hook is released as ever", appspub.LifecycleStatePreparingUpdate, RowPreparingUpdate, OutOfService},
		"about to be scaled in": {"its hook is released as ever", appspub.LifecycleStatePreparingDelete, RowPreparingDelete, Absent},
	}, func(t *testing.T, tc row) {
		pod := ofRevision("b")
		pod.Labels[appspub.LifecycleStateKey] = string(tc.state)
		in := Input{Pod: pod, Hooks: Hooks{PreNormal: []Handler{{Label: "pre", Value: "true"}}}}.LeaveOut(shares)
		d := Decide(in)
		if d.Row != tc.row || d.Want != tc.want || len(d.Then.Set) > 0 || !in.HeldOut {
			t.Errorf("got row %d, want %s, then %+v: %s", d.Row, d.Want, d.Then, tc.reason)
		}
		if !strings.Contains(in.Ending, "canary") || !strings.Contains(in.Ending, "stable=100,canary=0") {
			t.Errorf("%q does not show why the pod is out", in.Ending)
		}
	})
}

func TestInTraffic(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		state  appspub.LifecycleStateType
		change func(*Input)
		want   bool
	}
	none := func(*Input) {}
	unready := func(in *Input) { in.Pod.Status.Conditions[0].Status = corev1.ConditionFalse }
	expect.Each(t, map[string]row{
		"ready":            {"it serves", appspub.LifecycleStateNormal, none, true},
		"new":              {"it joins now", appspub.LifecycleStatePreparingNormal, none, true},
		"updated":          {"it joins now", appspub.LifecycleStateUpdated, none, true},
		"not ready":        {"it is out", appspub.LifecycleStateNormal, unready, false},
		"kept":             {"clients are given it all the same", appspub.LifecycleStateNormal, func(in *Input) { unready(in); in.Record.Want = InService }, true},
		"without a share":  {"it may be given one, and then others leave for it", appspub.LifecycleStateNormal, func(in *Input) { *in = in.LeaveOut(Traffic{Canary: 100}) }, true},
		"held by a person": {"it stays out", appspub.LifecycleStateNormal, func(in *Input) { *in = in.HoldOut(Hold{}) }, false},
		"to be updated":    {"it leaves", appspub.LifecycleStatePreparingUpdate, none, false},
		"being updated":    {"it is out", appspub.LifecycleStateUpdating, none, false},
		"to be deleted":    {"it leaves", appspub.LifecycleStatePreparingDelete, none, false},
		"finished":         {"it has ended", appspub.LifecycleStateNormal, func(in *Input) { in.Pod.Status.Phase = corev1.PodSucceeded }, false},
		"of another kind":  {"without a state it is no CloneSet's", "", none, false},
	}, func(t *testing.T, tc row) {
		pod := podIn(tc.state)
		pod.Status.Conditions = []PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		in := Input{Pod: pod}
		tc.change(&in)
		expect.Equal(t, tc.want, in.InTraffic(), "%s", tc.reason)
	})
}
