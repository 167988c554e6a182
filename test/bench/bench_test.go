package main

import (
	"encoding/json"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func podIn(state appspub.LifecycleStateType, inPlace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{
		appspub.LifecycleStateKey: string(state), inPlaceLabel: inPlace, deleteLabel: set,
	}}}
}

func TestAWaveEndsWithTheLastFlip(t *testing.T) {
	t.Parallel()
	l := &load{pods: map[types.NamespacedName]stay{}}
	l.saw(podIn(appspub.LifecycleStateNormal, set), false)
	w, err := l.wave(t.Context(), 1, appspub.LifecycleStatePreparingUpdate, func() error {
		l.saw(podIn(appspub.LifecycleStatePreparingUpdate, set), false)
		if l.left != 1 {
			t.Error("a pod whose hook is not flipped ended the wave")
		}
		<-time.After(time.Millisecond)
		l.saw(podIn(appspub.LifecycleStatePreparingUpdate, notSet), false)
		l.saw(podIn(appspub.LifecycleStatePreparingUpdate, notSet), false)
		return nil
	})
	if err != nil || len(w.latencies) != 1 || w.latencies[0] < time.Millisecond || w.took != w.latencies[0] {
		t.Errorf("the wave is %+v: %v", w, err)
	}
	if written := l.written(); written != 3 {
		t.Errorf("%d versions are others', not the first one, the flip and the one after it", written)
	}
}

func TestFlipped(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		reason  string
		state   appspub.LifecycleStateType
		inPlace string
		want    bool
	}{
		{"nothing waits for a hook in Normal", appspub.LifecycleStateNormal, set, true},
		{"the hook holds the update", appspub.LifecycleStatePreparingUpdate, set, false},
		{"the hook is released", appspub.LifecycleStatePreparingUpdate, notSet, true},
		{"Rollcall takes the label away", appspub.LifecycleStatePreparingUpdate, "", true},
		{"the hook waits to be asserted", appspub.LifecycleStateUpdated, notSet, false},
		{"the hook is asserted", appspub.LifecycleStateUpdated, set, true},
		{"the hook holds the deletion", appspub.LifecycleStatePreparingDelete, set, false},
	} {
		if got := flipped(podIn(tc.state, tc.inPlace)); got != tc.want {
			t.Errorf("%s: %s with %q is flipped: %t", tc.reason, tc.state, tc.inPlace, got)
		}
	}
}

func found() observations {
	var all observations
	for round, floor := range []float64{100, 200, 400} {
		for who, times := range map[string]float64{theFloor: 1, theRecipe: 0.5, theRollcall: 0.9} {
			values := map[string]float64{rate: floor * times, cpu: 1, apiCPU: 2, etcdCPU: 3}
			all = append(all, observation{Case: stormCase(usualDelay), Who: who, Round: round, Values: values},
				observation{Case: stormCase(slowDelay), Who: who, Round: round, Values: values})
		}
	}
	for _, pods := range []int{100, 1000, 10_000} {
		all = append(all,
			observation{Case: sized(growthCase, pods), Who: theRollcall, Values: map[string]float64{seconds: float64(pods) / 250}},
			observation{Case: sized(idleCase, pods), Who: theRollcall, Values: map[string]float64{resident: 40 + float64(pods)/100}})
	}
	return all
}

func TestTableHasRatiosOfOneRound(t *testing.T) {
	t.Parallel()
	s, err := sizesOf("short")
	if err != nil {
		t.Fatal(err)
	}
	table := markdown(found().table(s, 1))
	if want := "| 200 (100–400)"; !strings.Contains(table, want) {
		t.Errorf("the floor's median with its spread, %q, is missing:\n%s", want, table)
	}
	if want := "| 0.9 (0.9–0.9)"; !strings.Contains(table, want) {
		t.Errorf("the ratio does not depend on the round, so it is %q:\n%s", want, table)
	}
	another := observation{Case: stormCase(usualDelay), Who: theBefore, Values: map[string]float64{rate: 77}}
	one := observation{Case: sized(managerCase, 1), Who: theRollcall, Values: map[string]float64{rate: 50}}
	two := observation{Case: sized(managerCase, 2), Who: theRollcall, Values: map[string]float64{rate: 45}}
	table = markdown(append(found(), another, one, two).table(s, 1))
	for _, want := range []string{"| before ", "| 77 ", "| 45 to 50: 0.9 "} {
		if !strings.Contains(table, want) {
			t.Errorf("%q is missing:\n%s", want, table)
		}
	}
}

func TestPeerIsShownWhereItWasMeasured(t *testing.T) {
	t.Parallel()
	s, err := sizesOf("short")
	if err != nil {
		t.Fatal(err)
	}
	if rows := found().besidePeer(s); rows != nil {
		t.Errorf("the peer was not measured, and has a table: %v", rows)
	}
	all := found()
	for who, ms := range map[string]float64{theRollcall: 2, thePeer: 8, theWidePeer: 5} {
		all = append(all, observation{Case: peerCase, Who: who, Values: map[string]float64{cpu: ms}})
	}
	table := strings.Join(strings.Fields(markdown(all.besidePeer(s))), " ")
	if want := "| 300 at once: own CPU, ms a turn | 2 | 8 | 5 | 0.25 |"; !strings.Contains(table, want) {
		t.Errorf("%q is missing:\n%s", want, table)
	}
}

// TestPageHasTheTable: docs/performance.md has the table of the run whose JSON file stands beside it, with its head, and what
// is computed from it.
func TestPageHasTheTable(t *testing.T) {
	t.Parallel()
	const docs = "../../docs/"
	encoded, err := os.ReadFile(docs + "performance/results.json")
	if err != nil {
		t.Fatal(err)
	}
	var run results
	if err := json.Unmarshal(encoded, &run); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(docs + "performance.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{markdown(run.Rows), markdown(observations(run.Observations).paper())} {
		if !strings.Contains(string(page), "\n\n"+table+"\n") {
			t.Errorf("docs/performance.md has not this table of docs/performance/results.json:\n\n%s", table)
		}
	}
}

func TestLinearGrowthHasExponentOne(t *testing.T) {
	t.Parallel()
	if got := found().exponent(); math.Abs(got-1) > 1e-9 {
		t.Errorf("the exponent is %g", got)
	}
}
