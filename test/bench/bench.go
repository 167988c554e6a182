package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

// observation is what one measurement found: the case and its number of pods, who, in which round.
type observation struct {
	Case   string             `json:"case"`
	Who    string             `json:"who"`
	Round  int                `json:"round"`
	Values map[string]float64 `json:"values"`
}

// The values of observations.
const (
	rate      = "flipsPerSecond"
	p50       = "p50ms"
	p99       = "p99ms"
	cpu       = "cpuMsPerFlip"
	apiCPU    = "apiServerCpuMsPerFlip"
	etcdCPU   = "etcdCpuMsPerFlip"
	writes    = "writesPerFlip"
	calls     = "registryCalls"
	lists     = "registryLists"
	resident  = "residentMB"
	totalCPU  = "cpuSeconds"
	seconds   = "seconds"
	allWrites = "writes"
)

// bench is one run.
type bench struct {
	*stage

	sizes
	out      string // the folder for what is found
	cluster  *cluster.Cluster
	load     *load
	registry *registryServer
	// inService counts the instances that clients are given: by the registry, or by another that a part brings.
	inService func(ctx context.Context) int
	say       func(format string, args ...any)
	found     []observation
	// suffix ends the names of cases whose registry is another.
	suffix string
}

// sample is what is counted at one moment, of the managers together where there are several.
type sample struct {
	own, api, etcd time.Duration
	resident       float64
	writes, calls  int
}

func (b *bench) sample(p *process.Process) (s sample, err error) {
	type of struct {
		pid  int
		into *time.Duration
	}
	all := []of{{b.cluster.PID("kube-apiserver"), &s.api}, {b.cluster.PID("etcd"), &s.etcd}}
	for _, p := range append(b.others, p) {
		all = append(all, of{p.PID(), &s.own})
		mb, err := process.Resident(p.PID())
		if err != nil {
			return s, err
		}
		s.resident += mb
	}
	for _, of := range all {
		took, err := process.CPU(of.pid)
		if err != nil {
			return s, err
		}
		*of.into += took
	}
	s.writes, s.calls = b.load.written(), int(b.registry.changes.Load())
	return s, nil
}

// note keeps an observation, and shows it.
func (b *bench) note(o observation) {
	o.Case += b.suffix
	b.found = append(b.found, o)
	b.say("%s", o)
}

// rounds has all take turns, every second time in the opposite order: whoever comes later in a round finds warmer servers.
func (b *bench) rounds(ctx context.Context) error {
	all, rounds := []string{theFloor, theRecipe, theRollcall}, b.sizes.rounds
	if b.before != "" {
		all, rounds = append(all, theBefore), max(rounds, 2)
	}
	for round := range rounds {
		b.say("round %d of %d", round+1, rounds)
		for _, who := range all {
			if err := b.turn(ctx, round, who); err != nil {
				return err
			}
		}
		slices.Reverse(all)
	}
	return nil
}

// turn measures one contestant in one round, with pods of its own: in ten services, and again in one.
func (b *bench) turn(ctx context.Context, round int, who string) error {
	in := map[bool][]storm{}
	for _, s := range b.storms {
		if s.rounds == 0 || round < s.rounds {
			in[s.oneService] = append(in[s.oneService], s)
		}
	}
	err := b.storm(ctx, round, who, in[false], func(p *process.Process) error {
		return b.measure(ctx, p, observation{Case: pacedCase, Who: who, Round: round}, usualDelay, b.paced, b.atPace)
	})
	if err != nil || len(in[true]) == 0 {
		return err
	}
	b.load.services = 1
	defer func() { b.load.services = serviceCount }()
	return b.storm(ctx, round, who, in[true], func(*process.Process) error { return nil })
}

// storm measures one contestant's storms, each after one with the same delay that is not measured, and what follows them.
func (b *bench) storm(ctx context.Context, round int, who string, storms []storm, then func(*process.Process) error) error {
	return b.with(ctx, who, nil, func(p *process.Process) error {
		n := b.paced
		for _, s := range storms {
			n = max(n, s.pods)
		}
		if err := b.populate(ctx, who, 0, n); err != nil {
			return err
		}
		for _, s := range storms {
			pods := s.pods
			if who == theRecipe && s.recipePods > 0 {
				pods = s.recipePods
			}
			b.registry.setDelay(s.delay)
			if _, err := b.update(ctx, pods, b.load.storm); err != nil {
				return err
			}
			o := observation{Case: s.String(), Who: who, Round: round}
			if err := b.measure(ctx, p, o, s.delay, pods, b.load.storm); err != nil {
				return err
			}
		}
		return then(p)
	})
}

// with has a contestant work, beginning with an empty registry and no pods, and ends it.
func (b *bench) with(ctx context.Context, who string, flags []string, do func(*process.Process) error) error {
	if err := b.load.clear(ctx); err != nil {
		return err
	}
	b.registry.reset(ctx, who == theBatching)
	b.registry.setDelay(usualDelay)
	p, err := b.start(ctx, who, flags...)
	if p != nil {
		defer p.Kill()
	}
	if err != nil {
		return err
	}
	if err := do(p); err != nil {
		return fmt.Errorf("%s: %w", who, err)
	}
	return nil
}

// populate makes pods from first to below end, and waits until all are in service.
func (b *bench) populate(ctx context.Context, who string, first, end int) error {
	return b.populateOf(ctx, who, first, end, func(number int) string { return serviceName(number, b.load.services) })
}

func (b *bench) populateOf(ctx context.Context, who string, first, end int, serviceOf func(number int) string) error {
	err := b.load.each(ctx, end-first, func(ctx context.Context, i int) error {
		pod := managedPod(b.load.ownerOf(first+i), first+i)
		pod.Labels[appLabel] = serviceOf(first + i)
		return b.load.run(ctx, pod, first+i)
	})
	if err != nil {
		return err
	}
	return b.settle(ctx, who, end)
}

// settle waits until nothing happens any more and all pods are in service, of which the floor knows nothing.
func (b *bench) settle(ctx context.Context, who string, pods int) error {
	return b.load.settle(ctx, fmt.Sprintf("%d pods to be in service", pods), func() bool {
		return b.registry.underWay.Load() == 0 && b.load.ready() == pods && (who == theFloor || b.inService(ctx) == pods)
	})
}

// atPace moves pods to a state one after the other, at the usual pace.
func (b *bench) atPace(ctx context.Context, n int, state appspub.LifecycleStateType) (wave, error) {
	return b.load.wave(ctx, n, state, func() error {
		return inTurn(ctx, n, time.Second/pace, func(ctx context.Context, i int) error { return b.load.move(ctx, i, state) })
	})
}

// update takes pods through an update: out, back, and to Normal, which nothing waits for. The wave is out and back together.
func (b *bench) update(
	ctx context.Context, pods int, play func(context.Context, int, appspub.LifecycleStateType) (wave, error),
) (both wave, err error) {
	for _, state := range []appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdated,
	} {
		w, err := play(ctx, pods, state)
		if err != nil {
			return both, err
		}
		both.took += w.took
		both.latencies = append(both.latencies, w.latencies...)
	}
	if _, err := b.load.storm(ctx, pods, appspub.LifecycleStateNormal); err != nil {
		return both, err
	}
	return both, b.load.settle(ctx, "the rest", func() bool { return b.registry.underWay.Load() == 0 })
}

// measure notes an update. What it takes all in all is divided by the flips, two for each pod.
func (b *bench) measure(
	ctx context.Context, p *process.Process, o observation, delay time.Duration, pods int,
	play func(context.Context, int, appspub.LifecycleStateType) (wave, error),
) error {
	b.registry.setDelay(delay)
	before, err := b.sample(p)
	if err != nil {
		return err
	}
	w, err := b.update(ctx, pods, play)
	if err != nil {
		return err
	}
	took, latencies := w.took, w.latencies
	after, err := b.sample(p)
	if err != nil {
		return err
	}
	slices.Sort(latencies)
	flips := float64(len(latencies))
	each := func(d time.Duration) float64 { return milliseconds(d) / flips }
	o.Values = map[string]float64{
		rate: flips / took.Seconds(), seconds: took.Seconds(),
		p50: milliseconds(latencies[len(latencies)/2]), p99: milliseconds(latencies[len(latencies)*99/100]),
		cpu: each(after.own - before.own), apiCPU: each(after.api - before.api), etcdCPU: each(after.etcd - before.etcd),
		writes: float64(after.writes-before.writes) / flips, calls: float64(after.calls - before.calls), resident: after.resident,
	}
	b.note(o)
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
