package integration

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
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

// drains: between the acknowledgement that took a pod out and the release of its hook lies the drain. With gracePeriodSeconds
// Kruise waits on top of that before it restarts a container, and the pod stays out for both.
func drains(s *scenario) {
	s.drain = 1500 * time.Millisecond
	before := s.Begin(inPlace, replicas(2), annotated(drainKey, s.drain.String()), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.UpdateStrategy.InPlaceUpdateStrategy = &appspub.InPlaceUpdateStrategy{GracePeriodSeconds: 2}
	})
	s.UpdateInPlace("nginx:2", before)
	for _, pod := range before {
		waits := slices.ContainsFunc(s.history.Of(pod.UID), func(v sighting) bool {
			old := v.pod.Spec.Containers[0].Image == pod.Spec.Containers[0].Image
			return v.state() == string(appspub.LifecycleStateUpdating) && !lifecycle.IsReady(lifecycle.PodOf(v.pod)) && old
		})
		s.Expect(waits, "Kruise restarted pod %s without a grace period", pod.Name)
		s.Expect(s.counted(pod, fakeregistry.OpRegister) == 2, "pod %s was not put in once, and once again", pod.Name)
	}
	s.ScaleTo(1)
	s.ExpectDrained(3)
}

// refusedByPolicy: a policy of the cluster refuses what the manager writes to pods, with the status that a failed test of a JSON
// Patch has too. They wait until it is lifted.
func refusedByPolicy(s *scenario) {
	needsNewer(s.T, "ValidatingAdmissionPolicy")
	s.troubled = true
	lift := s.refusePatches()
	s.Create(replicas(1))
	pod := s.AwaitPods(1)[0]
	s.awaitAtLeast(2, "refused patches", func() int {
		return s.countWrites(func(w apiproxy.Write) bool { return w.ToPod() && w.Status == http.StatusUnprocessableEntity })
	})
	s.ExpectEvent(pod, corev1.EventTypeWarning, "APIServerFailed", "pods are frozen")
	s.ExpectNeverSeen(pod, appspub.LifecycleStateNormal)
	lift()
	s.ExpectSteady()
	s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", "APIServerFailed")
	s.DeleteByLabel(s.Now(pod.UID))
	s.AwaitGone(pod)
	s.ExpectSteady()
}

// frozenPods refuses an account's changes of a namespace's pods. Its pod, which nothing runs, shows when that is in force.
const frozenPods = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules: [{operations: [UPDATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]
  matchConditions: [{name: rollcall, expression: 'request.userInfo.username == "system:serviceaccount:%[2]s:%[3]s"'}]
  validations: [{expression: "false", message: pods are frozen}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: trial}
spec: {schedulerName: none, containers: [{name: trial, image: trial}]}
`

// refusePatches has the API server refuse the manager's patches of the namespace's pods, and returns when it does, with what
// lifts it.
func (s *scenario) refusePatches() (lift func()) {
	s.Helper()
	objects := decode(s.T, fmt.Sprintf(frozenPods, s.ns, account.Namespace, account.Lease))
	for _, object := range objects {
		s.must(s.k8s.Create(s.Context(), object))
	}
	policy, binding, trial := objects[0], objects[1], objects[2]
	asManager, err := cluster.NewClient(env.account)
	s.must(err)
	s.await("the policy to be in force", func() error {
		patch := kube.Merge(`{"metadata":{"labels":{"rollcall.dev/trial":"true"}}}`)
		if asManager.Patch(s.Context(), trial.DeepCopyObject().(client.Object), patch, client.DryRunAll) == nil {
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
