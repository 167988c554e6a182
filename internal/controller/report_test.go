package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestWaitReasons: what a pod waits for comes to people as Event and wait, once. Which reason it is has rows in report, observe and lifecycle.
func TestWaitReasons(t *testing.T) {
	t.Parallel()
	type (
		workload = func(*kruisev1alpha1.CloneSet)
		pod      = func(*corev1.Pod)
	)
	portless := func(web *kruisev1alpha1.CloneSet) { web.Spec.Template.Spec.Containers[0].Ports = nil }
	selected := func(web *kruisev1alpha1.CloneSet) { web.Spec.Selector.MatchLabels[preNormalLabel] = "ok" }
	marking := func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle.InPlaceUpdate.MarkPodNotReady = true }
	held := func(pod *corev1.Pod) {
		unready(pod)
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: appspub.KruisePodReadyConditionType, Status: corev1.ConditionFalse, Message: `"userAgent":"Lifecycle"`})
	}
	ended := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }
	ofAJob := func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "BroadcastJob" }
	normal, deleting := inState(appspub.LifecycleStateNormal), inState(appspub.LifecycleStatePreparingDelete)
	const unsupported = "the pod has a finalizer or newly-created mark that Rollcall owns, " +
		"and belongs to a BroadcastJob"

	type row struct {
		reason   string
		workload workload
		pod      []pod
		// hook and because are what the pod waits for, and event is how the message of its Event begins, where it has one.
		hook, because, event string
		after                time.Duration
	}
	expect.Each(t, map[string]row{
		"not ready": {"part of any rollout; its status brings us back", nil, []pod{unready},
			"preNormal", "NotReady", "", reason.Patience},
		"no port": {"somebody has to write one", portless, nil, "preNormal", "InvalidPod",
			"no port to register: set service.port in the config, a containerPort, or", waiting.Longest},
		"a handler that must not be touched": {"flipping it would take the pod from its workload", selected, nil,
			"preNormal", "HandlerRefused", "label " + preNormalLabel + " is in spec.selector", waiting.Longest},
		"held not ready by Kruise": {"only a person can correct it", marking, []pod{normal, held}, "", "HeldNotReady",
			"OpenKruise holds the pod not ready (markPodNotReady)", waiting.Longest},
		"a workload of another kind whose pod has ended": {"its finalizer is released like any",
			nil, []pod{ofAJob, normal, ended}, "", "", "", 0},
		"a workload of another kind": {"Rollcall never releases its finalizer",
			nil, []pod{ofAJob, deleting}, "", "HandlerRefused", unsupported, waiting.Longest},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web := w.cloneSet("web", func(web *kruisev1alpha1.CloneSet) {
			if tc.workload != nil {
				tc.workload(web)
			}
		})
		pod := w.bornPod(web, "web-1", tc.pod...)
		var events []string
		var waits []Wait
		if tc.because != "" {
			waits = []Wait{{Hook: tc.hook, Reason: tc.because, Since: testEpoch()}}
		}
		switch {
		case tc.event != "" && tc.hook != "":
			events = []string{fmt.Sprintf("Warning %s hook %s waits: %s", tc.because, tc.hook, tc.event)}
		case tc.event != "":
			events = []string{fmt.Sprintf("Warning %s %s", tc.because, tc.event)}
		}

		w.expectResult(tc.reason, w.reconcile(pod), tc.after)
		w.expectEvents(tc.reason, events...)
		if tc.event == unsupported {
			w.expectJournal("what is not driven is not registered either")
		}
		w.expectWaits(tc.reason, waits...)
		for _, wait := range w.r.Waits() {
			if wait.Warning != (tc.event != "") || wait.Pod != pod.Name {
				t.Errorf("got %+v of pod %s, whose Event is %q", wait, pod.Name, tc.event)
			}
		}

		w.sleep(time.Second)
		w.reconcile(pod)
		w.expectEvents("one reason, one Event")
		w.expectWaits("it waits since it began", waits...)
	})
}

// TestPodThatStaysOut: whoever a pod that is out of rotation waits for, it shows what is missing, and after 10 minutes by an Event.
func TestPodThatStaysOut(t *testing.T) {
	t.Parallel()
	pulls := func(pod *corev1.Pod) {
		unready(pod)
		pod.Spec.NodeName = "node-1"
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"},
		}}}
	}
	type row struct {
		state  appspub.LifecycleStateType
		reason reason.Reason
		hook   string
	}
	expect.Each(t, map[string]row{
		"while it is updated":           {appspub.LifecycleStateUpdating, reason.NotReady, ""},
		"once it was updated":           {appspub.LifecycleStateUpdated, reason.NotReady, "hook inPlaceUpdate waits: "},
		"when a deletion is called off": {appspub.LifecycleStatePreparingNormal, reason.NotReady, "hook preNormal waits: "},
		"when it turns unready":         {appspub.LifecycleStateNormal, reason.NotReady, ""},
	}, func(t *testing.T, tc row) {
		w := newWorld(t, func(c *choices) { c.PanicThreshold = 100 })
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		if tc.state != appspub.LifecycleStateNormal {
			w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
		}
		w.sleep(time.Minute)
		w.reconcileIn(pod, tc.state, pulls, func(pod *corev1.Pod) { pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.clock.Now()) })
		began := w.clock.Now()
		expectShown := func(warning bool) {
			t.Helper()
			waits := w.r.Waits()
			if len(waits) != 1 || waits[0].Reason != string(tc.reason) || waits[0].Message != "container main: ErrImagePull: not found" ||
				!waits[0].Since.Equal(began) || waits[0].Warning != warning {
				t.Errorf("got %+v, want reason %s since %s, warning %t", waits, tc.reason, began, warning)
			}
		}
		expectShown(false)
		w.sleep(reason.Patience - time.Second)
		w.expectResult("its Event is due then", w.reconcile(pod), time.Second)
		w.expectEvents("any rollout may take so long")

		t.Log("Another manager leads.")
		w.restart()
		w.sleep(time.Second)
		w.reconcile(pod)
		w.reconcile(pod)
		expectShown(true)
		want := []string{fmt.Sprintf("Warning %s %scontainer main: ErrImagePull", tc.reason, tc.hook)}
		if tc.hook != "" {
			want = append([]string{"Warning RolloutWaits pod web-1 has waited for "}, want...)
		}
		w.expectEvents("the pod is missing; where a hook waits, its rollout shows it too", want...)
		w.sleep(reason.EventRepeat)
		w.reconcile(pod)
		w.expectEvents("the API server drops an Event after an hour", want...)

		w.changePod(pod, ready, inState(appspub.LifecycleStateNormal))
		w.reconcile(pod)
		w.expectEvents("a person may stop looking", fmt.Sprintf("Normal Resolved %s resolved", tc.reason))
		w.expectWaits("it is back")
	})
}

func TestWaitIsCountedFromWhereItBegan(t *testing.T) {
	t.Parallel()
	t.Run("a hook without a timestamp that can be read", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.registry.Fail(anyCall(), errors.New("down"))
		pod := w.bornPod(w.cloneSet("web"), "web-1", annotated(appspub.LifecycleTimestampKey, "yesterday"))
		w.reconcile(pod)
		began := w.clock.Now()
		w.sleep(time.Minute)
		w.reconcile(pod)
		w.expectWaits("since it was first seen", Wait{Hook: "preNormal", Reason: "RegistryUnavailable", Since: began})
	})

	t.Run("the registry alone", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t)
		w.registry.Fail(anyCall(), errors.New("down"))
		w.changePod(pod, annotated(service.AnnotationServices, "api=80"))
		w.sleep(time.Minute)
		w.reconcile(pod)
		began := w.clock.Now()
		w.sleep(time.Minute)
		w.reconcile(pod)
		w.expectWaits("since it was first seen", Wait{Reason: "RegistryUnavailable", Since: began})

		w.registry.Fail(anyCall(), registry.Terminal(errors.New("bad credentials")))
		w.reconcile(pod)
		w.expectWaits("another reason has a beginning of its own", Wait{Reason: "RegistryRefused", Since: w.clock.Now()})
	})
}

func TestRolloutWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	first, second := w.servingPod(web, "web-1"), w.servingPod(web, "web-2")
	repair := w.registry.Fail(anyCall(), errors.New("down"))
	w.reconcileIn(first, appspub.LifecycleStatePreparingUpdate)
	w.reconcileIn(second, appspub.LifecycleStatePreparingUpdate)
	w.takeEvents()
	both := func(after time.Duration) {
		w.sleep(after)
		w.reconcile(first)
		w.reconcile(second)
	}

	both(50 * time.Second)
	w.expectEvents("the Events of the pods say it, and it may pass")
	both(30 * time.Second)
	w.expectEvents("one Event stands for both",
		"Warning RolloutWaits pod web-1 has waited for 1m21s, reason RegistryUnavailable: hook inPlaceUpdate waits: service")
	both(time.Minute)
	w.expectEvents("it was said")
	both(reason.EventRepeat)
	w.expectEvents("the API server drops an Event after an hour", "Warning RolloutWaits pod web-1 has waited for 32m21s",
		"Warning RegistryUnavailable hook inPlaceUpdate waits: service", "Warning RegistryUnavailable hook inPlaceUpdate waits: service")

	repair()
	w.reconcile(first)
	w.takeEvents()
	w.registry.Fail(anyCall(), errors.New("down again"))
	both(time.Minute)
	w.expectEvents("the first went on, and the second still waits", "Warning RolloutWaits pod web-2 has waited for 33m20s")
}
