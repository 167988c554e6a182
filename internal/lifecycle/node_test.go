package lifecycle

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestCachedNodeIsReadAsTheNode: what the cache keeps of a node, whatever it has, shows rules what the node shows them.
func TestCachedNodeIsReadAsTheNode(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		whole := anyNode(rng, now)
		before := whole.DeepCopy()
		kept := NodeObject(whole, func() metav1.Time { return now })
		for i := range whole.Spec.Taints { // those without a time date from when they were first seen
			if whole.Spec.Taints[i].TimeAdded == nil {
				whole.Spec.Taints[i].TimeAdded = &now
			}
		}
		if diff := cmp.Diff(NodeOf(whole), NodeOf(kept)); diff != "" {
			t.Fatalf("seed %d: the cache gives (-want +got)\n%s", seed, diff)
		}
		if before.Name != kept.Name || before.UID != kept.UID || before.ResourceVersion != kept.ResourceVersion {
			t.Fatalf("seed %d: the cache has another node: %+v", seed, kept.ObjectMeta)
		}
		if len(kept.Labels) > 2 || len(kept.Annotations) > 1 || len(kept.Status.Conditions) > 1 || len(kept.Status.Images) > 0 {
			t.Fatalf("seed %d: more is kept than is read: %+v", seed, kept)
		}
	}
}

// anyNode has each field that is read, or none, among others.
func anyNode(rng *rand.Rand, now metav1.Time) *corev1.Node {
	may := func() bool { return rng.IntN(2) == 0 }
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-1", UID: "n", ResourceVersion: "7", Labels: map[string]string{corev1.LabelHostname: "node-1"}, Annotations: map[string]string{"a": "b"},
		},
		Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"web:1"}}}},
	}
	for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if may() {
			node.Labels[label] = "eu-1"
		}
	}
	if may() {
		node.Annotations[AnnotationEndsAt] = []string{"2026-01-01T00:02:00Z", "soon", ""}[rng.IntN(3)]
	}
	for _, key := range []string{taintSpot, taintOff, corev1.TaintNodeOutOfService, corev1.TaintNodeUnschedulable} {
		taint := corev1.Taint{Key: key, Value: "x", Effect: corev1.TaintEffectNoSchedule}
		if may() {
			taint.TimeAdded = &now
		}
		if may() {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeReady} {
		status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[rng.IntN(3)]
		message := []string{"", "kubelet is posting ready status", "[container runtime is down, node is shutting down]"}[rng.IntN(3)]
		if may() {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{
				Type: kind, Status: status, Message: message, LastHeartbeatTime: now,
			})
		}
	}
	if may() {
		node.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			{Type: corev1.NodeHostName, Address: []string{"node-1", "node-1.nodes.vcluster.com"}[rng.IntN(2)]},
		}
	}
	return node
}
