// Command registries measures 1,000 registrations in each real registry: by Rollcall, through all that is between its
// reconciler and the server, and by the registry's own Go client, with as many calls under way at the most.
//
//	make bench-registries                   # all
//	make bench-registries REGISTRIES=etcd   # some
//	make bench-registries PART=reads        # what Get costs in a service of 10, 1,000 and 5,000 instances; SIZES='10 5000' takes others
//	make bench-registries PART=lists        # what the lists of many clusters cost, and what those of 200 with 20,000 pods each would
//
// The two take turns on one server, with entries of their own, and the first turn of each only warms the server, and shows Rollcall how
// many calls that takes. CPU is the server's, in user and kernel mode, and that of this process. It is a module of its own to keep the
// clients' dependencies apart.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/command"
	"github.com/rollcall-dev/rollcall/test/harness/process"
)

const (
	cluster       = "bench"
	serviceCount  = 10
	registrations = 1000
	rounds        = 5 // of which the first only warms the server and its clients
)

func main() { os.Exit(command.Run("bench-registries", play)) }

func play(ctx context.Context) error {
	only := strings.Fields(os.Getenv("REGISTRIES"))
	switch os.Getenv("PART") {
	case "reads":
		return playReads(ctx, only)
	case "lists":
		return playLists(ctx, only)
	}
	fmt.Println("| registry, its own client | Rollcall: ms, calls | the other: ms | ratio | server's CPU, ms | ratio | own CPU, ms | ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, m := range matches() {
		if len(only) > 0 && !slices.Contains(only, m.name) {
			continue
		}
		row, err := m.play(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Println(row)
	}
	return nil
}

// match is one registry, and both who register there.
type match struct {
	name  string
	start func(context.Context) (server, error)
	open  func(context.Context, registry.Config) (registry.Registry, error)
	// own is the registry's own client, and connect makes it.
	own     string
	connect func(ctx context.Context, endpoint string) (client, error)
}

// server is a running one.
type server struct {
	host

	endpoint string
}

type host interface {
	Version() string
	PID() int
	Stop()
}

// running is a server that was started, unless that has failed.
func running(h host, err error, endpoint func() string) (server, error) {
	if err != nil {
		return server{}, err
	}
	return server{h, endpoint()}, nil
}

// client registers an instance, and ends.
type client struct {
	register func(context.Context, registry.Instance) error
	close    func()
}

// taken is what 1,000 registrations took.
type taken struct {
	time, server, own time.Duration
	calls             int64
}

func (m match) play(ctx context.Context) (string, error) {
	s, err := m.start(ctx)
	if err != nil {
		return "", err
	}
	defer s.Stop()
	var calls atomic.Int64
	rollcall, err := m.rollcall(ctx, s.endpoint, &calls)
	if err != nil {
		return "", err
	}
	defer rollcall.close()
	other, err := m.connect(ctx, s.endpoint)
	if err != nil {
		return "", err
	}
	defer other.close()
	clients, all := [2]client{rollcall, other}, [2][]taken{}
	for round := range rounds {
		for turn := range all {
			who := (round + turn) % len(all)
			calls.Store(0)
			t, err := clients[who].turn(ctx, s, 2*round+who)
			if err != nil {
				return "", err
			}
			t.calls = calls.Load()
			if round > 0 {
				all[who] = append(all[who], t)
			}
		}
	}
	ms := func(who int, of func(taken) time.Duration) float64 {
		var values []time.Duration
		for _, t := range all[who] {
			values = append(values, of(t))
		}
		slices.Sort(values)
		return float64(values[len(values)/2]) / float64(time.Millisecond)
	}
	took := func(t taken) time.Duration { return t.time }
	there := func(t taken) time.Duration { return t.server }
	here := func(t taken) time.Duration { return t.own }
	compare := func(of func(taken) time.Duration) string {
		return fmt.Sprintf("%.0f to %.0f | %.2f", ms(0, of), ms(1, of), ms(0, of)/ms(1, of))
	}
	return fmt.Sprintf("| %s %s, %s | %.0f, %d | %.0f | %.2f | %s | %s |", m.name, s.Version(), m.own, ms(0, took),
		all[0][len(all[0])-1].calls, ms(1, took), ms(0, took)/ms(1, took), compare(there), compare(here)), nil
}

// turn registers 1,000 new instances.
func (c client) turn(ctx context.Context, s server, number int) (t taken, err error) {
	there, err := process.CPU(s.PID())
	if err != nil {
		return t, err
	}
	here, began := ownCPU(), time.Now()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(config.DefaultMaxInFlight)
	for i := range registrations {
		group.Go(func() error { return c.register(ctx, instance(number, i)) })
	}
	if err := group.Wait(); err != nil {
		return t, err
	}
	t = taken{time: time.Since(began), own: ownCPU() - here}
	after, err := process.CPU(s.PID())
	t.server = after - there
	return t, err
}

// rollcall is the client of a registry that the reconciler has.
func (m match) rollcall(ctx context.Context, endpoint string, calls *atomic.Int64) (client, error) {
	const timeout = 30 * time.Second
	driver, err := m.open(ctx, registry.Config{
		Cluster: cluster, Endpoint: endpoint, Timeout: timeout, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return client{}, err
	}
	batcher, _ := driver.(registry.Batcher)
	c := registryclient.New(&counted{Registry: driver, batcher: batcher, calls: calls},
		registryclient.Options{Name: m.name, Timeout: timeout, MaxInFlight: config.DefaultMaxInFlight})
	register := func(ctx context.Context, in registry.Instance) error {
		return c.Change(ctx, registryclient.Caller{}, registry.Change{Instance: in, State: registry.InService})
	}
	closer, can := driver.(interface{ Close() error })
	return client{register, func() {
		if can {
			_ = closer.Close() // the server is stopped next
		}
	}}, nil
}

// counted counts the calls of a driver, a batch as one.
type counted struct {
	registry.Registry

	batcher registry.Batcher // nil without batches
	calls   *atomic.Int64
}

func (c *counted) Register(ctx context.Context, in registry.Instance) error {
	c.calls.Add(1)
	return c.Registry.Register(ctx, in)
}

// BatchLimit implements [registry.Batcher]: with 1, a driver without batches is asked for none.
func (c *counted) BatchLimit() int {
	if c.batcher == nil {
		return 1
	}
	return c.batcher.BatchLimit()
}

// Batch implements [registry.Batcher].
func (c *counted) Batch(ctx context.Context, changes []registry.Change) []error {
	c.calls.Add(1)
	return c.batcher.Batch(ctx, changes)
}

func instance(turn, i int) registry.Instance {
	pod := fmt.Sprintf("web-%d-%d", turn, i)
	return registry.Instance{
		Service: fmt.Sprintf("web-%d", i%serviceCount), Address: fmt.Sprintf("10.%d.%d.%d", turn, i>>8, i&0xff), Port: 8080,
		Cluster: cluster, Namespace: "bench", Pod: pod, UID: "uid-of-" + pod, Registry: "default",
		Metadata: map[string]string{"version": "1.4.2"},
	}
}

// metadata is what the registry's own client writes of an instance, as much as Rollcall does.
func metadata(in registry.Instance) map[string]string {
	return map[string]string{
		"version": in.Metadata["version"], "cluster": in.Cluster, "namespace": in.Namespace, "pod": in.Pod, "uid": in.UID,
		"registry": in.Registry,
	}
}

func ownCPU() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // fails for no such argument
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
