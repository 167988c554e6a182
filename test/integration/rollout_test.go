package integration

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

func inPlaceUpdate(s *scenario) {
	before := s.Begin(inPlace)

	s.UpdateInPlace("nginx:2", before)
	for _, pod := range before {
		if s.style != preNormal {
			s.ExpectSeen(pod, appspub.LifecycleStatePreparingUpdate)
		}
		s.ExpectSeen(pod, appspub.LifecycleStateUpdating)
	}
	for _, updated := range []int{1, len(before)} {
		s.await(fmt.Sprintf("the CloneSet to show that %d pods are updated", updated), func() error {
			return s.hasEvent(nil, corev1.EventTypeNormal, "RolloutProgress", fmt.Sprintf("%d of %d pods are updated", updated, len(before)))
		})
	}
}

// handlerBrought: an update adds the handlers of the hooks to the template, and OpenKruise writes them in the same step as the move to
// Updating. While the registry takes no pod back, none counts as updated.
func handlerBrought(s *scenario) {
	brings := s.style.load(s.T).Spec.Template.ObjectMeta
	before := s.Begin(inPlace, withoutHandlers, annotated(cluster.AnnotationStartDelay, "2s"))
	hold := s.HoldCalls(fakeregistry.OpRegister)
	s.Edit(func(set *kruisev1alpha1.CloneSet) {
		image("nginx:2")(set)
		set.Spec.Template.Finalizers = brings.Finalizers
		for key, value := range brings.Labels {
			if _, has := set.Spec.Template.Labels[key]; !has {
				set.Spec.Template.Labels[key] = value
			}
		}
	})
	pod := s.AwaitPodIn(appspub.LifecycleStateUpdated)
	s.AwaitCalls(hold, 1)
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStateUpdated), "a pod that no registry has counts as updated")
	hold.Release()
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)
	for _, pod := range before {
		s.ExpectSeen(pod, appspub.LifecycleStateUpdated)
		s.ExpectEvent(pod, corev1.EventTypeWarning, "HandlerInTemplate", "remove it from spec.template")
	}
}

// handlerTaken: an update removes preDelete's handler from the template, and OpenKruise takes it off pods that no hook inPlaceUpdate has
// taken out of rotation. While the registry takes none out, a deletion is asked for all the same.
func handlerTaken(s *scenario) {
	before := s.Begin(inPlace, annotated(cluster.AnnotationStartDelay, "2s"), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Lifecycle.InPlaceUpdate = nil
	})
	armed := func(pod *corev1.Pod) bool { return pod.Labels["example.com/unready-blocker-delete"] == "true" }
	repair := s.Fail(fakeregistry.OpFailOver, "the registry is down")
	s.Edit(func(set *kruisev1alpha1.CloneSet) {
		image("nginx:2")(set)
		withoutHandlers(set)
	})
	pod := s.AwaitPod("that is updated and armed again", func(pod *corev1.Pod) bool {
		return stateOf(pod) == string(appspub.LifecycleStateUpdating) && armed(pod)
	})
	s.Expect(slices.ContainsFunc(s.history.Of(pod.UID), func(seen sighting) bool { return !armed(seen.pod) }), "the update left the handler")
	s.DeleteByLabel(pod)
	s.AwaitGone(pod)
	repair()
	s.ExpectSteady()
	s.ExpectAskedBeforeDelete(pod)
	s.Expect(len(before) == len(s.Pods()), "the pod was not replaced")
}

// withoutHandlers has the template set no handler of a hook: Rollcall, and the other owner, arm the pods.
func withoutHandlers(set *kruisev1alpha1.CloneSet) {
	set.Spec.Template.Finalizers = nil
	maps.DeleteFunc(set.Spec.Template.Labels, func(key, _ string) bool { return key != "app" && key != otherKey })
}

func recreateUpdate(s *scenario) {
	before := s.Begin(updateType(kruisev1alpha1.RecreateCloneSetUpdateStrategyType))

	s.UpdateInPlace("nginx:2", nil)
	for _, pod := range before {
		s.Expect(s.Now(pod.UID) == nil, "pod %s is still there", pod.Name)
		s.ExpectAskedBeforeDelete(pod)
	}
}

// deletedByKruise: whichever pods OpenKruise chooses, or a person names, it asks first.
func deletedByKruise(s *scenario) {
	s.Begin(replicas(1))
	s.ScaleTo(4)
	four := s.Pods()
	s.Edit(func(set *kruisev1alpha1.CloneSet) {
		replicas(3)(set)
		set.Spec.ScaleStrategy.PodsToDelete = []string{four[1].Name}
	})
	s.ExpectSteady()
	s.Expect(s.Now(four[1].UID) == nil, "pod %s is still there", four[1].Name)
	s.Replace(four[2])
	s.ScaleTo(1)
	for _, pod := range four {
		if s.Now(pod.UID) == nil {
			s.ExpectAskedBeforeDelete(pod)
		}
	}
}

// rollbackBeforeTheCall: the pod is rolled back while the registry has not begun to take it out.
func rollbackBeforeTheCall(s *scenario) {
	before := s.Begin(inPlace)
	hold := s.HoldCalls(fakeregistry.OpFailOver)
	s.rolledBack(before, func() { s.AwaitCalls(hold, 1) }, hold.Release)
}

// rollbackBeforeThePatch: the registry has answered, and the patch that lets Kruise go on comes after the rollback.
func rollbackBeforeThePatch(s *scenario) {
	before := s.Begin(inPlace)
	gate := s.manager.proxy.HoldPodWritesIn(s.ns, "")
	pod := s.rolledBack(before, func() { s.AwaitHeld(gate, 1) }, gate.Release)
	refused := s.countWrites(func(w apiproxy.Write) bool {
		return w.ToPod() && w.Name == pod.Name && w.Status == http.StatusUnprocessableEntity
	})
	s.Expect(refused > 0, "the patch of a pod that had moved on was not refused")
}

// rolledBack updates the pods, and rolls the first of them back between the two moments.
func (s *scenario) rolledBack(before []*corev1.Pod, reached, release func()) *corev1.Pod {
	s.Helper()
	s.UpdateImage("nginx:2")
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
	reached()
	// If the other owner's patch came between what Kruise reads and what it writes, the pod would be Normal without a handler that
	// is never set again.
	s.await("the other owner to release its handlers", func() error {
		now := s.Now(pod.UID)
		for _, h := range s.hooks[checker.InPlaceUpdate] {
			if !ours(h) && setOn(h, now) {
				return errors.New(h + " is set")
			}
		}
		return nil
	})
	s.UpdateImage("nginx:1")
	s.AwaitLeaves(pod, appspub.LifecycleStatePreparingUpdate)
	release()
	s.ExpectSteady()
	s.ExpectImage("nginx:1", before)
	s.ExpectNeverSeen(pod, appspub.LifecycleStateUpdating)
	return pod
}

// cancelledScaleInAfterRelease: the pod is out and our hook released, and only another owner's handler still holds it.
func cancelledScaleInAfterRelease(s *scenario) {
	before := s.Begin(replicas(3), func(set *kruisev1alpha1.CloneSet) {
		addLabelHandler(&set.Spec.Lifecycle.PreDelete, set, "other.example.org/delete-gate", "shut")
	})

	s.Scale(2)
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingDelete)
	s.AwaitReleased(pod, checker.PreDelete)
	s.ExpectServing(others(before, pod)...)
	hold := s.HoldCalls(fakeregistry.OpRegister)
	s.Scale(3)
	s.AwaitLeaves(pod, appspub.LifecycleStatePreparingDelete)
	s.AwaitCalls(hold, 1)
	s.Edit(func(set *kruisev1alpha1.CloneSet) { set.Spec.RevisionHistoryLimit = new(int32(5)) })
	s.AwaitObserved() // Kruise had every chance to go on
	hold.Release()

	s.ExpectSteady()
	s.Expect(slices.Equal(uidsOf(before), uidsOf(s.Pods())), "a pod was deleted although the scale-in was cancelled")
	s.Expect(s.counted(pod, fakeregistry.OpRegister) == 2, "the pod was not registered again")
}

// addLabelHandler gives a hook a label handler more, and has the template carry it.
func addLabelHandler(hook **appspub.LifecycleHook, set *kruisev1alpha1.CloneSet, key, value string) {
	if *hook == nil {
		*hook = &appspub.LifecycleHook{}
	}
	if (*hook).LabelsHandler == nil {
		(*hook).LabelsHandler = map[string]string{}
	}
	(*hook).LabelsHandler[key] = value
	set.Spec.Template.Labels[key] = value
}

func others(pods []*corev1.Pod, one *corev1.Pod) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return p.UID == one.UID })
}

func partitioned(n int32) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) {
		value := intstr.FromInt32(n)
		set.Spec.UpdateStrategy.Partition = &value
	}
}

// partition: only one pod is updated, and nothing happens to the others until it is lowered.
func partition(s *scenario) {
	before := s.Begin(inPlace, replicas(3))

	s.Edit(func(set *kruisev1alpha1.CloneSet) { image("nginx:2")(set); partitioned(2)(set) })
	s.ExpectSteady()
	updated := 0
	for _, pod := range s.Pods() {
		if pod.Status.ContainerStatuses[0].Image == "nginx:2" {
			updated++
			continue
		}
		s.Expect(s.counted(pod, fakeregistry.OpFailOver) == 0, "pod %s was taken out although it is behind the partition", pod.Name)
	}
	s.Expect(updated == 1, "%d pods were updated, not 1", updated)

	s.Edit(partitioned(0))
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)
}

// partitionRaised: the pod is drained already, and waits for someone to lower the partition again.
func partitionRaised(s *scenario) {
	before := s.Begin(inPlace, replicas(2))

	hold := s.HoldCalls(fakeregistry.OpFailOver)
	s.UpdateImage("nginx:2")
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
	s.AwaitCalls(hold, 1)
	s.Edit(partitioned(2))
	s.AwaitObserved()
	hold.Release()
	s.AwaitReleased(pod, checker.InPlaceUpdate)
	s.ExpectServing(others(before, pod)...)
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStatePreparingUpdate), "the pod went on")

	s.Edit(partitioned(0))
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)
}

// partitionMet: a pod is drained for the update of one when another pod is replaced, by the new revision. OpenKruise leaves the first
// in PreparingUpdate, out of rotation, until someone has it replaced: by the old revision.
func partitionMet(s *scenario) {
	pod := s.leftByPartition()
	s.AwaitReleased(pod, checker.InPlaceUpdate)
	s.expectLeft(pod)

	s.DeletePod(pod)
	s.AwaitGone(pod)
	s.ExpectSteady()
	s.Expect(s.countImage("nginx:1") == 2, "%d pods are of the old revision, not 2", s.countImage("nginx:1"))
}

// leftByPartition begins with three pods, of which one is to be updated. It returns that one, which OpenKruise has left for another.
func (s *scenario) leftByPartition(edits ...func(*kruisev1alpha1.CloneSet)) *corev1.Pod {
	s.Helper()
	before := s.Begin(append(edits, inPlace, replicas(3))...)
	hold := s.HoldCalls(fakeregistry.OpFailOver)
	s.Edit(func(set *kruisev1alpha1.CloneSet) { image("nginx:2")(set); partitioned(2)(set) })
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
	s.AwaitCalls(hold, 1)
	another := others(before, pod)[0]
	s.DeletePod(another)
	s.AwaitGone(another)
	s.until("another pod to be of the new revision", func() bool { return s.countImage("nginx:2") == 1 })
	hold.Release()
	return pod
}

// expectLeft: OpenKruise had every chance to go on with the pod.
func (s *scenario) expectLeft(pod *corev1.Pod) {
	s.Helper()
	s.until("the other pods to be available", func() bool { return s.history.Set(s.key).Status.AvailableReplicas == 2 })
	s.Edit(func(set *kruisev1alpha1.CloneSet) { *set.Spec.RevisionHistoryLimit++ })
	s.AwaitObserved()
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStatePreparingUpdate), "the pod went on")
	s.ExpectServing(others(s.Pods(), pod)...)
}

func (s *scenario) countImage(name string) (n int) {
	for _, pod := range s.Pods() {
		if pod.Spec.Containers[0].Image == name {
			n++
		}
	}
	return n
}

// partitionMetAndArmed shows why Rollcall leaves such a pod out. With its hook set again, OpenKruise takes the pod to no other state; and
// when the partition is lowered, it waits for the hook, and nothing on the pod tells.
func partitionMetAndArmed(s *scenario) {
	pod := s.leftByPartition(func(set *kruisev1alpha1.CloneSet) {
		addLabelHandler(&set.Spec.Lifecycle.InPlaceUpdate, set, otherKey, otherValue)
	})
	s.AwaitReleased(pod, checker.InPlaceUpdate)
	s.setOther(pod, nil)
	s.expectLeft(pod)
	s.setOther(pod, new(otherValue))
	s.expectLeft(pod)

	armed := s.Now(pod.UID)
	s.Edit(partitioned(1))
	s.AwaitObserved()
	s.until("OpenKruise to count what it has to update", func() bool { return s.history.Set(s.key).Status.ExpectedUpdatedReplicas == 2 })
	s.expectLeft(pod)
	now := s.Now(pod.UID)
	s.Expect(now.ResourceVersion == armed.ResourceVersion, "OpenKruise changed the pod: %v %v", now.Labels, now.Annotations)

	s.setOther(pod, nil)
	s.AwaitState(pod, appspub.LifecycleStateUpdated)
	s.setOther(pod, new(otherValue))
	s.ExpectSteady()
}

// TestHandlerSetTooLate shows the other reason: OpenKruise has looked at a pod, which no handler held, when one is set again. The write
// that it makes conflicts, and it makes it once more without another look at the handlers.
func TestHandlerSetTooLate(t *testing.T) {
	t.Parallel()
	needsNewer(t, "matchConditions of a webhook")
	s := alone(t, "handler-too-late", nil)
	write := s.holdOpenKruise()
	pod := s.Begin(inPlace, replicas(1), func(set *kruisev1alpha1.CloneSet) {
		addLabelHandler(&set.Spec.Lifecycle.InPlaceUpdate, set, otherKey, otherValue)
	})[0]
	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStatePreparingUpdate)
	s.AwaitReleased(pod, checker.InPlaceUpdate)
	s.setOther(pod, nil)

	<-write.came
	s.setOther(pod, new(otherValue))
	close(write.pass)
	s.AwaitState(pod, appspub.LifecycleStateUpdating)
	for _, v := range s.history.Of(pod.UID) {
		s.Expect(v.state() != string(appspub.LifecycleStateUpdating) || v.pod.Labels[otherKey] == otherValue, "the write did not conflict")
	}
	s.ExpectSteady()
}

// heldWrite is a write of OpenKruise's that takes a pod to Updating. The API server has it until pass is closed.
type heldWrite struct{ came, pass chan struct{} }

// holdOpenKruise holds the first such write in the scenario's namespace, by a webhook.
func (s *scenario) holdOpenKruise() heldWrite {
	s.Helper()
	held := heldWrite{came: make(chan struct{}), pass: make(chan struct{})}
	var first sync.Once
	answer, err := admission.StandaloneWebhook(&admission.Webhook{Handler: admission.HandlerFunc(
		func(ctx context.Context, _ admission.Request) admission.Response {
			first.Do(func() { close(held.came) })
			select {
			case <-held.pass:
			case <-ctx.Done():
			}
			return admission.Allowed("")
		},
	)}, admission.StandaloneOptions{Logger: logr.Discard()})
	s.must(err)
	server := httptest.NewTLSServer(answer)
	s.Cleanup(server.Close)
	hook := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.ns},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "held.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: new(admissionv1.SideEffectClassNone),
			TimeoutSeconds: new(int32(30)),
			ClientConfig: admissionv1.WebhookClientConfig{
				URL: &server.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.ns}},
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "updating", Expression: "object.metadata.labels['" + appspub.LifecycleStateKey + "'] == 'Updating' && " +
				"oldObject.metadata.labels['" + appspub.LifecycleStateKey + "'] == 'PreparingUpdate'"}},
		}},
	}
	s.must(s.k8s.Create(s.Context(), hook))
	s.Cleanup(func() { _ = s.k8s.Delete(context.WithoutCancel(s.Context()), hook) })
	return held
}

// hooksAdded: pods that never heard of a hook are armed, registered, and asked from then on.
func hooksAdded(s *scenario) {
	lifecycle := s.style.load(s.T).Spec.Lifecycle
	s.Create(inPlace, func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Lifecycle = nil
		set.Spec.Template.Labels = map[string]string{"app": s.ns}
		set.Spec.Template.Annotations, set.Spec.Template.Finalizers = nil, nil
	})
	s.await("the pods to be available", func() error { _, err := s.settled(); return err })
	before := s.Pods()
	s.Expect(len(s.registry.Answers(s.ns, "")) == 0, "the registry was told of pods that are not ours")

	s.Edit(func(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle = lifecycle })
	s.ExpectSteady()
	s.Expect(slices.Equal(uidsOf(before), uidsOf(s.Pods())), "the pods were replaced")
	s.UpdateInPlace("nginx:2", before)
	for _, pod := range before {
		s.ExpectSeen(pod, appspub.LifecycleStatePreparingUpdate)
	}
}

// twoOwners: Kruise waits for the other owner too, and ours stays as it is meanwhile.
func twoOwners(s *scenario) {
	pod := s.Begin(inPlace, func(set *kruisev1alpha1.CloneSet) {
		addLabelHandler(&set.Spec.Lifecycle.InPlaceUpdate, set, otherKey, otherValue)
		addLabelHandler(&set.Spec.Lifecycle.PreDelete, set, "other.example.org/delete-gate", "shut")
	}, replicas(1))[0]

	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStatePreparingUpdate)
	s.AwaitReleased(pod, checker.InPlaceUpdate)
	s.ExpectServing()
	s.setOther(pod, nil)
	s.AwaitState(pod, appspub.LifecycleStateUpdated)
	s.await("our handlers to be set", func() error { return s.armed(pod) })
	s.ExpectServing(pod)
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStateUpdated), "Kruise did not wait for the other owner")
	s.setOther(pod, new(otherValue))
	s.ExpectSteady()
	s.expectOtherCameFirst(pod)

	s.DeleteByLabel(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.AwaitReleased(pod, checker.PreDelete)
	s.PatchPod(s.Now(pod.UID), `{"metadata":{"labels":{"other.example.org/delete-gate":null}}}`)
	s.AwaitGone(pod)
	s.ExpectSteady()
}

func (s *scenario) setOther(pod *corev1.Pod, value *string) {
	s.Helper()
	s.await("the other owner's patch", func() error {
		now := s.Now(pod.UID)
		return s.k8s.Patch(s.Context(), now.DeepCopy(), kube.Merge("%s", labelPatch(now, otherKey, value)))
	})
}

func (s *scenario) armed(pod *corev1.Pod) error {
	now := s.Now(pod.UID)
	for _, h := range checker.HandlersOf(s.hooks) {
		if ours(h) && !setOn(h, now) {
			return fmt.Errorf("%s is not set", h)
		}
	}
	return nil
}

// expectOtherCameFirst: no version of the pod is in Updating, or back in Normal, before the other owner said so.
func (s *scenario) expectOtherCameFirst(pod *corev1.Pod) {
	s.Helper()
	for _, v := range s.history.Of(pod.UID) {
		other := v.pod.Labels[otherKey] == otherValue
		if v.state() == string(appspub.LifecycleStateUpdating) && other {
			s.Errorf("Kruise went on to Updating while the other owner's handler was set")
		}
		if v.state() == string(appspub.LifecycleStateNormal) && !other {
			s.Errorf("Kruise went on to Normal while the other owner's handler was not set")
		}
	}
}
