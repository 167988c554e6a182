package notes

import (
	"testing"
	"time"
)

func TestBlockersTogether(t *testing.T) {
	t.Parallel()
	soon, late, event := Blocker{Reason: "Soon", After: time.Second}, Blocker{Reason: "Late", After: time.Minute}, Blocker{Reason: "Event"}
	for name, tc := range map[string]struct {
		reason     string
		one, other Blocker
		want       Blocker
	}{
		"nothing":             {"nothing is missing", Blocker{}, Blocker{}, Blocker{}},
		"the first":           {"the other has come", soon, Blocker{}, soon},
		"the second":          {"the first has come", Blocker{}, late, late},
		"the sooner is first": {"one look is for both", soon, late, soon},
		"the later is first":  {"the first is shown, and neither waits for the other", late, soon, Blocker{Reason: "Late", After: time.Second}},
		"an event, then time": {"the event may not be about the other", event, late, Blocker{Reason: "Event", After: time.Minute}},
		"time, then an event": {"no event takes the time away", late, event, late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.one.And(tc.other); got != tc.want {
				t.Errorf("got %+v, want %+v\nreason: %s", got, tc.want, tc.reason)
			}
		})
	}
}
