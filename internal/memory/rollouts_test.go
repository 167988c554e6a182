package memory

import (
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestRollout plays what the leader sees of a CloneSet, and expects an Event for the first pod of an update and for the last one.
func TestRollout(t *testing.T) {
	t.Parallel()
	type look struct {
		revision     string
		rolling      bool
		in, toUpdate int
		tells        bool
	}
	for name, c := range map[string]struct {
		reason string
		looks  []look
	}{
		"an update": {"the pods in between are no news", []look{
			{"a", false, 3, 3, false}, {"b", true, 0, 3, false}, {"b", true, 1, 3, true}, {"b", true, 2, 3, false}, {"b", true, 3, 3, true},
			{"b", true, 3, 3, false}, {"b", false, 3, 3, false},
		}},
		"one pod":                       {"it is the first and the last", []look{{"a", false, 1, 1, false}, {"b", true, 1, 1, true}, {"b", false, 1, 1, false}}},
		"a new CloneSet":                {"nothing is updated", []look{{"a", false, 1, 3, false}, {"a", false, 3, 3, false}}},
		"a new leader in the middle":    {"the leader before has told of the first", []look{{"b", true, 2, 3, false}, {"b", true, 3, 3, true}}},
		"a new leader before the first": {"nobody has told of it", []look{{"b", true, 0, 3, false}, {"b", true, 1, 3, true}}},
		"a new leader afterwards":       {"the leader before has told", []look{{"b", true, 3, 3, false}, {"b", false, 3, 3, false}}},
		"a canary": {"each step ends with its last pod, also if one was unready meanwhile", []look{
			{"a", false, 6, 6, false}, {"b", true, 1, 1, true}, {"b", true, 0, 1, false}, {"b", true, 1, 1, false},
			{"b", true, 1, 6, false}, {"b", true, 6, 6, true},
		}},
		"OpenKruise is done first": {"its status is ahead of the pods that were seen", []look{
			{"a", false, 2, 2, false}, {"b", true, 1, 2, true}, {"b", false, 1, 2, false}, {"b", false, 2, 2, true},
		}},
		"an autoscaler": {"more pods are no update", []look{
			{"a", false, 2, 2, false}, {"a", false, 2, 5, false}, {"a", false, 5, 5, false}, {"a", false, 4, 4, false},
		}},
		"a rollback": {"it is an update too", []look{
			{"a", false, 3, 3, false}, {"b", true, 1, 3, true}, {"a", true, 2, 3, true}, {"a", false, 3, 3, true},
		}},
	} {
		n := New()
		for i, l := range c.looks {
			now := lifecycle.Rollout{Workload: "web", Revision: l.revision, Rolling: l.rolling, In: l.in, ToUpdate: l.toUpdate}
			expect.Equal(t, l.tells, n.Rolled(now, time.Unix(0, 0)), "%s: look %d tells: %s", name, i, c.reason)
		}
	}
}

// TestRolloutsAreBounded: whoever changes a template again and again gets few Events, and a CloneSet that has gone leaves nothing.
func TestRolloutsAreBounded(t *testing.T) {
	t.Parallel()
	n, now, told := New(), time.Unix(0, 0), 0
	for i := range 600 {
		if n.Rolled(lifecycle.Rollout{Workload: "web", Revision: string(rune('a' + i%2)), Rolling: true, In: 1, ToUpdate: 3}, now) {
			told++
		}
		now = now.Add(100 * time.Millisecond)
	}
	if told > rolloutBurst+1 {
		t.Errorf("%d Events in a minute, want %d", told, rolloutBurst)
	}
	now = now.Add(2 * rolloutLasts)
	n.Rolled(lifecycle.Rollout{Workload: "other"}, now)
	if len(n.rollouts) != 1 {
		t.Errorf("%d rollouts are remembered, want that of the last day", len(n.rollouts))
	}
}
