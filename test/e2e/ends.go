package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// spotNotice is how long before EC2 announces that it takes an instance back.
	spotNotice = 2 * time.Minute
	// spotTaint is what the AWS Node Termination Handler sets then, before it drains the node.
	spotTaint = "aws-node-termination-handler/spot-itn"
	// off is how long a node that has ended stays away: until Kubernetes would notice that by itself, but for a reserve.
	off = 30 * time.Second
)

// spotReclaimed announces the end of a node, drains it, and takes its power two minutes later. There is room for no other pod, so
// OpenKruise, which is to replace each pod before it deletes it, deletes none.
func spotReclaimed(ctx context.Context, w *world) error {
	if err := w.deploy(ctx, evictionsManifest); err != nil {
		return err
	}
	if err := w.evictionsHooked(ctx); err != nil {
		return err
	}
	for _, a := range w.arms {
		err := a.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) {
			spec.UpdateStrategy.MaxSurge, spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1)), new(intstr.FromInt32(0))
		})
		if err != nil {
			return err
		}
	}
	node, err := w.busiestNode(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(w.cordonAll(ctx, true), w.taint(ctx, node, `[{"key":%q,"effect":"NoSchedule"}]`, spotTaint)); err != nil {
		return err
	}
	announced := time.Now()
	draining, cancel := context.WithDeadline(ctx, announced.Add(spotNotice))
	defer cancel()
	refused, err := w.evictAll(draining, node)
	switch {
	case ctx.Err() != nil:
		return err
	case err == nil:
		w.say("  %s is empty after %s; %d evictions were refused until later", node, time.Since(announced).Round(time.Second), refused)
	default:
		w.say("  %s ends with pods on it; %d evictions were refused until later", node, refused)
	}
	wait.Pause(ctx, time.Until(announced.Add(spotNotice)))
	if err := w.away(ctx, node, w.site.StopNode); err != nil {
		return err
	}
	return errors.Join(w.taint(ctx, node, `null`), w.cordonAll(ctx, false))
}

// nodeShutsDown shuts a node down as its operating system would: kubelet ends its pods within its shutdownGracePeriod, and the power
// goes after that.
func nodeShutsDown(ctx context.Context, w *world) error {
	node, err := w.busiestNode(ctx)
	if err != nil {
		return err
	}
	if err := w.spreadManagers(ctx); err != nil {
		return err
	}
	return w.away(ctx, node, w.site.ShutNodeDown)
}

// away has a node end, stay away and come back. The pods that ended with it are deleted, as Kubernetes does once the node is gone.
func (w *world) away(ctx context.Context, node string, end func(context.Context, string) error) error {
	if err := end(ctx, node); err != nil {
		return fmt.Errorf("ending %s: %w", node, err)
	}
	wait.Pause(ctx, off)
	if err := w.site.StartNode(ctx, node); err != nil {
		return fmt.Errorf("having %s come back: %w", node, err)
	}
	pods, err := kube.Pods(ctx, w.k8s, "")
	if err != nil {
		return err
	}
	for _, pod := range pods {
		if lifecycle.Finished(lifecycle.PodOf(&pod)) && w.owns(pod.Namespace) {
			if err := client.IgnoreNotFound(w.k8s.Delete(ctx, &pod)); err != nil {
				return fmt.Errorf("deleting %s, which has ended: %w", pod.Name, err)
			}
		}
	}
	return nil
}

func (w *world) cordonAll(ctx context.Context, unschedulable bool) error {
	var nodes corev1.NodeList
	if err := w.k8s.List(ctx, &nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	var all error
	for _, node := range nodes.Items {
		all = errors.Join(all, w.cordon(ctx, node.Name, unschedulable))
	}
	return all
}

// taint replaces the node's taints. Those that follow from its state come back.
func (w *world) taint(ctx context.Context, node, taints string, args ...any) error {
	object := &corev1.Node{}
	object.Name = node
	if err := w.k8s.Patch(ctx, object, kube.Merge(`{"spec":{"taints":`+taints+`}}`, args...)); err != nil {
		return fmt.Errorf("tainting %s: %w", node, err)
	}
	return nil
}
