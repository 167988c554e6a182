package lifecycle

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/reference"
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
