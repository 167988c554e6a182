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
	if kills, faults, wipes := done.kills(), done.faults(), done.of(wipeHalf); kills != 10 || faults != 10 || wipes != 10 {
		t.Errorf("%d kills, %d faults and %d wipes, want 10 of each: what users do is none", kills, faults, wipes)
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
