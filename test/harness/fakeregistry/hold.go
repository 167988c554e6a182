package fakeregistry

import (
	"context"
	"fmt"
	"sync"
)

// Hold is a gate that calls of a [Registry] wait at. It is safe for concurrent use.
type Hold struct {
	stop     func()
	released chan struct{}

	mu      sync.Mutex
	reached int
	isOpen  bool
	late    []func()
	changed chan struct{} // closed and replaced at each arrival
}

// Release lets the waiting calls go, and later ones pass. Work that is to land late has landed when it returns. Further
// calls of Release do nothing.
func (h *Hold) Release() {
	h.stop()
	h.mu.Lock()
	late := h.late
	if !h.isOpen {
		h.isOpen = true
		close(h.released)
	}
	h.late = nil
	h.mu.Unlock()
	for _, work := range late {
		work()
	}
}

// AwaitReached returns when n calls in all have come to the gate, or with the context's error.
func (h *Hold) AwaitReached(ctx context.Context, n int) error {
	for {
		h.mu.Lock()
		reached, changed := h.reached, h.changed
		h.mu.Unlock()
		if reached >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %d held calls, %d so far: %w", n, reached, ctx.Err())
		case <-changed:
		}
	}
}

func (h *Hold) reach() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reached++
	close(h.changed)
	h.changed = make(chan struct{})
}

// meet has a call wait, and land after its caller has given up where it is late.
func (h *Hold) meet(late bool) behaviour {
	return func(ctx context.Context, work func(context.Context) error) error {
		h.reach()
		select {
		case <-ctx.Done():
			if late {
				h.later(func() { _ = work(context.WithoutCancel(ctx)) }) // its caller has gone
			}
			return ctx.Err()
		case <-h.released:
			return work(ctx)
		}
	}
}

// later keeps work until the gate opens; when it is open already, the work lands now.
func (h *Hold) later(work func()) {
	h.mu.Lock()
	if !h.isOpen {
		h.late = append(h.late, work)
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	work()
}
