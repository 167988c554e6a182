package report

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/memory"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
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
		reason.RegistryUnavailable: "Warning RegistryUnavailable connection refused. What to do: check the registry, or the agent or the pod that failed, " +
			"and endpoint, agentEndpoint and timeout in the configuration",
		reason.InvalidPod: "Warning InvalidPod connection refused", // the message shows what to set
		reason.Resolved:   "Normal Resolved connection refused",
	} {
		recorder := events.NewFakeRecorder(1)
		r := &Reporter{Memory: memory.New(), Recorder: recorder, Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0))}
		r.Tell(&lifecycle.Pod{}, why, "connection refused")
		expect.Equal(t, want, <-recorder.Events, "the Event")
	}
}

// TestWaitsTellTheWorkload: metrics and the status page count waits by it.
func TestWaitsTellTheWorkload(t *testing.T) {
	t.Parallel()
	of := func(workload string) func(*quiet) {
		return func(q *quiet) {
			if workload != "" {
				q.in.Pod.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", Name: workload, Controller: new(true)}}
			}
		}
	}
	for _, workload := range []string{"web", ""} {
		r := &Reporter{
			Memory: memory.New(), Recorder: events.NewFakeRecorder(2), Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Calm: func(types.UID) {},
		}
		v := quietPod(appspub.LifecycleStateNormal, warned, of(workload))
		v.Memory = r.Memory.Of(lifecycle.PodID{})
		r.Report(t.Context(), v.Facts, v.Result)
		if waits := r.Memory.Waits(); len(waits) != 1 || waits[0].Workload != workload {
			t.Errorf("the waits are %+v, want one of workload %q", waits, workload)
		}
	}
}
