// Package visit takes one pod as far as it can go now, in stages ([plan.Stages]).
//
//	stages.go                the loop that carries stages out
//	moment.go                what it goes by
//	entry.go, calls.go       the steps of one entry, and its calls
//	app.go                   what differs for entries that applications write
//	drain.go                 draining pods that are asked whether they are idle
//	conclude.go, patch.go    writing on the pod what package plan concludes
//	warn.go                  Events about what is not as it should be
package visit

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Visitor visits pods.
type Visitor struct {
	// Client reads from the cache and writes to the API server.
	Client   client.Client
	State    *clusterstate.State
	Releases *metrics.ReleaseMetrics
	// PodCondition reports whether to keep [lifecycle.ConditionInRotation] on each pod, which takes the right to patch pods/status.
	PodCondition func() bool
	// NoCondition returns why that can't be written, if a right is missing.
	NoCondition func() string
	Clock       clock.PassiveClock
	// Ahead is how far this clock may be ahead of the last leader's.
	Ahead   func() time.Duration
	History history.Log
	// BackOff returns when to try a pod again: later each time.
	BackOff func(types.UID) time.Duration
	// Tell records an Event.
	Tell func(pod *lifecycle.Pod, why reason.Reason, note string)
	// Asker asks draining pods whether they are idle.
	Asker Asker
	// Wake queues a pod for whose call a slot is free.
	Wake func(id lifecycle.PodID, urgent bool)
}

// Result is the outcome of a visit.
type Result struct {
	// Input and Decision are those of the pod as the visit left it.
	Input    lifecycle.Input
	Decision lifecycle.Decision
	// Held is what OpenKruise waits for; Behind is what else is missing.
	Held, Behind []waiting.Blocker

	of *moment
}

// BackOff is when to look again after an error.
func (r Result) BackOff() time.Duration { return r.of.backOff() }

// Done reports whether OpenKruise may continue. A dry run counts as done, so that it can report what would follow.
func (r Result) Done() bool { return waiting.Done(r.Held) }

// Decide returns the decision on facts. A pod that is gone has no hooks to release.
func Decide(f *observe.Facts, in lifecycle.Input) lifecycle.Decision {
	if f.Gone() {
		return lifecycle.Decision{Row: lifecycle.RowGone, Want: lifecycle.Absent}
	}
	return lifecycle.Decide(in)
}

// visit is one visit of a pod.
type visit struct {
	moment

	rows         plan.Plan
	held, behind []waiting.Blocker
	// joining is what keeps the pod from being in rotation.
	joining waiting.Blocker
	// excuse is why a hook is released although something is missing.
	excuse string
}

// Visit takes the pod as far as it can go now. If it fails, the result has what was missing by then.
func (of *Visitor) Visit(ctx context.Context, f *observe.Facts) (Result, error) {
	v := &visit{moment: moment{Visitor: of, facts: f, input: f.Input, targets: f.Targets}}
	v.decide()
	err := v.advance(ctx)
	return Result{Input: v.input, Decision: v.decision, Held: v.held, Behind: v.behind, of: &v.moment}, err
}

// refused is why Rollcall does not drive the pod, if it doesn't.
func (v *visit) refused() waiting.Blocker {
	owner := metav1.GetControllerOfNoCopy(v.pod())
	if owner == nil || clusterstate.OwnerOf(v.pod()) != nil || v.decision.Row == lifecycle.RowGone {
		return waiting.Blocker{}
	}
	return waiting.UnsupportedWorkload(owner.Kind)
}
