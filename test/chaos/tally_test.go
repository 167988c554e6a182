package main

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestTally(t *testing.T) {
	t.Parallel()
	var done tally
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { done.add(killAtAnswer) })
		all.Go(func() { done.add(wipeHalf) })
	}
	all.Wait()
	done.add(update)
	if got := done.kills(); got != 10 {
		t.Errorf("%d kills, want 10", got)
	}
	if got := done.faults(); got != 10 {
		t.Errorf("%d faults, want 10: what users do is none", got)
	}
	if got := done.of(wipeHalf); got != 10 {
		t.Errorf("%d times %s, want 10", got, wipeHalf)
	}
	missing := done.missing()
	if slices.Contains(missing, wipeHalf) || slices.Contains(missing, update) || !slices.Contains(missing, holdBack) ||
		!slices.Contains(missing, rollBack) {
		t.Errorf("missing are %q: want the kinds of what is promised that never came", missing)
	}
	if got := done.String(); !strings.Contains(got, "10 × wipe half") || !strings.Contains(got, "0 × add foreign") {
		t.Errorf("the line is %q: it must have every kind, with how often it came", got)
	}
}
