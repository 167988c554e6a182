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

// TestEveryKindIsPlanned: what CI plays has all of it, whatever the seed.
func TestEveryKindIsPlanned(t *testing.T) {
	t.Parallel()
	cluster := &servers{apart: make([]bool, 3)}
	for _, side := range []registrySide{&standIn{}, cluster} {
		kinds := slices.Concat(side.promised(), cardsOf(side.plan(0).work))
		for seed := range uint64(500) {
			planned, kills := map[kind]int{}, 0
			for round := range len(side.plan(seed).themes) {
				for _, a := range side.plan(seed).round(round) {
					planned[a.kind]++
					if a.kind.isKill() {
						kills++
					}
				}
			}
			for _, k := range kinds {
				if planned[k] == 0 {
					t.Errorf("%T, seed %d: no storm has %q", side, seed, k)
				}
			}
			if kills < enoughKills {
				t.Errorf("%T, seed %d: %d kills, and %d are needed", side, seed, kills, enoughKills)
			}
			if planned[movePods]+planned[wipeHalf]+planned[loseApps] > 0 && side == registrySide(cluster) {
				t.Errorf("seed %d: a cluster has no other registry, no applications, and loses nothing by itself", seed)
			}
		}
	}
}

func TestDeck(t *testing.T) {
	t.Parallel()
	d := deck{seed: 1, stream: streamOfBlows, cards: []kind{"a", "b", "c", "d", "e", "f", "g"}}
	same := 0
	for round := range 100 {
		dealt := map[kind]bool{}
		for i := range d.cards {
			dealt[d.card(round*len(d.cards)+i)] = true
		}
		if len(dealt) != len(d.cards) {
			t.Fatalf("round %d deals only %v", round, dealt)
		}
		if d.card(round*len(d.cards)) == d.card(0) {
			same++
		}
	}
	if same > 50 {
		t.Errorf("%d rounds of 100 begin with the same card: the deck is not shuffled", same)
	}
}

// TestWorldOfEveryRun: registries of every kind are played on, and resync's limit of removals both at its default and raised.
func TestWorldOfEveryRun(t *testing.T) {
	t.Parallel()
	played := map[string]bool{}
	for _, w := range workloads() {
		for _, name := range w.registries {
			played[name] = true
		}
	}
	for _, name := range []string{secondRegistry, leasedRegistry, unlistedRegistry, placedRegistry} {
		if !played[name] {
			t.Errorf("no workload stands in registry %s", name)
		}
	}
	for _, says := range []string{warmUpAnnotation, "rollcall.dev/drain", "rollcall.dev/address", metadataAnnotation} {
		if !slices.ContainsFunc(workloads(), func(w *workload) bool { return w.says[says] != "" }) {
			t.Errorf("no workload has the annotation %s", says)
		}
	}
	if even, odd := fullPlan(2, 7).maxRemovals(), fullPlan(3, 7).maxRemovals(); even != "" || odd == "" {
		t.Errorf("half of the runs must have the default of maxRemovals, and half more: got %q and %q", even, odd)
	}
}
