package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/traffic"
)

func TestChoose(t *testing.T) {
	t.Parallel()
	for value, tc := range map[string]struct {
		want  func(scenario) bool
		wrong bool
	}{
		"":       {want: func(scenario) bool { return true }},
		"short":  {want: func(s scenario) bool { return s.short }},
		"frozen": {want: func(s scenario) bool { return s.name == "registry frozen in an update" }},
		"shart":  {want: func(scenario) bool { return false }, wrong: true},
	} {
		var want, got []string
		for _, s := range scenarios() {
			if tc.want(s) {
				want = append(want, s.name)
			}
		}
		chosen, err := choose(value)
		for _, s := range chosen {
			got = append(got, s.name)
		}
		if diff := cmp.Diff(want, got); diff != "" || (err != nil) != tc.wrong {
			t.Errorf("E2E=%q gives error %v and (-want +got):\n%s", value, err, diff)
		}
	}
}

// Each arm differs from the others in what makes it an arm, and in nothing else.
func TestClonesetFor(t *testing.T) {
	t.Parallel()
	sets := map[string]*appsv1alpha1.CloneSet{}
	for _, name := range armNames() {
		set, err := clonesetFor(name)
		expect.NoError(t, err)
		sets[name] = set
	}
	with, careful, alone := sets[withRollcall], sets[withPreStop], sets[mirrorOnly]
	if l := with.Spec.Lifecycle; l == nil || l.PreNormal == nil || l.InPlaceUpdate == nil || l.PreDelete == nil {
		t.Error("with Rollcall there must be all three hooks")
	}
	if careful.Spec.Lifecycle != nil || alone.Spec.Lifecycle != nil {
		t.Error("without Rollcall a hook would never be answered")
	}
	if got := careful.Spec.UpdateStrategy.InPlaceUpdateStrategy.GracePeriodSeconds; got != graceSeconds {
		t.Errorf("the careful arm waits for %d seconds before an update in place", got)
	}
	if alone.Spec.Template.Spec.Containers[0].Lifecycle != nil {
		t.Error("the mirror alone has no preStop")
	}
	for _, name := range armNames() {
		set := sets[name]
		if diff := cmp.Diff(map[string]string{"app": name}, set.Spec.Selector.MatchLabels); diff != "" {
			t.Errorf("the selector of arm %s: %s", name, diff)
		}
		set.Spec.Lifecycle, set.Spec.UpdateStrategy.InPlaceUpdateStrategy, set.Spec.Selector = nil, nil, nil
		set.Spec.Template.Labels, set.Spec.Template.Spec.Containers[0].Lifecycle = nil, nil
		if diff := cmp.Diff(sets[withRollcall], set); diff != "" {
			t.Errorf("arm %s differs in something else: %s", name, diff)
		}
	}
}

func TestUnsettled(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, tc := range map[string]struct {
		edit func(*appsv1alpha1.CloneSet, *corev1.Pod)
		want string
	}{
		"Settled":    {edit: func(*appsv1alpha1.CloneSet, *corev1.Pod) {}},
		"OldStatus":  {edit: func(s *appsv1alpha1.CloneSet, _ *corev1.Pod) { s.Generation++ }, want: "has not seen the last change"},
		"NotUpdated": {edit: func(s *appsv1alpha1.CloneSet, _ *corev1.Pod) { s.Status.UpdatedReplicas = 0 }, want: "0 of 1 pods are updated"},
		"TooMany":    {edit: func(s *appsv1alpha1.CloneSet, _ *corev1.Pod) { *s.Spec.Replicas = 0 }, want: "1 are there"},
		"Deleted":    {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) { p.DeletionTimestamp = &now }, want: "is being deleted"},
		"Unready":    {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) { p.Status.Conditions = nil }, want: "is not ready"},
		"OldImage":   {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) { p.Spec.Containers[0].Image = "old" }, want: "has image old"},
		"AtAHook": {edit: func(_ *appsv1alpha1.CloneSet, p *corev1.Pod) {
			p.Labels[appspub.LifecycleStateKey] = "PreparingUpdate"
		}, want: "is in state PreparingUpdate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, err := clonesetFor(withRollcall)
			expect.NoError(t, err)
			set.Spec.Replicas = new(int32(1))
			set.Status.UpdatedReplicas, set.Status.ReadyReplicas = 1, 1
			pod := servingPod("web-1", "10.0.0.1")
			tc.edit(set, pod)
			expect.Error(t, name, unsettled(set, []corev1.Pod{*pod}), tc.want)
		})
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	pods := []corev1.Pod{*servingPod("web-1", "10.0.0.1"), *servingPod("web-2", "10.0.0.2")}
	at := func(address, pod string) registry.Entry {
		return registry.Entry{Instance: registry.Instance{Address: address, Port: appPort, Pod: pod}}
	}
	first, second := at("10.0.0.1", "web-1"), at("10.0.0.2", "web-2")
	expect.Error(t, "the registry and the pods", differs(pods, []registry.Entry{second, first}), "")
	expect.Error(t, "the registry and the pods", differs(pods, []registry.Entry{first}), "in rotation are [web-1 at 10.0.0.1:8080], the pods are")
	expect.Error(t, "the registry and the pods", differs(pods, []registry.Entry{first, at("10.0.0.2", "web-3")}), "web-3")
}

func TestNextVersion(t *testing.T) {
	t.Parallel()
	set, err := clonesetFor(withRollcall)
	expect.NoError(t, err)
	for _, want := range []string{appImage("v2"), appImage("v1")} {
		nextVersion(&set.Spec)
		if got := set.Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("got image %s, want %s", got, want)
		}
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	got := reasons([]traffic.Failure{{Why: "a"}, {Why: "b: 1"}, {Why: "b: 2"}})
	if want := "2 b, 1 a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	rowOf := func(name, lossy string, lost ...int) row {
		r := row{scenario: name, lossy: lossy, took: time.Second, arms: map[string]result{}}
		for i, arm := range armNames() {
			r.arms[arm] = result{requests: 10, failures: make([]traffic.Failure, lost[i])}
		}
		return r
	}
	for name, tc := range map[string]struct {
		rows   []row
		last   string
		failed bool
	}{
		"Proven": {
			rows: []row{rowOf("update", "", 0, 1, 2), rowOf("delete", "", 0, 2, 3)},
			last: "e2e: 2 scenarios, 60 requests; failed: 0 with rollcall, 3 with preStop and mirror, 5 with mirror",
		},
		"LostOne": {
			rows: []row{rowOf("update", "", 1, 0, 0)}, failed: true,
			last: "e2e: 1 scenarios, 30 requests; failed: 1 with rollcall, 0 with preStop and mirror, 0 with mirror",
		},
		"Lossy": {
			rows: []row{rowOf("crash", "it is sudden", 1, 1, 1)},
			last: "e2e: 0 scenarios, 0 requests; failed: 0 with rollcall, 0 with preStop and mirror, 0 with mirror",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			if err := report(&out, tc.rows); errors.Is(err, command.ErrFailed) != tc.failed {
				t.Errorf("got error %v", err)
			}
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if diff := cmp.Diff(tc.last, lines[len(lines)-1]); diff != "" {
				t.Errorf("the last line: %s", diff)
			}
		})
	}
}

func servingPod(name, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "e2e", UID: types.UID(name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: appImage("v1")}}},
		Status: corev1.PodStatus{
			PodIP: address, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}
