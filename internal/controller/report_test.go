package controller

import (
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

func TestWhyAPodWaits(t *testing.T) {
	t.Parallel()
	portless := func(web *kruisev1alpha1.CloneSet) { web.Spec.Template.Spec.Containers[0].Ports = nil }
	selected := func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Selector.MatchLabels[preNormalLabel] = "ok"
	}
	markingNotReady := func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle.InPlaceUpdate.MarkPodNotReady = true }
	heldByKruise := func(pod *corev1.Pod) {
		unready(pod)
		pod.Status.Conditions = append(pod.Status.Conditions,
			corev1.PodCondition{Type: appspub.KruisePodReadyConditionType, Status: corev1.ConditionFalse})
	}
	letGoByKruise := func(pod *corev1.Pod) { pod.Status.Conditions[1].Status = corev1.ConditionTrue }
	ofAStatefulSet := func(pod *corev1.Pod) {
		pod.OwnerReferences[0].Kind = "StatefulSet"
	}
	addressless := func(pod *corev1.Pod) { pod.Status.PodIP = "" }

	cases := map[string]struct {
		reason   string
		workload func(*kruisev1alpha1.CloneSet)
		pod      []func(*corev1.Pod)
		meet     func(w *world)
		event    string
		wait     Wait
		after    time.Duration
	}{
		"not ready": {
			reason: "part of any rollout; its status brings us back",
			pod:    []func(*corev1.Pod){unready},
			wait:   Wait{Hook: "preNormal", Reason: "NotReady"},
		},
		"no address": {
			reason: "the same",
			pod:    []func(*corev1.Pod){addressless},
			wait:   Wait{Hook: "preNormal", Reason: "NoAddress"},
		},
		"no port": {
			reason:   "somebody has to write one",
			workload: portless,
			event:    "Warning InvalidPod hook preNormal waits: no port to register: set service.port in the config, a containerPort, or",
			wait:     Wait{Hook: "preNormal", Reason: "InvalidPod"},
			after:    backoffCap,
		},
		"an annotation that does not parse": {
			reason: "somebody has to correct it",
			pod:    []func(*corev1.Pod){annotated(service.AnnotationServices, "web")},
			event:  `Warning InvalidPod hook preNormal waits: annotation rollcall.dev/services: "web" is not a service and its port`,
			wait:   Wait{Hook: "preNormal", Reason: "InvalidPod"},
			after:  backoffCap,
		},
		"a drain that does not parse": {
			reason: "somebody has to correct it",
			pod:    []func(*corev1.Pod){annotated(service.AnnotationDrain, "soon")},
			event:  `Warning InvalidPod hook preNormal waits: annotation rollcall.dev/drain: "soon" is not a duration`,
			wait:   Wait{Hook: "preNormal", Reason: "InvalidPod"},
			after:  backoffCap,
		},
		"registry down": {
			reason: "somebody may want to look at it",
			meet:   func(w *world) { w.registry.Fail(anyCall(), errors.New("connection refused")) },
			event:  `Warning RegistryUnavailable hook preNormal waits: service "web" at 10.0.0.1:8080: connection refused`,
			wait:   Wait{Hook: "preNormal", Reason: "RegistryUnavailable"},
			after:  backoffBase,
		},
		"registry refuses": {
			reason: "somebody has to look at it",
			meet:   func(w *world) { w.registry.Fail(anyCall(), registry.Terminal(errors.New("bad credentials"))) },
			event:  `Warning RegistryRefused hook preNormal waits: service "web" at 10.0.0.1:8080: bad credentials`,
			wait:   Wait{Hook: "preNormal", Reason: "RegistryRefused"},
			after:  backoffCap,
		},
		"a handler that must not be touched": {
			reason:   "flipping it would take the pod from its workload",
			workload: selected,
			event:    "Warning HandlerRefused hook preNormal waits: label " + preNormalLabel + " is in spec.selector",
			wait:     Wait{Hook: "preNormal", Reason: "HandlerRefused"},
			after:    backoffCap,
		},
		"an unknown state": {
			reason: "a newer Kruise",
			pod:    []func(*corev1.Pod){inState("Dreaming")},
			event:  `Warning UnknownState lifecycle state "Dreaming" is not one that Rollcall knows`,
			wait:   Wait{Reason: "UnknownState", Since: testEpoch()},
			after:  backoffCap,
		},
		"held not ready by Kruise": {
			reason:   "only a person can correct it",
			workload: markingNotReady,
			pod:      []func(*corev1.Pod){inState(appspub.LifecycleStateNormal), heldByKruise},
			event:    "Warning HeldNotReady Kruise holds the pod not ready (markPodNotReady)",
			wait:     Wait{Reason: "HeldNotReady", Since: testEpoch()},
			after:    backoffCap,
		},
		"held not ready by Kruise, by no hook": {
			reason: "another feature of Kruise holds it, and knows when to let go",
			pod:    []func(*corev1.Pod){inState(appspub.LifecycleStateNormal), heldByKruise},
		},
		"held not ready by Kruise during an update": {
			reason:   "as it should be; it lets go after the update",
			workload: markingNotReady,
			pod:      []func(*corev1.Pod){inState(appspub.LifecycleStatePreparingUpdate), heldByKruise},
		},
		"not ready by itself in Normal": {
			reason: "its own affair: it is kept as it is",
			pod:    []func(*corev1.Pod){inState(appspub.LifecycleStateNormal), unready},
		},
		"not ready by itself where a hook marks": {
			reason:   "Kruise's own gate is open",
			workload: markingNotReady,
			pod:      []func(*corev1.Pod){inState(appspub.LifecycleStateNormal), heldByKruise, letGoByKruise},
		},
		"a workload of another kind whose pod has ended": {
			reason: "its finalizer is released like any",
			pod: []func(*corev1.Pod){ofAStatefulSet, inState(appspub.LifecycleStateNormal), func(pod *corev1.Pod) {
				pod.Status.Phase = corev1.PodFailed
			}},
		},
		"a workload of another kind, ready": {
			reason: "it is not driven",
			pod:    []func(*corev1.Pod){ofAStatefulSet, inState(appspub.LifecycleStateNormal)},
			event:  "Warning UnsupportedWorkload the pod has a finalizer or mark that hooks.owned or hooks.newlyCreated claims, and belongs to a StatefulSet",
			wait:   Wait{Reason: "UnsupportedWorkload", Since: testEpoch()},
			after:  backoffCap,
		},
		"a workload of another kind": {
			reason: "Rollcall never releases its finalizer",
			pod:    []func(*corev1.Pod){ofAStatefulSet, inState(appspub.LifecycleStatePreparingDelete)},
			event:  "Warning UnsupportedWorkload the pod has a finalizer or mark that hooks.owned or hooks.newlyCreated claims, and belongs to a StatefulSet",
			wait:   Wait{Reason: "UnsupportedWorkload", Since: testEpoch()},
			after:  backoffCap,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var changes []func(*kruisev1alpha1.CloneSet)
			if tc.workload != nil {
				changes = append(changes, tc.workload)
			}
			if tc.meet != nil {
				tc.meet(w)
			}
			if tc.wait.Hook != "" {
				tc.wait.Since = testEpoch()
			}
			pod := w.bornPod(w.cloneSet("web", changes...), "web-1", tc.pod...)

			w.expectResult(tc.reason, w.reconcile(pod), tc.after)
			var wantEvents []string
			if tc.event != "" {
				wantEvents = []string{tc.event}
			}
			w.expectEvents(tc.reason, wantEvents...)
			if tc.wait.Reason == "UnsupportedWorkload" {
				w.expectJournal("what is not driven is not registered either")
			}
			var wantWaits []Wait
			if tc.wait.Reason != "" {
				wantWaits = []Wait{tc.wait}
			}
			w.expectWaits(tc.reason, wantWaits...)
			for _, wait := range w.r.Waits() {
				if wait.Warning != (tc.event != "") || wait.Pod != pod.Name {
					t.Errorf("got %+v of pod %s, whose Event is %q", wait, pod.Name, tc.event)
				}
			}

			w.sleep(time.Second)
			w.reconcile(pod)
			w.expectEvents("one reason, one Event")
			w.expectWaits("it waits since it began", wantWaits...)
		})
	}
}

func TestReasonThatPassesIntoACalmOneIsResolved(t *testing.T) {
	t.Parallel()
	w, pod := serving(t, draining15s)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.reconcile(pod)
	w.expectEvents("the registry has acknowledged; the drain is no news",
		"Warning RegistryUnavailable ", "Normal Resolved RegistryUnavailable has passed")
	w.expectWaits("", Wait{Hook: "preDelete", Reason: "Draining", Since: w.clock.Now()})
}

func TestWaitIsCountedFromWhereItBegan(t *testing.T) {
	t.Parallel()

	t.Run("a hook", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
		moved := w.clock.Now()
		w.registry.Fail(anyCall(), errors.New("down"))
		w.sleep(time.Minute)
		w.restart()
		w.reconcile(pod)
		w.expectWaits("Kruise waits since it moved the pod, whoever was there to see it",
			Wait{Hook: "inPlaceUpdate", Reason: "RegistryUnavailable", Since: moved})
	})

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

// Bad input keeps a pod out of service, and never keeps it in.

func TestMarkedPodWithoutAWorkload(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web", func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle = nil })
	pod := w.bornPod(web, "web-1", annotated(newlyCreatedMark, "true"), inState(appspub.LifecycleStateNormal),
		func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{} })
	w.reconciles(pod, "a mark is enough", registers, writes)
	w.expectEvents("and nothing is wrong with it")
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

	repair()
	w.reconcile(first)
	w.takeEvents()
	w.registry.Fail(anyCall(), errors.New("down again"))
	both(time.Minute)
	w.expectEvents("the first went on, and the second still waits", "Warning RolloutWaits pod web-2 has waited for 3m20s")
}
