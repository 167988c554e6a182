package controller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/service"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// NodeMetadata is the form in which nodes are read: nothing of them but labels is of use.
func NodeMetadata() *metav1.PartialObjectMetadata {
	node := &metav1.PartialObjectMetadata{}
	node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
	return node
}

// nodeOf returns where the pod runs. A node that is gone, or was never seen, has no topology.
func (r *PodReconciler) nodeOf(ctx context.Context, pod *corev1.Pod) (service.Node, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return service.Node{}, nil
	}
	node := NodeMetadata()
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil && !apierrors.IsNotFound(err) {
		return service.Node{}, fmt.Errorf("reading node %s: %w", name, err)
	}
	return service.Node{
		Name: name, Zone: node.Labels[corev1.LabelTopologyZone], Region: node.Labels[corev1.LabelTopologyRegion],
	}, nil
}

// StripNode does for nodes what [StripPod] does for pods.
func StripNode(object any) (any, error) {
	node, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	labels := map[string]string{}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, found := node.Labels[key]; found {
			labels[key] = value
		}
	}
	node.ObjectMeta = metav1.ObjectMeta{
		Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: labels,
	}
	return node, nil
}
