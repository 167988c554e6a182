package clusterstate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// decoded is a pod that shares nothing with any other, as it comes from the API server.
func decoded(t *testing.T, number int) *corev1.Pod {
	t.Helper()
	yes := true
	encoded, err := (&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("web-%d", number), Namespace: "prod", UID: types.UID(fmt.Sprintf("uid-%d", number)),
			Labels:      map[string]string{"app": "web", appspub.LifecycleStateKey: "Normal", "id": fmt.Sprintf("id-%d", number)},
			Annotations: map[string]string{"rollcall.dev/drain": fmt.Sprintf("%d", number)},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web", UID: "owner", Controller: &yes},
			},
		},
		Spec: corev1.PodSpec{
			NodeName:       "node-1",
			Containers:     []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "KruisePodReady"}},
		},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1, 0)}},
		},
	}).Marshal()
	expect.NoError(t, err)
	pod := &corev1.Pod{}
	expect.NoError(t, pod.Unmarshal(encoded))
	return pod
}

func TestPodsShareWhatIsEqualInThem(t *testing.T) {
	t.Parallel()
	s := NewSharer()
	first := strip(t, s, decoded(t, 1))
	for i := range 2 * sharedAtMost { // more than it remembers
		strip(t, s, decoded(t, 10+i))
	}
	a, b := strip(t, s, decoded(t, 2)), strip(t, s, decoded(t, 3))
	if addresses(a) != addresses(b) {
		t.Errorf("two pods of one workload hold %s and %s", addresses(a), addresses(b))
	}
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] || &a.OwnerReferences[0] != &b.OwnerReferences[0] ||
		&a.Spec.ReadinessGates[0] != &b.Spec.ReadinessGates[0] {
		t.Error("two pods of one workload have containers, owners or gates of their own")
	}
	if first.Name != "web-1" || a.Name != "web-2" || b.Labels["id"] != "id-3" || b.Annotations["rollcall.dev/drain"] != "3" {
		t.Errorf("what is a pod's own got lost: %v, %v, %v", first, a, b)
	}
}

func TestPodsThatDifferShareNothingWrong(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(*corev1.Pod){
		"port":      func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 81 },
		"container": func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "log"}) },
		"injected":  func(p *corev1.Pod) { p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "IS_INJECTED", Value: "true"}} },
		"gate":      func(p *corev1.Pod) { p.Spec.ReadinessGates = nil },
		"owner":     func(p *corev1.Pod) { p.OwnerReferences[0].Name = "web-2" },
		"is held":   func(p *corev1.Pod) { p.OwnerReferences[0].BlockOwnerDeletion = new(true) },
		"no owner":  func(p *corev1.Pod) { p.OwnerReferences = nil },
	}, func(t *testing.T, change func(*corev1.Pod)) {
		s, other := NewSharer(), decoded(t, 2)
		change(other)
		want := lifecycle.PodOf(other)
		strip(t, s, decoded(t, 1))
		got := strip(t, s, other)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

func strip(t *testing.T, s *Sharer, pod *corev1.Pod) *lifecycle.Pod {
	t.Helper()
	packed, err := s.StripPod(pod)
	expect.NoError(t, err)
	return unpacked(packed).(*lifecycle.Pod)
}

// addresses are where texts that should be shared are in memory.
func addresses(pod *lifecycle.Pod) string {
	texts := []string{pod.Namespace, pod.Spec.NodeName, string(pod.Status.Conditions[0].Type), string(pod.Status.Conditions[0].Status)}
	for _, of := range []map[string]string{pod.Labels, pod.Annotations} {
		for key := range of {
			texts = append(texts, key)
		}
	}
	texts = append(texts, pod.Labels["app"])
	var at []string
	for _, text := range texts {
		at = append(at, fmt.Sprintf("%s at %p", text, unsafe.StringData(text)))
	}
	slices.Sort(at)
	return strings.Join(at, ", ")
}
