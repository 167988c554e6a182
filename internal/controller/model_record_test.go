package controller

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"sync/atomic"
	"testing"
)

// walksFile has a digest for each recorded walk, in the order of seeds.
const walksFile = "testdata/walks.txt"

// walkRecord holds walks against their recorded digests, each over all that others did, calls, patches, Events and what pods wait for. So a
// change of the code that is to change nothing shows that it does not. A change that is to change something records them again, by
// make record-walks, and its commit gives the reason for the differences.
type walkRecord struct {
	records  bool
	digests  []uint64
	compared atomic.Int64
	unlike   atomic.Int64
}

func newWalkRecord(t *testing.T, walks uint64) *walkRecord {
	t.Helper()
	switch os.Getenv(envRecord) {
	case "":
	case "off": // for hack/unneeded: a walk also differs if nobody minds
		return &walkRecord{}
	default:
		return &walkRecord{records: true, digests: make([]uint64, walks)}
	}
	text, err := os.ReadFile(walksFile)
	if err != nil {
		t.Fatalf("reading the recorded walks: %v", err)
	}
	r := &walkRecord{}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var digest uint64
		if _, err := fmt.Sscanf(lines.Text(), "%x", &digest); err != nil {
			t.Fatalf("%s: line %d is not a digest: %v", walksFile, len(r.digests)+1, err)
		}
		r.digests = append(r.digests, digest)
	}
	return r
}

func digestOf(m *model) uint64 {
	h := fnv.New64a()
	for _, line := range m.trace {
		_, _ = fmt.Fprintln(h, line)
	}
	return h.Sum64()
}

// isUnlike reports whether the walk was recorded and differs. Which of the entries that are brought to rest at the same time meets a fault
// is up to the scheduler, in one walk of a thousand: so one that differs is walked again, and what has changed always differs.
func (r *walkRecord) isUnlike(t *testing.T, seed uint64, m *model) bool {
	t.Helper()
	for range 5 {
		if seed >= uint64(len(r.digests)) || r.digests[seed] == digestOf(m) {
			return false
		}
		m = walkInBubble(t, seed)
	}
	return true
}

// check compares the walk, or records it. Walks beyond the recorded ones are not compared.
func (r *walkRecord) check(t *testing.T, seed uint64, m *model) {
	t.Helper()
	switch {
	case r.records && seed < uint64(len(r.digests)):
		r.digests[seed] = digestOf(m)
	case r.isUnlike(t, seed, m):
		if r.unlike.Add(1) <= 3 { // the others differ for the same reason, most likely
			t.Errorf("seed %d is another walk than the recorded one: compare the output of %s=%d go test -run 'TestModel$' -v "+
				"./internal/controller with that of the commit before; if the change is meant to differ, make record-walks", seed, envSeed, seed)
		}
	}
	r.compared.Add(1)
}

func (r *walkRecord) save(t *testing.T) {
	t.Helper()
	if unlike := r.unlike.Load(); unlike > 0 {
		t.Errorf("%d of %d walks differ from the recorded ones", unlike, r.compared.Load())
	}
	if !r.records {
		return
	}
	var text bytes.Buffer
	for _, digest := range r.digests {
		fmt.Fprintf(&text, "%016x\n", digest)
	}
	if err := os.WriteFile(walksFile, text.Bytes(), 0o600); err != nil {
		t.Fatalf("recording the walks: %v", err)
	}
}
