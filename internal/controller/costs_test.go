package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// TestCosts holds what a rollout costs: a call and a write for each pod that has to join or leave, and nothing else. Each pod
// is looked at twice, as it is for the event of the manager's own write.
func TestCosts(t *testing.T) {
	t.Parallel()
	const count = 10
	type costs struct{ Registers, FailsOver, Deregisters, Writes, Lists, Reads int }
	w := newWorld(t)
	web := w.cloneSet("web")
	var pods []*corev1.Pod
	for i := range count {
		pods = append(pods, w.bornPod(web, fmt.Sprintf("web-%d", i)))
	}
	for _, step := range []struct {
		reason string
		state  appspub.LifecycleStateType
		want   costs // of each pod
	}{
		{"a new pod joins", appspub.LifecycleStatePreparingNormal, costs{Registers: 1, Writes: 1}},
		{"nothing waits for a hook", appspub.LifecycleStateNormal, costs{}},
		{"the pod leaves before its update", appspub.LifecycleStatePreparingUpdate, costs{FailsOver: 1, Writes: 1}},
		{"nothing waits for a hook", appspub.LifecycleStateUpdating, costs{}},
		{"the pod is back", appspub.LifecycleStateUpdated, costs{Registers: 1, Writes: 1}},
		{"it is in service already", appspub.LifecycleStateNormal, costs{}},
		{"the pod leaves for ever", appspub.LifecycleStatePreparingDelete, costs{Deregisters: 1, Writes: 1}},
	} {
		w.takeJournal()
		w.liveReads = 0
		for _, pod := range pods {
			w.reconcileIn(pod, step.state)
			w.tell(pod)
		}
		for _, pod := range pods {
			w.reconcile(pod)
		}
		want := step.want
		for _, n := range []*int{&want.Registers, &want.FailsOver, &want.Deregisters, &want.Writes} {
			*n *= count
		}
		got := costs{Reads: w.liveReads}
		into := map[string]*int{
			"Register": &got.Registers, "FailOver": &got.FailsOver, "Deregister": &got.Deregisters, "write": &got.Writes, "List": &got.Lists,
		}
		for _, line := range w.takeJournal() {
			what, _, _ := strings.Cut(line, " ")
			if into[what] == nil {
				t.Fatalf("%q is neither a change, a list nor a write", line)
			}
			*into[what]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d pods in %s: %s (-want +got):\n%s", count, step.state, step.reason, diff)
		}
	}
	if got := w.takeEvents(); len(got) > 0 {
		t.Errorf("a rollout without trouble has Events: %q", got)
	}
}
