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
