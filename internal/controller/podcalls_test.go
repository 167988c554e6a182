package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// callingPods has the application itself take the calls.
func callingPods(s *choices) {
	reg := s.Registries["default"]
	reg.CallsPods = true
	reg.Steerer.(*fakeregistry.Registry).CallPods()
	s.Registries = map[string]Registry{"default": reg}
}

func runs(pod *corev1.Pod) {
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "proxy", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
		{Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
	}
}

func crashed(pod *corev1.Pod) {
	runs(pod)
	pod.Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
}

func TestPodIsCalledAtItsOwnAddressOnly(t *testing.T) {
	t.Parallel()
	elsewhere := func(p *corev1.Pod) { p.Annotations[service.AnnotationAddress] = "HostIP" }
	type row struct {
		reason string
		change []func(*corev1.Pod)
		config func(*choices)
	}
	expect.Each(t, map[string]row{
		"the annotation asks for the node's":         {"what answers at the node is not the pod's", []func(*corev1.Pod){reachable, elsewhere}, nil},
		"the configuration asks for the node's":      {"it is the pod that is called", []func(*corev1.Pod){reachable}, at("HostIP")},
		"the configuration asks for another network": {"a tenant can write any address there", []func(*corev1.Pod){reachable}, at("network/storage")},
		"it has two": {"one is enough, and the application answers at both", []func(*corev1.Pod){dualStack}, at("IPv6")},
	}, func(t *testing.T, tc row) {
		w := steering(t, callingPods)
		if tc.config != nil {
			w.apply(tc.config)
		}
		pod := w.bornPod(w.cloneSet("web"), "web-1", tc.change...)
		w.reconcile(pod)
		for _, port := range []int{8080, 31080} {
			w.registry.App(w.instance(pod, "web", port)).Register()
		}
		w.reconcile(pod)
		forged := w.record(pod)
		for _, address := range []string{nodeIP, "172.16.0.1", "fd00::1", "10.9.9.9"} {
			victim := forged.Instances[0]
			victim.Address = address
			forged.Instances = append(forged.Instances, victim)
		}
		w.writeRecord(pod, forged)
		w.restart()
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.reconcile(pod)
		calls := w.takeJournal()
		w.expectHooks("its application has left", pod, "inPlaceUpdate")
		for _, in := range w.r.Tracker.Steered("default", false) {
			calls = append(calls, "AppGet "+in.Service+"@"+in.Endpoint())
		}
		if !slices.ContainsFunc(calls, func(c string) bool {
			return strings.HasPrefix(c, "AppFailOver") || strings.HasPrefix(c, "AppDeregister")
		}) {
			t.Errorf("the application was not asked to leave: %q", calls)
		}
		for _, call := range calls {
			if strings.HasPrefix(call, "App") && !strings.Contains(call, "web@10.0.0.1:") {
				t.Errorf("got the call %q\nreason: %s", call, tc.reason)
			}
		}
	})
}

func TestPodThatHasEndedIsNotCalled(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		end    func(w *world, pod *corev1.Pod)
	}{
		"it is gone": {"the next pod at the address is another", func(w *world, pod *corev1.Pod) { w.removePod(pod) }},
		"its container crashes": {"the rollout that mends it must not wait", func(w *world, pod *corev1.Pod) {
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate, crashed)
		}},
		"all its containers have ended": {"", func(w *world, pod *corev1.Pod) {
			w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}},
		"it has another address": {"the former one may be anybody's", func(w *world, pod *corev1.Pod) {
			w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pod, app := servingApp(t, callingPods)
			tc.end(w, pod)
			w.takeJournal()
			w.reconcile(pod)
			for _, call := range w.takeJournal() {
				if strings.HasPrefix(call, "App") {
					t.Errorf("got the call %q\nreason: %s", call, tc.reason)
				}
			}
			if waits := w.r.Waits(); slices.ContainsFunc(waits, func(one Wait) bool { return one.Reason != "AwaitingOpenKruise" && one.Reason != "NoAddress" }) {
				t.Errorf("got %v, want nothing that is waited for", waits)
			}
			w.expectApp("no one has asked it to leave", app, registry.InService)
			if name == "it is gone" {
				w.expectNoPages("nothing is left of it")
			}
		})
	}
}

// TestCrashedContainerIsNotAskedInTheDrainEither: clients had it until it crashed, and nothing can answer any more.
func TestCrashedContainerIsNotAskedInTheDrainEither(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]struct {
		reason string
		fails  error
	}{
		"kubelet has reported it":     {"it is not called at all", nil},
		"kubelet has yet to report":   {"the call that was refused is not asked about", errors.New("connection refused")},
		"the call before was cut off": {"no call can be carried out any more", context.DeadlineExceeded},
	} {
		for _, state := range []appspub.LifecycleStateType{appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStatePreparingDelete} {
			t.Run(name+", "+string(state), func(t *testing.T) {
				t.Parallel()
				w, pod, app := servingApp(t, callingPods, draining15s)
				w.kruiseMoves(pod, state)
				if before.fails != nil {
					stop := w.registry.Fail(anyCall(), before.fails)
					w.reconcile(pod)
					stop()
				}
				w.registry.Fail(anyCall(), errors.New("connection refused"))
				w.changePod(pod, crashed)
				w.takeJournal()
				for range 4 {
					w.reconcile(pod)
					w.sleep(5 * time.Second)
				}
				for _, call := range w.takeJournal() {
					if strings.HasPrefix(call, "App") {
						t.Errorf("got the call %q\nreason: %s", call, before.reason)
					}
				}
				if waits := w.r.Waits(); len(waits) != 1 || waits[0].Reason != "AwaitingOpenKruise" {
					t.Errorf("got %v, want OpenKruise to be waited for\nreason: %s", waits, before.reason)
				}
				w.expectApp("no one has asked it to leave", app, registry.InService)
			})
		}
	}
}

// TestPodThatDoesNotAnswerIsNotOut: clients may reach it although Rollcall does not, and others' hooks do not wait for it.
func TestPodThatDoesNotAnswerIsNotOut(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t, callingPods)
	w.changePod(pod, runs)
	w.registry.Fail(fakeregistry.Match{Op: fakeregistry.OpAppDeregister}, errors.New("no route to host"))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	for range 10 {
		w.reconcile(pod)
		w.sleep(waiting.Longest)
	}
	w.expectHooks("it may have clients", pod, "inPlaceUpdate preDelete")
	w.expectApp("", app, registry.InService)
	w.expectWaits("the message says which pod", Wait{Hook: "preDelete", Reason: "RegistryUnavailable", Since: w.clock.Now().Add(-10 * waiting.Longest)})

	w.changePod(pod, crashed)
	w.reconcile(pod)
	w.expectHooks("it runs no more", pod, "inPlaceUpdate")
}

func TestContainerThatStartsAgainIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t, callingPods)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate, runs)
	w.reconcile(pod)
	w.reconcileIn(pod, appspub.LifecycleStateUpdating, crashed)
	app.PutBack()
	w.takeJournal()
	w.watches("it is asked all the time", pod)
	w.changePod(pod, runs)
	w.reconcile(pod)
	w.expectApp("it must be out until OpenKruise has updated the pod", app, registry.OutOfService)
}
