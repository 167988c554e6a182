// Package smoke runs the test cluster once and looks whether it behaves as a real one does.
package smoke

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	kruiseapps "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const (
	namespace  = metav1.NamespaceDefault
	hookLabel  = "example.com/in-rotation"
	finalizer  = "example.com/hold"
	imageOld   = "registry.example.com/web:1"
	imageNew   = "registry.example.com/web:2"
	imageThird = "registry.example.com/web:3"
)

// TestCluster runs its scenarios at the same time on one cluster.
func TestCluster(t *testing.T) {
	t.Parallel()
	h := newHarness(t, cluster.Options{PodCIDR: "127.101.0.0/16"})
	for name, run := range map[string]func(*harness, *testing.T){
		"an in-place update waits for its hook and restarts the container": (*harness).inPlaceUpdate,
		"a deleted pod stops serving at once and waits for its finalizer":  (*harness).finalizer,
		"a deleted pod ends":                                                (*harness).plainDelete,
		"a pod says how long it takes to start":                             (*harness).startDelay,
		"a readiness gate holds a pod back, at any time":                    (*harness).readinessGate,
		"the token of a service account is accepted and gives it no rights": (*harness).serviceAccount,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(h, t)
		})
	}
}

// TestDisturbances has a cluster of its own: OpenKruise comes late, and the API server goes and comes back.
func TestDisturbances(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	h := newHarness(t, cluster.Options{PodCIDR: "127.102.0.0/16", WithoutKruise: true, Nodes: 1})
	if err := h.k8s.List(ctx, &kruisev1alpha1.CloneSetList{}); !meta.IsNoMatchError(err) {
		t.Errorf("listing CloneSets before OpenKruise is installed: %v, want that the type is unknown", err)
	}
	for range 2 {
		expect.NoError(t, h.cluster.InstallKruise(ctx))
	}
	set := cloneSet("survivor", 1)
	h.create(ctx, t, set)
	before := h.expectPod(t, set, "ready", ready)
	expect.NoError(t, h.cluster.RestartAPIServer(ctx))
	pod := h.expectPod(t, set, "there as before", ready)
	if pod.UID != before.UID {
		t.Error("the pod is another after the restart of the API server")
	}
	h.setImage(ctx, t, set, imageNew)
	h.expectPod(t, set, "updated by servers that reconnected", func(pod *corev1.Pod) error {
		return errors.Join(ready(pod), h.serves(ctx, pod, imageNew))
	})
	if err := h.cluster.Err(); err != nil {
		t.Error(err)
	}
	h.cluster.Stop()
	if err := h.k8s.List(ctx, &corev1.PodList{}); err == nil {
		t.Error("the API server answers after Stop")
	}
	if err := h.cluster.InstallKruise(ctx); err != nil {
		t.Errorf("installing again what is installed: %v", err)
	}
	if err := h.cluster.RestartAPIServer(ctx); err == nil {
		t.Error("a stopped cluster restarts its API server")
	}
	if _, err := os.Stat(h.cluster.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

// harness is a cluster with a pod server.
type harness struct {
	cluster *cluster.Cluster
	k8s     client.WithWatch
	pods    *podserver.Server
}

func newHarness(t *testing.T, opts cluster.Options) *harness {
	t.Helper()
	// The first start builds the servers.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	opts.Log = os.Stderr
	c, err := cluster.Start(ctx, opts)
	expect.NoError(t, err)
	t.Cleanup(c.Stop)
	k8s, err := cluster.NewClient(c.Config())
	expect.NoError(t, err)
	h := &harness{cluster: c, k8s: k8s}
	pods, stop, err := podserver.Start(t.Context(), k8s, func(err error) { t.Error(err) })
	expect.NoError(t, err)
	t.Cleanup(stop)
	h.pods = pods
	return h
}

func (h *harness) inPlaceUpdate(t *testing.T) {
	ctx := t.Context()
	set := cloneSet("inplace", 1)
	set.Spec.Template.Labels[hookLabel] = "yes"
	set.Spec.Lifecycle = &kruiseapps.Lifecycle{
		InPlaceUpdate: &kruiseapps.LifecycleHook{LabelsHandler: map[string]string{hookLabel: "yes"}},
	}
	h.create(ctx, t, set)
	before := h.expectPod(t, set, "Normal, ready and serving", func(pod *corev1.Pod) error {
		return errors.Join(state(pod, kruiseapps.LifecycleStateNormal), ready(pod), h.serves(ctx, pod, imageOld))
	})
	if gate := condition(before, kruiseapps.InPlaceUpdateReady); gate != corev1.ConditionTrue {
		t.Fatalf("readiness gate %s is %q before the update, want True", kruiseapps.InPlaceUpdateReady, gate)
	}

	h.setImage(ctx, t, set, imageNew)
	waiting := h.expectPod(t, set, "PreparingUpdate with the old image", func(pod *corev1.Pod) error {
		return errors.Join(state(pod, kruiseapps.LifecycleStatePreparingUpdate), h.serves(ctx, pod, imageOld))
	})
	if waiting.UID != before.UID || waiting.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Fatal("the pod was replaced or restarted before its hook was released")
	}

	seen := h.record(t, waiting)
	h.patchLabel(ctx, t, waiting, "no")
	updated := h.expectPod(t, set, "Updated and ready with the new image", func(pod *corev1.Pod) error {
		return errors.Join(state(pod, kruiseapps.LifecycleStateUpdated), ready(pod), h.serves(ctx, pod, imageNew))
	})
	expectRestarted(t, before, updated, 1)
	seen.expectSeen(t, "the readiness gate shut", func(pod *corev1.Pod) bool {
		return condition(pod, kruiseapps.InPlaceUpdateReady) == corev1.ConditionFalse
	})
	seen.expectSeen(t, "a container that waits, not ready", func(pod *corev1.Pod) bool {
		return pod.Status.ContainerStatuses[0].State.Running == nil && ready(pod) != nil
	})
	seen.expectSeen(t, "the new container not ready yet", func(pod *corev1.Pod) bool {
		status := pod.Status.ContainerStatuses[0]
		return status.State.Running != nil && status.Image == imageNew && !status.Ready
	})
	seen.expectNever(t, "ready while the spec names another image than runs", func(pod *corev1.Pod) bool {
		status := pod.Status.ContainerStatuses[0]
		return status.State.Running == nil && ready(pod) == nil
	})

	h.patchLabel(ctx, t, updated, "yes")
	normal := h.expectPod(t, set, "Normal again", func(pod *corev1.Pod) error {
		return errors.Join(state(pod, kruiseapps.LifecycleStateNormal), ready(pod))
	})

	h.setImage(ctx, t, set, imageThird)
	h.expectPod(t, set, "PreparingUpdate again", func(pod *corev1.Pod) error {
		return state(pod, kruiseapps.LifecycleStatePreparingUpdate)
	})
	h.patchLabel(ctx, t, normal, "no")
	again := h.expectPod(t, set, "updated twice", func(pod *corev1.Pod) error {
		return errors.Join(state(pod, kruiseapps.LifecycleStateUpdated), ready(pod), h.serves(ctx, pod, imageThird))
	})
	expectRestarted(t, normal, again, 2)
}

func (h *harness) finalizer(t *testing.T) {
	ctx := t.Context()
	set := cloneSet("held", 1)
	set.Spec.Template.Finalizers = []string{finalizer}
	h.create(ctx, t, set)
	pod := h.expectPod(t, set, "ready and serving", func(pod *corev1.Pod) error {
		return errors.Join(ready(pod), h.serves(ctx, pod, imageOld))
	})
	expect.NoError(t, h.k8s.Delete(ctx, pod))
	expect.Soon(t, "the held pod is stopped and still there", func() error {
		held := &corev1.Pod{}
		if err := h.k8s.Get(ctx, client.ObjectKeyFromObject(pod), held); err != nil {
			return err
		}
		if grace := ptr.Deref(held.DeletionGracePeriodSeconds, -1); grace != 0 || held.Status.Phase != corev1.PodSucceeded {
			return fmt.Errorf("its grace period is %d, its phase %s", grace, held.Status.Phase)
		}
		return h.refuses(ctx, held)
	})
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	expect.NoError(t, h.k8s.Patch(ctx, pod, release))
	h.expectGone(ctx, t, pod)
}

func (h *harness) plainDelete(t *testing.T) {
	ctx := t.Context()
	set := cloneSet("plain", 2)
	h.create(ctx, t, set)
	pod := h.expectPod(t, set, "serving", func(pod *corev1.Pod) error { return h.serves(ctx, pod, imageOld) })
	expect.NoError(t, h.k8s.Delete(ctx, pod))
	h.expectGone(ctx, t, pod)
	if err := h.refuses(ctx, pod); err != nil {
		t.Error(err)
	}
	expect.Soon(t, "the CloneSet has two ready pods again", func() error {
		if err := h.k8s.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
			return err
		}
		if set.Status.ReadyReplicas != 2 {
			return fmt.Errorf("%d are ready", set.Status.ReadyReplicas)
		}
		return nil
	})
}

func (h *harness) startDelay(t *testing.T) {
	ctx := t.Context()
	const delay = 2 * time.Second
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "slow", Namespace: namespace, Annotations: map[string]string{
			cluster.AnnotationReadyDelay: delay.String(),
		}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: imageOld}}},
	}
	expect.Soon(t, "a pod without a CloneSet is created", func() error { return h.k8s.Create(ctx, pod) })
	expect.Soon(t, "it is ready", func() error {
		return errors.Join(h.k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod), ready(pod))
	})
	started := pod.Status.ContainerStatuses[0].State.Running.StartedAt
	for _, c := range pod.Status.Conditions {
		// The API keeps whole seconds.
		if took := c.LastTransitionTime.Sub(started.Time); c.Type == corev1.PodReady && took < delay-time.Second {
			t.Errorf("it was ready %s after its start, want %s", took, delay)
		}
	}
}

func (h *harness) readinessGate(t *testing.T) {
	ctx := t.Context()
	const gate = corev1.PodConditionType("example.com/gate")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "gated", Namespace: namespace},
		Spec: corev1.PodSpec{
			Containers:     []corev1.Container{{Name: "web", Image: imageOld}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: gate}},
		},
	}
	h.create(ctx, t, pod)
	expectReady := func(reason string, want corev1.ConditionStatus) {
		t.Helper()
		expect.Soon(t, reason, func() error {
			if err := h.k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
				return err
			}
			if containers := condition(pod, corev1.ContainersReady); containers != corev1.ConditionTrue {
				return fmt.Errorf("its condition ContainersReady is %q", containers)
			}
			if is := condition(pod, corev1.PodReady); is != want {
				return fmt.Errorf("its condition Ready is %q, want %s", is, want)
			}
			return h.serves(ctx, pod, imageOld)
		})
	}
	setGate := func(status corev1.ConditionStatus) {
		t.Helper()
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, gate, status)
		err := h.k8s.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, []byte(patch)))
		if err != nil {
			t.Fatalf("setting the gate to %s: %v", status, err)
		}
	}
	expectReady("its containers run and the gate, which is not set, holds it back", corev1.ConditionFalse)
	setGate(corev1.ConditionTrue)
	expectReady("the gate lets it go", corev1.ConditionTrue)
	setGate(corev1.ConditionFalse)
	expectReady("the gate holds it back again, and its container runs on", corev1.ConditionFalse)
}

func (h *harness) serviceAccount(t *testing.T) {
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody", Namespace: namespace}}
	expect.NoError(t, h.k8s.Create(ctx, account))
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "nobody", Namespace: namespace, Annotations: map[string]string{
			corev1.ServiceAccountNameKey: account.Name,
		}},
		Type: corev1.SecretTypeServiceAccountToken,
	}
	expect.NoError(t, h.k8s.Create(ctx, secret))
	expect.Soon(t, "the controller-manager makes a token", func() error {
		if err := h.k8s.Get(ctx, client.ObjectKeyFromObject(secret), secret); err != nil {
			return err
		}
		if len(secret.Data[corev1.ServiceAccountTokenKey]) == 0 {
			return errors.New("there is no token in the Secret")
		}
		return nil
	})
	config := rest.AnonymousClientConfig(h.cluster.Config())
	config.BearerToken = string(secret.Data[corev1.ServiceAccountTokenKey])
	nobody, err := client.New(config, client.Options{})
	expect.NoError(t, err)
	err = nobody.List(ctx, &corev1.PodList{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:default:nobody") {
		t.Errorf("listing pods as a ServiceAccount without rights: %v, want that it is forbidden to it", err)
	}
}

func cloneSet(name string, replicas int32) *kruisev1alpha1.CloneSet {
	return &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: kruisev1alpha1.CloneSetSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			UpdateStrategy: kruisev1alpha1.CloneSetUpdateStrategy{
				Type: kruisev1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType,
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: imageOld}}},
			},
		},
	}
}

func (h *harness) create(ctx context.Context, t *testing.T, object client.Object) {
	t.Helper()
	if err := h.k8s.Create(ctx, object); err != nil {
		t.Fatalf("creating %s: %v", object.GetName(), err)
	}
}

func (h *harness) setImage(ctx context.Context, t *testing.T, set *kruisev1alpha1.CloneSet, image string) {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":%q}]`, image)
	expect.Soon(t, "the CloneSet takes a new image", func() error {
		return h.k8s.Patch(ctx, set, client.RawPatch(types.JSONPatchType, []byte(patch)))
	})
}

func (h *harness) patchLabel(ctx context.Context, t *testing.T, pod *corev1.Pod, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, hookLabel, value)
	if err := h.k8s.Patch(ctx, pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("setting the hook's label to %s: %v", value, err)
	}
}

// expectPod waits until one pod of the CloneSet is as wanted, and returns it.
func (h *harness) expectPod(
	t *testing.T, set *kruisev1alpha1.CloneSet, want string, check func(*corev1.Pod) error,
) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	expect.Soon(t, "a pod of "+set.Name+" is "+want, func() error {
		var pods corev1.PodList
		selector := labels.SelectorFromSet(set.Spec.Selector.MatchLabels)
		err := h.k8s.List(t.Context(), &pods, &client.ListOptions{Namespace: namespace, LabelSelector: selector})
		if err != nil {
			return err
		}
		err = errors.New("there is no pod")
		for i := range pods.Items {
			if err = check(&pods.Items[i]); err == nil {
				found = &pods.Items[i]
				return nil
			}
		}
		return err
	})
	return found
}

func (h *harness) expectGone(ctx context.Context, t *testing.T, pod *corev1.Pod) {
	t.Helper()
	expect.Soon(t, "pod "+pod.Name+" is gone", func() error {
		err := h.k8s.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("reading it gives: %w", err)
	})
}

func expectRestarted(t *testing.T, before, after *corev1.Pod, restarts int32) {
	t.Helper()
	was, is := before.Status.ContainerStatuses[0], after.Status.ContainerStatuses[0]
	if after.UID != before.UID || after.Status.PodIP != before.Status.PodIP {
		t.Errorf("the pod was replaced: UID %s, address %s, was %s, %s",
			after.UID, after.Status.PodIP, before.UID, before.Status.PodIP)
	}
	if is.RestartCount != restarts {
		t.Errorf("restartCount is %d, want %d", is.RestartCount, restarts)
	}
	if is.ImageID == was.ImageID || is.ContainerID == was.ContainerID {
		t.Errorf("imageID %s and containerID %s did not both change", is.ImageID, is.ContainerID)
	}
	if is.LastTerminationState.Terminated == nil {
		t.Error("the last state of the container is not that it was terminated")
	}
}

// serves asks the pod at its address.
func (h *harness) serves(ctx context.Context, pod *corev1.Pod, image string) error {
	answer, err := h.ask(ctx, pod)
	if err != nil {
		return err
	}
	want := podserver.Answer{Pod: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID), Image: image}
	if *answer != want {
		return fmt.Errorf("%s answers %+v, want %+v", pod.Status.PodIP, *answer, want)
	}
	if !h.pods.CanServe(pod.Status.PodIP) {
		return fmt.Errorf("CanServe says no for %s, which answers", pod.Status.PodIP)
	}
	return nil
}

func (h *harness) refuses(ctx context.Context, pod *corev1.Pod) error {
	if answer, err := h.ask(ctx, pod); err == nil {
		return fmt.Errorf("%s answers %+v, want that it refuses", pod.Status.PodIP, answer)
	}
	if h.pods.CanServe(pod.Status.PodIP) {
		return fmt.Errorf("CanServe says yes for %s, which refuses", pod.Status.PodIP)
	}
	return nil
}

func (h *harness) ask(ctx context.Context, pod *corev1.Pod) (*podserver.Answer, error) {
	if pod.Status.PodIP == "" {
		return nil, errors.New("it has no address")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(h.pods.Port))+"/", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer := &podserver.Answer{}
	return answer, json.NewDecoder(response.Body).Decode(answer)
}

func state(pod *corev1.Pod, want kruiseapps.LifecycleStateType) error {
	if is := pod.Labels[kruiseapps.LifecycleStateKey]; is != string(want) {
		return fmt.Errorf("it is in state %q, want %s", is, want)
	}
	return nil
}

func ready(pod *corev1.Pod) error {
	if is := condition(pod, corev1.PodReady); is != corev1.ConditionTrue {
		return fmt.Errorf("its condition Ready is %q", is)
	}
	return nil
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}
