package clusterstate

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkStripPod is what each event of a pod costs in the cache, and BenchmarkCachedPods what a pod in it takes.
func BenchmarkStripPod(b *testing.B) {
	sharer, text := NewSharer(), podText(b, 1)
	pods := make([]*corev1.Pod, 64)
	for i := range pods {
		pods[i] = podIn(b, text)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := sharer.StripPod(pods[i%len(pods)]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCachedPods(b *testing.B) {
	const many = 10000
	for b.Loop() {
		sharer, kept := NewSharer(), make([]any, many)
		before := held()
		for i := range kept {
			stripped, err := sharer.StripPod(podIn(b, podText(b, i)))
			if err != nil {
				b.Fatal(err)
			}
			kept[i] = stripped
		}
		b.ReportMetric(float64(held()-before)/many, "B/pod")
		runtime.KeepAlive(kept)
		runtime.KeepAlive(sharer)
	}
}

func held() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func podIn(tb testing.TB, text []byte) *corev1.Pod {
	tb.Helper()
	pod := &corev1.Pod{}
	if err := json.Unmarshal(text, pod); err != nil {
		tb.Fatal(err)
	}
	return pod
}

// podText is a pod as the API server sends it: one of twenty of its workload, ready, with a sidecar and two addresses for every eighth.
func podText(tb testing.TB, i int) []byte {
	tb.Helper()
	const perWorkload = 20
	workload, now := fmt.Sprintf("web-%d", i/perWorkload), metav1.Now()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("%s-%05d", workload, i), UID: types.UID(fmt.Sprintf("0a1b2c3d-0000-0000-0000-%012d", i)),
			ResourceVersion: fmt.Sprint(100000 + i), CreationTimestamp: now,
			Labels: map[string]string{
				"app": workload, appspub.LifecycleStateKey: "Normal", kruisev1alpha1.CloneSetInstanceID: fmt.Sprintf("%05d", i),
				"controller-revision-hash": workload + "-7d9f", "rollcall.dev/in-place-update": "true",
			},
			Annotations: map[string]string{
				appspub.LifecycleTimestampKey: "2026-01-01T00:00:00Z",
				"rollcall.dev/record":         fmt.Sprintf(`{"v":1,"want":"InService","instances":[{"service":"web","address":"10.0.%d.%d","port":8080}]}`, i/250, i%250),
			},
			Finalizers: []string{"rollcall.dev/pre-delete"},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: workload, UID: types.UID("uid-of-" + workload), Controller: new(true), BlockOwnerDeletion: new(true)},
			},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%03d", i%100), ReadinessGates: []corev1.PodReadinessGate{{ConditionType: appspub.InPlaceUpdateReady}},
			Volumes: []corev1.Volume{{Name: "token"}},
			Containers: []corev1.Container{
				{Name: "main", Image: "web:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}, Env: []corev1.EnvVar{{Name: "A", Value: "b"}}},
				{Name: "agent", Image: "agent:1", Env: []corev1.EnvVar{{Name: "C", Value: "d"}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.%d.%d", i/250, i%250), HostIP: fmt.Sprintf("192.0.2.%d", i%100), StartTime: &now,
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}, ImageID: "sha256:0"},
				{Name: "agent", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}, ImageID: "sha256:1"},
			},
		},
	}
	pod.Status.PodIPs, pod.Status.HostIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}, []corev1.HostIP{{IP: pod.Status.HostIP}}
	if i%8 == 0 {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("fd00::%x", i)})
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady, appspub.InPlaceUpdateReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	text, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return text
}
