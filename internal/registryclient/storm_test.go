package registryclient

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const (
	pods    = 1000
	latency = 20 * time.Millisecond
	// The API server takes so many writes at once, each for so long: a thousand in a second.
	writers   = 4
	writeTime = 4 * time.Millisecond
)

// slow is a registry that takes its time, and batches like Consul's where limit says so.
type slow struct {
	registry.Registry
	limit int
	calls atomic.Int64
}

func (s *slow) Register(ctx context.Context, _ registry.Instance) error {
	s.calls.Add(1)
	time.Sleep(latency)
	return ctx.Err()
}

func (s *slow) BatchLimit() int { return s.limit }

func (s *slow) Batch(_ context.Context, changes []registry.Change) []error {
	s.calls.Add(1)
	time.Sleep(latency)
	return make([]error, len(changes))
}

// storm is how long so many workers need for one call and one write for each of a thousand pods of as many services, in
// the bubble's time. A pod that warms up has a call after each tenth of that, too.
func storm(t *testing.T, workers, services, maxInFlight, batch int, warmUp time.Duration) (took time.Duration, again, calls int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &slow{limit: batch}
		c := New(s, Options{Timeout: time.Minute, MaxInFlight: maxInFlight})
		api := make(chan struct{}, writers)
		queue, joined := make(chan int, 10*pods), make([]time.Time, pods)
		var done sync.WaitGroup
		var looks atomic.Int64
		reconcile := func(pod int) {
			name := fmt.Sprint(pod % services)
			since, in := joined[pod], !joined[pod].IsZero()
			by := Caller{ID: fmt.Sprint(pod), Yields: in, Wake: func() { queue <- pod }}
			err := c.Change(t.Context(), by, registering(name, pod+1))
			looks.Add(1)
			if Classify(err) == Queued {
				return
			}
			if !in {
				api <- struct{}{}
				time.Sleep(writeTime)
				<-api
				since = time.Now().Truncate(time.Second)
				joined[pod] = since
			}
			_, grows := service.Attributes{Weight: 100, WarmUp: warmUp}.Warmed(since, time.Now())
			if grows == 0 {
				done.Done()
				return
			}
			time.AfterFunc(grows, func() { queue <- pod })
		}
		done.Add(pods)
		for pod := range pods {
			queue <- pod
		}
		for range workers {
			go func() {
				for pod := range queue {
					reconcile(pod)
				}
			}()
		}
		start := time.Now()
		done.Wait()
		took, again, calls = time.Since(start), int(looks.Load())-pods, int(s.calls.Load())
		close(queue)
	})
	return took, again, calls
}

// The numbers of the defaults. With 64 workers and 32 calls in flight, for one, a storm on one service would take a quarter
// longer, and twice as long where calls are joined, since the batches would be small.
func TestLimitOfTheDefaultsHoldsUpNoStorm(t *testing.T) {
	t.Parallel()
	const workers = config.Workers
	type row struct{ services, batch int }
	expect.Each(t, map[string]row{
		"one service":               {1, 1},
		"one service, joined calls": {1, 48},
		"two services":              {2, 1},
		"many, joined calls":        {10, 48},
	}, func(t *testing.T, tc row) {
		without, _, _ := storm(t, workers, tc.services, 2*pods, tc.batch, 0)
		with, again, calls := storm(t, workers, tc.services, config.DefaultMaxInFlight, tc.batch, 0)
		ratio := float64(with) / float64(without)
		t.Logf("%d pods took %s and %d calls, and %s without a bound: %.2f times as long; %d looks found no slot", pods, with, calls,
			without, ratio, again)
		if tc.batch > 1 && calls > 40 {
			t.Errorf("joined calls are %d, want at most 40", calls)
		}
		if again > pods+pods/4 { // some are woken before slots are lowered
			t.Errorf("%d looks found no slot, want about one for each pod", again)
		}
		if ratio > 1.1 {
			t.Errorf("the bound makes a storm take %.2f times as long, want at most a tenth more", ratio)
		}
	})
}

// A pod that warms up has ten steps after its first call, so a storm has eleven times the changes. Its calls must not be many more.
func TestWarmUpOfAStormIsJoined(t *testing.T) {
	t.Parallel()
	type row struct{ services, batch int }
	expect.Each(t, map[string]row{
		"one service":               {1, 1},
		"one service, joined calls": {1, 48},
		"many, joined calls":        {10, 48},
	}, func(t *testing.T, tc row) {
		_, _, without := storm(t, 512, tc.services, config.DefaultMaxInFlight, tc.batch, 0)
		_, _, with := storm(t, 512, tc.services, config.DefaultMaxInFlight, tc.batch, 2*time.Minute)
		t.Logf("%d pods took %d calls, and %d with warm-up: %.1f times as many", pods, without, with, float64(with)/float64(without))
		if with >= 12*without {
			t.Errorf("%d calls with warm-up are %d without, want less than 12 times as many", with, without)
		}
	})
}
