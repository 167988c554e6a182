package main

import (
	"context"
	"errors"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// preferFor is how long the manager that an action is about is waited for, before any other will do.
	preferFor = 2 * time.Second
	// hitWithin is how long any manager is waited for: both may be paused, or about to start.
	hitWithin = pastLease + 6*time.Second
	// endsWithin bounds how long a manager takes that was asked to end.
	endsWithin = 30 * time.Second
	hitPoll    = 50 * time.Millisecond
)

var errNoneToHit = errors.New("there is no manager that runs and that nothing else is done to")

// hit does something to a manager, and reports whether it was done.
func (g *game) hit(ctx context.Context, a action) (done bool, err error) {
	if a.kind == killAtAnswer {
		return g.registry.killAtAnswer(ctx, g)
	}
	victim, running, err := g.managers.seize(ctx, a.kind != killStandby)
	if err != nil {
		return false, err
	}
	defer victim.release()
	switch a.kind {
	case pauseManager:
		sight := g.journal.Blind(time.Now())
		defer func() { sight(time.Now()) }()
		return freeze(ctx, running, a.lasts)
	case stopManager:
		return victim.terminate(ctx, running)
	default:
		return kill(running), nil
	}
}

// seize takes a manager for the caller alone, until it is released: the one that leads or another one, and after a while
// whichever there is.
func (m *managers) seize(ctx context.Context, leading bool) (*contender, *process.Process, error) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < hitWithin; wait.Pause(ctx, hitPoll) {
		leads := m.leader()
		for _, one := range m.all {
			if (one == leads) != leading && time.Since(began) < preferFor {
				continue
			}
			if running := one.seize(); running != nil {
				return one, running, nil
			}
		}
	}
	return nil, nil, errNoneToHit
}

// seize returns the process for the caller alone, or nil where it has ended, or something is done to it already: one that
// is paused is not killed, since the pause would be none.
func (m *contender) seize() *process.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.seized || m.process == nil {
		return nil
	}
	select {
	case <-m.process.Done():
		return nil
	default:
		m.seized = true
		return m.process
	}
}

func (m *contender) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seized = false
}

// kill ends a process with no chance to tidy up, and reports whether that ended it.
func kill(p *process.Process) bool {
	p.Kill()
	return p.Killed()
}

// terminate asks a process to end, which gives its lease back, and waits for that.
func (m *contender) terminate(ctx context.Context, p *process.Process) (done bool, err error) {
	m.mu.Lock()
	m.asked = true
	m.mu.Unlock()
	if err := p.Terminate(); err != nil {
		return false, err
	}
	waiting, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	select {
	case <-p.Done():
		return !p.Killed(), nil
	case <-waiting.Done():
		return false, errors.New("it did not end")
	}
}

// freeze keeps a process from doing anything for so long, and reports whether that outlasted the lease.
func freeze(ctx context.Context, p *process.Process, lasts time.Duration) (done bool, err error) {
	began := time.Now()
	if err := p.Pause(); err != nil {
		return false, err
	}
	wait.Pause(ctx, lasts)
	lasted := time.Since(began)
	if err := p.Resume(); err != nil {
		return false, err
	}
	return lasted > leaseLasts, nil
}
