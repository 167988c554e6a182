package main

import (
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
	"github.com/rollcall-dev/rollcall/test/registries/read"
	"github.com/rollcall-dev/rollcall/test/cluster/podserver"
)

const (
	// refreshEvery is how often the client reads the registry: what it knows is up to that old.
	refreshEvery = time.Second
	// requestEvery makes 62 requests a second, over all instances.
	requestEvery = 16 * time.Millisecond
	// requestTimeout is how long the client waits for one answer.
	requestTimeout = time.Second
	// failuresKept is how many failures are kept for the report.
	failuresKept = 10
)

// traffic is a client of the service. Once a second it reads the registry, and all the while it sends requests in turn to the
// instances that it found, each over a connection of its own.
type traffic struct {
	read read.Reader
	out  *screen
	http *http.Client

	mu        sync.Mutex
	instances []registry.Entry // what the last reading gave
	seen      bool             // there was an instance before
	next      int
	count     tally
	failures  []failure
	// told holds the pods whose failures were shown since the last call of newStep.
	told map[string]bool
}

// tally counts requests that are done.
type tally struct{ requests, failed int }

func (t tally) String() string { return fmt.Sprintf("requests: %d, failed: %d", t.requests, t.failed) }

func (t tally) since(before tally) tally {
	return tally{requests: t.requests - before.requests, failed: t.failed - before.failed}
}

// failure is one request that failed.
type failure struct {
	at  time.Time
	pod string // empty where the registry had no instance
	why string
}

func newTraffic(reader read.Reader, out *screen) *traffic {
	return &traffic{read: reader, out: out, told: map[string]bool{}, http: &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       (&net.Dialer{Timeout: requestTimeout}).DialContext,
		},
	}}
}

// start sends requests until ctx ends or stop is called, which returns when the last of them is done.
func (t *traffic) start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { t.run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// run sends requests until ctx ends, and returns when the last of them is done. A request that ctx interrupts is
// finished and counted like any other.
func (t *traffic) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { t.refresh(ctx) })
	ticker := time.NewTicker(requestEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			all.Go(func() { t.once(context.WithoutCancel(ctx)) })
		}
	}
}

// refresh reads the registry once a second. While it can't be read, what was read last holds, as with any client.
func (t *traffic) refresh(ctx context.Context) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	failing := false
	for {
		entries, err := t.read(ctx)
		switch {
		case err == nil:
			t.learn(inService(entries))
		case ctx.Err() == nil && !failing:
			t.out.at(time.Now(), "(client)", "keeps to what it knows: %v", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t *traffic) learn(instances []registry.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.instances = instances
	t.seen = t.seen || len(instances) > 0
}

// known returns the instances that the client uses.
func (t *traffic) known() []registry.Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.instances
}

// once sends one request and counts it. Before the first instance was seen there is nothing to send to, and nothing to
// count; after that, an empty registry is a failure.
func (t *traffic) once(ctx context.Context) {
	target, started := t.pick()
	if !started {
		return
	}
	if target == nil {
		t.done(&failure{at: time.Now(), why: "the registry has no instance in service"})
		return
	}
	at := time.Now()
	if err := t.get(ctx, *target); err != nil {
		t.done(&failure{at: at, pod: target.Pod, why: plain(err)})
		return
	}
	t.done(nil)
}

// pick returns the instance whose turn it is, or nil where there is none.
func (t *traffic) pick() (target *registry.Entry, started bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.instances) == 0 {
		return nil, t.seen
	}
	t.next++
	chosen := t.instances[t.next%len(t.instances)]
	return &chosen, true
}

// get sends one request. An answer counts only if it is 200, and from the very pod that the registry named.
func (t *traffic) get(ctx context.Context, target registry.Entry) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target.Endpoint(), nil)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	response, err := t.http.Do(request)
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

// done counts a request. The first failure of each pod in a step is shown at once.
func (t *traffic) done(failed *failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count.requests++
	if failed == nil {
		return
	}
	t.count.failed++
	if len(t.failures) < failuresKept {
		t.failures = append(t.failures, *failed)
	}
	if t.told[failed.pod] {
		return
	}
	t.told[failed.pod] = true
	t.out.at(failed.at, failed.pod, "REQUEST FAILED: %s", failed.why)
}

// newStep begins to show failures anew.
func (t *traffic) newStep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.told)
}

func (t *traffic) tally() tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// firstFailures returns the first of the requests that failed.
func (t *traffic) firstFailures() []failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]failure(nil), t.failures...)
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
