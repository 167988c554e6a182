package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// The scenarios of this file are about what others in a cluster do with pods.

// deletedWithNamespace: the namespace controller deletes pods and workload in whatever order, and no Event can be written
// there any more.
func deletedWithNamespace(s *scenario) {
	pods := s.Begin(replicas(2), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(1)) // the namespace controller waits for it
	})

	s.forget()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	s.must(s.k8s.Delete(s.Context(), namespace))
	s.await("the namespace to be gone", func() error {
		err := s.k8s.Get(s.Context(), client.ObjectKeyFromObject(namespace), namespace)
		if err == nil {
			return fmt.Errorf("it is there: %+v", namespace.Status.Conditions)
		}
		return client.IgnoreNotFound(err)
	})
	s.ExpectNothingLeft()
	for _, pod := range pods {
		s.Expect(s.counted(pod, fakeregistry.OpDeregister) == 1, "pod %s was not taken out once", pod.Name)
	}
}

// evictedWithinBudget: an eviction that a PodDisruptionBudget refuses changes nothing, and one that it allows is a delete.
func evictedWithinBudget(s *scenario) {
	pod := s.Begin(replicas(2))[0]
	s.demand(2, 2)
	err := s.evict(pod)
	s.Expect(apierrors.IsTooManyRequests(err), "an eviction past the budget gave: %v", err)

	s.ScaleTo(3)
	s.Expect(len(s.registry.Answers(s.ns, string(pod.UID))) == 1, "the registry was called for an eviction that never was")
	s.await("the budget to allow an eviction", func() error { return s.evict(pod) })
	s.AwaitGone(pod)
	s.ExpectSteady()
	s.ExpectNeverSeen(pod, appspub.LifecycleStatePreparingDelete)
	s.Expect(s.counted(pod, fakeregistry.OpDeregister) == 1, "the pod was not taken out once")
}

// demand makes a budget that so many pods stay available, and returns when it has counted those that there are.
func (s *scenario) demand(available, there int32) {
	s.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "budget"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(available)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": s.ns}},
		},
	}
	s.must(s.k8s.Create(s.Context(), budget))
	s.await("the budget to count the pods", func() error {
		if err := s.k8s.Get(s.Context(), client.ObjectKeyFromObject(budget), budget); err != nil {
			return err
		}
		if n := budget.Status.CurrentHealthy; n != there {
			return fmt.Errorf("it has counted %d", n)
		}
		return nil
	})
}

func (s *scenario) evict(pod *corev1.Pod) error {
	return s.k8s.SubResource("eviction").Create(s.Context(), pod.DeepCopy(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
	})
}

// availableLater: with minReadySeconds a pod that is in service again does not count as available at once, and the next one
// stays in service until it does.
func availableLater(s *scenario) {
	const wait = 3 * time.Second
	before := s.Begin(inPlace, replicas(2), func(set *kruisev1alpha1.CloneSet) { set.Spec.MinReadySeconds = int32(wait / time.Second) })
	s.UpdateInPlace("nginx:2", before)

	out := func(pod *corev1.Pod) time.Time { return s.answered(pod, fakeregistry.OpFailOver).Started }
	first, second := s.Pods()[0], s.Pods()[1]
	if out(second).Before(out(first)) {
		first, second = second, first
	}
	back, ready := s.answered(first, fakeregistry.OpRegister), readySince(first)
	s.Expect(back.Answered.Before(out(second)), "the next pod was taken out before the one before it was back")
	s.Expect(out(second).Sub(ready) >= wait, "the next pod was taken out %s after the one before it was ready", out(second).Sub(ready))
}

// answered is the last acknowledged call of an operation for a pod.
func (s *scenario) answered(pod *corev1.Pod, op fakeregistry.Op) fakeregistry.Call {
	var last fakeregistry.Call
	for _, a := range s.registry.Answers(s.ns, string(pod.UID)) {
		if a.Op == op && a.Acknowledged() {
			last = a
		}
	}
	return last
}

func readySince(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// kruiseWaitsToo: gracePeriodSeconds has Kruise wait before it restarts a container, after the hook was released. It comes
// on top of the drain, and the pod stays out for both.
func kruiseWaitsToo(s *scenario) {
	s.drain = 1500 * time.Millisecond
	before := s.Begin(inPlace, replicas(2), annotated(drainKey, s.drain.String()), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.UpdateStrategy.InPlaceUpdateStrategy = &appspub.InPlaceUpdateStrategy{GracePeriodSeconds: 2}
	})
	s.UpdateInPlace("nginx:2", before)
	s.ExpectDrained(2)
	for _, pod := range before {
		waits := slices.ContainsFunc(s.history.Of(pod.UID), func(v sighting) bool {
			old := v.pod.Spec.Containers[0].Image == pod.Spec.Containers[0].Image
			return v.state() == string(appspub.LifecycleStateUpdating) && !lifecycle.IsReady(v.pod) && old
		})
		s.Expect(waits, "Kruise restarted pod %s without a grace period", pod.Name)
		s.Expect(s.counted(pod, fakeregistry.OpRegister) == 2, "pod %s was not put in once, and once again", pod.Name)
	}
}

// refusedByPolicy: a policy of the cluster refuses what the manager writes to pods. They wait until it is lifted.
func refusedByPolicy(s *scenario) {
	s.troubled, s.refused = true, true
	lift := s.refusePatches()
	s.Create(replicas(1))
	pod := s.AwaitPods(1)[0]
	s.awaitAtLeast(2, "refused patches", func() int {
		return s.countWrites(func(w apiproxy.Write) bool { return w.ToPod() && w.Status == s.refusal() })
	})
	s.ExpectEvent(pod, corev1.EventTypeWarning, "PatchRefused", "pods are frozen")
	if s.style == preNormal {
		s.ExpectNeverSeen(pod, appspub.LifecycleStateNormal)
	}
	lift()
	s.ExpectSteady()
	s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", "PatchRefused")
	s.DeleteByLabel(s.Now(pod.UID))
	s.AwaitGone(pod)
	s.ExpectSteady()
}

// refusal is the status that the policy refuses with: by default the one that a failed test of a JSON Patch has too.
func (s *scenario) refusal() int {
	if s.style == preNormal {
		return http.StatusUnprocessableEntity
	}
	return http.StatusForbidden
}

// refusePatches has a ValidatingAdmissionPolicy refuse the manager's patches of the namespace's pods, and returns when it
// does, with what lifts it.
func (s *scenario) refusePatches() (lift func()) {
	s.Helper()
	const manager = "system:serviceaccount:" + account.Namespace + ":" + account.Lease
	validation := admissionv1.Validation{Expression: "false", Message: "pods are frozen"}
	if s.refusal() == http.StatusForbidden {
		validation.Reason = new(metav1.StatusReasonForbidden)
	}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
				}}},
			},
			MatchConditions: []admissionv1.MatchCondition{{
				Name: "rollcall", Expression: fmt.Sprintf("request.userInfo.username == %q", manager),
			}},
			Validations: []admissionv1.Validation{validation},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: s.ns, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	// A pod that nothing runs shows when the API server holds to it.
	trial := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "trial"},
		Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "trial", Image: "trial"}}},
	}
	for _, object := range []client.Object{policy, binding, trial} {
		s.must(s.k8s.Create(s.Context(), object))
	}
	asManager, err := cluster.NewClient(env.account)
	s.must(err)
	s.await("the policy to be in force", func() error {
		patch := mergePatch(`{"metadata":{"labels":{"trial":"true"}}}`)
		if asManager.Patch(s.Context(), trial.DeepCopy(), patch, client.DryRunAll) == nil {
			return errors.New("a patch was allowed")
		}
		return nil
	})
	s.must(s.k8s.Delete(s.Context(), trial, client.GracePeriodSeconds(0)))
	return func() {
		for _, object := range []client.Object{binding, policy} {
			s.must(s.k8s.Delete(s.Context(), object))
		}
	}
}
