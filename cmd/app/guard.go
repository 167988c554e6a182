package app

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/internal/calls"
	"github.com/rollcall-dev/rollcall/internal/gate"
)

var errRetired = errors.New("the configuration has changed: this registry is no longer in use")

// term is what a guard asks of the lease, see there. It is safe for concurrent use.
type term interface {
	// permit refuses what takes up to this long where another manager may act before it is over.
	permit(time.Duration) error
	// mayLand notes that a call may still be carried out until then.
	mayLand(until time.Time)
}

// guard keeps calls from a registry that this manager may no longer use: since another one leads, or since the
// configuration names another registry. A call that was begun is finished, also where the manager is asked to stop
// meanwhile: one that is cut off may land when the next manager has acted.
type guard struct {
	term    term
	timeout time.Duration

	mu      sync.Mutex
	retired bool
	calls   sync.WaitGroup
}

// lands is how long after its beginning a call that changes something may still be carried out: what has timed out may be
// on its way for as long again.
func (g *guard) lands() time.Duration { return 2 * g.timeout }

// retire refuses further calls and waits for those under way, so that the registry can be closed.
func (g *guard) retire() {
	g.mu.Lock()
	g.retired = true
	g.mu.Unlock()
	g.calls.Wait()
}

func (g *guard) enter(takes time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.retired {
		return gate.Inconclusive(errRetired)
	}
	if err := g.term.permit(takes); err != nil {
		return gate.Inconclusive(err)
	}
	g.calls.Add(1)
	return nil
}

// around is a calls.Around.
func (g *guard) around(ctx context.Context, operation string, do func(context.Context) error) error {
	if !calls.Changes(operation) {
		return g.read(ctx, do)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := g.enter(g.lands()); err != nil {
		return err
	}
	defer g.calls.Done()
	began := time.Now()
	bounded, cancel := g.finish(ctx, began)
	defer cancel()
	err := do(bounded)
	if calls.TimedOut(bounded, err) {
		g.term.mayLand(began.Add(g.lands()))
	}
	return err
}

func (g *guard) read(ctx context.Context, do func(context.Context) error) error {
	if err := g.enter(g.timeout); err != nil {
		return err
	}
	defer g.calls.Done()
	return do(ctx)
}

// finish returns a context that ends when the caller's time is up, and not when the caller is asked to stop.
func (g *guard) finish(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	deadline := began.Add(g.timeout)
	if given, ok := ctx.Deadline(); ok && given.Before(deadline) {
		deadline = given
	}
	return context.WithDeadline(context.WithoutCancel(ctx), deadline)
}

// writes keeps requests that change something from the API server once this manager may no longer make them. The lease has
// a client of its own.
type writes struct {
	next   http.RoundTripper
	permit func() error
}

// RoundTrip implements http.RoundTripper.
func (w *writes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return w.next.RoundTrip(r)
	}
	if err := w.permit(); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper has to, and nothing was read
		}
		return nil, err
	}
	return w.next.RoundTrip(r)
}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper.
func (w *writes) WrappedRoundTripper() http.RoundTripper { return w.next }
