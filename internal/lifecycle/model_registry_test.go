package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// entry is one instance of one pod in the model registry. The UID is the mark: pods never touch each other's entries.
type entry struct {
	uid types.UID
	in  Recorded
}

// effect is what a call does once it is carried out.
type effect struct {
	entry entry
	want  Want
	at    time.Time
}

func (e effect) String() string {
	return fmt.Sprintf("%s is %s at %s", e.entry.uid, e.want, e.entry.in.Address)
}

// modelRegistry is a registry that may carry out a call later than it was asked, or without ever saying so.
type modelRegistry struct {
	entries map[entry]Want
	pending []effect
	// outSince is when a pod's last instance went out of rotation; missing where none ever was in.
	outSince map[types.UID]time.Time
}

func newModelRegistry() *modelRegistry {
	return &modelRegistry{entries: map[entry]Want{}, outSince: map[types.UID]time.Time{}}
}

// land carries out what is due, in its order.
func (r *modelRegistry) land(now time.Time) []effect {
	slices.SortStableFunc(r.pending, func(a, b effect) int { return a.at.Compare(b.at) })
	var due []effect
	for len(r.pending) > 0 && !r.pending[0].at.After(now) {
		due = append(due, r.pending[0])
		r.carryOut(r.pending[0])
		r.pending = r.pending[1:]
	}
	return due
}

func (r *modelRegistry) carryOut(e effect) {
	was := r.entries[e.entry]
	if e.want == Absent {
		delete(r.entries, e.entry)
	} else {
		r.entries[e.entry] = e.want
	}
	if was == InService && e.want != InService {
		r.outSince[e.entry.uid] = e.at
	}
}

// inService reports whether any instance of the pod is in rotation.
func (r *modelRegistry) inService(uid types.UID) bool {
	for e, says := range r.entries {
		if e.uid == uid && says == InService {
			return true
		}
	}
	return false
}

// exactly reports whether these instances of the pod are in rotation and the registry knows of no others.
func (r *modelRegistry) exactly(uid types.UID, instances []Recorded) bool {
	known := 0
	for e, says := range r.entries {
		if e.uid == uid {
			known++
			if says != InService || !slices.Contains(instances, e.in) {
				return false
			}
		}
	}
	return known == len(instances)
}

func (r *modelRegistry) knows(uid types.UID) bool {
	for e := range r.entries {
		if e.uid == uid {
			return true
		}
	}
	return false
}
