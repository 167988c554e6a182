// Package rollout has what a rollout under traffic needs, on KWOK's nodes and on real ones: a CloneSet with what its users do to it,
// clients that find its pods in a registry and send them requests, and a mirror of readiness, which teams without Rollcall have.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// CloneSet is one that is alone in its namespace, and what its users do to it.
type CloneSet struct {
	K8s client.Client
	Key client.ObjectKey
}

// Decode reads the manifest of a CloneSet.
func Decode(manifest []byte) (*appsv1alpha1.CloneSet, error) {
	set := &appsv1alpha1.CloneSet{}
	if err := yaml.UnmarshalStrict(manifest, set); err != nil {
		return nil, fmt.Errorf("reading the manifest of a CloneSet: %w", err)
	}
	return set, nil
}

// Get reads it.
func (s CloneSet) Get(ctx context.Context) (*appsv1alpha1.CloneSet, error) {
	set := &appsv1alpha1.CloneSet{}
	if err := s.K8s.Get(ctx, s.Key, set); err != nil {
		return nil, fmt.Errorf("reading CloneSet %s: %w", s.Key, err)
	}
	return set, nil
}

// Change patches what edit changes in it.
func (s CloneSet) Change(ctx context.Context, edit func(*appsv1alpha1.CloneSetSpec)) error {
	set := &appsv1alpha1.CloneSet{}
	set.Namespace, set.Name = s.Key.Namespace, s.Key.Name
	return kube.Change(ctx, s.K8s, set, func() { edit(&set.Spec) })
}

// SetImage begins an update of its pods.
func (s CloneSet) SetImage(ctx context.Context, image string) error {
	return s.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) { spec.Template.Spec.Containers[0].Image = image })
}

// Scale changes how many pods it is to have.
func (s CloneSet) Scale(ctx context.Context, replicas int32) error {
	return s.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) { spec.Replicas = &replicas })
}

// MarkDeleted asks OpenKruise to delete a pod.
func MarkDeleted(ctx context.Context, k8s client.Client, pod *corev1.Pod) error {
	return k8s.Patch(ctx, pod, kube.Merge(`{"metadata":{"labels":{%q:"true"}}}`, appsv1alpha1.SpecifiedDeleteKey))
}

// Pods are those of its namespace.
func (s CloneSet) Pods(ctx context.Context) ([]corev1.Pod, error) {
	return kube.Pods(ctx, s.K8s, s.Key.Namespace)
}

// Gone returns an error while one of these pods is still there.
func (s CloneSet) Gone(ctx context.Context, pods ...corev1.Pod) error {
	left, err := s.Pods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range left {
		if slices.ContainsFunc(pods, func(was corev1.Pod) bool { return was.UID == pod.UID }) {
			return errors.New(pod.Name + " is still there")
		}
	}
	return nil
}

// Settled returns the pods once OpenKruise, which is to update all of them, has nothing left to do, and these registries and clients have
// exactly them in service.
func (s CloneSet) Settled(ctx context.Context, registries []read.Reader, clients ...*Client) ([]corev1.Pod, error) {
	set, err := s.Get(ctx)
	if err != nil {
		return nil, err
	}
	pods, err := s.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if err := unsettled(set, pods); err != nil {
		return pods, err
	}
	for _, reader := range registries {
		entries, err := reader(ctx)
		if err != nil {
			return pods, err
		}
		if err := Differs("the registry", pods, entries); err != nil {
			return pods, err
		}
	}
	for _, c := range clients {
		if err := Differs("the client", pods, c.Known()); err != nil {
			return pods, err
		}
	}
	return pods, nil
}

func unsettled(set *appsv1alpha1.CloneSet, pods []corev1.Pod) error {
	want, has := *set.Spec.Replicas, set.Status
	if has.ObservedGeneration != set.Generation {
		return errors.New("OpenKruise has not seen the last change")
	}
	if has.Replicas != want || has.UpdatedReplicas != want || has.ReadyReplicas != want || has.AvailableReplicas != want ||
		len(pods) != int(want) {
		return fmt.Errorf("of %d pods %d are made, %d are updated, %d are ready, %d are available, %d are there",
			want, has.Replicas, has.UpdatedReplicas, has.ReadyReplicas, has.AvailableReplicas, len(pods))
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
