package clusterstate

import (
	"context"
	"fmt"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// NodeOf returns where the pod runs. A node that is gone, or was never seen, has no topology.
func NodeOf(ctx context.Context, cache client.Reader, pod *corev1.Pod) (service.Node, error) {
	name := pod.Spec.NodeName
	if name == "" {
		return service.Node{}, nil
	}
	node := NodeMetadata()
	if err := cache.Get(ctx, client.ObjectKey{Name: name}, node); err != nil && !apierrors.IsNotFound(err) {
		return service.Node{}, fmt.Errorf("reading node %s: %w", name, err)
	}
	return service.Node{
		Name: name, Zone: node.Labels[corev1.LabelTopologyZone], Region: node.Labels[corev1.LabelTopologyRegion],
	}, nil
}

// CloneSetOf returns the reference to the CloneSet that the pod belongs to, or nil.
func CloneSetOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "CloneSet" || !strings.HasPrefix(owner.APIVersion, kruisev1alpha1.GroupVersion.Group+"/") {
		return nil
	}
	return owner
}

// WorkloadOf returns the CloneSet that the pod belongs to, as the first of the readers has it that has it at all, or nil. It may
// be shared, and so must not be changed.
func WorkloadOf(ctx context.Context, pod *corev1.Pod, readers ...client.Reader) (*kruisev1alpha1.CloneSet, error) {
	owner := CloneSetOf(pod)
	if owner == nil {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}
	for _, reader := range readers {
		workload := &kruisev1alpha1.CloneSet{}
		err := reader.Get(ctx, key, workload, client.UnsafeDisableDeepCopy)
		if err == nil && workload.UID == owner.UID {
			return workload, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading CloneSet %s: %w", key, err)
		}
	}
	return nil, nil
}

// Live asks the API server for a pod that the cache has not; nil where it is gone. One that is there has lost the label that
// the cache selects by. While it lives it is left as it is; a dying one still has to be freed.
func Live(ctx context.Context, server client.Reader, id lifecycle.PodID) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := server.Get(ctx, id.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err), err == nil && pod.UID != id.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("asking whether the pod is gone: %w", err)
	}
	return pod, nil
}
