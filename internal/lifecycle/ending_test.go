package lifecycle

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestEndOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	const drain = 15 * time.Second
	in := func(d time.Duration) map[string]string {
		return map[string]string{AnnotationEndsAt: now.Add(d).Format(time.RFC3339)}
	}
	tainted := func(key string, ago time.Duration) *corev1.Node {
		return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: key, TimeAdded: &metav1.Time{Time: now.Add(-ago)}}}}}
	}
	readyIs := func(status corev1.ConditionStatus, message string) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, Message: message},
		}}}
	}
	disrupted := func(status corev1.ConditionStatus) *Pod {
		return &Pod{Status: PodStatus{Conditions: []PodCondition{{Type: corev1.DisruptionTarget, Status: status}}}}
	}
	ends := func(d time.Duration) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: in(d)}}
	}
	type row struct {
		reason string
		pod    *Pod
		node   *corev1.Node
		want   string
		// changes is after how long it is otherwise.
		changes time.Duration
	}
	expect.Each(t, map[string]row{
		"nothing announced":                         {reason: "it runs on", node: readyIs(corev1.ConditionTrue, "kubelet is posting ready status")},
		"about to be deleted":                       {reason: "the API server has said so", pod: disrupted(corev1.ConditionTrue), want: "Kubernetes is about to delete it (condition DisruptionTarget)"},
		"was about to be deleted":                   {reason: "nothing came of it", pod: disrupted(corev1.ConditionFalse)},
		"the node shuts down":                       {reason: "kubelet has sent SIGTERM", node: readyIs(corev1.ConditionFalse, "[a, node is shutting down]"), want: "its node is shutting down"},
		"the node is lost":                          {reason: "it may come back, and panic is for that", node: readyIs(corev1.ConditionUnknown, "Kubelet stopped posting node status.")},
		"the node is off":                           {reason: "a person says so", node: tainted("node.kubernetes.io/out-of-service", 0), want: "its node is off (taint node.kubernetes.io/out-of-service)"},
		"the machine is off":                        {reason: "the cloud says so", node: tainted("node.cloudprovider.kubernetes.io/shutdown", 0), want: "its node is off (taint node.cloudprovider.kubernetes.io/shutdown)"},
		"spot, in time":                             {reason: "OpenKruise may replace the pod by then", node: tainted(taintSpot, 0), changes: 80 * time.Second},
		"spot, near":                                {reason: "its drain has to pass", node: tainted(taintSpot, 80*time.Second), want: "its node ends at 2026-11-22T12:00:40Z (taint aws-node-termination-handler/spot-itn)", changes: 20*time.Second + endLapses},
		"a drain is announced":                      {reason: "it has no deadline, and may be given up", node: tainted("ToBeDeletedByClusterAutoscaler", time.Hour)},
		"the node ends":                             {reason: "its annotation says so", node: ends(40 * time.Second), want: "its node ends at 2026-11-22T12:00:40Z (annotation rollcall.dev/ends-at)", changes: 20*time.Second + endLapses},
		"the node ends, one day":                    {reason: "it serves until then", node: ends(24 * time.Hour), changes: 24*time.Hour - 40*time.Second},
		"the node should have ended":                {reason: "whoever announced it was wrong", node: ends(-endLapses)},
		"the node ends, at some time":               {reason: "what is no time says nothing", node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationEndsAt: "soon"}}}},
		"the eviction is let through":               {reason: "the webhook waits for the drain", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: in(20 * time.Second)}}, want: "its eviction has reached its limit and is let through at 2026-11-22T12:00:20Z", changes: 20*time.Second + endLapses},
		"another clock is ahead":                    {reason: "the webhook waits for the drain only", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: in(time.Hour)}}, want: "its eviction has reached its limit and is let through at 2026-11-22T13:00:00Z", changes: time.Hour + endLapses},
		"another clock is ahead, and the node ends": {reason: "the webhook does not wait for the node's end", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: in(time.Hour)}}, node: ends(30 * time.Minute), want: "its node ends at 2026-11-22T12:30:00Z (annotation rollcall.dev/ends-at)", changes: 30*time.Minute - stopTime + endLapses},
		"the eviction is held":                      {reason: "OpenKruise may replace the pod until then", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationEndsAt: NotBefore(now)}}}},
		"the eviction was given up":                 {reason: "no one evicts it any more", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: in(-endLapses)}}},
		"an old end and one to come":                {reason: "what has lapsed hides nothing", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: in(-time.Hour)}}, node: ends(100 * time.Second), changes: time.Minute},
		"two ends, the earlier counts":              {reason: "it is out for both", pod: &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: in(20 * time.Second)}}, node: readyIs(corev1.ConditionFalse, NodeShutsDown), want: "its node is shutting down"},
	}, func(t *testing.T, c row) {
		if c.pod == nil {
			c.pod = &Pod{}
		}
		if got, changes := EndOf(c.pod, NodeOf(c.node), now).Ending(now, drain); got != c.want || changes != c.changes {
			t.Errorf("got %q for %s, want %q for %s: %s", got, changes, c.want, c.changes, c.reason)
		}
	})
}

// TestUnreadableEnd: only the webhook writes before when an eviction is not let through, and only on pods.
func TestUnreadableEnd(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, pod, node, want string
	}
	expect.Each(t, map[string]row{
		"times":                 {reason: "both announce an end", pod: "2026-11-27T12:00:00Z", node: "2026-11-27T12:00:00Z"},
		"an eviction is held":   {reason: "it announces nothing yet", pod: "not before 2026-11-27T12:00:00Z"},
		"held for some time":    {reason: "no one knows how long", pod: "not before long", want: `of the pod is "not before long"`},
		"a node not before":     {reason: "a drain has no deadline", node: "not before 2026-11-27T12:00:00Z", want: "set it to a time such as"},
		"the pod's comes first": {reason: "there is one Warning", pod: "soon", node: "soon", want: "remove it, since only Rollcall writes it"},
	}, func(t *testing.T, c row) {
		annotated := func(text string) metav1.ObjectMeta {
			if text == "" {
				return metav1.ObjectMeta{}
			}
			return metav1.ObjectMeta{Annotations: map[string]string{AnnotationEndsAt: text}}
		}
		got := UnreadableEnd(&Pod{ObjectMeta: annotated(c.pod)}, NodeOf(&corev1.Node{ObjectMeta: annotated(c.node)}))
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("got %q, want %q: %s", got, c.want, c.reason)
		}
	})
}

// TestPodOfALostNodeIsNotReady: it was out of rotation when its node died, and so was not Ready before. Nothing on it changes then.
func TestPodOfALostNodeIsNotReady(t *testing.T) {
	t.Parallel()
	condition := func(of corev1.PodConditionType, status corev1.ConditionStatus) PodCondition {
		return PodCondition{Type: of, Status: status}
	}
	gated := podIn(appspub.LifecycleStateNormal)
	gated.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: ConditionInRotation}}
	gated.Status.Conditions = []PodCondition{
		condition(corev1.PodReady, corev1.ConditionFalse), condition(corev1.ContainersReady, corev1.ConditionTrue),
	}
	gated.Status.OnlyGates = true
	if got := Decide(Input{Pod: gated}).Want; got != InService {
		t.Errorf("want %s, want it in service: it waits for nothing else", got)
	}
	for _, state := range []appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStateUpdated,
	} {
		gated.Labels[appspub.LifecycleStateKey] = string(state)
		if got := Decide(Input{Pod: gated, Circumstances: Circumstances{NodeLost: true}}).Want; got != OutOfService {
			t.Errorf("in state %s: want %s, want it out of service", state, got)
		}
	}
	stillReady := podIn(appspub.LifecycleStateNormal)
	stillReady.Status.Conditions = []PodCondition{condition(corev1.PodReady, corev1.ConditionTrue)}
	if got := Decide(Input{Pod: stillReady, Circumstances: Circumstances{NodeLost: true}}).Want; got != InService {
		t.Errorf("want %s, want it in service: Kubernetes says when such a pod is no longer Ready", got)
	}
}
