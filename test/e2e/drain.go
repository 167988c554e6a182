package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// evictAgain is how long kubectl drain waits before it asks again for a pod that a disruption budget holds.
const evictAgain = 5 * time.Second

// drain does to the node with most of Rollcall's pods what kubectl drain does: it makes the node unschedulable, evicts
// all pods on it, and asks again for those that a disruption budget holds. When they are gone the node comes back.
func drain(ctx context.Context, w *world) error {
	node, err := w.busiestNode(ctx)
	if err != nil {
		return err
	}
	if err := w.cordon(ctx, node, true); err != nil {
		return err
	}
	if err := w.evictAll(ctx, node); err != nil {
		return err
	}
	return w.cordon(ctx, node, false)
}

func (w *world) busiestNode(ctx context.Context) (string, error) {
	pods, err := w.arms[0].pods(ctx)
	if err != nil {
		return "", err
	}
	count, busiest := map[string]int{}, ""
	for _, pod := range pods {
		count[pod.Spec.NodeName]++
		if count[pod.Spec.NodeName] > count[busiest] {
			busiest = pod.Spec.NodeName
		}
	}
	return busiest, nil
}

// merge is a patch of what the text names.
func merge(text string, args ...any) client.Patch {
	return client.RawPatch(types.MergePatchType, fmt.Appendf(nil, text, args...))
}

func (w *world) cordon(ctx context.Context, node string, unschedulable bool) error {
	object := &corev1.Node{}
	object.Name = node
	if err := w.k8s.Patch(ctx, object, merge(`{"spec":{"unschedulable":%t}}`, unschedulable)); err != nil {
		return fmt.Errorf("cordoning %s: %w", node, err)
	}
	return nil
}

// evictAll evicts the pods of the arms and of Rollcall from the node until none is left.
func (w *world) evictAll(ctx context.Context, node string) error {
	asked := map[client.ObjectKey]time.Time{}
	return await(ctx, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := w.k8s.List(ctx, &pods); err != nil {
			return fmt.Errorf("listing the pods: %w", err)
		}
		left := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != node || !w.owns(pod.Namespace) {
				continue
			}
			left++
			key := client.ObjectKeyFromObject(&pod)
			if pod.DeletionTimestamp != nil || time.Since(asked[key]) < evictAgain {
				continue
			}
			asked[key] = time.Now()
			err := w.k8s.SubResource("eviction").Create(ctx, &pod, &policyv1.Eviction{})
			if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) {
				return fmt.Errorf("evicting %s: %w", key, err)
			}
		}
		if left > 0 {
			return errors.New("pods are still on " + node)
		}
		return nil
	})
}

// owns reports whether a namespace is one of those that the tests have made.
func (w *world) owns(namespace string) bool {
	for _, a := range w.arms {
		if a.namespace() == namespace {
			return true
		}
	}
	return namespace == rollcallNamespace
}
