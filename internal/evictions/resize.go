package evictions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// resize refuses a resize by which kubelet restarts a container of a pod that serves: that triggers no hook, and the pod stays ready until
// the container has stopped. The VerticalPodAutoscaler 1.5.1 and 1.6.0 then evicts the pod in the same pass, and 1.4.1 does not:
// https://github.com/kubernetes/autoscaler/blob/vertical-pod-autoscaler-1.6.0/vertical-pod-autoscaler/pkg/updater/logic/updater.go
func (w *Webhook) resize(ctx context.Context, request admission.Request) (admission.Response, error) {
	var before, after corev1.Pod
	if err := errors.Join(json.Unmarshal(request.OldObject.Raw, &before), json.Unmarshal(request.Object.Raw, &after)); err != nil {
		return admission.Response{}, fmt.Errorf("reading the resize of pod %s: %w", request.Name, err)
	}
	restarted, pod := Restarted(&before, &after), lifecycle.PodOf(&before)
	if len(restarted) == 0 {
		return admission.Allowed(""), nil
	}
	hooks, err := w.hooksOf(ctx, pod)
	if err != nil || !serves(pod, hooks, w.Clock.Now()) {
		return admission.Allowed(""), err
	}
	return admission.Denied(fmt.Sprintf("pod %s serves, and this resize restarts its containers %s, which triggers no hook: change the "+
		"resources in the template of the pod's workload, or set restartPolicy NotRequired in the template's resizePolicy",
		pod.Name, strings.Join(restarted, ", "))), nil
}

// serves reports a pod in rotation that an eviction or an update would take out first. OpenKruise resizes pods too, with
// InPlaceWorkloadVerticalScaling, and only those whose armed inPlaceUpdate hook was released: they are not in Normal.
// https://github.com/openkruise/kruise/blob/v1.9.1/pkg/controller/cloneset/sync/cloneset_update.go
func serves(pod *lifecycle.Pod, hooks lifecycle.Hooks, now time.Time) bool {
	armed := func(h lifecycle.Handler) bool { return h.SetOn(pod) }
	hooked := slices.ContainsFunc(hooks.PreDelete, armed) && slices.ContainsFunc(hooks.InPlaceUpdate, armed) && !pod.Spec.OwnClaims
	return hooked && lifecycle.State(pod) == appspub.LifecycleStateNormal && healthy(pod) && !ended(pod) && !isOut(pod, now)
}

// Restarted returns the containers that kubelet restarts for the resize.
// https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/kuberuntime/kuberuntime_manager.go, computePodResizeAction
func Restarted(before, after *corev1.Pod) (names []string) {
	all := func(pod *corev1.Pod) []corev1.Container {
		return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	}
	was := map[string]corev1.Container{}
	for _, c := range all(before) {
		was[c.Name] = c
	}
	for _, c := range all(after) {
		restarts := func(p corev1.ContainerResizePolicy) bool {
			old, now := sizeOf(before, was[c.Name], p.ResourceName), sizeOf(after, c, p.ResourceName)
			return p.RestartPolicy == corev1.RestartContainer && (old[0].Cmp(now[0]) != 0 || old[1].Cmp(now[1]) != 0)
		}
		if slices.ContainsFunc(c.ResizePolicy, restarts) {
			names = append(names, c.Name)
		}
	}
	return names
}

// sizeOf returns the container's request and limit, which the pod's own limit replaces.
func sizeOf(pod *corev1.Pod, c corev1.Container, name corev1.ResourceName) [2]resource.Quantity {
	limit, has := c.Resources.Limits[name]
	if !has && pod.Spec.Resources != nil {
		limit = pod.Spec.Resources.Limits[name]
	}
	return [2]resource.Quantity{c.Resources.Requests[name], limit}
}
