package podserver

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestCanServe(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for reason, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{
		"its container runs and is ready":               {func(*corev1.Pod) {}, true},
		"a readiness gate does not stop the container":  {func(p *corev1.Pod) { p.Status.Conditions = nil }, true},
		"nothing runs yet":                              {func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }, false},
		"nothing runs any more":                         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, false},
		"no client can reach it without an address":     {func(p *corev1.Pod) { p.Status.PodIP = "" }, false},
		"kubelet stops it, whatever finalizers it has":  {func(p *corev1.Pod) { p.DeletionTimestamp = &now }, false},
		"the container still starts":                    {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Ready = false }, false},
		"the container restarts":                        {func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State = corev1.ContainerState{} }, false},
		"the container with the old image is killed":    {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" }, false},
		"nothing is known of the container":             {func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }, false},
		"a preStop sleep holds the old image":           {func(p *corev1.Pod) { sleepy(p).Spec.Containers[0].Image = "web:2" }, true},
		"a preStop sleep holds what is deleted":         {func(p *corev1.Pod) { sleepy(p).DeletionTimestamp = &now }, true},
		"a container that slept stops":                  {func(p *corev1.Pod) { sleepy(p).Status.Phase = corev1.PodSucceeded }, false},
		"each container counts, and the second is none": {func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "b"}) }, false},
	} {
		p := pod()
		tc.change(p)
		expect.Equal(t, tc.want, CanServe(p), "%s", reason)
	}
}

func sleepy(p *corev1.Pod) *corev1.Pod {
	p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 5}}}
	return p
}

func pod() *corev1.Pod {
	return &corev1.Pod{
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "127.0.0.1",
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "web", Image: "web:1", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
			}},
		},
	}
}
