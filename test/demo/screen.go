package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// clock is how a moment is shown.
const clock = "15:04:05.0"

// screen is what the reader sees. It is safe for concurrent use: each call writes whole lines.
type screen struct {
	mu  sync.Mutex
	out io.Writer
}

func newScreen(out io.Writer) *screen { return &screen{out: out} }

// Write implements io.Writer for those who write lines of their own.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *screen) line(format string, args ...any) {
	// When the terminal has gone there is no reader left.
	_, _ = fmt.Fprintf(s, format+"\n", args...)
}

// heading writes a line that begins a part.
func (s *screen) heading(format string, args ...any) {
	s.line("\n==> "+format, args...)
}

// at writes what happened at a moment to a pod, or to none.
func (s *screen) at(when time.Time, pod, format string, args ...any) {
	s.line("%s  %-9s  %s", when.Format(clock), pod, fmt.Sprintf(format, args...))
}

// tell is at for a text that is complete.
func (s *screen) tell(when time.Time, pod, what string) { s.at(when, pod, "%s", what) }

// banner writes the title of a half, and what there is to see in it.
func (s *screen) banner(title string, about ...string) {
	rule := strings.Repeat("=", 98)
	s.line("\n%s\n%s\n%s\n%s", rule, title, strings.Join(about, "\n"), rule)
}
