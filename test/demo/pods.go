package main

import (
	"context"
	"fmt"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// watchPods calls changed for every change of a pod in the namespace, one after the other, with gone where the pod is no
// longer there. It returns when the watch stands; the watch ends with ctx.
func watchPods(
	ctx context.Context, config *rest.Config, namespace string, changed func(pod *corev1.Pod, gone bool),
) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting to the cluster: %w", err)
	}
	pods := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "pods", namespace, fields.Everything())
	informer := cache.NewSharedIndexInformer(pods, &corev1.Pod{}, 0, cache.Indexers{})
	tell := func(object any, gone bool) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if pod, ok := object.(*corev1.Pod); ok {
			changed(pod, gone)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { tell(pod, false) },
		UpdateFunc: func(_, pod any) { tell(pod, false) },
		DeleteFunc: func(pod any) { tell(pod, true) },
	})
	if err != nil {
		return fmt.Errorf("watching the pods: %w", err)
	}
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return fmt.Errorf("listing the pods: %w", context.Cause(ctx))
	}
	return nil
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

// version is the tag of the image that the pod shall run.
func version(pod *corev1.Pod) string {
	_, tag, _ := strings.Cut(pod.Spec.Containers[0].Image, ":")
	return tag
}

// runs reports whether the container runs the image and not one before it.
func runs(pod *corev1.Pod, image string) bool {
	statuses := pod.Status.ContainerStatuses
	return pod.Spec.Containers[0].Image == image && len(statuses) == 1 && statuses[0].Image == image
}
