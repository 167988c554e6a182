package lifecycle

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/reference"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPodOfLeavesThePodAsItIs: a reader may write the pod back.
func TestPodOfLeavesThePodAsItIs(t *testing.T) {
	t.Parallel()
	whole := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-1", Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{…}", AnnotationSkip: "preDelete"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	before := whole.DeepCopy()
	pod := PodOf(whole)
	if diff := cmp.Diff(before, whole); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{AnnotationSkip: "preDelete"}, pod.Annotations); diff != "" || pod.ManagedFields != nil {
		t.Errorf("what is large is kept (-want +got)\n%s%v", diff, pod.ManagedFields)
	}
}

// TestEventsKnowAPod: they tell what they are about by its kind, and a [Pod] is in no scheme.
func TestEventsKnowAPod(t *testing.T) {
	t.Parallel()
	got, err := reference.GetReference(runtime.NewScheme(), &Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "1"}})
	want := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: "1"}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got)\n%s", err, diff)
	}
}

// TestTemplateIsReadAsItsPods: what is kept of a template says of its pods what the template says.
func TestTemplateIsReadAsItsPods(t *testing.T) {
	t.Parallel()
	whole := corev1.PodSpec{
		HostNetwork: true, Hostname: "web", Subdomain: "shop", ReadinessGates: []corev1.PodReadinessGate{{ConditionType: appspub.KruisePodReadyConditionType}},
		Volumes: []corev1.Volume{{Name: "data"}},
		Containers: []corev1.Container{
			{Name: "web", Image: "web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}},
			{Name: "agent", Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "x"}, injectedMark()}},
		},
	}
	kept := TemplateSpec(&whole)
	if diff := cmp.Diff(PodSpecOf(&whole), PodSpecOf(&kept)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if kept.Volumes != nil || kept.Containers[0].Image != "" || len(kept.Containers[1].Env) != 1 {
		t.Errorf("more is kept than is read: %+v", kept)
	}
}

// TestSidecarsAreContainersThatStay: kubelet reports them in another list, and ordinary init containers have ended by the time a pod serves.
func TestSidecarsAreContainersThatStay(t *testing.T) {
	t.Parallel()
	port := []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 31080}}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				{Name: "migrate", Ports: []corev1.ContainerPort{{ContainerPort: 1}}},
				{Name: "app", Ports: port, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
				{Name: "proxy", Env: []corev1.EnvVar{injectedMark()}, RestartPolicy: new(corev1.ContainerRestartPolicyAlways)},
			},
			Containers: []corev1.Container{{Name: "main"}},
		},
		Status: corev1.PodStatus{
			PodIP: "10.0.0.1", HostIP: "192.0.2.1",
			InitContainerStatuses: []corev1.ContainerStatus{{Name: "migrate", State: ended}, {Name: "app", State: running}, {Name: "proxy", State: ended}},
			ContainerStatuses:     []corev1.ContainerStatus{{Name: "main", State: ended}},
		},
	}
	got := PodOf(pod)
	want := []Container{{Name: "main"}, {Name: "app", Ports: port, Sidecar: true}, {Name: "proxy", Injected: true, Sidecar: true}}
	expect.Equal(t, want, got.Spec.Containers, "containers")
	expect.Equal(t, []string{"main", "proxy"}, got.Status.NotRunning, "what does not run")
	if !Runs(got, 8080) {
		t.Error("the application in a sidecar counts as ended")
	}
	if addresses := AddressesOf(got, 31080); !slices.Contains(addresses, "192.0.2.1") {
		t.Errorf("the sidecar's hostPort is at %v, want the node's too", addresses)
	}
	pod.DeletionTimestamp = &metav1.Time{}
	if Finished(PodOf(pod)) {
		t.Error("the pod counts as finished while a sidecar runs")
	}
	expect.Equal(t, PodSpecOf(&pod.Spec), PodSpecOf(new(TemplateSpec(&pod.Spec))), "what is kept of a template says something else")
	pod.Spec.InitContainers[1].Ports = make([]corev1.ContainerPort, MaxPorts+1)
	if got := PodOf(pod).TooMany; !strings.Contains(got, "spec.containers[].ports has 501 entries") {
		t.Errorf("TooMany is %q, want one about the ports of sidecars", got)
	}
}
