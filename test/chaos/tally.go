package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// tally counts what was done on purpose, by kind. An action counts when it was done, not when it was planned. The zero
// value is empty. It is safe for concurrent use.
type tally struct {
	mu   sync.Mutex
	done map[kind]int
}

func (t *tally) add(k kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done == nil {
		t.done = map[kind]int{}
	}
	t.done[k]++
}

// of is how often these kinds were done together.
func (t *tally) of(kinds ...kind) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range kinds {
		n += t.done[k]
	}
	return n
}

func (t *tally) kills() int { return t.of(killKinds()...) }

func (t *tally) faults() int { return t.of(faultKinds()...) }

// missing returns the kinds of what is promised that never came.
func (t *tally) missing(promised []kind) []kind {
	return slices.DeleteFunc(slices.Clone(promised), func(k kind) bool { return t.of(k) > 0 })
}

// counted is one line with how often each kind was.
func counted(kinds []kind, of func(...kind) int) string {
	var words []string
	for _, k := range kinds {
		words = append(words, fmt.Sprintf("%d × %s", of(k), k))
	}
	return strings.Join(words, "; ")
}
