// Package kube has what commands and tests ask of an API server again and again.
package kube

import (
	"context"
	"fmt"
	"reflect"

	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scheme has the kinds of the core group and of OpenKruise's workloads, and more only if asked to: a fake API server walks through all of
// it at each write.
func Scheme(more ...func(*runtime.Scheme) error) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range append(more, corev1.AddToScheme, appsv1alpha1.AddToScheme, appsv1beta1.AddToScheme) {
		utilruntime.Must(add(scheme)) // two packages would have to define the same kind
	}
	return scheme
}

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
