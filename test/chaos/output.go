package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// output writes lines that say when. It is safe for concurrent use.
type output struct {
	mu      sync.Mutex
	to      io.Writer
	started time.Time
}

func newOutput(to io.Writer) *output { return &output{to: to, started: time.Now()} }

func (o *output) printf(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(o.to, "%7.1fs  %s\n", time.Since(o.started).Seconds(), fmt.Sprintf(format, args...))
}

func (o *output) plain(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintln(o.to, text)
}

// Write lets the servers' start be told.
func (o *output) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		o.printf("%s", strings.TrimRight(line, "\n"))
	}
	return len(p), nil
}

// at is a time as the lines show it.
func (o *output) at(t time.Time) string { return fmt.Sprintf("%9.3fs", t.Sub(o.started).Seconds()) }
