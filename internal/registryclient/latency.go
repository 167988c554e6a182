package registryclient

import "time"

const (
	// enoughCalls show a latency, which is an average over about spanCalls.
	enoughCalls = 10
	spanCalls   = 32
)

// usualLatency is an average that follows what is added.
type usualLatency struct {
	average time.Duration
	calls   int
}

func (l *usualLatency) known() bool { return l.calls >= enoughCalls }

func (l *usualLatency) add(took time.Duration) {
	if l.known() {
		took = min(took, 2*l.average)
	}
	l.calls = min(l.calls+1, spanCalls)
	l.average += (took - l.average) / time.Duration(l.calls)
}

// isLate is so after 7/5: of a registry that works on 20 at a time, the second 20 wait for the first.
func (l *usualLatency) isLate(took time.Duration) bool { return l.known() && took > 7*l.average/5 }
