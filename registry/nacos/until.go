package nacos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

const (
	// lag is after how long Nacos gives readers by default what it has acknowledged (nacos.naming.push.pushTaskDelay), and
	// look how long after that they are asked again whether they see it, twice as long each time.
	lag  = 500 * time.Millisecond
	look = 100 * time.Millisecond
	// settle is after how long a write that readers don't see has been undone by another, and is made again.
	settle = time.Second
)

// until writes, and returns when readers see that, or the same by another call for the pod. If they don't within a while, another
// write has got in between: ours is the later one, and is made again. A server that has not shown that by the end of the call either
// may never do: later calls begin at another one. A call that had less time than that shows nothing about the server.
func (r *Registry) until(ctx context.Context, write func() error, see view) error {
	var asked driverkit.Server
	noting := func(ctx context.Context) (seen bool, err error) {
		seen, asked, err = see(ctx)
		return seen, err
	}
	for wait := settle; ; wait *= 2 {
		if err := write(); err != nil {
			return err
		}
		seen, err := await(ctx, wait, noting)
		if err != nil && wait > settle && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			r.leave(ctx, asked)
			err = fmt.Errorf("%s: %w", asked, err) // who is to look after it
		}
		if seen || err != nil {
			return err
		}
	}
}

// leave has later calls begin at another server.
func (r *Registry) leave(ctx context.Context, s driverkit.Server) {
	others := driverkit.Policy{After: s, Because: "it does not show its readers what it has acknowledged"}
	_ = r.client.http.Try(ctx, others, func(context.Context, driverkit.Server) error { return nil })
}

// view asks readers of one server whether they see a write.
type view func(context.Context) (seen bool, asked driverkit.Server, err error)

// readers asks whether readers see at a place what they should.
func (r *Registry) readers(p place, right func(*host) bool) view {
	return func(ctx context.Context) (bool, driverkit.Server, error) {
		h, asked, err := r.read(ctx, p)
		return err == nil && right(h), asked, err
	}
}

// await asks readers, for the length of wait, whether they see a write: first when they may, then less and less often.
// Calls that are made together ask at different times.
func await(ctx context.Context, wait time.Duration, see func(context.Context) (bool, error)) (seen bool, err error) {
	end := time.Now().Add(wait)
	err = pause(ctx, jittered(lag))
	for next := look; err == nil; next *= 2 {
		if seen, err = see(ctx); err != nil {
			break
		}
		if seen || time.Now().After(end) {
			return seen, nil
		}
		err = pause(ctx, jittered(next))
	}
	return false, fmt.Errorf("the server has acknowledged it, but did not yet show it to readers: %w", err)
}

// jittered is up to a tenth longer.
func jittered(d time.Duration) time.Duration { return d + rand.N(d/10) } //nolint:gosec // no secret

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
