package clusterstate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Revisions counts the pods that share their workload's traffic, by revision. Its events are those of [Panics]; a count costs a visit
// the same for any number of pods.
type Revisions struct {
	mu   sync.Mutex
	sets map[types.UID]*revisionsOf
	// changed are workloads of which a count has changed since somebody asked for it.
	changed map[types.UID]bool
	signal  chan struct{}
}

type revisionsOf struct {
	counts map[string]Count
	// asked: somebody relies on the counts.
	asked bool
}

// Count is of the pods of one revision or several.
type Count struct {
	// Serving are those that are in rotation or about to be, In those of them that their record shows to be.
	Serving, In int
}

func (c Count) plus(other Count) Count { return Count{c.Serving + other.Serving, c.In + other.In} }

// counted is where a pod counts; zero for nowhere.
type counted struct {
	workload types.UID
	revision string
	in       bool
}

func newRevisions() *Revisions {
	return &Revisions{sets: map[types.UID]*revisionsOf{}, changed: map[types.UID]bool{}, signal: make(chan struct{}, 1)}
}

// countedAs returns where the pod counts.
func countedAs(in lifecycle.Input) counted {
	owner := OwnerOf(in.Pod)
	if owner == nil || owner.Kind != KindCloneSet || !in.InTraffic() {
		return counted{}
	}
	return counted{owner.UID, lifecycle.RevisionOf(in.Pod), in.Record.Want == lifecycle.InService}
}

func (r *Revisions) moved(before, now counted) {
	if before == now {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(before, -1)
	r.add(now, 1)
}

func (r *Revisions) add(one counted, n int) {
	if one.workload == "" {
		return
	}
	set := r.sets[one.workload]
	if set == nil {
		set = &revisionsOf{counts: map[string]Count{}}
		r.sets[one.workload] = set
	}
	change := Count{Serving: n}
	if one.in {
		change.In = n
	}
	if set.counts[one.revision] = set.counts[one.revision].plus(change); set.counts[one.revision] == (Count{}) {
		delete(set.counts, one.revision)
	}
	if set.asked {
		r.changed[one.workload], set.asked = true, false
		select {
		case r.signal <- struct{}{}:
		default: // a signal is waiting already
		}
	}
	if len(set.counts) == 0 {
		delete(r.sets, one.workload)
	}
}

// Of returns how many pods of the workload's stable revision share its traffic, and how many others. Once one of them changes, there is
// one [Revisions.Signal].
func (r *Revisions) Of(workload types.UID, stable string) (ofStable, ofOthers Count) {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.sets[workload]
	if set == nil { // whoever asks does not count, so that its weight does not matter
		return Count{}, Count{}
	}
	set.asked = true
	for revision, count := range set.counts {
		if revision == stable {
			ofStable = count
		} else {
			ofOthers = ofOthers.plus(count)
		}
	}
	return ofStable, ofOthers
}

// In returns how many pods of the workload's revision are in rotation by their records.
func (r *Revisions) In(workload types.UID, revision string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if set := r.sets[workload]; set != nil {
		return set.counts[revision].In
	}
	return 0
}

// Signal receives when [Revisions.TakeChanged] has workloads.
func (r *Revisions) Signal() <-chan struct{} { return r.signal }

// TakeChanged returns each workload once after a change.
func (r *Revisions) TakeChanged() (workloads []types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for uid := range r.changed {
		workloads = append(workloads, uid)
	}
	clear(r.changed)
	return workloads
}
