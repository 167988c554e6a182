package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	readService = "large"
	readTimeout = 5 * time.Second // the configuration's default for one call
)

// readSizes are how many instances the service has.
func readSizes() ([]int, error) {
	text := os.Getenv("SIZES")
	if text == "" {
		return []int{10, 1000, 5000}, nil
	}
	var sizes []int
	for field := range strings.FieldsSeq(text) {
		size, err := strconv.Atoi(field)
		if err != nil {
			return nil, fmt.Errorf("SIZES: %w", err)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

// readsTogether are how many reads begin at the same moment: 84 are seven eighths of the slots, which a cut leaves unknown.
func readsTogether() []int { return []int{1, 20, 84} }

func playReads(ctx context.Context, only []string) error {
	fmt.Println("| registry | instances | reads together | answered in 5 s | ms | server's CPU, ms | own CPU, ms | KiB |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, m := range matches() {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		if err := m.playReads(ctx); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return nil
}

// playReads measures what Get costs in a service that grows.
func (m match) playReads(ctx context.Context) (err error) {
	sizes, err := readSizes()
	if err != nil {
		return err
	}
	s, err := m.start(ctx)
	if err != nil {
		return err
	}
	defer s.Stop()
	moved := &network.Traffic{}
	through, err := network.Lead(ctx, s.endpoint, moved.Pass)
	if err != nil {
		return err
	}
	there := 0
	for _, size := range sizes {
		if err := m.fill(ctx, s.endpoint, there, size); err != nil {
			return err
		}
		there = size
		for _, together := range readsTogether() {
			row, err := m.read(ctx, s, through, moved, size, together)
			if err != nil {
				return err
			}
			fmt.Println(row)
		}
	}
	return nil
}

// fill registers instances up to a number.
func (m match) fill(ctx context.Context, endpoint string, from, to int) error {
	d, err := m.driver(ctx, endpoint)
	if err != nil {
		return err
	}
	defer closed(d)
	var changes []registry.Change
	for i := from; i < to; i++ {
		changes = append(changes, registry.Change{Instance: oneOfMany(i), State: registry.InService})
	}
	return makeAll(ctx, d, changes)
}

// makeAll makes changes, as many in a call as can be.
func makeAll(ctx context.Context, d registry.Registry, changes []registry.Change) error {
	batcher, batches := d.(registry.Batcher)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(config.DefaultMaxInFlight)
	if !batches {
		for _, c := range changes {
			group.Go(func() error { return c.Make(ctx, d) })
		}
		return group.Wait()
	}
	for some := range slices.Chunk(changes, batcher.BatchLimit()) {
		if err := errors.Join(batcher.Batch(ctx, some)...); err != nil {
			return err
		}
	}
	return nil
}

// read makes reads together, with a driver that has listed the registry, as each leader has, and returns a row: the medians of some
// rounds.
func (m match) read(ctx context.Context, s server, through string, moved *network.Traffic, size, together int) (string, error) {
	const readRounds = 3
	d, err := m.driver(ctx, through)
	if err != nil {
		return "", err
	}
	defer closed(d)
	if _, err := d.(registry.Lister).List(ctx, cluster); err != nil {
		return "", err
	}
	var times, theirs, ours []time.Duration
	var answered []int
	var bytes []int64
	for range readRounds {
		there, err := process.CPU(s.PID())
		if err != nil {
			return "", err
		}
		before, here, began := moved.Bytes.Load(), ownCPU(), time.Now()
		answered = append(answered, readAll(ctx, d.(registry.Getter), size, together))
		times = append(times, time.Since(began))
		after, err := process.CPU(s.PID())
		if err != nil {
			return "", err
		}
		theirs, ours = append(theirs, after-there), append(ours, ownCPU()-here)
		bytes = append(bytes, moved.Bytes.Load()-before)
	}
	ms := func(all []time.Duration) float64 { return float64(median(all)) / float64(time.Millisecond) }
	return fmt.Sprintf("| %s %s | %d | %d | %d | %.0f | %.0f | %.0f | %d |", m.name, s.Version(), size, together, median(answered),
		ms(times), ms(theirs), ms(ours), median(bytes)>>10), nil //nolint:mnd // KiB
}

func readAll(ctx context.Context, d registry.Getter, size, together int) int {
	var all sync.WaitGroup
	var answered atomic.Int64
	for i := range together {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, readTimeout)
			defer cancel()
			if state, err := d.Get(ctx, oneOfMany(i%size)); err == nil && state == registry.InService {
				answered.Add(1)
			}
		})
	}
	all.Wait()
	return int(answered.Load())
}

func median[T int | int64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

func oneOfMany(i int) registry.Instance {
	in := instance(0, i)
	in.Service = readService
	in.Address = fmt.Sprintf("10.200.%d.%d", i>>8, i&0xff) //nolint:mnd // bytes
	return in
}

func (m match) driver(ctx context.Context, endpoint string) (registry.Registry, error) {
	return m.open(ctx, registry.Config{Cluster: cluster, Endpoint: endpoint, Timeout: readTimeout, Logger: slog.New(slog.DiscardHandler)})
}

func closed(d registry.Registry) {
	if closer, can := d.(io.Closer); can {
		_ = closer.Close()
	}
}
