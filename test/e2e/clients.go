package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// requestTimeout is longer than any answer takes on a busy machine: a request that meets it is lost.
	requestTimeout = 10 * time.Second
	pollEvery      = time.Second
	noInstance     = "no instance in rotation"
)

// failure is one request that was lost.
type failure struct {
	At                  time.Time
	Client, Pod, Reason string
}

// tally counts the requests of an arm. It is safe for concurrent use.
type tally struct {
	mu       sync.Mutex
	requests int
	failures []failure
}

func (t *tally) add(failed *failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	if failed != nil {
		t.failures = append(t.failures, *failed)
	}
}

// take returns what was counted since it was last called.
func (t *tally) take() (requests int, failures []failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	requests, failures = t.requests, t.failures
	t.requests, t.failures = 0, nil
	return requests, failures
}

// customer is one client of a service. It follows the registry, sends a request every so often to the instances in
// turn, and never repeats one.
type customer struct {
	name    string
	service string
	every   time.Duration
	blocks  bool   // follows by blocking queries; else it reads the registry once a second
	path    string // of the request
	http    *http.Client
	count   *tally

	mu   sync.Mutex
	view view
	next int
}

// newCustomers makes the three kinds of clients of a service, which send 200 requests a second together.
func newCustomers(service string, count *tally) []*customer {
	all := []*customer{{
		name: "polls", every: 11 * time.Millisecond, path: "/", // 91 a second, each over a connection of its own
		http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{DisableKeepAlives: true}},
	}, {
		name: "blocks", every: 11 * time.Millisecond, blocks: true, path: "/", // 91 a second, over kept connections
		http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}, {
		name: "long", every: 50 * time.Millisecond, path: "/?for=1s", // 20 a second, so 20 under way at any time
		http: &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}}
	for _, c := range all {
		c.service, c.count = service, count
	}
	return all
}

// run sends requests until ctx ends, and returns when the last of them is done.
func (c *customer) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { c.follow(ctx) })
	ticker := time.NewTicker(c.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			all.Go(func() { c.count.add(c.once(context.WithoutCancel(ctx))) })
		}
	}
}

// follow keeps the view. While the registry can't be read, what was read last holds.
func (c *customer) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if err := c.read(ctx); err == nil && c.blocks {
			continue // that took until there was news
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollEvery):
		}
	}
}

// read reads the registry once.
func (c *customer) read(ctx context.Context) error {
	var index uint64
	if c.blocks {
		c.mu.Lock()
		index = c.view.index
		c.mu.Unlock()
	}
	v, err := lookUp(ctx, http.DefaultClient, c.service, index)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
	return nil
}

func (c *customer) pick() (instance, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.view.instances) == 0 {
		return instance{}, false
	}
	c.next++
	return c.view.instances[c.next%len(c.view.instances)], true
}

// once sends one request, and returns nil where the pod that the registry named has answered it.
func (c *customer) once(ctx context.Context) *failure {
	at := time.Now()
	to, found := c.pick()
	if !found {
		return &failure{At: at, Client: c.name, Reason: noInstance}
	}
	if err := c.post(ctx, to); err != nil {
		return &failure{At: at, Client: c.name, Pod: to.Pod, Reason: plain(err)}
	}
	return nil
}

// post sends the request. It is a POST because Go's client repeats a GET when a kept connection breaks.
func (c *customer) post(ctx context.Context, to instance) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to.Address+c.path, http.NoBody)
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
		return errors.New("the answer is " + response.Status)
	}
	if pod, _, _ := strings.Cut(string(body), " "); pod != to.Pod {
		return errors.New("another pod answered")
	}
	return nil
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

// reasons counts failures by reason, the most frequent first.
func reasons(failures []failure) string {
	counts := map[string]int{}
	for _, f := range failures {
		counts[f.Reason]++
	}
	var parts []string
	for _, reason := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	}) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[reason], reason))
	}
	return strings.Join(parts, ", ")
}
