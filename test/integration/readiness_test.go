package integration

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/statuspage"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// updatedBeforeReady: the pod is updated before it ever was in service. The registry need not know, and Kruise does not wait.
func updatedBeforeReady(s *scenario) {
	s.Create(inPlace, replicas(1), gated)
	pod := s.AwaitRunning()
	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStateUpdating)
	s.Expect(len(s.registry.Answers(s.ns, "")) == 0, "the registry was told of a pod that never was in service")
	s.TurnHealthy(corev1.ConditionTrue, pod)
	s.ExpectSteady()
	s.ExpectImage("nginx:2", []*corev1.Pod{pod})
}

func deletedBeforeReady(s *scenario) {
	s.Create(replicas(1), gated)
	pod := s.AwaitRunning()
	s.DeleteByLabel(pod)
	s.AwaitGone(pod)
	s.Expect(len(s.registry.Answers(s.ns, string(pod.UID))) == 0, "the registry was told of a pod that never was in service")
	s.TurnHealthy(corev1.ConditionTrue, s.AwaitRunning())
	s.ExpectSteady()
}

// deletedWhileUpdating: the hook after the update never comes.
func deletedWhileUpdating(s *scenario) {
	pod := s.Begin(inPlace, replicas(1))[0]
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"30s"}}}`, cluster.AnnotationStartDelay))
	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStateUpdating)
	s.Replace(pod)
	s.ExpectNeverSeen(pod, appspub.LifecycleStateUpdated)
}

// updatedWhileUpdating: a newer revision comes while the container is away, and Kruise does not ask.
func updatedWhileUpdating(s *scenario) {
	before := s.Begin(inPlace, replicas(1), annotated(cluster.AnnotationStartDelay, "2s"))
	s.UpdateImage("nginx:2")
	s.AwaitState(before[0], appspub.LifecycleStateUpdating)
	s.UpdateInPlace("nginx:3", before)
}

// updatedInUpdated: the next update comes before the pod is back in service, and Kruise itself sets the hook again.
func updatedInUpdated(s *scenario) {
	before := s.Begin(inPlace, replicas(1))
	hold := s.HoldCalls(fakeregistry.OpRegister)
	s.UpdateImage("nginx:2")
	s.AwaitState(before[0], appspub.LifecycleStateUpdated)
	s.AwaitCalls(hold, 1)
	s.UpdateImage("nginx:3")
	s.AwaitState(before[0], appspub.LifecycleStatePreparingUpdate)
	hold.Release()
	s.ExpectSteady()
	s.ExpectImage("nginx:3", before)
}

// heldNotReady: after a rollback Kruise never lets a pod be ready again that markPodNotReady made unready. Only a person
// can correct that, and the Event says how.
func heldNotReady(s *scenario) {
	pod := s.Begin(inPlace, replicas(1), func(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle.InPlaceUpdate.MarkPodNotReady = true })[0]
	hold := s.HoldCalls(fakeregistry.OpFailOver)
	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStatePreparingUpdate)
	s.AwaitCalls(hold, 1)
	s.until("the pod to be unready", func() bool { return !lifecycle.IsReady(lifecycle.PodOf(s.Now(pod.UID))) })
	s.UpdateImage("nginx:1")
	s.AwaitState(pod, appspub.LifecycleStateNormal)
	hold.Release()
	s.ExpectEvent(pod, corev1.EventTypeWarning, "HeldNotReady", "markPodNotReady", "delete the pod")
	s.DeletePod(pod)
	s.AwaitGone(pod)
	s.ExpectSteady()
}

// turnsUnready: a pod whose probes fail is taken out. Where most of the service's pods fail at once, the rest of them is kept,
// until enough are back.
func turnsUnready(s *scenario) {
	s.Create(replicas(3), gated)
	s.TurnHealthy(corev1.ConditionTrue, s.AwaitPods(3)...)
	s.ExpectSteady()
	pods := s.Pods()
	s.TurnHealthy(corev1.ConditionFalse, pods[0])
	s.ExpectServing(pods[1], pods[2])
	s.TurnHealthy(corev1.ConditionFalse, pods[1])
	s.ExpectEvent(pods[1], corev1.EventTypeWarning, "PanicThreshold", "2 of the 3 pods", s.ns, "50%")
	s.ExpectServing(pods[1], pods[2])
	s.TurnHealthy(corev1.ConditionTrue, pods[0])
	s.ExpectServing(pods[0], pods[2])
	s.TurnHealthy(corev1.ConditionTrue, pods[1])
	s.ExpectSteady()
}

// TestPodThatStaysOut: a pod that is out of rotation shows what is missing, whoever it waits for: a readiness gate that nothing sets,
// and an image that can't be pulled.
func TestPodThatStaysOut(t *testing.T) {
	t.Parallel()
	const installation = "stays-out-manager"
	s := alone(t, "stays-out", withPage, elect(t, installation)...)
	person := s.Kubectl("admin", env.cluster.Config())
	s.must(s.k8s.Create(s.Context(), s.manager.config.configMap(installation)))
	person.installation = installation

	s.Create(inPlace, replicas(1), gated)
	pod := s.AwaitRunning()
	s.untilPod(pod, "runs", func(now *corev1.Pod) bool { return lifecycle.IsTrue(lifecycle.PodOf(now), corev1.ContainersReady) })
	s.ExpectMetric(`rollcall_waiting_pods{hook="",reason="NotReady"} 1`)
	person.Expect(0, "explain "+pod.Name, "reason NotReady: readiness gate "+healthGate+" is not set")
	person.Expect(0, "status -o wide", "NotReady", "readiness gate "+healthGate+" is not set")
	s.LongAgo(pod)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "NotReady", "readiness gate "+healthGate+" is not set")
	s.TurnHealthy(corev1.ConditionTrue, pod)
	s.ExpectSteady()
	s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", "NotReady resolved")

	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1h"}}}`, cluster.AnnotationStartDelay))
	s.UpdateImage("nginx:none")
	s.untilPod(pod, "has stopped", func(now *corev1.Pod) bool { return now.Status.ContainerStatuses[0].State.Terminated != nil })
	container := s.Now(pod.UID).Status.ContainerStatuses[0] // whose image OpenKruise compares
	container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}}
	status, err := json.Marshal(corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{container}})
	s.must(err)
	s.PatchStatus(pod, string(status))
	missing := "container " + container.Name + ": ErrImagePull: not found"
	s.awaitPage("the container and why it does not start", func(p statuspage.Snapshot) bool {
		return len(p.Pods) == 1 && p.Pods[0].Reason == "NotReady" && p.Pods[0].Message == missing && !p.Pods[0].Warning
	})
	s.ExpectMetric(`rollcall_waiting_pods{hook="",reason="NotReady"} 1`)
	person.Expect(0, "explain "+pod.Name, "The pod is out of rotation, reason NotReady: "+missing)
	s.LongAgo(pod)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "NotReady", missing)
	before := s.resolved(pod)
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"1ms"}}}`, cluster.AnnotationStartDelay))
	s.ExpectSteady()
	s.awaitAtLeast(before+1, "Events that it is resolved", func() int { return s.resolved(pod) })
	s.awaitPage("no pod that waits", func(p statuspage.Snapshot) bool { return len(p.Pods) == 0 })
	s.ExpectAlways()
}

// resolved is how often an Event says that the pod waits for nothing any more. Kubernetes counts what is repeated.
func (s *scenario) resolved(pod *corev1.Pod) (n int) {
	for _, e := range s.Events() {
		if e.Regarding.UID != pod.UID || e.Reason != "Resolved" {
			continue
		}
		n += max(1, int(e.DeprecatedCount))
		if e.Series != nil {
			n += int(e.Series.Count)
		}
	}
	return n
}

// LongAgo has the pod be where it is, and as ready as it is, for an hour.
func (s *scenario) LongAgo(pod *corev1.Pod) {
	s.Helper()
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	s.PatchStatus(pod, fmt.Sprintf(`{"conditions":[{"type":"Ready","lastTransitionTime":%q}]}`, at))
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, appspub.LifecycleTimestampKey, at))
}

// healthGate is a readiness gate that a scenario opens and shuts as a probe would.
const healthGate = "example.test/healthy"

func gated(set *kruisev1alpha1.CloneSet) {
	set.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: healthGate}}
}

// TurnHealthy opens or shuts the pods' gates.
func (s *scenario) TurnHealthy(status corev1.ConditionStatus, pods ...*corev1.Pod) {
	s.Helper()
	for _, pod := range pods {
		s.PatchStatus(pod, fmt.Sprintf(`{"conditions":[{"type":%q,"status":%q}]}`, healthGate, status))
	}
}

func (s *scenario) PatchStatus(pod *corev1.Pod, status string) {
	s.Helper()
	patch := []byte(`{"status":` + status + `}`)
	s.must(s.k8s.Status().Patch(s.Context(), pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, patch)))
}
