package cache

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress writes one line for each step, and is safe for concurrent use.
type Progress struct {
	mu     sync.Mutex
	out    io.Writer
	prefix string
}

// NewProgress writes to out, which may be nil, lines that begin with prefix and a colon.
func NewProgress(out io.Writer, prefix string) *Progress {
	if out == nil {
		out = io.Discard
	}
	return &Progress{out: out, prefix: prefix}
}

// Printf writes one line.
func (p *Progress) Printf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, _ = fmt.Fprintf(p.out, p.prefix+": "+format+"\n", args...)
}

// every calls tell now and then with the time that has passed, until the function that it returns is called.
func (p *Progress) every(tell func(took time.Duration)) (stop func()) {
	started, done := time.Now(), make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		ticker := time.NewTicker(progressEvery)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				tell(time.Since(started).Round(time.Second))
			}
		}
	})
	return func() {
		close(done)
		telling.Wait()
	}
}
