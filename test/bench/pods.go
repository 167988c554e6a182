package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const (
	namespace        = "bench"
	otherNamespace   = "bench-2"
	foreignNamespace = "foreign"
	clusterName      = "bench"
	serviceCount     = 10
	podPort          = 8080

	appLabel      = "app"
	workloadLabel = "workload"
	newLabel      = "example.com/newly-create"
	inPlaceLabel  = "example.com/in-place"
	deleteLabel   = "example.com/delete"
	set, notSet   = "true", "false"
)

// flipped reports whether the hook of the pod's state is flipped, or there is none.
func flipped(pod *corev1.Pod) bool {
	switch lifecycle.State(lifecycle.PodOf(pod)) {
	case appspub.LifecycleStatePreparingUpdate:
		return pod.Labels[inPlaceLabel] != set
	case appspub.LifecycleStateUpdated:
		return pod.Labels[inPlaceLabel] == set
	case appspub.LifecycleStatePreparingDelete:
		return pod.Labels[deleteLabel] != set
	default:
		return true
	}
}

func cloneSet(namespace string) *kruisev1alpha1.CloneSet {
	labels := map[string]string{inPlaceLabel: set, deleteLabel: set, newLabel: set, workloadLabel: clusterName}
	return &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: namespace},
		Spec: kruisev1alpha1.CloneSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{workloadLabel: clusterName}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
			Lifecycle: &appspub.Lifecycle{
				InPlaceUpdate: &appspub.LifecycleHook{LabelsHandler: map[string]string{inPlaceLabel: set}},
				PreDelete:     &appspub.LifecycleHook{LabelsHandler: map[string]string{deleteLabel: set}},
			},
		},
	}
}

func serviceName(number, services int) string { return "web-" + strconv.Itoa(number%services) }

func podName(number int) string { return "pod-" + strconv.Itoa(number) }

// managedPod is as Kruise makes it of the template.
func managedPod(owner *kruisev1alpha1.CloneSet, number int) *corev1.Pod {
	pod := foreignPod(number)
	pod.Namespace, pod.Name = owner.Namespace, podName(number)
	maps.Copy(pod.Labels, owner.Spec.Template.Labels)
	pod.Labels[appspub.LifecycleStateKey] = string(appspub.LifecycleStateNormal)
	pod.Annotations = map[string]string{appspub.LifecycleTimestampKey: time.Now().Format(time.RFC3339)}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, kruisev1alpha1.SchemeGroupVersion.WithKind("CloneSet"))}
	return pod
}

// foreignPod is of a workload that has no lifecycle.
func foreignPod(number int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: foreignNamespace, Name: "foreign-" + strconv.Itoa(number),
			Labels: map[string]string{appLabel: serviceName(number, serviceCount)},
		},
		Spec: podSpec(),
	}
}

// podSpec has about what a template of a service has.
func podSpec() corev1.PodSpec {
	container := corev1.Container{
		Name: "web", Image: "registry.example.com/shop/web:v1.4.2",
		Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: podPort, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(podPort)},
		}},
		VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}},
	}
	for i := range 8 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", i), Value: "a value of a setting"})
	}
	return corev1.PodSpec{
		Containers:                   []corev1.Container{container},
		AutomountServiceAccountToken: new(bool),
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}},
		}}},
	}
}

// running is what kubelet writes.
func running(number int) []byte {
	now := time.Now().UTC().Format(time.RFC3339)
	return fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":"10.%d.%d.%d","podIPs":[{"ip":"10.%[1]d.%[2]d.%[3]d"}],"conditions":[
		{"type":"PodScheduled","status":"True","lastTransitionTime":%[4]q},{"type":"Initialized","status":"True","lastTransitionTime":%[4]q},
		{"type":"ContainersReady","status":"True","lastTransitionTime":%[4]q},{"type":"Ready","status":"True","lastTransitionTime":%[4]q}]}}`,
		number>>16, number>>8&0xff, number&0xff, now)
}

// prepare makes what pods need that no controller makes here.
func prepare(ctx context.Context, k8s client.Client, owners []*kruisev1alpha1.CloneSet) error {
	for _, name := range []string{namespace, otherNamespace, foreignNamespace} {
		err := kube.Create(ctx, k8s,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}})
		if err != nil {
			return err
		}
	}
	for _, owner := range owners {
		if err := kube.Create(ctx, k8s, owner); err != nil {
			return err
		}
	}
	return nil
}
