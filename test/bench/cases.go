package main

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// foreignPods has pods come and go that are no concern of Rollcall's or the recipe's.
func (b *bench) foreignPods(ctx context.Context) error {
	for _, who := range []string{theRecipe, theRollcall} {
		if err := b.with(ctx, who, nil, func(p *process.Process) error { return b.beside(ctx, who, p) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) beside(ctx context.Context, who string, p *process.Process) error {
	before, err := b.idleSample(ctx, p)
	if err != nil {
		return err
	}
	err = b.load.each(ctx, b.foreign, func(ctx context.Context, i int) error {
		return b.load.run(ctx, foreignPod(i), i)
	})
	if err != nil {
		return err
	}
	among, err := b.idleSample(ctx, p)
	if err != nil {
		return err
	}
	err = b.load.each(ctx, b.foreign, func(ctx context.Context, i int) error {
		return b.load.remove(ctx, foreignNamespace, foreignPod(i).Name)
	})
	if err != nil {
		return err
	}
	after, err := b.idleSample(ctx, p)
	b.note(observation{Case: foreignCase, Who: who, Values: map[string]float64{
		totalCPU: (after.own - before.own).Seconds(), resident: among.resident,
	}})
	return err
}

// idleSample waits until a process has nothing to do.
func (b *bench) idleSample(ctx context.Context, p *process.Process) (sample, error) {
	if err := idle(ctx, p.PID()); err != nil {
		return sample{}, err
	}
	return b.sample(p)
}

// idle waits until a process takes no more than a twentieth of a core, for as long as Rollcall takes to rest.
func idle(ctx context.Context, pid int) error {
	const over, share, times = time.Second, 20, 5
	quiet := 0
	var before, now time.Duration
	var unread error
	checked := time.Now()
	err := await(ctx, "a process to be idle", func() bool {
		if time.Since(checked) < over {
			return false
		}
		checked, before = time.Now(), now
		now, unread = process.CPU(pid)
		if quiet++; before == 0 || now-before > over/share {
			quiet = 0
		}
		return unread != nil || quiet >= times
	})
	return errors.Join(err, unread)
}

// grow measures Rollcall with more and more pods, all of which are updated at once, and starts it again beside many.
func (b *bench) grow(ctx context.Context) error {
	profiles, err := newProfiles(ctx, b)
	if err != nil {
		return err
	}
	return b.growing(ctx, func(p *process.Process, pods int) (*process.Process, error) {
		if pods != b.restart {
			return p, nil
		}
		p.Kill()
		p, err := b.startBeside(ctx, pods, profiles.flags()) // they take a megabyte, so what comes before has none
		if err != nil {
			return p, err
		}
		return p, profiles.heap(ctx)
	})
}

// growBesideFloor grows, and at each size the floor updates the same pods, and then Rollcall once more: so the floor is between two
// updates by Rollcall, of which the second is profiled.
func (b *bench) growBesideFloor(ctx context.Context) error {
	profiles, err := newProfiles(ctx, b)
	if err != nil {
		return err
	}
	return b.growing(ctx, func(p *process.Process, pods int) (*process.Process, error) {
		profiles.suffix = "-" + strconv.Itoa(pods)
		p.Kill()
		if err := b.updateByFloor(ctx, pods); err != nil {
			return p, err
		}
		p, err := b.startBeside(ctx, pods, profiles.flags())
		if err != nil {
			return p, err
		}
		if err := profiles.heap(ctx); err != nil {
			return p, err
		}
		return p, profiles.during(ctx, func() error { return b.updateAll(ctx, p, theRollcall, 1, pods) })
	})
}

// growing has Rollcall update all of more and more pods. What comes after an update may bring another process of it.
func (b *bench) growing(ctx context.Context, after func(p *process.Process, pods int) (*process.Process, error)) error {
	return b.with(ctx, theRollcall, nil, func(p *process.Process) error {
		defer func() { p.Kill() }()
		if err := b.resident(ctx, p, 0); err != nil {
			return err
		}
		pods := 0
		for _, next := range b.growth {
			if err := b.populate(ctx, theRollcall, pods, next); err != nil {
				return err
			}
			pods = next
			if err := b.resident(ctx, p, pods); err != nil {
				return err
			}
			if err := b.updateAll(ctx, p, theRollcall, 0, pods); err != nil {
				return err
			}
			then, err := after(p, pods)
			if then != nil {
				p = then
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) updateAll(ctx context.Context, p *process.Process, who string, round, pods int) error {
	o := observation{Case: sized(growthCase, pods), Who: who, Round: round}
	return b.measure(ctx, p, o, usualDelay, pods, b.load.storm)
}

// updateByFloor updates the pods that another contestant has brought into service, and leaves them as they were.
func (b *bench) updateByFloor(ctx context.Context, pods int) error {
	p, err := b.start(ctx, theFloor)
	if p != nil {
		defer p.Kill()
	}
	if err != nil {
		return err
	}
	return b.updateAll(ctx, p, theFloor, 0, pods)
}

// growWithConsul grows beside a real Consul server. What the registry is asked is not counted then.
func (b *bench) growWithConsul(ctx context.Context) error {
	server, err := consul.Start(ctx, consul.Options{})
	if err != nil {
		return err
	}
	defer server.Stop()
	defer b.turnTo("consul", server.URL, " on consul", func(ctx context.Context) (n int) {
		for i := range serviceCount {
			given, _ := read.Given(ctx, read.Consul(server.URL, serviceName(i, serviceCount)))
			n += len(given)
		}
		return n
	})()
	return b.grow(ctx)
}

// turnTo has another registry, whose cases end with the suffix, until back is called.
func (b *bench) turnTo(driver, url, suffix string, inService func(context.Context) int) (back func()) {
	formerDriver, formerURL := b.driver, b.registryURL
	b.driver, b.registryURL, b.inService, b.suffix = driver, url, inService, suffix
	return func() {
		b.driver, b.registryURL, b.inService, b.suffix = formerDriver, formerURL, b.registry.inService, ""
	}
}

func sized(name string, pods int) string { return name + " " + strconv.Itoa(pods) }

// resident notes the memory beside a number of pods.
func (b *bench) resident(ctx context.Context, p *process.Process, pods int) error {
	s, err := b.idleSample(ctx, p)
	b.note(observation{Case: sized(idleCase, pods), Who: theRollcall, Values: map[string]float64{resident: s.resident}})
	return err
}

// startBeside starts Rollcall beside so many pods that are in service.
func (b *bench) startBeside(ctx context.Context, pods int, flags []string) (*process.Process, error) {
	writesBefore, callsBefore, listsBefore := b.load.written(), b.registry.changes.Load(), b.registry.lists.Load()
	began := time.Now()
	p, err := b.start(ctx, theRollcall, flags...)
	if err != nil {
		return p, err
	}
	took := time.Since(began)
	s, err := b.idleSample(ctx, p)
	b.note(observation{Case: sized(restartCase, pods), Who: theRollcall, Values: map[string]float64{
		seconds: took.Seconds(), totalCPU: s.own.Seconds(), resident: s.resident,
		allWrites: float64(b.load.written() - writesBefore), calls: float64(b.registry.changes.Load() - callsBefore),
		lists: float64(b.registry.lists.Load() - listsBefore),
	}})
	return p, err
}

// batches measures Rollcall with a registry that takes batches.
func (b *bench) batches(ctx context.Context) error {
	return b.with(ctx, theBatching, nil, func(p *process.Process) error {
		if err := b.populate(ctx, theBatching, 0, b.batch); err != nil {
			return err
		}
		o := observation{Case: batchCase, Who: theBatching}
		if err := b.measure(ctx, p, o, usualDelay, b.batch, b.load.storm); err != nil {
			return err
		}
		o = observation{Case: pacedCase, Who: theBatching}
		return b.measure(ctx, p, o, usualDelay, b.paced, b.atPace)
	})
}

// managers has the pods of two namespaces updated at once, by one manager of both and by two that have one each.
func (b *bench) managers(ctx context.Context) error {
	b.load.spread = len(b.load.owners)
	defer func() { b.load.spread, b.watched = 1, nil }()
	for round := range min(b.sizes.rounds, mostRounds) {
		for i := range len(b.load.owners) {
			if err := b.shared(ctx, round, (round+i)%len(b.load.owners)+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// shared measures so many managers that share the namespaces.
func (b *bench) shared(ctx context.Context, round, managers int) error {
	defer func() {
		for _, p := range b.others {
			p.Kill()
		}
		b.others = nil
	}()
	b.watched = []string{namespace, otherNamespace}
	if managers > 1 {
		b.watched = []string{namespace}
	}
	return b.with(ctx, theRollcall, nil, func(p *process.Process) error {
		if managers > 1 {
			b.watched = []string{otherNamespace}
			other, err := b.start(ctx, theRollcall)
			if other != nil {
				b.others = append(b.others, other)
			}
			if err != nil {
				return err
			}
		}
		if err := b.populate(ctx, theRollcall, 0, b.batch); err != nil {
			return err
		}
		o := observation{Case: sized(managerCase, managers), Who: theRollcall, Round: round}
		return b.measure(ctx, p, o, usualDelay, b.batch, b.load.storm)
	})
}
