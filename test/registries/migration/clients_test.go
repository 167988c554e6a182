package migration

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
)

// slowest is how long a client waits for an answer: a pod that is slow since the machine is has lost nothing.
const slowest = 10 * time.Second

// lookup is where a client looks a service up: in one registry, or in several, of which it takes what any has.
type lookup struct {
	mu      sync.Mutex
	readers []read.Reader
}

func (l *lookup) in(readers ...read.Reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers = readers
}

func (l *lookup) read(ctx context.Context) ([]registry.Entry, error) {
	l.mu.Lock()
	readers := l.readers
	l.mu.Unlock()
	var all []registry.Entry
	for _, reader := range readers {
		entries, err := reader(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			known := slices.ContainsFunc(all, func(o registry.Entry) bool { return o.Endpoint() == e.Endpoint() })
			if e.State == registry.InService && !known {
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// clients are those of one service. They go over from one registry to another by halves.
type clients struct {
	lookups []*lookup
	all     []*rollout.Client
}

const numberOfClients = 4

func newClients(t *testing.T, first read.Reader) *clients {
	t.Helper()
	c := &clients{}
	for range numberOfClients {
		l := &lookup{}
		l.in(first)
		c.lookups = append(c.lookups, l)
		c.all = append(c.all, rollout.NewClient(rollout.ClientOptions{Read: l.read, Timeout: slowest, Tell: func(at time.Time, pod, what string) {
			t.Logf("%s %s %s", at.Format("15:04:05.000"), pod, what)
		}}))
	}
	for _, client := range c.all {
		t.Cleanup(client.Start(context.WithoutCancel(t.Context())))
	}
	return c
}

// firstHalf and all look the service up there from their next reading on.
func (c *clients) firstHalf(readers ...read.Reader) {
	for _, l := range c.lookups[:len(c.lookups)/2] {
		l.in(readers...)
	}
}

func (c *clients) allLook(readers ...read.Reader) {
	for _, l := range c.lookups {
		l.in(readers...)
	}
}

func (c *clients) tally() rollout.Tally {
	var sum rollout.Tally
	for _, client := range c.all {
		one := client.Tally()
		sum.Requests, sum.Failed = sum.Requests+one.Requests, sum.Failed+one.Failed
	}
	return sum
}
