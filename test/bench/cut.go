package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/test/harness/process"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	cutCase = "cut"
	// cutChanges are seven eighths of the slots, as many as one service may have.
	cutChanges = 84

	largeService, otherService = "large", "other"

	landed    = "landed"
	quietRate = "quiet " + rate
	quietP99  = "quiet " + p99
)

// cut has a registry answer nothing while pods of a large service register, and measures how long after the answers return all of them are
// known to be in, and how fast the pods of another service register meanwhile.
func (b *bench) cut(ctx context.Context) error {
	for _, driver := range cutDrivers() {
		if err := b.cutAt(ctx, driver); err != nil {
			return fmt.Errorf("cutting %s: %w", driver, err)
		}
	}
	return nil
}

func (b *bench) cutAt(ctx context.Context, driver string) error {
	at := &place{driver: driver, readers: map[string]read.Reader{}}
	defer at.stop()
	if err := at.start(ctx); err != nil {
		return err
	}
	defer b.turnTo(at.driver, at.url, " "+at.driver, func(ctx context.Context) int {
		return at.given(ctx, largeService) + at.given(ctx, otherService)
	})()
	return b.with(ctx, theRollcall, nil, func(p *process.Process) error {
		all := b.inLarge + b.inOther
		if err := b.populateOf(ctx, theRollcall, 0, all, b.serviceOf); err != nil {
			return err
		}
		for round := range min(b.sizes.rounds, mostRounds) {
			if err := b.cutRound(ctx, at, p.PID(), round); err != nil {
				return err
			}
			if err := b.settle(ctx, theRollcall, all); err != nil {
				return err
			}
		}
		return nil
	})
}

// serviceOf puts the first pods into the large service, and the rest into the other.
func (b *bench) serviceOf(number int) string {
	if number < b.inLarge {
		return largeService
	}
	return otherService
}

// cutRound has the other service's pods register twice: with nothing else to do, and from when the answers return on.
func (b *bench) cutRound(ctx context.Context, at *place, pid, round int) error {
	some := members{largeService, 0, cutChanges}
	others := members{otherService, b.inLarge, b.inOther}
	var before, meanwhile wave
	register := func(ctx context.Context, w *wave) (err error) {
		*w, err = b.move(ctx, others, time.Second/pace, appspub.LifecycleStateUpdated)
		return err
	}
	if err := b.takeOut(ctx, pid, others); err != nil {
		return err
	}
	if err := register(ctx, &before); err != nil {
		return err
	}
	if err := b.takeOut(ctx, pid, others, some); err != nil {
		return err
	}
	var healed time.Time
	there := 0
	group, grouped := errgroup.WithContext(ctx)
	_, err := b.load.waveTo(ctx, cutChanges, goal{appspub.LifecycleStateUpdated, largeService}, func() (err error) {
		if there, err = at.lose(ctx, func() error { return b.push(ctx, some, 0, appspub.LifecycleStateUpdated) }); err != nil {
			return err
		}
		healed = time.Now()
		group.Go(func() error { return register(grouped, &meanwhile) })
		return nil
	})
	back := time.Since(healed)
	if waited := group.Wait(); err == nil {
		err = waited
	}
	if err != nil {
		return err
	}
	b.note(observation{Case: sized(cutCase, b.inLarge), Who: theRollcall, Round: round, Values: map[string]float64{
		seconds: back.Seconds(), landed: float64(there - b.inLarge + cutChanges),
		quietRate: before.rate(), rate: meanwhile.rate(), quietP99: before.p99(), p99: meanwhile.p99(),
	}})
	return b.each(ctx, appspub.LifecycleStateNormal, some, others)
}

// members are n pods of a service, from a number on.
type members struct {
	service  string
	first, n int
}

// takeOut takes pods out, and waits until the process rests.
func (b *bench) takeOut(ctx context.Context, pid int, all ...members) error {
	if err := b.each(ctx, appspub.LifecycleStatePreparingUpdate, all...); err != nil {
		return err
	}
	return idle(ctx, pid)
}

func (b *bench) each(ctx context.Context, state appspub.LifecycleStateType, all ...members) error {
	for _, m := range all {
		if _, err := b.move(ctx, m, 0, state); err != nil {
			return err
		}
	}
	return nil
}

// move moves pods to a state, and waits until their hooks are flipped.
func (b *bench) move(ctx context.Context, m members, every time.Duration, state appspub.LifecycleStateType) (wave, error) {
	return b.load.waveTo(ctx, m.n, goal{state, m.service}, func() error { return b.push(ctx, m, every, state) })
}

// push moves pods to a state, together or one at each interval.
func (b *bench) push(ctx context.Context, m members, every time.Duration, state appspub.LifecycleStateType) error {
	one := func(ctx context.Context, i int) error { return b.load.move(ctx, m.first+i, state) }
	if every > 0 {
		return inTurn(ctx, m.n, every, one)
	}
	return b.load.each(ctx, m.n, one)
}

func (w wave) rate() float64 { return float64(len(w.latencies)) / w.took.Seconds() }

func (w wave) p99() float64 {
	sorted := slices.Sorted(slices.Values(w.latencies))
	return milliseconds(sorted[len(sorted)*99/100])
}

// cut has a row for each registry whose answers were cut.
func (all observations) cut(s sizes) [][]string {
	rows := [][]string{{
		fmt.Sprintf("%d pods join a service of %d", cutChanges, s.inLarge), "of them landed unseen", "all in after, s (goal ≤ 15)",
		"another service, registrations/s", "with nothing else", "ratio (goal ≥ 0.8)", "p99 ms", "with nothing else", "ratio",
	}}
	for _, driver := range cutDrivers() {
		of := func(value string) []float64 { return all.of(sized(cutCase, s.inLarge)+" "+driver, theRollcall, value) }
		if len(of(seconds)) == 0 {
			continue // it was not measured
		}
		rows = append(rows, []string{
			driver, spread(of(landed)), spread(of(seconds)),
			spread(of(rate)), spread(of(quietRate)), spread(each(of(rate), of(quietRate))),
			spread(of(p99)), spread(of(quietP99)), spread(each(of(p99), of(quietP99))),
		})
	}
	return rows
}
