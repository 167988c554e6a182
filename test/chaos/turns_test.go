package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// TestStormThatTakesLonger: its faults take turns, and the last one comes when what users do would be over.
func TestStormThatTakesLonger(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		faults  time.Duration // how long each of the two takes
		actions []action
		want    int // updates
	}
	two := []action{{at: 0, kind: netSlow}, {at: time.Second, kind: killLeader}}
	work := []action{{at: 2 * time.Second, kind: update}, {at: 3 * time.Second, kind: killManager}, {at: 30 * time.Second, kind: update}}
	bubble.Each(t, map[string]row{
		"in time":      {"they are over", 10 * time.Second, append(two, work...), 2},
		"longer":       {"users go on in the second and third minute", time.Minute + 5*time.Second, append(two, work...), 5},
		"nothing else": {"there is nothing that users do", 2 * time.Minute, two, 0},
	}, func(t *testing.T, r row) {
		var mu sync.Mutex
		done, turn := map[kind]int{}, make(chan struct{}, 1)
		s := &begun{at: time.Now(), storm: time.Minute, failed: func() bool { return false }, play: func(ctx context.Context, a action) {
			if a.kind.takesTurns() {
				turn <- struct{}{}
				defer func() { <-turn }()
				wait.Pause(ctx, r.faults)
			}
			mu.Lock()
			defer mu.Unlock()
			done[a.kind]++
		}}
		s.begin(t.Context(), t.Context(), r.actions, 0)
		s.goOn(t.Context(), r.actions)
		expect.Equal(t, true, s.end(t.Context()), "all are over")
		expect.Equal(t, r.want, done[update], "updates: %s", r.reason)
		expect.Equal(t, 2, done[netSlow]+done[killLeader], "faults come once")
		expect.Equal(t, len(r.actions) > 2, done[killManager] == 1, "kills come once")
	})
}

// TestStormThatDoesNotEnd is over all the same, and what it waits for is told.
func TestStormThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	bubble.Scenes(t, map[string]func(t *testing.T){
		"an action is under way": func(t *testing.T) {
			released := make(chan struct{})
			defer close(released)
			s := &begun{at: time.Now(), storm: time.Minute, failed: func() bool { return false }, play: func(context.Context, action) { <-released }}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			actions := []action{{kind: netSlow}}
			s.begin(ctx, ctx, actions, 0)
			s.goOn(ctx, actions)
			expect.Equal(t, false, s.end(ctx), "it has not ended")
		},
		"a fault meets nothing": func(t *testing.T) {
			var text bytes.Buffer
			g := &game{world: &world{out: newOutput(&text)}}
			began := time.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				g.await(t.Context(), "a connection", func() bool { return false })
			}()
			time.Sleep(time.Second)
			expect.Equal(t, "waiting for a connection", g.underway.String(), "what is under way")
			<-ended
			if took := time.Since(began); took > hitWithin+time.Second {
				t.Errorf("waited %s", took)
			}
			expect.Equal(t, "", g.underway.String(), "what is under way")
			if want := "in vain for a connection"; !strings.Contains(text.String(), want) {
				t.Errorf("said %q, want %q in it", text.String(), want)
			}
		},
	})
}
