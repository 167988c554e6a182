package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// relay is a scenario of two managers, one of which leads, with clients that send requests to the pods all the while.
type relay struct {
	*scenario

	client *rollout.Client
	stop   func()
}

// startRelay returns when the first manager leads, the pods serve and the second manager waits for the lease.
func startRelay(t *testing.T, name string) *relay {
	t.Helper()
	config, flags := defaultConfiguration(env.registry.URL(), name), elect(t, name+"-lease")
	config["resync"] = map[string]any{"interval": "1h"} // no run but at the takeover, and when we ask for one
	first := startManager(t, name+"-first", config, flags...)
	r := &relay{scenario: newScenario(t, first, env.registry, finalizer, name)}
	r.troubled = true
	r.drain = 3 * time.Second // longer than a client goes on with what it has read, on a busy machine too
	r.port = podserver.Use(t, env.client)
	r.Begin(inPlace, replicas(3), annotated(drainKey, r.drain.String()),
		annotated(servicesKey, fmt.Sprintf("%s=%d", name, r.port)))
	r.standby = startManager(t, name+"-second", config, flags...)
	r.client, r.stop = sendRequests(t, func(ctx context.Context) ([]registry.Entry, error) {
		all, err := env.registry.Truth(ctx, clusterName)
		return slices.DeleteFunc(all, func(e registry.Entry) bool { return e.Service != name }), err
	})
	return r
}

// sendRequests has a client send requests to the instances that it reads, until stop is called.
func sendRequests(t *testing.T, instances read.Reader) (client *rollout.Client, stop func()) {
	t.Helper()
	client = rollout.NewClient(rollout.ClientOptions{
		Read:    instances,
		Timeout: patience, // a busy machine is slow, and that is no failure
		Tell:    func(_ time.Time, pod, what string) { t.Logf("%s: %s", pod, what) },
	})
	stop = client.Start(context.WithoutCancel(t.Context()))
	t.Cleanup(stop)
	return client, stop
}

// AwaitTakeover returns when the second manager has the lease and has written to a pod, and says how long that took.
func (r *relay) AwaitTakeover(since time.Time, event string) {
	r.Helper()
	lease := r.awaitWrite("the second manager to take the lease", func(w *apiproxy.Write) bool { return w.Resource == "leases" })
	first := r.awaitWrite("the second manager to write to a pod", (*apiproxy.Write).ToPod)
	// Figures for the reader, and no expectation: machines differ. The first write may have had to wait for a drain.
	fmt.Fprintf(os.Stderr, "handover: %s: the next manager took the lease after %s and wrote to a pod after %s\n", event,
		lease.Sub(since).Round(time.Millisecond), first.Sub(since).Round(time.Millisecond))
}

// awaitWrite waits for the second manager's first write of a kind that the API server accepted.
func (r *relay) awaitWrite(what string, is func(*apiproxy.Write) bool) (at time.Time) {
	r.Helper()
	r.await(what, func() error {
		for _, w := range r.standby.proxy.Writes("") {
			if is(&w) && (w.Status == http.StatusOK || w.Status == http.StatusCreated) {
				at = w.Received
				return nil
			}
		}
		return errors.New("it has not")
	})
	return at
}

// expectUpdatedUnnoticed waits until the update is through, and ends the requests, none of which failed.
func (r *relay) expectUpdatedUnnoticed() {
	r.Helper()
	before := r.Pods()
	r.ExpectSteady()
	r.ExpectImage("nginx:2", before)
	r.stop()
	tally := r.client.Tally()
	r.Logf("%s", tally)
	r.Expect(tally.Requests > 0 && tally.Failed == 0, "%s: %v", tally, r.client.Failures())
}

// TestLeaderStops: a leader that is asked to stop finishes the call that is under way and writes it down, so the next one
// need not make it again.
func TestLeaderStops(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "leader-stops")
	call := r.HoldCalls(fakeregistry.OpFailOver)
	r.UpdateImage("nginx:2")
	r.AwaitCalls(call, 1)
	pod := r.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
	asked := time.Now()
	expect.NoError(t, r.manager.Process().Terminate())
	r.await("the manager to stop", func() error { return logged(r.manager, "Stopping and waiting for leader election runnables") })
	call.Release()
	expect.NoError(t, r.manager.ended(t))
	ended := time.Now()
	t.Logf("the first manager ended %s after it was asked to", ended.Sub(asked).Round(time.Millisecond))
	r.AwaitTakeover(ended, "a leader that was asked to stop had ended")
	r.expectUpdatedUnnoticed()
	r.ExpectNothingLeft()
	r.ExpectAlways()
	r.Expect(r.counted(pod, fakeregistry.OpFailOver) <= 2, "the next leader makes the call once more, and no more")
}

// ThawFirst has the frozen manager go on, which leads no more: it ends, and leaves the pods alone.
func (r *relay) ThawFirst() {
	r.Helper()
	thawed := time.Now()
	r.must(r.manager.Process().Resume())
	if err := r.manager.ended(r.T); err == nil || errors.Is(err, context.DeadlineExceeded) {
		r.Errorf("the leader that lost its lease ended with %v", err)
	}
	for _, w := range r.manager.proxy.Writes("") {
		if w.Received.After(thawed) && w.Resource != "leases" {
			r.Errorf("the leader that lost its lease wrote: %s %s %s", w.Method, w.Resource, w.Name)
		}
	}
}

// TestLeaderFrozenInACall: the leader stands still for longer than its lease while a call is under way, and the registry
// carries that out when the next one has finished the update. No hook moves early, and one run of resync puts it right.
func TestLeaderFrozenInACall(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason string
		late   fakeregistry.Op
		// before is what the next leader does besides, before the call is carried out.
		before func(r *relay, pod *corev1.Pod)
	}{
		"fail-over": {
			reason: "a pod that is back in service goes out of it",
			late:   fakeregistry.OpFailOver,
			before: func(*relay, *corev1.Pod) {},
		},
		"register": {
			reason: "a pod that is gone comes into service",
			late:   fakeregistry.OpRegister,
			before: func(r *relay, pod *corev1.Pod) {
				r.Edit(func(set *kruisev1alpha1.CloneSet) {
					replicas(2)(set)
					set.Spec.ScaleStrategy.PodsToDelete = []string{pod.Name}
				})
				r.AwaitGone(pod)
				r.ExpectSteady()
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRelay(t, "leader-late-"+name)
			late := r.registry.LandLate(r.match(test.late), 1)
			r.UpdateImage("nginx:2")
			r.AwaitCalls(late, 1)
			expect.NoError(t, r.manager.Process().Pause())
			frozen, held := time.Now(), r.underWay(test.late)
			r.AwaitTakeover(frozen, "the leader froze in a call")
			r.expectUpdatedUnnoticed()
			test.before(r, r.Now(types.UID(held.UID)))

			late.Release()
			r.until("the late call to be carried out, so that "+test.reason, func() bool { return r.registryHolds(r.Pods()) != nil })
			calls, runs := len(r.registry.Calls(r.match(""))), r.resyncs(r.standby)
			r.ThawFirst()
			r.Expect(len(r.registry.Calls(r.match(""))) == calls, "the deposed leader talked to the registry")

			r.annotateLease(r.ns+"-lease", "now")
			r.ExpectSteady()
			r.until("the run of resync to be counted", func() bool { return r.resyncs(r.standby) != runs })
			r.Expect(r.resyncs(r.standby) == runs+1, "it took more than one run of resync")
			r.ExpectNothingLeft()
			r.ExpectAlways()
		})
	}
}

// underWay is what the one call of an operation that has no answer yet asked for.
func (r *relay) underWay(op fakeregistry.Op) registry.Instance {
	r.Helper()
	calls := slices.DeleteFunc(r.registry.Calls(r.match(op)), func(c fakeregistry.Call) bool { return !c.Answered.IsZero() })
	if len(calls) != 1 {
		r.Fatalf("%d calls of %s are under way", len(calls), op)
	}
	return calls[0].Instance
}

// resyncs is how many runs of resync a manager has made, failed ones included.
func (r *relay) resyncs(m *rollcall) (runs int) {
	r.Helper()
	body, err := m.Get(r.Context(), manager.MetricsServer, "/metrics")
	r.must(err)
	counted := regexp.MustCompile(`(?m)^rollcall_resync_duration_seconds_count\{.*\} (\d+)$`)
	for _, match := range counted.FindAllStringSubmatch(body, -1) {
		n, err := strconv.Atoi(match[1])
		r.must(err)
		runs += n
	}
	return runs
}

// TestLeaseDeleted: while its leader works, it makes the lease again, and no other manager leads. If the leader is frozen, the next one
// waits for as long as the lease would have lasted.
func TestLeaseDeleted(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "lease-deleted")
	key := client.ObjectKey{Namespace: r.ns + "-lease", Name: account.Lease}
	lease := func() (*coordinationv1.Lease, error) {
		now := &coordinationv1.Lease{}
		return now, r.k8s.Get(r.Context(), key, now)
	}
	first, err := lease()
	r.must(err)
	for range 5 {
		before, err := lease()
		r.must(err)
		r.must(r.k8s.Delete(r.Context(), before))
		r.await("the leader to make the lease again", func() error {
			now, err := lease()
			if err == nil && now.UID == before.UID {
				err = errors.New("it is the one before")
			}
			return err
		})
	}
	r.UpdateImage("nginx:2")
	r.expectUpdatedUnnoticed()
	now, err := lease()
	r.must(err)
	r.Expect(*now.Spec.HolderIdentity == *first.Spec.HolderIdentity, "the lease is held by %s, which waited", *now.Spec.HolderIdentity)

	r.must(r.manager.Process().Pause())
	r.must(r.k8s.Delete(r.Context(), now))
	deleted := time.Now()
	r.UpdateImage("nginx:3")
	r.AwaitTakeover(deleted, "the leader froze and its lease was deleted")
	took := r.awaitWrite("the second manager to take the lease", func(w *apiproxy.Write) bool { return w.Resource == "leases" })
	r.Expect(took.Sub(deleted) >= leaseDuration, "the second manager took the lease %s after it was deleted", took.Sub(deleted))
	r.ExpectSteady()
	r.ThawFirst()
	r.ExpectNothingLeft()
	r.ExpectAlways()
}

// leaseDuration is how long a manager may work without a renewal.
const leaseDuration = 15 * time.Second

// TestPodsStartWhileAnotherLeads: without a preNormal hook, pods are in Normal while they start. The next leader takes them out to be sure,
// and a pod that served and turns unready is taken out too, although most pods are not ready: few of those that served.
func TestPodsStartWhileAnotherLeads(t *testing.T) {
	t.Parallel()
	s := alone(t, "starting-pods", nil)
	s.Create(replicas(4), gated, func(set *kruisev1alpha1.CloneSet) { set.Spec.Lifecycle.PreNormal = nil })
	serving := s.AwaitPods(4)
	s.TurnHealthy(corev1.ConditionTrue, serving...)
	s.ExpectSteady()
	serving = s.Pods()
	s.Scale(9)
	starting := slices.DeleteFunc(s.AwaitPods(9), func(pod *corev1.Pod) bool { return slices.Contains(uidsOf(serving), pod.UID) })
	for _, pod := range starting {
		s.untilPod(pod, "to start in Normal", func(now *corev1.Pod) bool {
			return stateOf(now) == string(appspub.LifecycleStateNormal) && now.Status.PodIP != ""
		})
	}
	s.manager.Kill()
	restart(t, s.manager)
	for _, pod := range starting {
		s.untilPod(pod, "to be taken out", func(now *corev1.Pod) bool { return now.Annotations[recordKey] != "" })
	}

	s.TurnHealthy(corev1.ConditionFalse, serving[0])
	s.ExpectServing(serving[1:]...)
	s.TurnHealthy(corev1.ConditionFalse, serving[1])
	s.ExpectServing(serving[2:]...)
	s.TurnHealthy(corev1.ConditionFalse, serving[2])
	s.ExpectEvent(serving[2], corev1.EventTypeWarning, "PanicThreshold", "3 of the 4 pods")
	s.ExpectServing(serving[2:]...)
	s.TurnHealthy(corev1.ConditionTrue, s.Pods()...)
	s.ExpectSteady()
	s.ExpectAlways()
}

// TestLeaderAndRegistryAreLostInADrain: the drain passes that the lost leader began, although no registry answers the next one and
// the failure policy's deadline is long over.
func TestLeaderAndRegistryAreLostInADrain(t *testing.T) {
	t.Parallel()
	const name = "leader-lost-in-drain"
	reg := startRegistry(t)
	config, flags := defaultConfiguration(reg.URL(), name), elect(t, name+"-lease")
	config["proceedAfter"] = map[string]any{"preDelete": "5s"}
	s := newScenario(t, startManager(t, name+"-first", config, flags...), reg, finalizer, name)
	s.troubled, s.drain = true, 40*time.Second // longer than the next manager takes to lead
	s.Begin(replicas(2), annotated(drainKey, s.drain.String()))
	s.standby = startManager(t, name+"-second", config, flags...)

	s.Scale(1)
	pod := s.AwaitPod("whose drain is recorded", func(pod *corev1.Pod) bool { return lifecycle.RecordOf(lifecycle.PodOf(pod)).OutSince != nil })
	out := *lifecycle.RecordOf(lifecycle.PodOf(pod)).OutSince
	s.manager.Kill()
	s.Fail("", "the registry is down")

	s.AwaitGone(pod)
	s.ExpectEvent(pod, "Warning", "ReleasedUnacknowledged", "proceedAfter.preDelete (5s) and the drain have passed")
	for _, v := range s.history.Of(pod.UID) {
		held := slices.ContainsFunc(s.hooks["preDelete"], func(h string) bool { return ours(h) && setOn(h, v.pod) })
		if stateOf(v.pod) == string(appspub.LifecycleStatePreparingDelete) && !held && v.arrived.Before(out.Add(s.drain)) {
			s.Errorf("the hook was released %s after the pod went out of rotation", v.arrived.Sub(out).Round(time.Millisecond))
		}
	}
}
