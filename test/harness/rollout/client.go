package rollout

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/cluster/podserver"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// RefreshEvery is how often a client reads the registry that does not block: what it knows is up to that old.
	RefreshEvery = time.Second
	// RequestEvery makes 62 requests a second, over all instances, where its options don't say.
	RequestEvery = 16 * time.Millisecond
	// RequestTimeout is how long the client waits for one answer, where its options don't say.
	RequestTimeout = time.Second
	// idleConnections are more than a client ever has to one pod.
	idleConnections = 100
	// inFlight is how many requests a client has under way at most. One that is due beyond that is left out: on a machine that
	// is too busy to answer, more requests would only make all of them late.
	inFlight = 128
)

// Tell gets what is worth a line: when it was, and which pod it was with, if with any.
type Tell func(at time.Time, pod, what string)

// Client is a client of the service. It follows the registry, and all the while it sends requests in turn to the instances that
// it found there, none of which it repeats. Make it with [NewClient]. Its methods are safe for concurrent use.
type Client struct {
	ClientOptions

	http  *http.Client
	slots chan struct{} // holds one for each request that is under way

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
	At     time.Time
	Client string
	Pod    string // empty where the registry had no instance
	Why    string
}

// ClientOptions say what a client does.
type ClientOptions struct {
	// Name is the client's in its failures.
	Name string
	// Read looks the instances up.
	Read read.Reader
	// Blocks: Read itself waits until there is news. Else the client waits for RefreshEvery between its readings.
	Blocks bool
	// Tell gets what is worth a line; nil: nothing does.
	Tell Tell
	// Every is how often there is a request; 0 means RequestEvery.
	Every time.Duration
	// Via is the URL of an application that passes each request on to an instance of its own choice; empty: the client chooses.
	Via string
	// Query follows the address of each request.
	Query string
	// Send makes one request of the instance, and returns why it failed; nil: the client posts, and expects the pod's answer.
	Send func(ctx context.Context, target registry.Entry) error
	// KeepAlive keeps connections. Without it each request has one of its own.
	KeepAlive bool
	// Timeout is how long the client waits for one answer; 0 means RequestTimeout.
	Timeout time.Duration
}

// NewClient makes a client, which does nothing before Start.
func NewClient(o ClientOptions) *Client {
	o.Timeout, o.Every = cmp.Or(o.Timeout, RequestTimeout), cmp.Or(o.Every, RequestEvery)
	if o.Tell == nil {
		o.Tell = func(time.Time, string, string) {}
	}
	c := &Client{ClientOptions: o, told: map[string]bool{}, slots: make(chan struct{}, inFlight), http: &http.Client{
		Timeout: o.Timeout,
		Transport: &http.Transport{
			DisableKeepAlives: !o.KeepAlive, MaxIdleConnsPerHost: idleConnections,
			DialContext: (&net.Dialer{Timeout: o.Timeout}).DialContext,
		},
	}}
	if c.Send == nil {
		c.Send = c.post
	}
	return c
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
	ticker := time.NewTicker(c.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case c.slots <- struct{}{}:
			all.Go(func() {
				c.once(context.WithoutCancel(ctx))
				<-c.slots
			})
		default:
		}
	}
}

// refresh follows the registry. While it can't be read, what was read last holds, as with any client.
func (c *Client) refresh(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		entries, err := c.Read(ctx)
		switch {
		case err == nil:
			c.learn(slices.DeleteFunc(entries, func(e registry.Entry) bool { return e.State != registry.InService }))
		case ctx.Err() == nil && !failing:
			c.Tell(time.Now(), "(client)", fmt.Sprintf("keeps to what it knows: %v", err))
		}
		if failing = err != nil; failing || !c.Blocks {
			wait.Pause(ctx, RefreshEvery)
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
	failed := &Failure{At: time.Now(), Client: c.Name, Why: "the registry has no instance in service"}
	if target != nil {
		err := c.Send(ctx, *target)
		if err == nil {
			c.done(nil)
			return
		}
		if failed.Why = plain(err); c.Via == "" {
			failed.Pod = target.Pod
		}
	}
	c.done(failed)
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

// post sends one request. It is a POST because Go's client repeats a GET when a kept connection breaks. An answer counts only
// if it is 200, whole, and from the very pod that the registry named, where the client and no other chose it.
func (c *Client) post(ctx context.Context, target registry.Entry) error {
	to := cmp.Or(c.Via, "http://"+target.Endpoint()+"/"+c.Query)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, http.NoBody)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s %s", response.Status, body)
	}
	var answer podserver.Answer
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if answer.Pod != target.Pod && c.Via == "" {
		return errors.New("another pod answered: " + answer.Pod)
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
	c.failures = append(c.failures, *failed)
	if c.told[failed.Pod] {
		return
	}
	c.told[failed.Pod] = true
	c.Tell(failed.At, failed.Pod, "REQUEST FAILED: "+failed.Why)
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

// Failures returns the requests that failed so far, the first ones first.
func (c *Client) Failures() []Failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.failures)
}

// plain says in a few words why a request failed.
func plain(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH):
		return "no such host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed without an answer"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	if of := new(url.Error); errors.As(err, &of) {
		return of.Err.Error() // the address is the pod's
	}
	return err.Error()
}
