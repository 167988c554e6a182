package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/kube"
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
	started := time.Now()
	refused, err := w.evictAll(ctx, node)
	if err != nil {
		return err
	}
	w.say("  %s is empty after %s; %d evictions were refused until later", node, time.Since(started).Round(time.Second), refused)
	return w.cordon(ctx, node, false)
}

// drainByHooks drains a node while evictions ask the hooks.
func drainByHooks(ctx context.Context, w *world) error {
	if err := w.deploy(ctx, evictionsManifest); err != nil {
		return err
	}
	if err := w.evictionsHooked(ctx); err != nil {
		return err
	}
	return drain(ctx, w)
}

// drainWithoutLeader does the same, and ends the leader by force when the first pod waits for its hook. The other manager
// answers evictions meanwhile: without any, they would go past the hooks.
func drainWithoutLeader(ctx context.Context, w *world) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return drainByHooks(groupCtx, w) })
	group.Go(func() error {
		if err := leaving(groupCtx, w.arms[0]); err != nil {
			return err
		}
		return w.deleteLeader(groupCtx, client.GracePeriodSeconds(0))
	})
	return group.Wait()
}

// evictionsHooked returns when the webhook answers for a pod of Rollcall's arm.
func (w *world) evictionsHooked(ctx context.Context) error {
	pods, err := w.arms[0].Pods(ctx)
	if err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) error {
		err := w.k8s.SubResource("eviction").Create(ctx, &pods[0], &policyv1.Eviction{}, client.DryRunAll)
		if apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "evictions.rollcall.dev") {
			return nil
		}
		return fmt.Errorf("the webhook for evictions does not answer: %w", err)
	})
}

// nodeDies stops a node with all that runs on it, and measures how long its pods stay in rotation. It takes the node that has
// no more than half of Rollcall's pods: with more, the panic threshold keeps them.
func nodeDies(ctx context.Context, w *world) error {
	busiest, err := w.busiestNode(ctx)
	if err != nil {
		return err
	}
	var dying []corev1.Pod
	for _, a := range w.arms {
		pods, err := a.Pods(ctx)
		if err != nil {
			return err
		}
		dying = append(dying, slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName == busiest })...)
	}
	if len(dying) == 0 {
		return errors.New("all pods are on " + busiest)
	}
	node := dying[0].Spec.NodeName
	if err := w.spreadManagers(ctx); err != nil {
		return err
	}
	if err := w.site.StopNode(ctx, node); err != nil {
		return fmt.Errorf("stopping %s: %w", node, err)
	}
	started := time.Now()
	group, groupCtx := errgroup.WithContext(ctx)
	for _, a := range w.arms {
		group.Go(func() error {
			err := a.outOfRotation(groupCtx, dying)
			w.say("  %s: the pods on %s are out of rotation after %s", a.name, node, time.Since(started).Round(time.Second))
			return err
		})
	}
	return errors.Join(group.Wait(), w.site.StartNode(ctx, node))
}

// spreadManagers has a manager start elsewhere where both are on one node: with that node Rollcall would be gone until
// Kubernetes deletes the node's pods.
func (w *world) spreadManagers(ctx context.Context) error {
	pods, err := kube.Pods(ctx, w.k8s, rollcallNamespace)
	if err != nil || len(pods) != 2 || pods[0].Spec.NodeName != pods[1].Spec.NodeName {
		return err
	}
	if err := w.k8s.Delete(ctx, &pods[0]); err != nil {
		return fmt.Errorf("deleting a manager: %w", err)
	}
	return w.managersReady(ctx)
}

// outOfRotation returns when none of the pods is in rotation.
func (a *arm) outOfRotation(ctx context.Context, pods []corev1.Pod) error {
	return a.await(ctx, "the pods of a dead node to leave", func(ctx context.Context) error {
		entries, _, err := a.directory.lookUp(ctx, a.name, 0)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return pod.Name == e.Pod }) {
				return errors.New(e.Pod + " is in rotation")
			}
		}
		return nil
	})
}

func (w *world) busiestNode(ctx context.Context) (string, error) {
	pods, err := w.arms[0].Pods(ctx)
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

func (w *world) cordon(ctx context.Context, node string, unschedulable bool) error {
	object := &corev1.Node{}
	object.Name = node
	if err := w.k8s.Patch(ctx, object, kube.Merge(`{"spec":{"unschedulable":%t}}`, unschedulable)); err != nil {
		return fmt.Errorf("cordoning %s: %w", node, err)
	}
	return nil
}

// evictAll evicts the pods of the arms and of Rollcall from the node until none is left, and counts the evictions that were
// refused until later.
func (w *world) evictAll(ctx context.Context, node string) (refused int, err error) {
	asked := map[client.ObjectKey]time.Time{}
	err = await(ctx, func(ctx context.Context) error {
		pods, err := kube.Pods(ctx, w.k8s, "")
		if err != nil {
			return err
		}
		left := 0
		for _, pod := range pods {
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
			switch {
			case apierrors.IsTooManyRequests(err):
				refused++
			case client.IgnoreNotFound(err) != nil:
				return fmt.Errorf("evicting %s: %w", key, err)
			}
		}
		if left > 0 {
			return errors.New("pods are still on " + node)
		}
		return nil
	})
	return refused, err
}

// owns reports whether a namespace is one of those that the tests have made.
func (w *world) owns(namespace string) bool {
	return namespace == rollcallNamespace || slices.ContainsFunc(w.arms, func(a *arm) bool { return a.Key.Namespace == namespace })
}
