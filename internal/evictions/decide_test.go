package evictions

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const hookKey = "example.com/hold"

func hooksOfAll() lifecycle.Hooks {
	return lifecycle.Hooks{PreDelete: []lifecycle.Handler{{Label: hookKey, Value: "true"}}}
}

// podThat returns a pod that serves, with its hook armed, changed by the edits.
func podThat(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-1", UID: "web-1",
			Labels: map[string]string{hookKey: "true", "app": "web", appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func called(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Name, pod.UID = name, types.UID(name) }
}

func specified(pod *corev1.Pod) { pod.Labels[kruisev1alpha1.SpecifiedDeleteKey] = "true" }

func in(state appspub.LifecycleStateType) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[appspub.LifecycleStateKey] = string(state) }
}

func unready(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

// outOfRotation: the application is ready, and the registry has refused the pod.
func outOfRotation(pod *corev1.Pod) {
	unready(pod)
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionTrue})
}

func evictedUntil(text string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lifecycle.AnnotationEndsAt, text) }
}

func shuttingDown() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-1"},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: lifecycle.NodeShutsDown},
		}},
	}
}

// claims gives a pod of a CloneSet a volume of a PersistentVolumeClaim.
func claims(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Labels[kruisev1alpha1.CloneSetInstanceID] = "x7k2p"
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
}

// budgeted: OpenKruise has marked the pod as one of the PodUnavailableBudget.
func budgeted(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lifecycle.AnnotationRelatedPUB, name)
	}
}

func unavailable(pod *corev1.Pod) { pod.Labels[appspub.PubUnavailablePodLabelPrefix+"shop"] = "" }

func deleted(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func TestDecide(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const limit = 10 * time.Minute
	ago := func(d time.Duration) func(*corev1.Pod) { return evictedUntil(lifecycle.NotBefore(now.Add(limit - d))) }
	endsIn := func(d time.Duration) func(*corev1.Pod) { return evictedUntil(now.Add(d).Format(time.RFC3339)) }
	ending := func(d time.Duration) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			lifecycle.AnnotationEndsAt: now.Add(d).Format(time.RFC3339),
		}}}
	}
	unarmed := func(pod *corev1.Pod) { delete(pod.Labels, hookKey) }
	noInstance := func(pod *corev1.Pod) { delete(pod.Labels, kruisev1alpha1.CloneSetInstanceID) }
	type row struct {
		reason string
		pod    *corev1.Pod
		want   Answer
		node   *corev1.Node
	}
	expect.Each(t, map[string]row{
		"serves":          {"its clients have to leave it first", podThat(), Begin, nil},
		"second eviction": {"the hooked deletion is under way", podThat(specified, ago(time.Minute)), Wait, nil},
		"began later":     {"another manager's clock is ahead, and a drain must end", podThat(specified, ago(-time.Hour)), Begin, nil},
		"at the limit":    {"a drain must end, and its clients leave it first", podThat(specified, ago(10*time.Minute)), TakeOut, nil},
		"drains":          {"its drain has not passed", podThat(specified, endsIn(time.Second)), Wait, nil},
		"drained":         {"a drain must end", podThat(specified, endsIn(0)), GiveUp, nil},
		"of an earlier drain": {
			"that eviction was refused, and the pod is back in rotation", podThat(specified, endsIn(-5*time.Minute)), TakeOut, nil,
		},
		"at the limit, on its way": {
			"OpenKruise has reached it, and it waits for the registry",
			podThat(specified, ago(11*time.Minute), in(appspub.LifecycleStatePreparingDelete)), GiveUp, nil,
		},
		"on a node with a deadline":         {"OpenKruise has time to replace it", podThat(), Begin, ending(time.Minute)},
		"until its node's deadline":         {"it is still in rotation", podThat(specified, ago(time.Minute)), Wait, ending(21 * time.Second)},
		"near its node's deadline":          {"it is drained by now, and has to stop", podThat(specified, ago(time.Minute)), GiveUp, ending(20 * time.Second)},
		"first evicted near the deadline":   {"no time is left for hooks", podThat(), GiveUp, ending(20 * time.Second)},
		"its node shuts down":               {"its containers end whatever is answered", podThat(), GiveUp, shuttingDown()},
		"a deadline that did not come true": {"whoever announced it was wrong", podThat(), Begin, ending(-5 * time.Minute)},
		"labelled by hand":                  {"when the eviction began is not known yet", podThat(specified), Begin, nil},
		"label taken off":                   {"a person has cancelled the deletion since", podThat(ago(time.Hour)), Begin, nil},
		"label taken off, drains":           {"its limit begins again", podThat(endsIn(time.Second)), Begin, nil},
		"limit in a year":                   {"a tenant wrote it, and a drain must end", podThat(specified, ago(-365*24*time.Hour)), Begin, nil},
		"end in a year":                     {"a tenant wrote it, and a drain must end", podThat(specified, endsIn(365*24*time.Hour)), Begin, nil},
		"limit by another clock":            {"that manager's is ahead", podThat(specified, ago(-10*time.Second)), Wait, nil},
		"time is no time":                   {"a limit must hold for it too", podThat(specified, evictedUntil("not before soon")), Begin, nil},
		"scales in":                         {"a cancelled scale-in would put it back", podThat(in(appspub.LifecycleStatePreparingDelete)), Begin, nil},
		"released":                          {"it is out, and OpenKruise is about to delete it", podThat(unarmed, specified, ago(time.Minute)), Pass, nil},
		"not armed":                         {"OpenKruise would delete it without a hook", podThat(unarmed), Pass, nil},
		"is being deleted":                  {"nothing holds its containers any more", podThat(deleted), Pass, nil},
		"pending":                           {"it serves no one", podThat(phase(corev1.PodPending)), Pass, nil},
		"succeeded":                         {"it serves no one", podThat(phase(corev1.PodSucceeded)), Pass, nil},
		"failed":                            {"it serves no one", podThat(phase(corev1.PodFailed)), Pass, nil},
		"claims of its own": {
			"OpenKruise would delete them, and the data in them", podThat(claims("shared"), claims("data-web-x7k2p")), KeepClaims, nil,
		},
		"claims, leaves already": {"an eviction still keeps them", podThat(claims("data-web-x7k2p"), specified), KeepClaims, nil},
		"claims, not armed":      {"the eviction passes no hook", podThat(claims("data-web-x7k2p"), unarmed), Pass, nil},
		"a claim of many pods":   {"OpenKruise leaves it alone", podThat(claims("shared")), Begin, nil},
		"claims of an ordinal":   {"the next pod of a StatefulSet takes them over", podThat(claims("data-web-1"), noInstance), Begin, nil},
	}, func(t *testing.T, c row) {
		got, notBefore := Decide(lifecycle.PodOf(c.pod), lifecycle.NodeOf(c.node), hooksOfAll(), now, limit, 15*time.Second)
		if got != c.want || got == Begin && !notBefore.Equal(now.Add(limit)) {
			t.Errorf("answer %d, not let through before %s, want %d: %s", got, notBefore, c.want, c.reason)
		}
	})
}

func TestBlocking(t *testing.T) {
	t.Parallel()
	other := func(edits ...func(*corev1.Pod)) *lifecycle.Pod {
		return lifecycle.PodOf(podThat(append(edits, called("web-2"))...))
	}
	always := policyv1.AlwaysAllow
	type row struct {
		reason string
		pod    *corev1.Pod
		others []*lifecycle.Pod
		status policyv1.PodDisruptionBudgetStatus
		policy *policyv1.UnhealthyPodEvictionPolicyType
		want   bool
	}
	expect.Each(t, map[string]row{
		"room":    {reason: "it allows one", pod: podThat(), status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}},
		"no room": {reason: "it allows none", pod: podThat(), want: true},
		"room is taken": {
			reason: "the other serves until it is deleted, and so counts as healthy",
			pod:    podThat(), others: []*lifecycle.Pod{other(specified)}, status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}, want: true,
		},
		"room is taken by a scale-in": {
			reason: "the other is drained as well", pod: podThat(), others: []*lifecycle.Pod{other(in(appspub.LifecycleStatePreparingDelete))},
			status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}, want: true,
		},
		"others that are counted": {
			reason: "the budget does not count them as healthy",
			pod:    podThat(), others: []*lifecycle.Pod{other(specified, deleted), other(specified, unready), other(specified, outOfRotation)},
			status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
		},
		"others that are not selected": {
			reason: "another application's pods take no room of it",
			pod:    podThat(), others: []*lifecycle.Pod{other(specified, func(p *corev1.Pod) { p.Labels["app"] = "db" })},
			status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1},
		},
		"leaves already": {reason: "no eviction disrupts it any more", pod: podThat(in(appspub.LifecycleStatePreparingDelete))},
		"not counted yet": {
			reason: "what it allows is of an earlier generation", pod: podThat(),
			status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ObservedGeneration: 1}, want: true,
		},
		"unready, application healthy": {
			reason: "IfHealthyBudget, the default", pod: podThat(unready),
			status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 2, DesiredHealthy: 2},
		},
		"unready, application not healthy": {
			reason: "IfHealthyBudget, the default", pod: podThat(unready),
			status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 2}, want: true,
		},
		"unready, always": {
			reason: "AlwaysAllow", pod: podThat(unready), policy: &always,
			status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 2},
		},
		"out of rotation, always": {
			reason: "AlwaysAllow goes by Ready, and so by every readiness gate", pod: podThat(outOfRotation), policy: &always,
			status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 2},
		},
	}, func(t *testing.T, c row) {
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: c.status,
			Spec: policyv1.PodDisruptionBudgetSpec{
				UnhealthyPodEvictionPolicy: c.policy, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			},
		}
		if budget.Status.ObservedGeneration == 0 {
			budget.Status.ObservedGeneration = 2
		}
		expect.Equal(t, c.want, Blocking(budget, lifecycle.PodOf(c.pod), c.others), "blocking: %s", c.reason)
	})
}

// TestForbidding holds what OpenKruise's webhook would answer to the delete, when the pod has left the registry.
func TestForbidding(t *testing.T) {
	t.Parallel()
	other := func(edits ...func(*corev1.Pod)) *lifecycle.Pod {
		return lifecycle.PodOf(podThat(append(edits, called("web-2"), budgeted("web"))...))
	}
	room := func(n int32) kruisepolicy.PodUnavailableBudgetStatus {
		return kruisepolicy.PodUnavailableBudgetStatus{UnavailableAllowed: n, DesiredAvailable: 2, CurrentAvailable: 2 + n}
	}
	noProtection := func(p *corev1.Pod) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, kruisepolicy.PodPubNoProtectionAnnotation, "true")
	}
	type row struct {
		reason     string
		pod        *corev1.Pod
		others     []*lifecycle.Pod
		status     kruisepolicy.PodUnavailableBudgetStatus
		operations string
		want       bool
	}
	expect.Each(t, map[string]row{
		"room":    {reason: "it allows one", pod: podThat(), status: room(1)},
		"no room": {reason: "it allows none", pod: podThat(), status: room(0), want: true},
		"room is taken": {
			reason: "the other serves until it is deleted, and so counts as available",
			pod:    podThat(), others: []*lifecycle.Pod{other(specified)}, status: room(1), want: true,
		},
		"room is taken by a scale-in": {
			reason: "the other is drained as well", pod: podThat(),
			others: []*lifecycle.Pod{other(in(appspub.LifecycleStatePreparingDelete))}, status: room(1), want: true,
		},
		"room for both": {reason: "it allows two", pod: podThat(), others: []*lifecycle.Pod{other(specified)}, status: room(2)},
		"others that are counted": {
			reason: "the budget does not count them as available", pod: podThat(),
			others: []*lifecycle.Pod{other(specified, deleted), other(specified, unready), other(specified, unavailable)}, status: room(1),
		},
		"others of another budget": {
			reason: "they take no room of it", pod: podThat(), others: []*lifecycle.Pod{lifecycle.PodOf(podThat(specified, budgeted("db")))}, status: room(1),
		},
		"leaves already":       {reason: "no eviction disrupts it any more", pod: podThat(specified), status: room(0)},
		"unready":              {reason: "it was unavailable before", pod: podThat(unready), status: room(0)},
		"unavailable":          {reason: "its label says so", pod: podThat(unavailable), status: room(0)},
		"not protected":        {reason: "its annotation says so", pod: podThat(noProtection), status: room(0)},
		"none needed":          {reason: "OpenKruise refuses nothing then", pod: podThat()},
		"updates":              {reason: "it is about updates alone", pod: podThat(), status: room(0), operations: "UPDATE"},
		"evictions":            {reason: "this is one", pod: podThat(), status: room(0), operations: "UPDATE,EVICT", want: true},
		"deletes":              {reason: "OpenKruise deletes the pod in the end", pod: podThat(), status: room(0), operations: "DELETE", want: true},
		"operations are empty": {reason: "it is about all", pod: podThat(), status: room(0), operations: "", want: true},
	}, func(t *testing.T, c row) {
		budget := &kruisepolicy.PodUnavailableBudget{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", Annotations: map[string]string{kruisepolicy.PubProtectOperationAnnotation: c.operations},
			},
			Status: c.status,
		}
		expect.Equal(t, c.want, Forbidding(budget, lifecycle.PodOf(c.pod), c.others), "forbidding: %s", c.reason)
	})
}
