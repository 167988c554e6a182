package registrytest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// restartCases restart the registry. They run alone.
func restartCases() []testCase {
	return []testCase{
		{
			name:  "RestartIsOutlived",
			why:   "a registry is restarted for an upgrade; no error may be terminal, and the driver must connect again",
			needs: []Capability{hasRestart},
			run:   restartIsOutlived,
		},
		{
			name:  "RestartKeepsEntries",
			why:   "Rollcall does not repeat what was acknowledged; if a restart loses it, pods are out of rotation",
			needs: []Capability{hasRestart, Durable},
			run:   restartKeepsEntries,
		},
		{
			name:  "RestartIsNoticedByHeartbeat",
			why:   "a registry that has forgotten an entry gets it back only if the heartbeat returns registry.NotRegistered",
			needs: []Capability{hasRestart, isHeartbeater},
			run: func(w *world) {
				d := w.registered(w.pod(1))
				w.restart()
				err := w.untilAnswered(opHeartbeat, d, w.pod(1))
				if registry.CodeOf(err) == registry.CodeNotRegistered {
					w.again(opRegister, d, w.pod(1))
					w.expectBeat(d, w.pod(1))
				}
				w.expect(inService(w.pod(1)))
			},
		},
	}
}

// restart restarts the registry. From then on the suite waits for what the registry holds.
func (w *world) restart() {
	w.Helper()
	w.h.Restart(w.TB)
	w.restarted = true
}

// restartIsOutlived makes calls while the registry restarts. If it keeps what it has acknowledged, all of that must be
// there; if it forgets, the calls are made again, as Rollcall does.
func restartIsOutlived(w *world) {
	d := w.newProcess()
	pods := w.pods(8)
	w.register(d, pods...)
	busy := w.keepBusy(d)
	w.restart()
	tried, acknowledged, err := busy.stop()
	if err != nil {
		w.Fatalf("while the registry restarted: %v", err)
	}
	if !w.h.lacks(Durable) {
		w.answersAgain()
		w.expectAmong(append(acknowledged, pods...))
	}
	w.again(opDeregister, d, tried...)
	w.again(opRegister, d, pods...)
	w.again(opFailOver, d, pods[:2]...)
	w.again(opDeregister, d, pods[2:4]...)
	w.answersAgain()
	w.expect(append(allInService(pods[4:]), outOfService(pods[0]), outOfService(pods[1]))...)
}

func restartKeepsEntries(w *world) {
	d := w.newProcess()
	in := w.pod(1)
	in.Weight, in.Zone, in.Tags, in.Metadata = 7, "zone-b", []string{"http"}, map[string]string{"version": "v1"}
	w.register(d, in, w.pod(2), w.pod(3))
	w.failOver(d, w.pod(2))
	w.deregister(d, w.pod(3))
	w.restart()
	w.answersAgain()
	w.expect(inService(in), outOfService(w.pod(2)))

	next := w.newProcess()
	w.again(opRegister, next, w.pod(2))
	w.again(opDeregister, next, w.pod(1))
	w.expect(inService(w.pod(2)))
}

// busyness is registrations in the background.
type busyness struct {
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu                  sync.Mutex
	tried, acknowledged []registry.Instance
	err                 error
}

// keepBusy registers one instance after the other, in a few goroutines, until it is stopped.
func (w *world) keepBusy(d registry.Registry) *busyness {
	const (
		callers = 4
		most    = 250 // of each
	)
	ctx, cancel := context.WithCancel(w.Context())
	b := &busyness{cancel: cancel}
	w.Cleanup(func() { _, _, _ = b.stop() })
	for caller := range callers {
		b.all.Go(func() {
			for i := range most {
				in := w.pod((caller+1)*most + i)
				if err := w.registerWhile(ctx, d, in); b.note(in, err) || sleep(ctx, pause) != nil {
					return
				}
			}
		})
	}
	return b
}

// registerWhile registers an instance, and returns nil once that is acknowledged. Temporary errors do not matter.
func (w *world) registerWhile(ctx context.Context, d registry.Registry, in registry.Instance) error {
	for {
		err := w.callErr(opRegister, d, in)
		if err == nil || registry.CodeOf(err) == registry.CodeTerminal || errors.Is(err, errBlocked) {
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
	}
}

// note keeps the outcome of a registration, and reports whether it is the last one.
func (b *busyness) note(in registry.Instance, err error) (last bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tried = append(b.tried, in)
	switch {
	case err == nil:
		b.acknowledged = append(b.acknowledged, in)
	case registry.CodeOf(err) == registry.CodeTerminal && b.err == nil:
		b.err = fmt.Errorf("got a terminal error: %w", err)
	case errors.Is(err, errBlocked) && b.err == nil:
		b.err = err
	}
	return err != nil
}

// stop waits for the calls under way, and returns what was tried, and which of that was acknowledged.
func (b *busyness) stop() (tried, acknowledged []registry.Instance, err error) {
	b.cancel()
	b.all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tried, b.acknowledged, b.err
}

// again makes calls until each has succeeded: after a restart the first may fail.
func (w *world) again(op operation, d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	for _, in := range ins {
		if err := w.untilAnswered(op, d, in); err != nil {
			w.Fatalf("%s of %s after a restart: got error %v, want success", op, show(in), err)
		}
	}
}

// untilAnswered makes a call until the registry has answered it, with success, a terminal error or not registered.
func (w *world) untilAnswered(op operation, d registry.Registry, in registry.Instance) error {
	w.Helper()
	for deadline := time.Now().Add(w.h.patience().restart); ; w.pause() {
		err := w.call(op, d, in)
		code := registry.CodeOf(err)
		if err == nil || code == registry.CodeTerminal || code == registry.CodeNotRegistered || time.Now().After(deadline) {
			return err
		}
	}
}

// answersAgain waits until the registry can be read.
func (w *world) answersAgain() {
	w.Helper()
	read, _ := w.reader()
	for deadline := time.Now().Add(w.h.patience().restart); ; w.pause() {
		ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
		_, err := read(ctx, w.cluster)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("reading the registry %s after its restart: %v", w.h.patience().restart, err)
		}
	}
}

// expectAmong expects all of the instances in rotation; there may be others.
func (w *world) expectAmong(ins []registry.Instance) {
	w.Helper()
	missing := w.settled(func(got []registry.Entry) string {
		var there []registry.Entry
		for _, e := range got {
			for _, in := range ins {
				if sameIdentity(e.Instance, in) {
					there = append(there, e)
				}
			}
		}
		return difference(there, w.h.possible(allInService(ins)))
	}, w.cluster)
	if missing != "" {
		w.Fatalf("entries that were acknowledged while the registry restarted are missing afterwards\n%s", missing)
	}
}
