package lifecycle

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
)

const (
	// mutantWalks are so many that each mutant is found several times over.
	mutantWalks = 2000
	modelSteps  = 120
	// envSeed replays one walk: ROLLCALL_MODEL_SEED=17 go test -run TestModel -v. envWalks asks for more of them.
	envSeed  = "ROLLCALL_MODEL_SEED"
	envWalks = "ROLLCALL_MODEL_WALKS"
)

func sound() rules { return rules{decide: Decide} }

// walk is one walk of the model.
func walk(t testing.TB, seed uint64, r rules) *world {
	t.Helper()
	w := newWorld(seed)
	m := newManager(t, w, r)
	for range modelSteps {
		w.others()
		m.reconcile(w.pick())
		if w.violation != "" {
			return w
		}
	}
	if w.chance(10) {
		w.workload = nil // the CloneSet is deleted, and its pods are orphans
	}
	if !w.settle(m) {
		w.violatef("no rest: something still moves")
	}
	w.checkSettled()
	return w
}

// TestModel walks a model of Kruise, kubelet, people, a bad registry and a manager that dies, and checks the promises at
// every step and once everything has come to rest.
//
//nolint:tparallel // the group is over when its subtests are, and they are parallel
func TestModel(t *testing.T) {
	t.Parallel()
	if seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64); err == nil {
		w := walk(t, seed, sound())
		for _, line := range w.trace {
			t.Log(line)
		}
		if w.violation != "" {
			t.Errorf("seed %d: %s", seed, w.violation)
		}
		return
	}
	walks := uint64(modelWalks)
	if more, err := strconv.ParseUint(os.Getenv(envWalks), 10, 64); err == nil {
		walks = more
	}
	var changes, bad atomic.Int64
	t.Run("walks", func(t *testing.T) {
		const lanes = 4
		for lane := range uint64(lanes) {
			t.Run(strconv.FormatUint(lane, 10), func(t *testing.T) {
				t.Parallel()
				for seed := lane; seed < walks && bad.Load() < 3; seed += lanes {
					w := walk(t, seed, sound())
					changes.Add(int64(w.changes))
					if w.violation != "" {
						bad.Add(1)
						t.Errorf("%s\n%s=%d replays it. Its end:\n\t%s", w.violation, envSeed, seed, w.traceTail())
					}
				}
			})
		}
	})
	t.Logf("%d walks, %d changes of pods and calls", walks, changes.Load())
}

// TestModelFindsMutants proves that the walk can fail.
func TestModelFindsMutants(t *testing.T) {
	t.Parallel()
	if leavesMutants {
		t.Skip("the race detector makes it ten times as slow: make test-unit runs it without")
	}
	mutants := map[string]struct {
		reason string
		mutate func(*rules)
	}{
		"record is the truth": {
			reason: "a call succeeds and the patch after it is lost: the record lies",
			mutate: func(r *rules) { r.trustRecord = true },
		},
		"no tests in the patch": {
			reason: "a pod that moved on is flipped, and other owners' finalizers get lost",
			mutate: func(r *rules) { r.patch = withoutTests },
		},
		"release before the acknowledgement": {
			reason: "Kruise goes on while the registry still sends traffic",
			mutate: func(r *rules) { r.releaseUnasked = true },
		},
		"never arm": {
			reason: "Kruise does not ask",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					d.Arm = Edit{}
					return d
				}
			},
		},
		"arm after the registry was told": {
			reason: "in between, Kruise does not ask",
			mutate: func(r *rules) { r.armAfterRegister = true },
		},
		"preNormal stays set in PreparingDelete": {
			reason: "a cancelled scale-in makes the pod count as available before it is back",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					if d.Row == RowPreparingDelete {
						d.Out, d.Then.Clear = Edit{}, without(d.Then.Clear, without(in.Hooks.PreNormal, in.Hooks.PreDelete))
					}
					return d
				}
			},
		},
		"preNormal stays set during the drain": {
			reason: "a scale-in that is cancelled before the drain has passed makes the pod count as available while it is out",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					d.Out = Edit{}
					return d
				}
			},
		},
		"preNormal stays set in PreparingUpdate": {
			reason: "a scale-in that is cancelled during an update makes the pod count as available before it is back",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					if d.Row == RowPreparingUpdate || d.Row == RowUpdating || d.Row == RowUpdatedNotReady {
						d.Out, d.Then.Clear = Edit{}, without(d.Then.Clear, without(in.Hooks.PreNormal, in.Hooks.InPlaceUpdate))
					}
					return d
				}
			},
		},
		"release one of several handlers": {
			reason: "Kruise waits for all of them",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					d.Then.Clear = d.Then.Clear[:min(1, len(d.Then.Clear))]
					if d.Row == RowPreparingUpdate && len(in.Hooks.InPlaceUpdate) == 2 && !in.Hooks.InPlaceUpdate[0].setOn(in.Pod) {
						d.Then.Clear = nil
					}
					return d
				}
			},
		},
		"Normal keeps": {
			reason: "trap 1: nobody puts a pod back that was rolled back in PreparingUpdate",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					if d.Row == RowNormal {
						d.Want = Keep
					}
					return d
				}
			},
		},
		"a pod that is not ready is kept without a panic": {
			reason: "the policy is to take it out",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					in.Unready = UnreadyKeep
					return Decide(in)
				}
			},
		},
		"Updated is not held back by readiness": {
			reason: "Ready is not promised in Updated",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					if d.Row == RowUpdatedNotReady {
						d.Want = InService
					}
					return d
				}
			},
		},
		"finalizers stay on the dead": {
			reason: "a pod that nobody frees never goes",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					d := Decide(in)
					if d.Row == RowGone {
						d.Then.Clear = nil
					}
					return d
				}
			},
		},
		"the guard goes first": {
			reason: "a pod that vanishes before it was taken out leaves its entries",
			mutate: func(r *rules) {
				r.decide = func(in Input) Decision {
					if in.Pod.DeletionTimestamp != nil {
						in.Guard = GuardFree
					}
					return Decide(in)
				}
			},
		},
		"late calls are forgotten": {
			reason: "a Register that timed out lands after the FailOver",
			mutate: func(r *rules) { r.ignoreLate = true },
		},
		"settled by the answer": {
			reason: "the late call lands while the one that shall settle it is under way",
			mutate: func(r *rules) { r.settleByAnswer = true },
		},
		"a restart forgets the drain": {
			reason: "the time stands in the record",
			mutate: func(r *rules) { r.forgetDrain = true },
		},
		"the former address stays": {
			reason: "a new sandbox has a new address",
			mutate: func(r *rules) { r.keepFormer = true },
		},
		"no record means never in": {
			reason: "the manager dies between the call and the patch",
			mutate: func(r *rules) { r.unbornNeverIn = true },
		},
		"the gone are forgotten": {
			reason: "a pod with labels alone vanishes at once",
			mutate: func(r *rules) { r.forgetGone = true },
		},
		"the next leader acts at once": {
			reason: "a call of the one before lands in between",
			mutate: func(r *rules) { r.nextActsAtOnce = true },
		},
		"one instance stands for all": {
			reason: "a pod may have several",
			mutate: func(r *rules) { r.callOnceForAll = true },
		},
		"a failed call did nothing": {
			reason: "an error makes the outcome unknown",
			mutate: func(r *rules) { r.noteOnlySuccesses = true },
		},
	}
	for name, tc := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := sound()
			tc.mutate(&r)
			for seed := range uint64(mutantWalks) {
				if w := walk(t, seed, r); w.violation != "" {
					t.Logf("seed %d: %s", seed, w.violation)
					return
				}
			}
			t.Errorf("%d walks found nothing wrong, although %s", mutantWalks, tc.reason)
		})
	}
}

// withoutTests takes the tests out of a patch.
func withoutTests(patch []byte) []byte {
	var operations []Operation
	if err := json.Unmarshal(patch, &operations); err != nil {
		panic(err)
	}
	text, err := json.Marshal(slices.DeleteFunc(operations, func(o Operation) bool { return o.Op == "test" }))
	if err != nil {
		panic(err)
	}
	return text
}
