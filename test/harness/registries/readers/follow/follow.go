// Package follow is what the readers have in common.
package follow

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// Main runs a reader, which tells the addresses that it has, and again whenever that may have changed. Each change of them is a line of
// JSON. It ends with the process that started this one.
func Main(run func(tell func(addresses []string)) error) {
	lines := &lines{out: json.NewEncoder(os.Stdout)}
	err := run(lines.tell)
	if err == nil {
		_, err = io.Copy(io.Discard, os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "reader:", err)
		os.Exit(1)
	}
}

type lines struct {
	mu   sync.Mutex
	out  *json.Encoder
	last []string
}

func (l *lines) tell(addresses []string) {
	now := slices.Compact(slices.Sorted(slices.Values(addresses)))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || !slices.Equal(l.last, now) {
		l.last = append([]string{}, now...)
		_ = l.out.Encode(l.last)
	}
}
