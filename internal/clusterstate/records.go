package clusterstate

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// These bound the memory. Full Records start over, and what is longer than a record of a few entries is decoded each time.
const (
	recordsAtMost = 1024
	longestShared = 2048
)

// Records are [lifecycle.RecordOf] for pods that are read again and again, at each event and visit: an annotation is decoded once. What
// they return is shared, and must not be modified. The zero value is ready, and safe for concurrent use.
type Records struct {
	mu   sync.Mutex
	read map[recordKey]lifecycle.Record
}

type recordKey struct {
	pod  types.UID
	text string
}

// Of returns the pod's record.
func (all *Records) Of(pod *lifecycle.Pod) lifecycle.Record {
	key := recordKey{pod.UID, pod.Annotations[lifecycle.AnnotationRecord]}
	if key.text == "" || len(key.text) > longestShared {
		return lifecycle.RecordOf(pod)
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	record, known := all.read[key]
	if known {
		return record
	}
	if all.read == nil || len(all.read) >= recordsAtMost {
		all.read = map[recordKey]lifecycle.Record{}
	}
	record = lifecycle.RecordOf(pod)
	all.read[key] = record
	return record
}
