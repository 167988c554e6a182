package main

import (
	"context"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/history"
)

// watchPods calls changed for every change of a pod in the namespace, one after the other, with gone where the pod is no
// longer there. It returns when it has called it for the pods that are there; the watch ends with ctx.
func watchPods(
	ctx context.Context, k8s client.WithWatch, namespace string, changed func(pod *corev1.Pod, gone bool),
) error {
	_, err := history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) { changed(v.Object, v.Gone) },
		client.InNamespace(namespace))
	return err
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func kruiseState(pod *corev1.Pod) string { return pod.Labels[appspub.LifecycleStateKey] }

// version is the tag of the image that the pod should run.
func version(pod *corev1.Pod) string {
	_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
	return tag
}

// runs reports whether the container runs the image and not one before it.
func runs(pod *corev1.Pod, image string) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.Spec.Containers[0].Image == image && len(statuses) == 1 && statuses[0].Image == image
}
