// Package traffic is a client of pods that podserver answers for: it looks them up in a registry as clients do, sends them
// requests all the while, and counts those that fail.
package traffic

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

const (
	// RefreshEvery is how often the client reads the registry: what it knows is up to that old.
	RefreshEvery = time.Second
	// RequestEvery makes 62 requests a second, over all instances.
	RequestEvery = 16 * time.Millisecond
	// RequestTimeout is how long the client waits for one answer, where its options don't say.
	RequestTimeout = time.Second
	// failuresKept is how many failures are kept for the report.
	failuresKept = 10
)

// Tell gets what is worth a line: when it was, and which pod it was with, if with any.
type Tell func(at time.Time, pod, what string)

// Client is a client of the service. Once a second it reads the registry, and all the while it sends requests in turn to the
// instances that it found, each over a connection of its own. Make it with [New]. Its methods are safe for concurrent use.
type Client struct {
	read read.Reader
	tell Tell
	http *http.Client

	mu        sync.Mutex
	instances []registry.Entry // what the last reading gave
	seen      bool             // there was an instance before
	next      int
	count     Tally
	failures  []Failure
	// told holds the pods whose failures were told since the last call of NewStep.
	told map[string]bool
}

// Tally counts requests that are done.
type Tally struct{ Requests, Failed int }

func (t Tally) String() string { return fmt.Sprintf("requests: %d, failed: %d", t.Requests, t.Failed) }

// Since is what came after an earlier tally.
func (t Tally) Since(before Tally) Tally {
	return Tally{Requests: t.Requests - before.Requests, Failed: t.Failed - before.Failed}
}

// Failure is one request that failed.
type Failure struct {
	At  time.Time
	Pod string // empty where the registry had no instance
	Why string
}

// Options say what a client does.
type Options struct {
	// Read looks the instances up.
	Read read.Reader
	// Tell gets what is worth a line.
	Tell Tell
	// Timeout is how long the client waits for one answer; 0 means RequestTimeout.
	Timeout time.Duration
}

// New makes a client, which does nothing before Start.
func New(o Options) *Client {
	timeout := cmp.Or(o.Timeout, RequestTimeout)
	return &Client{read: o.Read, tell: o.Tell, told: map[string]bool{}, http: &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       (&net.Dialer{Timeout: timeout}).DialContext,
		},
	}}
}

// Start sends requests until ctx ends or stop is called, which returns when the last of them is done.
func (c *Client) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { c.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run sends requests until ctx ends, and returns when the last of them is done. A request that ctx interrupts is
// finished and counted like any other.
func (c *Client) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.refresh(ctx) })
	ticker := time.NewTicker(RequestEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			all.Go(func() { c.once(context.WithoutCancel(ctx)) })
		}
	}
}

// refresh reads the registry once a second. While it can't be read, what was read last holds, as with any client.
func (c *Client) refresh(ctx context.Context) {
	ticker := time.NewTicker(RefreshEvery)
	defer ticker.Stop()
	failing := false
	for {
		entries, err := c.read(ctx)
		switch {
		case err == nil:
			c.learn(inService(entries))
		case ctx.Err() == nil && !failing:
			c.tell(time.Now(), "(client)", fmt.Sprintf("keeps to what it knows: %v", err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (c *Client) learn(instances []registry.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.instances = instances
	c.seen = c.seen || len(instances) > 0
}

// Known returns the instances that the client uses.
func (c *Client) Known() []registry.Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.instances
}

// once sends one request and counts it. Before the first instance was seen there is nothing to send to, and nothing to
// count; after that, an empty registry is a failure.
func (c *Client) once(ctx context.Context) {
	target, started := c.pick()
	if !started {
		return
	}
	if target == nil {
		c.done(&Failure{At: time.Now(), Why: "the registry has no instance in service"})
		return
	}
	at := time.Now()
	if err := c.get(ctx, *target); err != nil {
		c.done(&Failure{At: at, Pod: target.Pod, Why: plain(err)})
		return
	}
	c.done(nil)
}

// pick returns the instance whose turn it is, or nil where there is none.
func (c *Client) pick() (target *registry.Entry, started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.instances) == 0 {
		return nil, c.seen
	}
	c.next++
	chosen := c.instances[c.next%len(c.instances)]
	return &chosen, true
}

// get sends one request. An answer counts only if it is 200, and from the very pod that the registry named.
func (c *Client) get(ctx context.Context, target registry.Entry) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.Endpoint(), nil)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	var answer podserver.Answer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer.UID != target.UID {
		return fmt.Errorf("another pod answered: %s", answer.Pod)
	}
	return nil
}

// done counts a request. The first failure of each pod in a step is passed to Tell at once.
func (c *Client) done(failed *Failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count.Requests++
	if failed == nil {
		return
	}
	c.count.Failed++
	if len(c.failures) < failuresKept {
		c.failures = append(c.failures, *failed)
	}
	if c.told[failed.Pod] {
		return
	}
	c.told[failed.Pod] = true
	c.tell(failed.At, failed.Pod, "REQUEST FAILED: "+failed.Why)
}

// NewStep begins to tell of failures anew.
func (c *Client) NewStep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.told)
}

// Tally returns what was counted so far.
func (c *Client) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count
}

// FirstFailures returns the first of the requests that failed.
func (c *Client) FirstFailures() []Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Failure(nil), c.failures...)
}

// plain says in a few words why a request failed.
func plain(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, io.EOF):
		return "connection closed without an answer"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	default:
		return err.Error()
	}
}

// inService picks those that a client may use.
func inService(entries []registry.Entry) []registry.Entry {
	var picked []registry.Entry
	for _, entry := range entries {
		if entry.State == registry.InService {
			picked = append(picked, entry)
		}
	}
	return picked
}
