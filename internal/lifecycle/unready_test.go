package lifecycle

import (
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestPanic(t *testing.T) {
	t.Parallel()
	type row struct {
		reason    string
		peers     Peers
		threshold int
		want      bool
	}
	expect.Each(t, map[string]row{
		"none of none":    {"none is unready", Peers{}, 50, false},
		"none of some":    {"none is unready", Peers{All: 3}, 50, false},
		"one of one":      {"the last one is kept, or clients find no pod", Peers{All: 1, Unready: 1}, 50, true},
		"one of two":      {"half is not more than half", Peers{All: 2, Unready: 1}, 50, false},
		"two of three":    {"it is more than half", Peers{All: 3, Unready: 2}, 50, true},
		"exactly a third": {"nothing is rounded", Peers{All: 3, Unready: 1}, 33, true},
		"below a third":   {"nothing is rounded", Peers{All: 3, Unready: 1}, 34, false},
		"all of all":      {"at 100% there is no panic", Peers{All: 4, Unready: 4}, 100, false},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, tc.peers.Panic(tc.threshold), "%+v at %d%%: %s", tc.peers, tc.threshold, tc.reason)
	})
}

func TestWhichPodsCount(t *testing.T) {
	t.Parallel()
	for _, s := range []appspub.LifecycleStateType{
		"", appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingUpdate,
		appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingDelete, "Dreaming",
	} {
		if got, want := Counts(podIn(s)), s == appspub.LifecycleStateNormal; got != want {
			t.Errorf("in state %q: got %t, want %t: what is out on purpose counts on neither side", s, got, want)
		}
	}
	dying, done := podIn(appspub.LifecycleStateNormal), podIn(appspub.LifecycleStateNormal)
	dying.DeletionTimestamp, done.Status.Phase = &metav1.Time{Time: time.Unix(0, 0)}, corev1.PodFailed
	if Counts(dying) || Counts(done) {
		t.Error("a pod that ends counts")
	}
}

func TestDamped(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	type row struct {
		reason      string
		ago, after  time.Duration
		ended, want bool
	}
	expect.Each(t, map[string]row{
		"turned just now":       {"a missed probe is soon over", time.Second, 5 * time.Second, false, true},
		"turned a while ago":    {"it does not serve", 5 * time.Second, 5 * time.Second, false, false},
		"turned later, it says": {"kubelet's clock is ahead", -time.Hour, 5 * time.Second, false, true},
		"a container has ended": {"every request fails", time.Second, 5 * time.Second, true, false},
		"nothing is waited for": {"the configuration says so", time.Second, 0, false, false},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		pod.Status.Conditions = []PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(now.Add(-tc.ago))}}
		if tc.ended {
			pod.Status.NotRunning = []string{"web"}
		}
		if left := Damped(pod, tc.after, now); (left > 0) != tc.want || left > tc.after {
			t.Errorf("kept for %s, want kept: %t: %s", left, tc.want, tc.reason)
		}
	})
}

func TestHeldNotReady(t *testing.T) {
	t.Parallel()
	const hook, recreation = `[{"userAgent":"Lifecycle","key":"Update"}]`, `[{"userAgent":"ContainerRecreateRequest","key":"prod/web"}]`
	type row struct {
		reason  string
		marks   bool
		gate    corev1.ConditionStatus
		message string
		want    bool
	}
	expect.Each(t, map[string]row{
		"rolled back":          {"the hook shut the gate in PreparingUpdate", true, corev1.ConditionFalse, hook, true},
		"containers recreated": {"a ContainerRecreateRequest opens the gate again", true, corev1.ConditionFalse, recreation, false},
		"both":                 {"the hook's key stays", true, corev1.ConditionFalse, recreation[:len(recreation)-1] + "," + hook[1:], true},
		"open":                 {"something else is not ready", true, corev1.ConditionTrue, "[]", false},
		"no hook marks":        {"another feature of Kruise holds it", false, corev1.ConditionFalse, recreation, false},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		pod.Status.ShutByHook = PodOf(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: appspub.KruisePodReadyConditionType, Status: tc.gate, Message: tc.message},
		}}}).Status.ShutByHook
		in := Input{Pod: pod, Hooks: Hooks{MarksNotReady: tc.marks}}
		expect.Equal(t, tc.want, in.HeldNotReady(Decide(in)), "%s", tc.reason)
	})
}

// TestReadinessGateOfOurOwn: a pod that waits to be in rotation until it is Ready, and the other way round, would wait forever.
func TestReadinessGateOfOurOwn(t *testing.T) {
	t.Parallel()
	const other corev1.PodConditionType = "InPlaceUpdateReady"
	gates := []corev1.PodConditionType{ConditionInRotation, other}
	for reason, tc := range map[string]struct {
		gates []corev1.PodConditionType
		holds []corev1.PodConditionType
		why   string
		want  bool
	}{
		"ready as Kubernetes has it":                      {holds: []corev1.PodConditionType{corev1.PodReady}, want: true},
		"all but its own gate":                            {gates, []corev1.PodConditionType{corev1.ContainersReady, other}, gatesNotReady, true},
		"another gate is missing":                         {gates, []corev1.PodConditionType{corev1.ContainersReady}, gatesNotReady, false},
		"the containers are not ready":                    {gates, []corev1.PodConditionType{ConditionInRotation, other}, "ContainersNotReady", false},
		"without the gate, Ready is its word":             {gates[1:], []corev1.PodConditionType{corev1.ContainersReady, other}, gatesNotReady, false},
		"its node is lost":                                {gates, []corev1.PodConditionType{corev1.ContainersReady, ConditionInRotation, other}, "", false},
		"its node is lost, and it was taken out for that": {gates, []corev1.PodConditionType{corev1.ContainersReady, other}, "", false},
	} {
		pod := &corev1.Pod{}
		for _, gate := range tc.gates {
			pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
		}
		if !slices.Contains(tc.holds, corev1.PodReady) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: tc.why}}
		}
		for _, held := range tc.holds {
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: held, Status: corev1.ConditionTrue})
		}
		expect.Equal(t, tc.want, IsReady(PodOf(pod)), "%s", reason)
	}
}

// TestLatePatchOnAPodWithAReadinessGateOfOurOwn: such a pod counts as ready although its Ready condition is false, and its
// Ready condition stays as it is when a container turns unready. A patch that sets a handler must not land after that.
func TestLatePatchOnAPodWithAReadinessGateOfOurOwn(t *testing.T) {
	t.Parallel()
	const other corev1.PodConditionType = "InPlaceUpdateReady"
	for _, turned := range []corev1.PodConditionType{corev1.ContainersReady, other} {
		pod := &Pod{ObjectMeta: metav1.ObjectMeta{UID: testUID, Labels: map[string]string{
			appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingNormal),
		}}}
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: ConditionInRotation}, {ConditionType: other}}
		pod.Status.PodIP = "10.0.0.1"
		pod.Status.Conditions = []PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionFalse},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
			{Type: other, Status: corev1.ConditionTrue},
		}
		pod.Status.OnlyGates = true
		h := label("example.com/pre-normal", "ok")
		in := Input{Pod: pod, Hooks: Hooks{PreNormal: []Handler{h}}, Ownership: testOwnership()}
		d := Decide(in)
		if d.Row != RowPreparingNormal {
			t.Fatalf("row %d, want %d", d.Row, RowPreparingNormal)
		}
		patch, err := in.Patch(d.Then, nil)
		expect.NoError(t, err)
		if _, err := applyPatch(t, pod, patch); err != nil {
			t.Fatalf("nothing has changed: %v", err)
		}
		now := pod.DeepCopy()
		for i := range now.Status.Conditions {
			if now.Status.Conditions[i].Type == turned {
				now.Status.Conditions[i].Status = corev1.ConditionFalse
			}
		}
		if IsReady(now) {
			t.Fatalf("%s: the pod is not ready by now", turned)
		}
		if after, err := applyPatch(t, now, patch); err == nil && carries(after, h) {
			t.Errorf("%s turned false and the patch has set preNormal all the same", turned)
		}
	}
}
