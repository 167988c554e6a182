package controller

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch

// NamespaceMetadata is the form in which namespaces are read: of them, only their labels and ages are of use.
func NamespaceMetadata() *metav1.PartialObjectMetadata {
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return namespace
}

// StripNamespace does for namespaces what [StripPod] does for pods.
func StripNamespace(object any) (any, error) {
	namespace, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	namespace.ObjectMeta = metav1.ObjectMeta{
		Name: namespace.Name, UID: namespace.UID, ResourceVersion: namespace.ResourceVersion, Labels: namespace.Labels,
		CreationTimestamp: namespace.CreationTimestamp,
	}
	return namespace, nil
}

func readNamespaces(ctx context.Context, c client.Reader) (map[string]namespaceFacts, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	namespaces := make(map[string]namespaceFacts, len(list.Items))
	for i := range list.Items {
		one := &list.Items[i]
		namespaces[one.Name] = namespaceFacts{created: one.CreationTimestamp.Time, labels: one.Labels}
	}
	return namespaces, nil
}

// namespaceEvents looks again at the pods of a namespace that came, or whose labels changed.
func (r *PodReconciler) namespaceEvents() handler.TypedEventHandler[*metav1.PartialObjectMetadata, Request] {
	return handler.TypedFuncs[*metav1.PartialObjectMetadata, Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*metav1.PartialObjectMetadata], q requestQueue) {
			r.workloads.changed()
			if !e.IsInInitialList { // then the pods come by themselves
				r.enqueueFound(ctx, q, client.InNamespace(e.Object.Name))
			}
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*metav1.PartialObjectMetadata], q requestQueue) {
			if e.ObjectOld.UID == e.ObjectNew.UID && maps.Equal(e.ObjectOld.Labels, e.ObjectNew.Labels) {
				return
			}
			r.workloads.changed()
			r.enqueueFound(ctx, q, client.InNamespace(e.ObjectNew.Name))
		},
		DeleteFunc: func(context.Context, event.TypedDeleteEvent[*metav1.PartialObjectMetadata], requestQueue) {
			r.workloads.changed()
		},
	}
}
