package controller

import (
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

const (
	modelSteps = 120
	// envSeed replays one walk: ROLLCALL_MODEL_SEED=17 go test -run TestModel -v. envWalks asks for more of them. envRecord records them.
	envSeed   = "ROLLCALL_MODEL_SEED"
	envWalks  = "ROLLCALL_MODEL_WALKS"
	envRecord = "ROLLCALL_MODEL_RECORD"
)

// walkModel is one walk of the model.
func walkModel(seed uint64) *model {
	m := newModel(seed)
	for range modelSteps {
		m.others()
		m.visit(m.pick())
		if m.violation != "" {
			return m
		}
	}
	if m.chance(10) {
		m.workload = nil // the CloneSet is deleted, and its pods are orphans
		m.manager.State.Workloads.Changed()
	}
	m.rest()
	if m.crashing > 0 && !m.manager.wanders {
		m.die()
		m.rest() // the next one leads
	}
	if m.crashing > 0 && !m.manager.wanders || m.chance(20) {
		m.crash()
		m.rest()
	}
	return m
}

// walkInBubble is a walk that is the same each time, whatever the scheduler does; see [modelTurns].
func walkInBubble(t *testing.T, seed uint64) (m *model) {
	t.Helper()
	synctest.Test(t, func(*testing.T) { m = walkModel(seed) })
	return m
}

// rest ends a walk, or a part of one.
func (m *model) rest() {
	if !m.settle() {
		m.violatef("no rest: something still moves")
	}
	m.checkSettled()
	m.lose()
	m.listAll()
	for _, p := range m.pods {
		m.visit(p)
	}
	m.checkShown(true)
}

// TestModel walks a model of Kruise, kubelet, people and bad registries with the real reconciler, which dies, and checks the
// promises at every step and once everything has come to rest.
//
//nolint:tparallel // the group is over when its subtests are, and they are parallel
func TestModel(t *testing.T) {
	t.Parallel()
	if seed, err := strconv.ParseUint(os.Getenv(envSeed), 10, 64); err == nil {
		m := walkInBubble(t, seed)
		for _, line := range m.trace {
			t.Log(line)
		}
		if m.violation != "" {
			t.Errorf("seed %d: %s", seed, m.violation)
		}
		return
	}
	walks := uint64(modelWalks)
	if more, err := strconv.ParseUint(os.Getenv(envWalks), 10, 64); err == nil {
		walks = more
	}
	recorded := newWalkRecord(t, walks)
	var changes, bad atomic.Int64
	t.Run("walks", func(t *testing.T) {
		const lanes = 4
		for lane := range uint64(lanes) {
			t.Run(strconv.FormatUint(lane, 10), func(t *testing.T) {
				t.Parallel()
				for seed := lane; seed < walks && bad.Load() < 3; seed += lanes {
					m := walkInBubble(t, seed)
					recorded.check(t, seed, m)
					changes.Add(int64(m.changes))
					if m.violation != "" {
						bad.Add(1)
						t.Errorf("%s\n%s=%d replays it. Its end:\n\t%s", m.violation, envSeed, seed, m.traceTail())
					}
				}
			})
		}
	})
	recorded.save(t)
	t.Logf("%d walks, %d changes of pods and calls", walks, changes.Load())
}

// TestModelReplays: a walk that fails does so again.
func TestModelReplays(t *testing.T) {
	t.Parallel()
	const walks = 12 // every combination of a seed's remainders
	for seed := range uint64(walks) {
		first, again := walkInBubble(t, seed), walkInBubble(t, seed)
		for i, line := range first.trace {
			if i >= len(again.trace) || line != again.trace[i] {
				t.Errorf("seed %d: at %q, the second walk took another way", seed, line)
				break
			}
		}
	}
}
