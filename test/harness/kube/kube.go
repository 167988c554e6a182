// Package kube has what commands and tests ask of a cluster again and again.
package kube

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// Merge is a merge patch of what the text names.
func Merge(text string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, text, args...))
}

// Pod is the pod of a request.
func Pod(namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name = namespace, name
	return pod
}

// Create creates objects in their order.
func Create(ctx context.Context, k8s client.Client, objects ...client.Object) error {
	for _, object := range objects {
		if err := k8s.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s: %w", object, client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// Pods are those of a namespace, or of all where it is empty.
func Pods(ctx context.Context, k8s client.Client, namespace string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := k8s.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	return pods.Items, nil
}

// Change reads the object anew, and patches what edit changes in it.
func Change(ctx context.Context, k8s client.Client, object client.Object, edit func()) error {
	key := client.ObjectKeyFromObject(object)
	reflect.ValueOf(object).Elem().SetZero() // what the API server leaves out would stay
	if err := k8s.Get(ctx, key, object); err != nil {
		return fmt.Errorf("reading %T %s: %w", object, key, err)
	}
	before, _ := object.DeepCopyObject().(client.Object) // a copy of an object is one
	edit()
	if err := k8s.Patch(ctx, object, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing %T %s: %w", object, key, err)
	}
	return nil
}

// Unsettled says what OpenKruise has still to do with a CloneSet that it updates whole, of which these are the pods.
func Unsettled(set *appsv1alpha1.CloneSet, pods []corev1.Pod) error {
	want, has := *set.Spec.Replicas, set.Status
	if has.ObservedGeneration != set.Generation {
		return errors.New("OpenKruise has not seen the last change")
	}
	if has.Replicas != want || has.UpdatedReplicas != want || has.ReadyReplicas != want || len(pods) != int(want) {
		return fmt.Errorf("of %d pods %d are made, %d are updated, %d are ready, %d are there",
			want, has.Replicas, has.UpdatedReplicas, has.ReadyReplicas, len(pods))
	}
	check := NotReadyWith
	if set.Spec.Lifecycle == nil { // OpenKruise need not say in which state its pods are
		check = notReadyWith
	}
	for i := range pods {
		if err := check(&pods[i], set.Spec.Template.Spec.Containers[0].Image); err != nil {
			return err
		}
	}
	return nil
}

// NotReadyWith says what keeps a pod from being Normal and ready with the image.
func NotReadyWith(pod *corev1.Pod, image string) error {
	if state := lifecycle.State(lifecycle.PodOf(pod)); state != appspub.LifecycleStateNormal {
		return fmt.Errorf("pod %s is in state %q and not Normal", pod.Name, state)
	}
	return notReadyWith(pod, image)
}

func notReadyWith(pod *corev1.Pod, image string) error {
	switch {
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted", pod.Name)
	case pod.Spec.Containers[0].Image != image:
		return fmt.Errorf("pod %s has image %s and not %s", pod.Name, pod.Spec.Containers[0].Image, image)
	case !lifecycle.IsReady(lifecycle.PodOf(pod)):
		return fmt.Errorf("pod %s is not ready", pod.Name)
	default:
		return nil
	}
}

// Differs says what somebody has other than exactly these pods in service.
func Differs(who string, pods []corev1.Pod, entries []registry.Entry) error {
	var want, has []string
	for _, pod := range pods {
		want = append(want, fmt.Sprintf("%s (%s) at %s:%d %s", pod.Name, pod.UID, pod.Status.PodIP,
			pod.Spec.Containers[0].Ports[0].ContainerPort, registry.InService))
	}
	for _, e := range entries {
		has = append(has, fmt.Sprintf("%s (%s) at %s:%d %s", e.Pod, e.UID, e.Address, e.Port, e.State))
	}
	slices.Sort(want)
	slices.Sort(has)
	if !slices.Equal(want, has) {
		return fmt.Errorf("%s has %q, the pods are %q", who, has, want)
	}
	return nil
}
