package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// Each arm differs from the others in what makes it an arm, and in nothing else.
func TestClonesetFor(t *testing.T) {
	t.Parallel()
	sets := map[string]*appsv1alpha1.CloneSet{}
	for _, name := range armNames() {
		set, err := clonesetFor(name, true)
		expect.NoError(t, err)
		sets[name] = set
	}
	with, hooks, careful, alone := sets[withRollcall], sets[hooksOnly], sets[withPreStop], sets[mirrorOnly]
	if l := with.Spec.Lifecycle; l == nil || l.PreNormal == nil || l.InPlaceUpdate == nil || l.PreDelete == nil {
		t.Error("with Rollcall there must be all three hooks")
	}
	if gates := with.Spec.Template.Spec.ReadinessGates; len(gates) != 1 || gates[0].ConditionType != lifecycle.ConditionInRotation {
		t.Errorf("with Rollcall a Service must wait for it, and the gates are %v", gates)
	}
	if careful.Spec.Lifecycle != nil || alone.Spec.Lifecycle != nil {
		t.Error("without Rollcall a hook would never be answered")
	}
	if got := careful.Spec.UpdateStrategy.InPlaceUpdateStrategy.GracePeriodSeconds; got != graceSeconds {
		t.Errorf("the careful arm waits for %d seconds before an update in place", got)
	}
	if alone.Spec.Template.Spec.Containers[0].Lifecycle != nil || hooks.Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("the mirror alone has no preStop, and the hooks alone have none")
	}
	expect.Equal(t, with.Spec.Lifecycle, hooks.Spec.Lifecycle, "the hooks")
	expect.Equal(t, with.Spec.Template.Spec.ReadinessGates, hooks.Spec.Template.Spec.ReadinessGates, "the gates")
	for _, name := range armNames() {
		set := sets[name]
		expect.Equal(t, map[string]string{"app": name}, set.Spec.Selector.MatchLabels, "the selector of arm %s", name)
		set.Spec.Lifecycle, set.Spec.UpdateStrategy.InPlaceUpdateStrategy, set.Spec.Selector = nil, nil, nil
		set.Spec.Template.Labels, set.Spec.Template.Spec.Containers[0].Lifecycle = nil, nil
		set.Spec.Template.Spec.TopologySpreadConstraints, set.Spec.Template.Spec.ReadinessGates = nil, nil
		expect.Equal(t, sets[withRollcall], set, "arm %s differs in something else", name)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	rowOf := func(name, lossy string, lost ...int) row {
		r := row{scenario: name, lossy: lossy, took: time.Second, arms: map[string]result{}}
		for i, arm := range armNames() {
			r.arms[arm] = result{requests: 10, failures: make([]rollout.Failure, lost[i])}
		}
		return r
	}
	type tableRow struct {
		rows   []row
		last   string
		failed bool
	}
	expect.Each(t, map[string]tableRow{
		"Proven": {
			rows: []row{rowOf("update", "", 0, 1, 1, 2), rowOf("delete", "", 0, 3, 2, 3)},
			last: "e2e: 2 scenarios, 80 requests; failed: 0 with rollcall, 4 without its preStop sleep, 3 with preStop and mirror, 5 with mirror",
		},
		"LostOne": {
			rows: []row{rowOf("update", "", 1, 0, 0, 0)}, failed: true,
			last: "e2e: 1 scenarios, 40 requests; failed: 1 with rollcall, 0 without its preStop sleep, 0 with preStop and mirror, 0 with mirror",
		},
		"Lossy": {
			rows: []row{rowOf("crash", "it is sudden", 1, 1, 1, 1)},
			last: "e2e: 0 scenarios, 0 requests; failed: 0 with rollcall, 0 without its preStop sleep, 0 with preStop and mirror, 0 with mirror",
		},
	}, func(t *testing.T, tc tableRow) {
		var out strings.Builder
		if err := report(&out, tc.rows); errors.Is(err, command.ErrFailed) != tc.failed {
			t.Errorf("got error %v", err)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		expect.Equal(t, tc.last, lines[len(lines)-1], "the last line")
	})
}

func TestJudge(t *testing.T) {
	t.Parallel()
	arm := func(took time.Duration, cut int) drained {
		return drained{streams: rollout.Tally{Requests: 100, Failed: cut}, rollout: took}
	}
	type row struct {
		short, long, idle drained
		want              string // "" if all is well
	}
	expect.Each(t, map[string]row{
		"Proven":     {arm(60*time.Second, 9), arm(400*time.Second, 0), arm(300*time.Second, 0), ""},
		"Harmless":   {arm(60*time.Second, 0), arm(400*time.Second, 0), arm(300*time.Second, 0), "shows nothing"},
		"LongCuts":   {arm(60*time.Second, 9), arm(400*time.Second, 1), arm(300*time.Second, 0), "longer than each stream cut some"},
		"IdleCuts":   {arm(60*time.Second, 9), arm(400*time.Second, 0), arm(300*time.Second, 1), "until the pod is idle cut some"},
		"IdleIsSlow": {arm(60*time.Second, 9), arm(400*time.Second, 0), arm(301*time.Second, 0), "more than three quarters"},
	}, func(t *testing.T, tc row) {
		expect.Error(t, "it says what is wrong", judge(tc.short, tc.long, tc.idle), tc.want)
	})
}

// TestFollower: a stream counts only if the pod that the registry named has ended it.
func TestFollower(t *testing.T) {
	t.Parallel()
	const end = "event: end\ndata: \n\n"
	type row struct{ sends, want string }
	expect.Each(t, map[string]row{
		"Whole":   {"data: web-1\n\n" + end, ""},
		"Cut":     {"data: web-1\n\n", "cut"},
		"Another": {"data: web-2\n\n" + end, "another pod"},
	}, func(t *testing.T, tc row) {
		pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, tc.sends) }))
		defer pod.Close()
		at := pod.Listener.Addr().(*net.TCPAddr)
		err := follower()(t.Context(), registry.Entry{Instance: registry.Instance{Address: at.IP.String(), Port: at.Port, Pod: "web-1"}})
		expect.Error(t, "it says what is wrong", err, tc.want)
	})
}

// TestChoose: what takes long is played only by name.
func TestChoose(t *testing.T) {
	t.Parallel()
	names := func(value string) (all []string) {
		chosen, err := choose(value, false)
		expect.NoError(t, err)
		for _, s := range chosen {
			all = append(all, s.name)
		}
		return all
	}
	expect.Equal(t, []string{"durations with Nacos"}, names("durations with Nacos"), "by its name")
	if slices.Contains(names(""), "durations with Nacos") || slices.Contains(names("short"), "durations with Nacos") {
		t.Error("an hour of rollouts must not be a part of a whole run")
	}
}

// TestRelease: the least controller waits for what clients need, and for nothing else.
func TestRelease(t *testing.T) {
	t.Parallel()
	r := rollouts{least: 5 * time.Second, lag: time.Minute}
	type row struct {
		state appspub.LifecycleStateType
		ready bool
		after time.Duration
		sets  string // "" if no hook waits
	}
	expect.Each(t, map[string]row{
		"New":      {appspub.LifecycleStatePreparingNormal, true, time.Minute, `online":"true"`},
		"Starting": {appspub.LifecycleStatePreparingNormal, false, 0, ""},
		"Drains":   {appspub.LifecycleStatePreparingUpdate, true, 5 * time.Second, `update":"false"`},
		"Restarts": {appspub.LifecycleStateUpdated, false, 0, ""},
		"Updated":  {appspub.LifecycleStateUpdated, true, time.Minute, `update":"true"`},
		"Serves":   {appspub.LifecycleStateNormal, true, 0, ""},
	}, func(t *testing.T, tc row) {
		pod := kube.Pod("e2e-least", "web-1")
		pod.Labels = map[string]string{appspub.LifecycleStateKey: string(tc.state)}
		if tc.ready {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}
		got := r.due(pod)
		expect.Equal(t, tc.after, got.after, "after")
		if (tc.sets == "") != (got.patch == "") || !strings.Contains(got.patch, tc.sets) {
			t.Errorf("it writes %s and not %s", got.patch, tc.sets)
		}
	})
}
