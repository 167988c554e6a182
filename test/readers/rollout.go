package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// advice is what a page says to set for a reader. Requests take no time here: a drain is for the reader's lag alone.
type advice struct{ drain, readerLag time.Duration }

func (a advice) String() string { return fmt.Sprintf("drain %s, readerLag %s", a.drain, a.readerLag) }

// less is half of the advice, and nothing for a reader that watches: its lag is a small part of a second.
func (r reader) less() advice {
	if r.period == 0 {
		return advice{}
	}
	return advice{r.set.drain / 2, r.set.readerLag / 2}
}

// traffic is what clients behind a reader have sent.
type traffic struct{ sent, lost int }

// rollOut updates the pods in place, one after the other, as OpenKruise does behind Rollcall's hooks: one is taken out, drains, ends and
// starts again, is registered, and the next one waits for the readerLag. It returns what clients sent meanwhile.
func (r reader) rollOut(ctx context.Context, d registry.Registry, now given, all []*pod, set advice) (sum traffic, err error) {
	sending, stop := context.WithCancel(ctx)
	sent := make(chan traffic)
	go func() { sent <- r.send(sending, now) }()
	for range r.rollouts {
		for _, p := range all {
			pause(ctx, r.period)
			err = errors.Join(err, d.FailOver(ctx, p.instance()))
			wait.Pause(ctx, set.drain)
			p.ended.Store(true)
			wait.Pause(ctx, starts)
			p.ended.Store(false)
			err = errors.Join(err, d.Register(ctx, p.instance()))
			wait.Pause(ctx, set.readerLag)
		}
	}
	stop()
	sum = <-sent
	for _, p := range all { // what comes next begins with a reader that has noticed
		_, awaited := await(ctx, now, p.endpoint, true)
		err = errors.Join(err, awaited)
	}
	if err != nil {
		return sum, fmt.Errorf("rolling out with %s: %w", set, err)
	}
	return sum, nil
}

const (
	// starts is how long a pod takes to start.
	starts = 100 * time.Millisecond
	// pace is how often a client sends a request.
	pace = 5 * time.Millisecond
)

// send sends requests one after the other to what the reader gives, each on a connection of its own, until the context ends.
func (r reader) send(ctx context.Context, now given) (sum traffic) {
	client, ticker := newClient(), time.NewTicker(pace)
	defer ticker.Stop()
	whole := context.WithoutCancel(ctx) // of requests, also the last
	for ctx.Err() == nil {
		all, err := now(whole)
		switch {
		case r.proxies:
			sum.sent += len(all)
		case err == nil && len(all) > 0:
			sum.sent++
			_, err = ask(whole, client, "http://"+all[rand.N(len(all))])
		case err == nil:
			sum.sent++
			err = errors.New("no pod is given")
		}
		if err != nil {
			sum.lost++
		}
		<-ticker.C
	}
	return sum
}

func newClient() *http.Client {
	const timeout = 5 * time.Second
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: timeout}
}
