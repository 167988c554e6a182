package drain

import (
	"fmt"
	"time"
)

// By is what ended a drain, as metric, log and Event show it.
type By string

// What ends a drain.
const (
	// ByIdle: the pod was idle.
	ByIdle By = "idle"
	// ByMax: it was not, and may not stay any longer.
	ByMax By = "max"
	// ByTime: the drain has a fixed length.
	ByTime By = "fixed"
)

// Answer is what a pod last answered to whether it is idle. The zero value is of a pod that has not answered.
type Answer struct {
	// Asked is when the question was put, so the answer is about a later moment.
	Asked time.Time
	Idle  bool
	// Left is how many requests are left; 0 if the pod is idle or did not tell.
	Left int64
	// Failed is why the answer shows nothing, such as a timeout. The pod counts as busy.
	Failed string
}

// String is for people.
func (a Answer) String() string {
	switch {
	case a.Failed != "":
		return "counts as busy: " + a.Failed
	case a.Asked.IsZero():
		return "has not answered yet"
	case a.Idle:
		return "idle"
	case a.Left == 1:
		return "1 request left"
	case a.Left > 0:
		return fmt.Sprintf("%d requests left", a.Left)
	}
	return "busy"
}

// State is how far a drain is.
type State struct {
	// By is empty while the drain continues.
	By By
	// Least and Most are when it can end, and when it ends at the latest. They are equal in a fixed drain.
	Least, Most time.Time
	// Ask: only the pod's answer can end the drain before Most.
	Ask bool
}

// At returns how far the drain is of a pod that was taken out at since, by its last answer:
//
//	now          | answer                        |
//	fixed drain  |                               | ends at Max, ByTime
//	before Min   |                               | continues
//	after Min    | idle, and asked after Min     | ended ByIdle
//	after Max    | else                          | ended ByMax
//	else         | busy, silent, of before Min   | continues, asks
//
// A pod that was idle before Min proves nothing: clients that have not noticed yet can still send requests.
func (p Policy) At(now, since time.Time, last Answer) State {
	s := State{Least: since.Add(p.Min), Most: since.Add(p.Max)}
	passed := !now.Before(s.Most)
	switch {
	case !p.Asks() && passed:
		s.By = ByTime
	case now.Before(s.Least): // as a fixed drain is that has not passed
	case last.Idle && !last.Asked.Before(s.Least):
		s.By = ByIdle
	case passed:
		s.By = ByMax
	default:
		s.Ask = true
	}
	return s
}

// Again is when the state changes by itself: once the pod is asked, or the drain has ended.
func (s State) Again(now time.Time) time.Duration {
	if now.Before(s.Least) {
		return s.Least.Sub(now)
	}
	return max(s.Most.Sub(now), 0)
}
