package main

import (
	"errors"
	"strings"
	"testing"
)

// TestManagerThatCantBeStarted: with one manager less hardly anything is tested, so the run must not pass.
func TestManagerThatCantBeStarted(t *testing.T) {
	t.Parallel()
	var wrong report
	m := &contender{name: "m1", fail: wrong.note, start: func() error { return errors.New("no such file") }}
	m.keep(t.Context())
	if !wrong.failed() || !strings.Contains(strings.Join(wrong.other, ""), "m1 can't be started: no such file") {
		t.Errorf("the report says %q", wrong.other)
	}
}

// TestKillStaysArmed: a manager that is paused gets no answer, so the next one's counts.
func TestKillStaysArmed(t *testing.T) {
	t.Parallel()
	var r registryServer
	r.killNext(func(manager string) func() {
		if manager == "paused" {
			return nil
		}
		return func() {}
	})
	for _, step := range []struct {
		manager, reason string
		struck          bool
	}{
		{"paused", "it is not to be killed", false},
		{"runs", "the kill is still armed", true},
		{"runs", "one kill is one", false},
	} {
		if strike := r.arm(step.manager); (strike != nil) != step.struck {
			t.Errorf("%s: struck %t, want %t: %s", step.manager, strike != nil, step.struck, step.reason)
		}
	}
}
