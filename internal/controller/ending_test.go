package controller

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// node creates one, which is Ready.
func (w *world) node(name string, change ...func(*corev1.Node)) {
	w.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	nodeIs(corev1.ConditionTrue, "")(node)
	for _, c := range change {
		c(node)
	}
	w.must(w.api.Create(w.Context(), node), "creating the node")
}

func (w *world) changeNode(name string, change func(*corev1.Node)) {
	w.Helper()
	node := &corev1.Node{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: name}, node), "reading the node")
	change(node)
	status := node.Status
	w.must(w.api.Update(w.Context(), node), "changing the node")
	node.Status = status
	w.must(w.api.Status().Update(w.Context(), node), "changing the node's status")
}

func nodeIs(status corev1.ConditionStatus, message string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Message: message}}
	}
}

func onNode(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Spec.NodeName = name } }

// TestNodeWithADeadline: the last pod of a service stays in rotation for as long as its drain allows.
func TestNodeWithADeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	w.node("node-1")
	pod := w.servingPods(1, onNode("node-1"))[0]
	w.changeNode("node-1", func(node *corev1.Node) {
		node.Annotations = map[string]string{lifecycle.AnnotationEndsAt: w.clock.Now().Add(2 * time.Minute).Format(time.RFC3339)}
	})
	w.expectResult("OpenKruise may replace it before", w.reconcile(pod), 80*time.Second)
	w.expectJournal("it serves")
	w.expectWaits("and waits for nothing")

	w.sleep(80 * time.Second)
	w.reconciles(pod, "15 s to drain, 20 s to stop, and 5 s for the registry", failsOver, writes)
	w.expectEvents("a person should know", "Warning Ending the pod is out of rotation before it ends: its node ends at ")
	w.expectWaits("it shows in the metric", Wait{Reason: "Ending", Since: w.clock.Now()})

	t.Log("OpenKruise reaches it: the drain has begun before.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("", w.reconcile(pod), 14*time.Second)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal)
	w.reconcile(pod)
	w.expectNotInService(pod)
	w.takeJournal()

	t.Log("The node did not end.")
	w.sleep(6 * time.Minute)
	w.reconcile(pod)
	w.expectInService(pod)
}

// TestEndingPodIsNotPutInService: OpenKruise waits for it in vain, whatever its hooks.
func TestEndingPodIsNotPutInService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, keepsUnready)
	pod := w.bornPod(w.cloneSet("web"), "web-1", condition(corev1.DisruptionTarget, corev1.ConditionTrue))
	w.reconciles(pod, "it is about to be deleted")
	w.expectEvents("OpenKruise waits", "Warning Ending hook preNormal waits: the pod is out of rotation before it ends: Kubernetes is about ")
	w.changePod(pod, func(pod *corev1.Pod) { pod.Status.Conditions[1].Status = corev1.ConditionFalse })
	w.reconciles(pod, "nothing came of it", registers, writes)
}

// TestGatedPodOfALostNode: it was out of rotation when its node died, and the registry is back.
func TestGatedPodOfALostNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.node("node-1", nodeIs(corev1.ConditionUnknown, "Kubelet stopped posting node status."))
	pod := w.bornPod(w.cloneSet("web"), "web-1", onNode("node-1"), unready, condition(corev1.ContainersReady, corev1.ConditionTrue),
		func(pod *corev1.Pod) {
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}}
			pod.Status.Conditions[0].Reason = "ReadinessGatesNotReady"
		})
	w.reconciles(pod, "no one answers at its address")
	w.changeNode("node-1", nodeIs(corev1.ConditionTrue, ""))
	w.reconciles(pod, "the node is back", registers, writes)
}

func condition(of corev1.PodConditionType, status corev1.ConditionStatus) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: of, Status: status})
	}
}

// TestEndThatCannotBeRead: whoever announced it has to know that nobody acts on it.
func TestEndThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		write  func(*world, *corev1.Pod, string)
		want   string
		// corrected is how a time is written that is yet to come.
		corrected func(time.Time) string
	}{
		"of the node": {"a handler or a person writes it", func(w *world, _ *corev1.Pod, text string) {
			w.changeNode("node-1", func(node *corev1.Node) { node.Annotations = map[string]string{lifecycle.AnnotationEndsAt: text} })
		}, `annotation rollcall.dev/ends-at of node node-1 is "in 2 minutes", which is not a time: set it to a time such as 2026-11-27T12:00:00Z`,
			func(at time.Time) string { return at.Format(time.RFC3339) }},
		"of the pod": {"an eviction would be let through from under it", func(w *world, pod *corev1.Pod, text string) {
			w.changePod(pod, annotated(lifecycle.AnnotationEndsAt, text))
		}, `annotation rollcall.dev/ends-at of the pod is "in 2 minutes", which is not a time: remove it`, lifecycle.NotBefore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.node("node-1")
			pod := w.servingPods(1, onNode("node-1"))[0]
			tc.write(w, pod, "in 2 minutes")
			w.reconcile(pod)
			w.expectEvents(tc.reason, "Warning InvalidPod "+tc.want)
			w.expectWaits(tc.reason, Wait{Reason: "InvalidPod", Since: w.clock.Now()})
			w.reconcile(pod)
			w.expectEvents("once")
			w.expectInService(pod)

			tc.write(w, pod, tc.corrected(w.clock.Now().Add(time.Hour)))
			w.reconcile(pod)
			w.expectEvents("it is corrected", "Normal Resolved InvalidPod ")
		})
	}
}

// TestUnknownName: a misspelt annotation has no effect, which a person has to know, and nothing waits for it.
func TestUnknownName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPods(1)[0]
	w.changePod(pod, annotated("rollcall.dev/drian", "60s"))
	w.reconcile(pod)
	w.expectEvents("", "Warning InvalidPod the pod has annotation rollcall.dev/drian, which Rollcall does not know: did you mean rollcall.dev/drain?")
	w.reconcile(pod)
	w.expectEvents("once")
	w.expectInService(pod)
	w.changePod(pod, func(pod *corev1.Pod) { delete(pod.Annotations, "rollcall.dev/drian") })
	w.reconcile(pod)
	w.expectEvents("it is corrected", "Normal Resolved InvalidPod ")
}

// TestUnreadyTarget: a cloud's webhook adds the gate to pods that are behind its load balancer.
func TestUnreadyTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", func(pod *corev1.Pod) {
		pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}, {ConditionType: "target-health.elbv2.k8s.aws/web"}}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "target-health.elbv2.k8s.aws/web", Status: corev1.ConditionTrue})
	})
	w.reconcile(pod)
	w.expectEvents("nothing waits for it, and an update in place loses requests",
		"Warning UnreadyTarget the pod has readiness gate target-health.elbv2.k8s.aws/web, by which a cloud load balancer registers the pod.")
	w.expectInService(pod)
}

// TestInjectedPort: a webhook has put a container before the application's, and clients are given its port.
func TestInjectedPort(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", func(pod *corev1.Pod) {
		proxy := corev1.Container{Name: "proxy", Ports: []corev1.ContainerPort{{ContainerPort: 15090}}}
		pod.Spec.Containers = append([]corev1.Container{proxy}, pod.Spec.Containers...)
	})
	w.reconcile(pod)
	w.expectEvents("nothing waits for it, and clients can't reach the application",
		"Warning UnreachableEntry the pod's port is 15090, of container proxy, which the workload's template lacks, and not 8080, of container main")
	w.expectInService(pod)
}
