package integration

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// TestStatefulSet: pods that keep their names under other UIDs are registered, updated and deleted as a CloneSet's are.
func TestStatefulSet(t *testing.T) {
	t.Parallel()
	styles := []style{labels, finalizer, preNormal}
	server := startRegistry(t)
	m := startManager(t, "statefulset", defaultConfiguration(server.URL(), namespacesOf("statefulset", styles)...))
	for _, style := range styles {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, m, server, style, namespaceOf("statefulset", style))
			set := s.statefulSet(3)
			s.must(s.k8s.Create(t.Context(), set))
			first := s.ExpectStanding(3, "nginx:1")

			if set.Spec.Lifecycle.InPlaceUpdate != nil {
				s.change(set, func() { set.Spec.Template.Spec.Containers[0].Image = "nginx:2" })
				updated := s.ExpectStanding(3, "nginx:2")
				for i, pod := range updated {
					s.Expect(pod.UID == first[i].UID, "pod %s was not updated in place", pod.Name)
					s.ExpectSeen(pod, appspub.LifecycleStatePreparingUpdate)
				}
				first = updated
			}
			s.change(set, func() { set.Spec.Replicas = new(int32(2)) })
			s.ExpectStanding(2, first[0].Spec.Containers[0].Image)
			s.change(set, func() { set.Spec.Replicas = new(int32(3)) })
			again := s.ExpectStanding(3, first[0].Spec.Containers[0].Image)
			s.ExpectAskedBeforeDelete(first[2])
			s.Expect(again[2].Name == first[2].Name && again[2].UID != first[2].UID, "pod %s is not another one under its name", first[2].Name)

			s.ExpectAnotherAfterDelete(again[0], 3)
			s.ExpectAlways()
		})
	}
}

// TestStatefulSetTakesNoPodBack: OpenKruise leaves a pod in PreparingDelete whose scale-in was cancelled, and Rollcall says so.
func TestStatefulSetTakesNoPodBack(t *testing.T) {
	t.Parallel()
	s := alone(t, "statefulset-cancelled", nil)
	s.troubled, s.drain = false, 2*time.Second
	set := s.statefulSet(2)
	set.Spec.Template.Annotations = map[string]string{"rollcall.dev/drain": s.drain.String()}
	s.must(s.k8s.Create(t.Context(), set))
	pods := s.ExpectStanding(2, "nginx:1")

	s.change(set, func() { set.Spec.Replicas = new(int32(1)) })
	s.AwaitPodIn(appspub.LifecycleStatePreparingDelete)
	s.change(set, func() { set.Spec.Replicas = new(int32(2)) })
	s.ExpectMetric(`rollcall_waiting_pods{hook="",reason="AwaitingOpenKruise"} 1`)
	s.ExpectServing(pods[0])

	s.ExpectAnotherAfterDelete(pods[1], 2)
	s.ExpectAlways()
}

// TestStatefulSetInOrder: OpenKruise since 1.8 stops at a pod that waits at a hook, and Rollcall says so. OpenKruise 1.7 goes on.
func TestStatefulSetInOrder(t *testing.T) {
	t.Parallel()
	s := alone(t, "statefulset-ordered", nil)
	s.troubled = false
	set := s.statefulSet(3)
	set.Spec.PodManagementPolicy = "OrderedReady"
	s.must(s.k8s.Create(t.Context(), set))
	pods := s.ExpectStanding(3, "nginx:1")

	s.change(set, func() { set.Spec.Template.Spec.Containers[0].Image = "nginx:2" })
	if os.Getenv("KRUISE") == "1.7" {
		s.ExpectStanding(3, "nginx:2")
		return
	}
	s.ExpectMetric(`rollcall_waiting_pods{hook="",reason="AwaitingOpenKruise"} 1`)
	s.change(set, func() { set.Spec.Template.Spec.Containers[0].Image = "nginx:3" })
	s.AwaitPod("OpenKruise to have looked at it again", func(pod *corev1.Pod) bool {
		s.must(s.k8s.Get(t.Context(), client.ObjectKeyFromObject(set), set))
		return pod.Name == pods[2].Name && set.Status.ObservedGeneration == set.Generation &&
			lifecycle.State(lifecycle.PodOf(pod)) == appspub.LifecycleStatePreparingUpdate && pod.Spec.Containers[0].Image == "nginx:1"
	})
	s.ExpectServing(pods[:2]...)
	s.ExpectAlways()
}

// TestDaemonSet: the one hook that OpenKruise has for a DaemonSet is asked. Its pods carry no lifecycle state before that, so
// the template says Normal for Rollcall to know them from the start.
func TestDaemonSet(t *testing.T) {
	t.Parallel()
	s := alone(t, "daemonset", nil)
	s.troubled = false
	set := s.daemonSet()
	s.must(s.k8s.Create(t.Context(), set))
	nodes := len(env.zones)
	first := s.ExpectStanding(nodes, "nginx:1")

	s.change(set, func() { set.Spec.Template.Spec.Containers[0].Image = "nginx:2" })
	s.ExpectStanding(nodes, "nginx:2")
	for _, pod := range first {
		s.ExpectAskedBeforeDelete(pod)
	}
	s.ExpectAlways()
}

// statefulSet has the hooks and the template of the style's CloneSet.
func (s *scenario) statefulSet(replicas int32) *kruisev1beta1.StatefulSet {
	set := asStatefulSet(s.template())
	set.Namespace, set.Spec.Replicas = s.ns, &replicas
	return set
}

func asStatefulSet(like *kruisev1alpha1.CloneSet) *kruisev1beta1.StatefulSet {
	like.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: appspub.InPlaceUpdateReady}} // its webhook wants it
	return &kruisev1beta1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: like.Namespace, Name: "web"},
		Spec: kruisev1beta1.StatefulSetSpec{
			Replicas: like.Spec.Replicas, Selector: like.Spec.Selector, Template: like.Spec.Template, Lifecycle: like.Spec.Lifecycle,
			PodManagementPolicy: "Parallel",
			UpdateStrategy: kruisev1beta1.StatefulSetUpdateStrategy{
				Type: "RollingUpdate",
				RollingUpdate: &kruisev1beta1.RollingUpdateStatefulSetStrategy{
					PodUpdatePolicy: kruisev1beta1.InPlaceIfPossiblePodUpdateStrategyType,
				},
			},
		},
	}
}

func (s *scenario) daemonSet() *kruisev1alpha1.DaemonSet {
	set := asDaemonSet(s.template())
	set.Namespace = s.ns
	return set
}

func asDaemonSet(like *kruisev1alpha1.CloneSet) *kruisev1alpha1.DaemonSet {
	like.Spec.Template.Labels[appspub.LifecycleStateKey] = string(appspub.LifecycleStateNormal)
	return &kruisev1alpha1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: like.Namespace, Name: "web"},
		Spec: kruisev1alpha1.DaemonSetSpec{
			Selector: like.Spec.Selector, Template: like.Spec.Template,
			Lifecycle: &appspub.Lifecycle{PreDelete: like.Spec.Lifecycle.PreDelete},
			UpdateStrategy: kruisev1alpha1.DaemonSetUpdateStrategy{
				Type: kruisev1alpha1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &kruisev1alpha1.RollingUpdateDaemonSet{
					Type: kruisev1alpha1.StandardRollingUpdateType, MaxUnavailable: new(intstr.FromInt32(1)),
				},
			},
		},
	}
}

// template is the style's CloneSet for the scenario, which is not created: another kind takes hooks and template from it.
func (s *scenario) template() *kruisev1alpha1.CloneSet {
	set := s.style.load(s.T)
	set.Spec.Selector.MatchLabels = map[string]string{"app": s.ns}
	set.Spec.Template.Labels["app"] = s.ns
	set.Spec.Template.Spec.Containers[0].Image = "nginx:1"
	s.noted(set)
	return set
}

// change edits a workload that nothing else writes but its status.
func (s *scenario) change(workload client.Object, edit func()) {
	s.Helper()
	s.must(kube.Change(s.Context(), s.k8s, workload, edit))
}

// ExpectStanding waits until there are exactly so many pods, all of the image, Normal and ready, and the registry holds exactly
// these. It returns them in the order of their names.
func (s *scenario) ExpectStanding(n int, image string) []*corev1.Pod {
	s.Helper()
	s.await(fmt.Sprintf("%d pods of %s to stand", n, image), func() error {
		pods := s.Pods()
		if len(pods) != n {
			return fmt.Errorf("there are %d pods, not %d", len(pods), n)
		}
		for _, pod := range pods {
			if err := rollout.NotReadyWith(pod, image); err != nil {
				return err
			}
			for _, h := range s.hooks[checker.PreDelete] {
				if !setOn(h, pod) {
					return fmt.Errorf("pod %s lacks handler %s", pod.Name, h)
				}
			}
		}
		return s.registryHolds(pods)
	})
	pods := s.Pods()
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	return pods
}

// ExpectAnotherAfterDelete deletes a pod, and waits until there are n again, with another one under its name.
func (s *scenario) ExpectAnotherAfterDelete(pod *corev1.Pod, n int) {
	s.Helper()
	s.DeletePod(pod)
	s.AwaitGone(pod)
	s.ExpectStanding(n, pod.Spec.Containers[0].Image)
}
