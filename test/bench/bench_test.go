package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func podIn(state appspub.LifecycleStateType, inPlace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{
		appspub.LifecycleStateKey: string(state), inPlaceLabel: inPlace, deleteLabel: set,
	}}}
}

func TestAWaveEndsWithTheLastFlip(t *testing.T) {
	t.Parallel()
	l := &load{pods: map[types.NamespacedName]stay{}, waves: map[goal]*underway{}}
	l.saw(podIn(appspub.LifecycleStateNormal, set), false)
	w, err := l.wave(t.Context(), 1, appspub.LifecycleStatePreparingUpdate, func() error {
		l.saw(podIn(appspub.LifecycleStatePreparingUpdate, set), false)
		expect.Equal(t, 1, l.waves[goal{state: appspub.LifecycleStatePreparingUpdate}].left, "a pod whose hook is not flipped ended the wave")
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
		expect.Equal(t, tc.want, flipped(podIn(tc.state, tc.inPlace)), "%s: %s with %q is flipped", tc.reason, tc.state, tc.inPlace)
	}
}

// TestPageHasTheRun: docs/performance.md has the tables of the run whose JSON file stands beside it, and the pictures there are
// those of it. Each is made of the observations anew.
func TestPageHasTheRun(t *testing.T) {
	t.Parallel()
	const docs = "../../docs/"
	encoded, err := os.ReadFile(docs + "performance/results.json")
	expect.NoError(t, err)
	var run results
	expect.NoError(t, json.Unmarshal(encoded, &run))
	page, err := os.ReadFile(docs + "performance.md")
	expect.NoError(t, err)
	s, err := sizesOf(run.Sizes)
	expect.NoError(t, err)
	all := observations(run.Observations)
	if table := markdown(all.table(s, all.exponent(theRollcall))); !strings.Contains(string(page), "\n\n"+table+"\n") {
		t.Errorf("docs/performance.md has not this table of docs/performance:\n\n%s", table)
	}
	dir := t.TempDir()
	expect.NoError(t, all.plot(s, all.exponent(theRollcall), dir))
	pictures, err := os.ReadDir(docs + "performance")
	expect.NoError(t, err)
	for _, p := range pictures {
		shown, err := os.ReadFile(docs + "performance/" + p.Name())
		expect.NoError(t, err)
		if drawn, err := os.ReadFile(filepath.Join(dir, p.Name())); filepath.Ext(p.Name()) == ".svg" && !bytes.Equal(shown, drawn) {
			t.Errorf("docs/performance/%s is of another run: %v", p.Name(), err)
		}
	}

	// What a run leaves out has no column, no rows and no table.
	another := observation{Case: stormCase(usualDelay), Who: theBefore, Values: map[string]float64{rate: 77}}
	if table := markdown(append(all, another).table(s, 0)); !strings.Contains(table, "| before ") || !strings.Contains(table, "| 77 ") {
		t.Errorf("another build takes part, and has no column:\n%s", table)
	}
	if none := (observations{}).table(s, 0); len(none) != 1 {
		t.Errorf("nothing was measured, and shown is %v", none)
	}
}

// TestTableOfTheCut: a registry has a row if it was measured, with the ratios of each round.
func TestTableOfTheCut(t *testing.T) {
	t.Parallel()
	s := sizes{inLarge: 10_000}
	if rows := (observations{}).cut(s); len(rows) != 1 {
		t.Errorf("nothing was measured, and shown is %v", rows)
	}
	all := observations{
		{Case: sized(cutCase, s.inLarge) + " etcd", Who: theRollcall, Values: map[string]float64{
			seconds: 12, landed: 84, rate: 36, quietRate: 40, p99: 60, quietP99: 30,
		}},
		{Case: sized(cutCase, s.inLarge) + " etcd", Who: theRollcall, Round: 1, Values: map[string]float64{
			seconds: 14, landed: 84, rate: 20, quietRate: 40, p99: 30, quietP99: 30,
		}},
	}
	want := []string{"etcd", "84 (84–84)", "13 (12–14)", "28 (20–36)", "40 (40–40)", "0.7 (0.5–0.9)", "45 (30–60)", "30 (30–30)", "1.5 (1–2)"}
	expect.Equal(t, want, all.cut(s)[1], "the row")
}

func TestWhatIsPossibleHasOneCall(t *testing.T) {
	t.Parallel()
	s := storm{delay: 500 * time.Millisecond, pods: 300}
	all := observations{{Case: s.String(), Who: theFloor, Values: map[string]float64{rate: 300}}}
	expect.Equal(t, []float64{200}, all.possible(s), "300 pods take the floor 1 s, and a call of 0.5 s more")
}
