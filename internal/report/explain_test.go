package report

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// quiet is a pod whose registries hold what they must. It is in its state, ready, and recorded as in rotation, unless that is changed.
type quiet struct {
	facts *observe.Facts
	in    lifecycle.Input
}

func quietPod(state appspub.LifecycleStateType, changes ...func(*quiet)) visited {
	pod := &lifecycle.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: "1", Finalizers: []string{"example.com/hook"}, Labels: map[string]string{appspub.LifecycleStateKey: string(state)},
		},
		Status: lifecycle.PodStatus{
			PodIP: "10.0.0.1", Conditions: []lifecycle.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	hook := []lifecycle.Handler{{Finalizer: "example.com/hook"}}
	here := lifecycle.Key{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 80}
	q := &quiet{
		facts: &observe.Facts{Settings: (&observe.Settings{}).Completed(), Tracked: tracker.New().Open(lifecycle.PodID{})},
		in: lifecycle.Input{
			Pod: pod, Hooks: lifecycle.Hooks{InPlaceUpdate: hook, PreDelete: hook}, Ownership: lifecycle.Ownership{Owned: []string{"example.com/*"}},
			Record: lifecycle.Record{
				Version: 1, Stamp: lifecycle.StampOf(pod), Want: lifecycle.InService, Instances: []lifecycle.Key{here},
			},
		},
	}
	for _, change := range changes {
		change(q)
	}
	return visited{q.facts, visit.Result{Input: q.in, Decision: lifecycle.Decide(q.in)}}
}

func notReady(q *quiet) { q.in.Pod.Status.Conditions = nil }

func kept(q *quiet) { q.in.KeepUnready = true }

func panics(q *quiet) { q.facts.Panic = clusterstate.Panic{Service: "web"} }

func out(q *quiet) { q.in.Record.Want = lifecycle.OutOfService }

// mayBeOut: it belongs to a registry of which this process knows nothing.
func mayBeOut(q *quiet) { q.facts.Targets = []tracker.Target{{Registry: "default"}} }

func describedAs(why reason.Reason) func(*quiet) {
	return func(q *quiet) { q.facts.Problem = waiting.Described(why, "its annotation") }
}

func warned(q *quiet) { q.facts.Warning = waiting.Described(reason.AlsoRegistersItself, "an entry") }

func refusedHandler(q *quiet) {
	q.in.Hooks.Refused = []lifecycle.Refusal{{Why: "it is another's"}}
}

func ends(q *quiet) { q.in.Ending = "the node shuts down" }

func heldOut(q *quiet) { q.in = q.in.HoldOut(lifecycle.Hold{}) }

func detached(q *quiet) { q.in = q.in.Detach() }

func unhooked(q *quiet) { q.in.Pod.Finalizers = nil }

func shutByHook(q *quiet) { q.in.Hooks.MarksNotReady, q.in.Pod.Status.ShutByHook = true, true }

// TestExplain: the one reason that is shown of a pod whose registries hold what they must.
func TestExplain(t *testing.T) {
	t.Parallel()
	const normal, updating, updated = appspub.LifecycleStateNormal, appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated
	type row struct {
		reason string
		of     visited
		want   reason.Reason
	}
	expect.Each(t, map[string]row{
		"in rotation":                        {"there is nothing to explain", quietPod(normal), ""},
		"misdescribed":                       {"it can't be registered as it says", quietPod(normal, describedAs(reason.InvalidPod)), reason.InvalidPod},
		"misdescribed, and out":              {"that matters once it is ready", quietPod(normal, notReady, out, describedAs(reason.InvalidPod)), reason.NotReady},
		"of an unknown state":                {"a newer OpenKruise may have it", quietPod("Paused"), reason.UnknownState},
		"with another's handler":             {"nobody may be waiting for it", quietPod(normal, refusedHandler), reason.HandlerRefused},
		"rolled back, and shut":              {"OpenKruise left its readiness gate shut", quietPod(normal, notReady, shutByHook), reason.HeldNotReady},
		"ends":                               {"it is out for that", quietPod(normal, ends), reason.Ending},
		"ends, and is updated":               {"the same", quietPod(updated, ends), reason.Ending},
		"ends, and is deleted":               {"it is out anyway", quietPod(appspub.LifecycleStatePreparingDelete, ends), ""},
		"held out":                           {"by a person", quietPod(normal, heldOut), reason.HeldOut},
		"detached":                           {"it belongs to no workload", quietPod(normal, detached), reason.Orphaned},
		"detached in an update":              {"the same", quietPod(updating, detached), reason.Orphaned},
		"not ready, and kept in a panic":     {"too many of its service are", quietPod(normal, notReady, kept, panics), reason.PanicThreshold},
		"not ready, and may be out":          {"it can't be said to be kept in", quietPod(normal, notReady, kept, panics, mayBeOut), reason.NotReady},
		"not ready, out, in a panic":         {"it was out before", quietPod(normal, notReady, kept, panics, out), reason.NotReady},
		"not ready for a moment":             {"it stays in, and may be ready again", quietPod(normal, notReady, kept), ""},
		"not ready for a moment, may be out": {"clients may lack it", quietPod(normal, notReady, kept, mayBeOut), reason.NotReady},
		"not ready, and out":                 {"it comes back once it is ready", quietPod(normal, notReady, out), reason.NotReady},
		"updating":                           {"OpenKruise works", quietPod(updating), reason.NotReady},
		"updated, not ready":                 {"the update waits for that", quietPod(updated, notReady), reason.NotReady},
		"warned of":                          {"the pod is in, and something is wrong", quietPod(normal, warned), reason.AlsoRegistersItself},
		"warned of, and misdescribed":        {"first what keeps it out", quietPod(normal, warned, describedAs(reason.InvalidPod)), reason.InvalidPod},
		"released":                           {"it is OpenKruise's turn", quietPod(appspub.LifecycleStatePreparingDelete, unhooked), reason.AwaitingOpenKruise},
		"not released, may be out":           {"it is to be", quietPod(appspub.LifecycleStatePreparingDelete, mayBeOut), ""},
		"not released":                       {"a hook still waits", quietPod(appspub.LifecycleStatePreparingDelete), ""},
	}, func(t *testing.T, tc row) {
		if got := tc.of.explain(); got.Reason != tc.want {
			t.Errorf("%s: got %q: %s", tc.reason, got.Reason, got.Message)
		}
	})
}
