package report

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/reason"
)

// TestReleasesAreAlwaysTold: what a tenant does to a pod uses up its Events, and must not hide that OpenKruise went on without a registry.
func TestReleasesAreAlwaysTold(t *testing.T) {
	t.Parallel()
	const many = 10 * memory.EventBurst
	recorder := events.NewFakeRecorder(2 * many)
	r := &Reporter{Memory: memory.New(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
	pod := &lifecycle.Pod{}
	pod.UID = types.UID("1")
	for range many {
		r.Tell(pod, reason.SkipRefused, "refused")
	}
	for range 2 {
		r.Tell(pod, reason.ReleasedUnacknowledged, "released")
	}
	close(recorder.Events)
	told := map[string]int{}
	for event := range recorder.Events {
		told[strings.Fields(event)[1]]++
	}
	if told[string(reason.SkipRefused)] != memory.EventBurst || told[string(reason.ReleasedUnacknowledged)] != 2 {
		t.Errorf("Events are %v, want %d of %s, and each release", told, memory.EventBurst, reason.SkipRefused)
	}
}

// TestWarningsSayWhatToDo: whoever reads an Event at night need not look the reason up first.
func TestWarningsSayWhatToDo(t *testing.T) {
	t.Parallel()
	for why, want := range map[reason.Reason]string{
		reason.RegistryUnavailable: "Warning RegistryUnavailable connection refused. What to do: check the registry, and endpoint and timeout of its section in " +
			"the configuration",
		reason.InvalidPod: "Warning InvalidPod connection refused", // the message shows what to set
		reason.Resolved:   "Normal Resolved connection refused",
	} {
		recorder := events.NewFakeRecorder(1)
		r := &Reporter{Memory: memory.New(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
		r.Tell(&lifecycle.Pod{}, why, "connection refused")
		if got := <-recorder.Events; got != want {
			t.Errorf("the Event is %q, want %q", got, want)
		}
	}
}
