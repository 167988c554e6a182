package main

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// TestHits does to two processes what is done to managers.
func TestHits(t *testing.T) {
	t.Parallel()
	launcher := process.NewLauncher()
	t.Cleanup(launcher.Close)
	begin := func(name string) *contender {
		p, err := process.Start(launcher, t.TempDir(), process.Command{Name: name, Path: "/bin/sleep", Args: []string{"600"}})
		expect.NoError(t, err)
		return &contender{name: name, renewed: func() time.Time { return time.Time{} }, process: p, out: newOutput(io.Discard)}
	}
	leads, other := begin("m1"), begin("m2")
	leads.renewed = func() time.Time { return time.Now().Add(time.Hour) }
	m := &managers{all: []*contender{leads, other}}
	seize := func(leading bool) (*contender, *process.Process) {
		t.Helper()
		got, running, err := m.seize(t.Context(), leading)
		expect.NoError(t, err)
		return got, running
	}

	got, _ := seize(false)
	if got != other {
		t.Errorf("the other manager is %s", got.name)
	}
	got.release()
	got, running := seize(true)
	if got != leads {
		t.Errorf("the leading manager is %s", got.name)
	}
	if done, err := freeze(t.Context(), running, time.Millisecond); done || err != nil {
		t.Errorf("a pause that is shorter than the lease counts: %t, %v", done, err)
	}

	// It is still seized, as one that is paused is.
	got, running = seize(true)
	if got != other {
		t.Errorf("%s is hit while something is done to it", got.name)
	}
	if !kill(running) {
		t.Error("a kill of a process that ran does not count")
	}
	got.release()
	if other.seize() != nil {
		t.Error("a manager can be hit that has ended")
	}

	leads.release()
	got, running = seize(true)
	if done, err := got.terminate(t.Context(), running); !done || err != nil {
		t.Errorf("a manager that was asked to end, and did, does not count: %t, %v", done, err)
	}
	got.release()
	if kill(running) {
		t.Error("a kill of a process that had ended counts")
	}
	ended, cancel := context.WithTimeout(t.Context(), 3*hitPoll)
	defer cancel()
	if got, _, err := m.seize(ended, true); err == nil {
		t.Errorf("manager %s is hit, and none runs", got.name)
	}
}
