package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// usualDelay is how long the registry takes where a case does not say otherwise, and pace the moves in a second.
	usualDelay    = 5 * time.Millisecond
	slowDelay     = 100 * time.Millisecond
	verySlowDelay = 500 * time.Millisecond
	pace          = 40

	pacedCase   = "40 a second"
	foreignCase = "foreign pods"
	growthCase  = "growth"
	restartCase = "restart"
	batchCase   = "batches"
	managerCase = "managers"
	idleCase    = "idle"

	large = "large"
)

// mostRounds are those of a part that takes minutes for each.
const mostRounds = 3

// part is some of what is measured; the variable PART names one.
type part struct {
	name    string
	measure func(context.Context) error
}

func (b *bench) parts(only string) ([]part, error) {
	all := []part{
		{"rounds", b.rounds}, {"foreign", b.foreignPods}, {"batches", b.batches}, {"managers", b.managers},
		{"profile", b.profile}, {"growth", b.grow}, {"cut", b.cut},
	}
	if b.name == large {
		all = []part{{"growth", b.growBesideFloor}, {"consul", b.growWithConsul}}
	}
	if only == "" {
		return all, nil
	}
	for _, p := range all {
		if p.name == only {
			return []part{p}, nil
		}
	}
	return nil, fmt.Errorf("PART is %q: write rounds, foreign, batches, managers, profile, growth or cut, with BENCH=large growth or "+
		"consul, or leave it out for all", only)
}

// sizes are how much of everything is measured.
type sizes struct {
	name   string
	rounds int
	storms []storm
	// paced is the pods of the case at a pace, foreign those of others, growth the steps of managed pods, one of which is
	// restart, and batch the pods of the storm in batches, and of that with several managers.
	paced, foreign, restart, batch int
	growth                         []int
	// inLarge are the pods of the large service in the case with the cut, and inOther those of the other one.
	inLarge, inOther int
	// profiled is how long the CPU is profiled.
	profiled time.Duration
}

// storm is pods at once with a delay of the registry, in the first rounds or in all. The recipe gets fewer pods where it
// would take minutes.
type storm struct {
	delay                    time.Duration
	pods, recipePods, rounds int
	// oneService has all pods in one service, and not in ten.
	oneService bool
}

func (s storm) String() string {
	if s.oneService {
		return stormCase(s.delay) + " of one"
	}
	return stormCase(s.delay)
}

func stormCase(delay time.Duration) string { return "storm " + delay.String() }

// sizesOf reads the variable BENCH.
func sizesOf(value string) (sizes, error) {
	switch value {
	case "", "full":
		return sizes{
			name: "full", rounds: 5,
			storms: []storm{
				{delay: usualDelay, pods: 600}, {delay: slowDelay, pods: 300, recipePods: 100},
				{delay: time.Millisecond, pods: 300, rounds: 2}, {delay: 20 * time.Millisecond, pods: 300, recipePods: 100, rounds: 2},
				{delay: verySlowDelay, pods: 300, recipePods: 30, rounds: 2},
				{delay: verySlowDelay, pods: 300, recipePods: 30, rounds: 2, oneService: true},
			},
			paced: 200, foreign: 10_000, growth: []int{100, 300, 1000, 3000, 10_000, 20_000}, restart: 10_000, batch: 1000,
			inLarge: 10_000, inOther: 600, profiled: 15 * time.Second,
		}, nil
	case "short":
		return sizes{
			name: "short", rounds: 1,
			storms: []storm{{delay: usualDelay, pods: 300}, {delay: slowDelay, pods: 200, recipePods: 60}},
			paced:  100, foreign: 500, growth: []int{100, 300, 1000}, restart: 1000, batch: 500,
			inLarge: 500, inOther: 300, profiled: 5 * time.Second,
		}, nil
	case "slow":
		return sizes{
			name: "slow", rounds: 2,
			storms: []storm{
				{delay: usualDelay, pods: 300}, {delay: slowDelay, pods: 300, recipePods: 30},
				{delay: verySlowDelay, pods: 300, recipePods: 10},
				{delay: slowDelay, pods: 300, recipePods: 30, oneService: true},
				{delay: verySlowDelay, pods: 300, recipePods: 10, oneService: true},
			},
			paced: 20,
		}, nil
	case large:
		return sizes{name: large, growth: []int{10_000, 50_000}, restart: 50_000, profiled: time.Minute}, nil
	default:
		return sizes{}, fmt.Errorf("BENCH is %q: write short or slow for a few minutes, large for 50,000 pods, or leave it out for everything",
			value)
	}
}
