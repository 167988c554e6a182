// Package visit takes a pod as far as it can go now. A visit is a list of stages ([stagesOf]; join.go and drain.go have what they do). In
// each, the rows of the pod's plan take their next steps (converge.go), which may be calls (calls.go); apps.go has what differs for
// entries that applications write. What is then written on the pod is in conclude.go and patch.go, and what is released without a
// registry in release.go.
package visit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/audit"
	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Visitor makes visits.
type Visitor struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	State  *clusterstate.State
	// Releases measures the hooks that were released.
	Releases *metrics.ReleaseMetrics
	// PodCondition has each pod carry [lifecycle.ConditionInRotation]. It needs the right to patch pods/status.
	PodCondition bool
	Clock        clock.PassiveClock
	// Ahead returns how much later, at most, the clock reads than that of the manager which led before.
	Ahead func() time.Duration
	// Audit writes down what receipts are made from. Nil is for no receipts.
	Audit *audit.Log
	// BackOff returns when to try again with a pod, later each time.
	BackOff func(types.UID) time.Duration
	// Tell makes an Event on a pod.
	Tell func(pod *corev1.Pod, why reason.Reason, note string)
	// Wake looks again at a pod that waited for a slot.
	Wake func(id lifecycle.PodID, urgent bool)
}

// Result is what came of a visit.
type Result struct {
	// Input is the pod as the visit left it, and Decision the decision on that.
	Input    lifecycle.Input
	Decision lifecycle.Decision
	// Held is what is missing before OpenKruise may go on, and Behind what is missing besides.
	Held, Behind []waiting.Blocker

	of *visit
}

// BackOff is when to look again after an error: later with each visit that asks.
func (r Result) BackOff() time.Duration { return r.of.backOff() }

// Done reports whether OpenKruise may go on: the registries have acknowledged everything, and the drain has passed. In a dry
// run nothing was acknowledged, and what would follow is said too, since nothing is written.
func (r Result) Done() bool {
	return !slices.ContainsFunc(r.Held, func(b waiting.Blocker) bool { return b.Reason != reason.DryRun })
}

// Decide returns the decision on facts. Nothing is left to be freed of a pod that is gone.
func Decide(f *observe.Facts, in lifecycle.Input) lifecycle.Decision {
	if f.Gone() {
		return lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
	}
	return lifecycle.Decide(in)
}

// visit is one visit of a pod: the facts do not change, and what does is here.
type visit struct {
	*Visitor
	*observe.Facts

	// input is that of the decision, with the pod as this visit has patched it.
	input    lifecycle.Input
	decision lifecycle.Decision
	// targets are the pod's, at the addresses at which its application's entries were found.
	targets   []tracker.Target
	relocated atomic.Bool

	// rows are those that the decision takes.
	rows         plan.Plan
	held, behind []waiting.Blocker
	// record is what to write down; nil leaves the record as it is.
	record *lifecycle.Record
	// excuse is why a hook is released although something is missing.
	excuse string

	// tries has the pod's back-off grow once, however many of its entries fail; see backOff.
	tries sync.Once
	after time.Duration
}

// Visit takes the pod as far as it can go now. With an error, what was missing until then is in the result.
func (of *Visitor) Visit(ctx context.Context, f *observe.Facts) (Result, error) {
	v := &visit{Visitor: of, Facts: f, input: f.Input, targets: f.Targets}
	v.decide()
	err := v.advance(v.about(ctx))
	return Result{Input: v.input, Decision: v.decision, Held: v.held, Behind: v.behind, of: v}, err
}

func (v *visit) decide() { v.decision = Decide(v.Facts, v.input) }

func (v *visit) pod() *corev1.Pod { return v.input.Pod }

// entries are what the pod's rows rest on, with what is known now.
func (v *visit) entries() plan.Facts { return v.Entries(v.input, v.targets) }

// done is [Result.Done] so far.
func (v *visit) done() bool { return Result{Held: v.held}.Done() }

func (v *visit) event(why reason.Reason, note string) { v.Tell(v.pod(), why, note) }

func (v *visit) backOff() time.Duration {
	v.tries.Do(func() { v.after = v.BackOff(v.pod().UID) })
	return v.after
}

// belongs reports whether the pod belongs where the row's entry is.
func (v *visit) belongs(row plan.Row) bool { return plan.Facts{Targets: v.targets}.IsTarget(row.Key()) }

// unacknowledged reports whether a change is still to be made.
func (v *visit) unacknowledged(row plan.Row) bool {
	return !v.Tracked.Standing(row.Key()).Says(row.Want, row.Instance)
}

// refused says why Rollcall does not drive the pod; empty where it does.
func (v *visit) refused() waiting.Blocker {
	owner := metav1.GetControllerOfNoCopy(v.pod())
	if owner == nil || clusterstate.OwnerOf(v.pod()) != nil || v.decision.Row == lifecycle.RowGone {
		return waiting.Blocker{}
	}
	return waiting.Blocker{Reason: reason.UnsupportedWorkload, Message: fmt.Sprintf(
		"the pod has a finalizer or mark that hooks.owned or hooks.newlyCreated claims, and belongs to a %s; Rollcall drives only "+
			"OpenKruise's CloneSets, StatefulSets and DaemonSets: take it out of the template, or the key out of the configuration", owner.Kind)}
}
