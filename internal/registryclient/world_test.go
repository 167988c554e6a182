package registryclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
)

const testTimeout = time.Hour

var errDown = errors.New("connection refused")

// world is a client, its callers, and a registry that answers when the test says so. It lives in a synctest bubble.
type world struct {
	*testing.T
	*Client

	mu      sync.Mutex
	held    map[string]chan error
	refused map[string]error
	woken   []string
}

func newWorld(t *testing.T, maxInFlight int) *world {
	w := &world{T: t, held: map[string]chan error{}, refused: map[string]error{}}
	w.Client = New(&holding{w}, Options{Timeout: testTimeout, MaxInFlight: maxInFlight})
	return w
}

// holding is the world's registry.
type holding struct{ w *world }

func (h *holding) hold(ctx context.Context, in registry.Instance) error {
	answer := make(chan error, 1)
	h.w.mu.Lock()
	h.w.held[in.UID] = answer
	h.w.mu.Unlock()
	defer func() {
		h.w.mu.Lock()
		defer h.w.mu.Unlock()
		delete(h.w.held, in.UID)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *holding) Register(ctx context.Context, in registry.Instance) error   { return h.hold(ctx, in) }
func (h *holding) FailOver(ctx context.Context, in registry.Instance) error   { return h.hold(ctx, in) }
func (h *holding) Deregister(ctx context.Context, in registry.Instance) error { return h.hold(ctx, in) }
func (h *holding) Probe(ctx context.Context, in registry.Instance) error      { return h.hold(ctx, in) }

// caller reads "web/1", of a namespace of that name, or "shop:web/1", of namespace shop; "web/1!" for one that is urgent, "web/1?" for one
// that yields, or "web/2@1" for one at the endpoint of web/1.
func (w *world) caller(name string) (Caller, registry.Change) {
	id, urgent := strings.CutSuffix(name, "!")
	id, yields := strings.CutSuffix(id, "?")
	service, _, _ := strings.Cut(id, "/")
	id, at, shared := strings.Cut(id, "@")
	if at = service + "/" + at; !shared {
		at = id
	}
	namespace, own, is := strings.Cut(service, ":")
	if is {
		service = own
	}
	by := Caller{ID: id, Urgent: urgent, Yields: yields, Wake: func() { w.woken = append(w.woken, name) }}
	in := registry.Instance{Namespace: namespace, Service: service, Address: at, UID: id}
	return by, registry.Change{Instance: in, State: registry.InService}
}

// come has each caller ask for a call.
func (w *world) come(names ...string) {
	for _, name := range names {
		by, change := w.caller(name)
		go func() {
			err := w.Change(w.Context(), by, change)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.refused[by.ID] = err
		}()
		synctest.Wait()
	}
}

// answer has the registry answer the calls of these callers.
func (w *world) answer(err error, names ...string) {
	w.Helper()
	for _, name := range names {
		by, _ := w.caller(name)
		w.mu.Lock()
		held := w.held[by.ID]
		w.mu.Unlock()
		if held == nil {
			w.Fatalf("no call of %s is under way", name)
		}
		held <- err
		synctest.Wait()
	}
}

// fail has each caller make a call that fails.
func (w *world) fail(names ...string) {
	w.Helper()
	for _, name := range names {
		w.come(name)
		w.answer(errDown, name)
	}
}

func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) underWay() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ids := make([]string, 0, len(w.held))
	for id := range w.held {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) expectUnderWay(reason string, want ...string) {
	w.Helper()
	if got := w.underWay(); !slices.Equal(got, want) {
		w.Fatalf("calls of %q are under way, want %q\nreason: %s", got, want, reason)
	}
}

// expectWoken holds those that were woken since the last look against those that should be.
func (w *world) expectWoken(reason string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(want, w.takeWoken()); diff != "" {
		w.Fatalf("woken (-want +got):\n%sreason: %s", diff, reason)
	}
}

func (w *world) takeWoken() []string {
	w.limit.mu.Lock()
	defer w.limit.mu.Unlock()
	taken := w.woken
	w.woken = nil
	return taken
}

func (w *world) expectStatus(reason string, want Status) {
	w.Helper()
	if diff := cmp.Diff(want, w.Status()); diff != "" {
		w.Fatalf("status (-want +got):\n%sreason: %s", diff, reason)
	}
}

func fields(text string) []string { return strings.Fields(text) }

// expectEmpty is what holds of a client when all have gone.
func (w *world) expectEmpty() {
	w.Helper()
	w.sleep(time.Minute) // those that were woken in vain are forgotten
	l := w.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	left := fmt.Sprint(l.taken, l.others, l.byService, l.byNamespace, len(l.changing), len(l.waiting), l.groups, l.lines, l.timer)
	if want := "0 0 map[] map[] 0 0 map[] [map[] map[] map[]] <nil>"; left != want {
		w.Errorf("the limit keeps %s, want %s", left, want)
	}
}
