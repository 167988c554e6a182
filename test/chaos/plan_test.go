package main

import (
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p := fullPlan(seed, 7)
		for round := range 3 {
			actions := p.round(round)
			if !reflect.DeepEqual(actions, fullPlan(seed, 7).round(round)) {
				t.Fatalf("seed %d, round %d: the plan is another when it is made again", seed, round)
			}
			if reflect.DeepEqual(actions, p.round(round+1)) {
				t.Fatalf("seed %d: rounds %d and %d are the same", seed, round, round+1)
			}
			checkFaults(t, actions)
			for _, k := range slices.Concat(p.always, p.last) {
				if !slices.ContainsFunc(actions, func(a action) bool { return a.kind == k }) {
					t.Errorf("seed %d, round %d: there is no %q", seed, round, k)
				}
			}
		}
	}
}

// checkFaults: two faults of the registry at once, or soon after each other, could delay a call for longer than the design
// assumes.
func checkFaults(t *testing.T, actions []action) {
	t.Helper()
	var ended time.Duration
	for _, a := range actions {
		if !slices.Contains(lasting, a.kind) {
			continue
		}
		if ended > 0 && a.at < ended+faultGap {
			t.Errorf("%s comes %s after the one before", a, a.at-ended)
		}
		ended = a.at + a.lasts
	}
}

func TestEveryKindIsPlanned(t *testing.T) {
	t.Parallel()
	planned := map[kind]bool{}
	for round := range 50 {
		for _, a := range fullPlan(1, 7).round(round) {
			planned[a.kind] = true
		}
	}
	for _, k := range []kind{
		update, recreate, rollBack, scaleOut, scaleIn, cancelDelete, markDeleted, deletePods, forceDelete,
		killManager, killStandby, killAtAnswer, stopManager, pauseManager, restartServer,
		netSlow, netReset, netRefuse, netCut, answer500, loseAnswers, holdBack, wipeHalf, addForeign,
	} {
		if !planned[k] {
			t.Errorf("no storm of fifty has %q", k)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]time.Duration{"": defaultLength, "5m": 5 * time.Minute} {
		if got, err := lengthFrom("CHAOS", value, defaultLength); err != nil || got != want {
			t.Errorf("CHAOS=%s: %s, %v", value, got, err)
		}
	}
	for _, bad := range []string{"5", "-1m", "soon"} {
		if _, err := lengthFrom("CHAOS", bad, defaultLength); err == nil {
			t.Errorf("CHAOS=%s is taken", bad)
		}
	}
	if got, err := seedFrom("42"); err != nil || got != 42 {
		t.Errorf("SEED=42: %d, %v", got, err)
	}
	if _, err := seedFrom("x"); err == nil {
		t.Error("SEED=x is taken")
	}
}
