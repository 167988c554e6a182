package visit

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
)

// Asker asks draining pods whether they are idle. No method waits for a pod: what a pod has answered counts at its next visit, for which
// the Asker wakes it.
type Asker interface {
	// Ask lets a pod be asked again and again until Stop. Repeat it once in [WokenRecheck].
	Ask(drain.Question)
	// Stop is for a pod that is asked no more, or never was.
	Stop(types.UID)
	// Last returns the last answer to the question since its first Ask, if there is one.
	Last(drain.Question) drain.Answer
}

func (v *visit) question() drain.Question {
	pod := v.pod()
	return drain.Question{Pod: lifecycle.PodIDOf(pod), IP: pod.Status.PodIP, Until: v.facts.Drain.Until}
}

// lastAnswer is the pod's. One whose container has ended has nothing left that could be cut off, and can't answer.
func (v *visit) lastAnswer() drain.Answer {
	switch {
	case !v.facts.Drain.Asks():
		return drain.Answer{}
	case !lifecycle.Runs(v.pod(), v.facts.Drain.Until.Port):
		return drain.Answer{Asked: v.Clock.Now(), Idle: true}
	}
	return v.Asker.Last(v.question())
}

// askIdle has the pod asked from now on, or no more.
func (v *visit) askIdle(ask bool, d plan.Drain) {
	if !ask {
		v.Asker.Stop(v.pod().UID)
		return
	}
	q := v.question()
	q.Since = d.Out
	v.Asker.Ask(q)
}

// drained reports what has ended the drain of a hook that was just released.
func (v *visit) drained(hook lifecycle.Hook, by drain.By, d plan.Drain) {
	if by == "" {
		return
	}
	v.Releases.Drained(string(by))
	v.drainEnds(by, d)
	if by == drain.ByMax {
		v.event(reason.DrainTimeout, waiting.DrainTimeout(hook, d.Max, d.Last))
	}
}
