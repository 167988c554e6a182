package registrytest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// batchCases are about registry.Batcher.
func batchCases() []testCase {
	return needing([]testCase{
		{
			name: "BatchMakesEachChange",
			why:  "OpenKruise continues with each pod whose change was answered with nil",
			run:  batchMakesEachChange,
		},
		{
			name: "BatchTwice",
			why:  "a batch is sent again whenever its outcome is unknown",
			run: func(w *world) {
				d := w.newProcess()
				changes := mixed(w.pods(6))
				w.batch(d, to(registry.InService, w.pods(6))...)
				w.batch(d, changes...)
				w.batch(d, changes...)
				w.batch(w.newProcess(), changes...)
				w.expect(afterwards(changes)...)
			},
		},
		{
			name: "BatchAtItsLimit",
			why:  "BatchLimit must be what the registry takes: if it is too high, the last change of a storm is refused or lost",
			run:  batchAtItsLimit,
		},
		{
			name: "BatchSparesLivePods",
			why:  "addresses are reused within seconds; a dead pod's late change in a batch would take the live one out",
			run:  batchSparesLivePods,
		},
		{
			name: "BatchRefusedChange",
			why:  "one instance that the registry refuses must not stop the others forever",
			run:  batchRefusedChange,
		},
		{
			name: "BatchUnknownState",
			why:  "a state that a driver does not know is its caller's mistake; taken for absent, it removes a pod that serves",
			run:  batchUnknownState,
		},
		{
			name: "BatchCancelledContext",
			why:  "a worker that waits for a batch after its caller has gone is missing elsewhere, and the shutdown hangs",
			run:  batchCancelledContext,
		},
		{
			name: "ConcurrentBatches",
			why:  "a rollout makes many batches at the same time, and calls between them; none may undo another",
			run:  concurrentBatches,
		},
		{
			name: "ConcurrentTakeoverInBatch",
			why:  "the next pod can register at the address after the driver has checked the ownership tag and before it makes the change",
			run:  concurrentTakeoverInBatch,
		},
	}, isBatcher)
}

// mixed returns changes to all three states in turn.
func mixed(ins []registry.Instance) []registry.Change {
	states := []registry.State{registry.InService, registry.OutOfService, registry.Absent}
	var changes []registry.Change
	for i, in := range ins {
		changes = append(changes, registry.Change{Instance: in, State: states[i%3]})
	}
	return changes
}

// to returns changes of all to one state.
func to(state registry.State, ins []registry.Instance) []registry.Change {
	var changes []registry.Change
	for _, in := range ins {
		changes = append(changes, registry.Change{Instance: in, State: state})
	}
	return changes
}

// afterwards returns what a registry that had all of the instances holds after the changes.
func afterwards(changes []registry.Change) []registry.Entry {
	var entries []registry.Entry
	for _, c := range changes {
		if c.State != registry.Absent {
			entries = append(entries, registry.Entry{Instance: c.Instance, State: c.State})
		}
	}
	return entries
}

// batch makes the changes as Rollcall does: in batches of BatchLimit, and those that were not applied again, one by one. All
// must succeed.
func (w *world) batch(d registry.Registry, changes ...registry.Change) {
	w.Helper()
	if err := w.batchErr(d, changes...); err != nil {
		w.Fatalf("%v", err)
	}
}

// batchErr is batch for goroutines other than the case's own.
func (w *world) batchErr(d registry.Registry, changes ...registry.Change) error {
	var failed []error
	limit := d.(registry.Batcher).BatchLimit()
	if limit < 1 {
		return fmt.Errorf("BatchLimit is %d, want at least 1", limit)
	}
	for some := range slices.Chunk(changes, limit) {
		errs, err := w.batchOnce(w.Context(), d, some)
		if err != nil {
			return err
		}
		for i, err := range errs {
			if registry.CodeOf(err) == registry.CodeNotApplied {
				err = w.callErr(opOf(some[i].State), d, some[i].Instance)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s of %s: got error %w, want success", some[i].State, show(some[i].Instance), err))
			}
		}
	}
	return joined(failed)
}

// opOf is the call that makes a change to the state.
func opOf(state registry.State) operation {
	switch state {
	case registry.InService:
		return opRegister
	case registry.OutOfService:
		return opFailOver
	default:
		return opDeregister
	}
}

// batchOnce makes one batch, and expects one error for each change. It may be used from any goroutine.
func (w *world) batchOnce(ctx context.Context, d registry.Registry, changes []registry.Change) ([]error, error) {
	for _, c := range changes {
		if c.State != registry.Absent {
			w.wrote(c.Instance)
		}
	}
	errs, err := ask(ctx, w, func(ctx context.Context) ([]error, error) { return d.(registry.Batcher).Batch(ctx, changes), nil })
	w.keepsSecrets(errs...)
	if err == nil && len(errs) != len(changes) {
		err = fmt.Errorf("got %d errors, want one for each change", len(errs))
	}
	if err != nil {
		return nil, fmt.Errorf("batch of %d: %w", len(changes), err)
	}
	return errs, nil
}

// mustBatchOnce is batchOnce for the case's own goroutine.
func (w *world) mustBatchOnce(ctx context.Context, d registry.Registry, changes []registry.Change) []error {
	w.Helper()
	errs, err := w.batchOnce(ctx, d, changes)
	if err != nil {
		w.Fatalf("%v", err)
	}
	return errs
}

func batchMakesEachChange(w *world) {
	const pods = 9
	d := w.newProcess()
	if errs := w.mustBatchOnce(w.Context(), d, nil); len(errs) != 0 {
		w.Fatalf("empty batch: got errors %v, want none", errs)
	}
	// From every state to every state; the last three pods are unknown to the registry.
	w.batch(d, to(registry.InService, w.pods(pods-3))...)
	w.batch(d, to(registry.OutOfService, w.pods(3))...)
	w.expect(append(afterwards(to(registry.OutOfService, w.pods(3))), allInService(w.pods(pods - 3)[3:])...)...)

	changes := mixed(w.pods(pods - 3))
	w.batch(w.newProcess(), append(slices.Clone(changes), registry.Change{Instance: w.pod(pods - 1), State: registry.Absent})...)
	w.expect(afterwards(changes)...)
	w.batch(d, append(to(registry.Absent, w.pods(pods-3)), registry.Change{Instance: w.pod(pods - 2), State: registry.InService})...)
	w.expect(inService(w.pod(pods - 2)))
}

// batchAtItsLimit makes one change more than a batch may have, as two batches. A very high limit is not reached.
func batchAtItsLimit(w *world) {
	const most = 2000
	d := w.newProcess()
	pods := w.pods(min(d.(registry.Batcher).BatchLimit()+1, most))
	for _, state := range []registry.State{registry.InService, registry.OutOfService, registry.InService, registry.Absent} {
		changes := to(state, pods)
		w.batch(d, changes...)
		w.expect(afterwards(changes)...)
	}
}

func batchSparesLivePods(w *world) {
	d := w.newProcess()
	dead := w.pods(4)
	var live []registry.Instance
	for _, in := range dead {
		live = append(live, heir(in))
	}
	w.batch(d, to(registry.InService, dead)...)
	w.batch(d, to(registry.InService, live)...)
	late := []registry.Change{
		{Instance: dead[0], State: registry.Absent},
		{Instance: w.pod(10), State: registry.InService},
		{Instance: dead[1], State: registry.OutOfService},
		{Instance: w.pod(11), State: registry.InService},
	}
	for _, process := range []registry.Registry{d, w.newProcess()} {
		w.batch(process, late...)
		w.expect(append(allInService(live), inService(w.pod(10)), inService(w.pod(11)))...)
	}
}

// batchRefusedChange has, among others, instances that a registry has reason to refuse. A registry that takes them is right, too.
func batchRefusedChange(w *world) {
	d := w.newProcess()
	for n, spoil := range []func(*registry.Instance){
		func(in *registry.Instance) { in.Port = 1 << 20 },
		func(in *registry.Instance) { in.Address = "no address" },
		func(in *registry.Instance) { in.UID = "" },
	} {
		ins := w.pods(5)
		w.batch(d, to(registry.InService, ins[3:])...)
		changes := []registry.Change{
			{Instance: ins[0], State: registry.InService},
			{Instance: ins[1], State: registry.InService},
			{Instance: ins[2], State: registry.InService},
			{Instance: ins[3], State: registry.OutOfService},
			{Instance: ins[4], State: registry.Absent},
		}
		spoilt := n % 3
		spoil(&changes[spoilt].Instance)
		errs := w.mustBatchOnce(w.Context(), d, changes)
		for i, err := range errs {
			if i != spoilt && err != nil && registry.CodeOf(err) != registry.CodeNotApplied {
				w.Fatalf("change %d is correct: got error %v, want success or registry.NotApplied; the answer to the bad change %d was %v",
					i, err, spoilt, errs[spoilt])
			}
		}
		sound := slices.Delete(slices.Clone(changes), spoilt, spoilt+1)
		w.retryNotApplied(d, changes, errs, spoilt)
		want := afterwards(sound)
		if errs[spoilt] == nil {
			want = append(want, inService(changes[spoilt].Instance))
		}
		w.expect(want...)
		w.batch(d, to(registry.Absent, ins)...)
		_ = w.call(opDeregister, d, changes[spoilt].Instance)
	}
}

// batchUnknownState has a change to an unknown state, by itself and among correct ones.
func batchUnknownState(w *world) {
	d := w.newProcess()
	ins := w.pods(3)
	w.batch(d, to(registry.InService, ins)...)
	for _, state := range []registry.State{"", "Gone"} {
		unknown := registry.Change{Instance: ins[1], State: state}
		w.expectRefused(unknown, w.mustBatchOnce(w.Context(), d, []registry.Change{unknown})[0])
		changes := []registry.Change{
			{Instance: ins[0], State: registry.InService}, unknown, {Instance: ins[2], State: registry.OutOfService},
		}
		errs := w.mustBatchOnce(w.Context(), d, changes)
		w.expectRefused(unknown, errs[1])
		w.retryNotApplied(d, changes, errs, 1)
		w.expect(inService(ins[0]), inService(ins[1]), outOfService(ins[2]))
	}
}

func (w *world) expectRefused(c registry.Change, err error) {
	w.Helper()
	if registry.CodeOf(err) != registry.CodeTerminal {
		w.Fatalf("a change to state %q: got error %v, want a terminal one", c.State, err)
	}
}

// retryNotApplied makes each change that was not applied again by itself, except for the bad one.
func (w *world) retryNotApplied(d registry.Registry, changes []registry.Change, errs []error, spoilt int) {
	w.Helper()
	for i, err := range errs {
		if i != spoilt && registry.CodeOf(err) == registry.CodeNotApplied {
			w.must(opOf(changes[i].State), d, changes[i].Instance)
		}
	}
}

func batchCancelledContext(w *world) {
	d := w.newProcess()
	cancelled, cancel := context.WithCancel(w.Context())
	cancel()
	changes := mixed(w.pods(min(6, d.(registry.Batcher).BatchLimit())))
	for i, err := range w.mustBatchOnce(cancelled, d, changes) {
		if !errors.Is(err, context.Canceled) || registry.CodeOf(err) == registry.CodeTerminal {
			w.Fatalf("change %d: got error %v, want one that wraps %q", i, err, context.Canceled)
		}
	}
}

func concurrentBatches(w *world) {
	const (
		batches = 8
		size    = 12
	)
	drivers := []registry.Registry{w.newProcess(), w.newProcess()}
	all := w.pods(batches * size)
	w.atOnce(batches, func(i int) error {
		return w.batchErr(drivers[i%2], to(registry.InService, all[i*size:(i+1)*size])...)
	})
	w.expect(allInService(all)...)
	changes := mixed(all)
	w.atOnce(batches, func(i int) error {
		some := changes[i*size : (i+1)*size]
		if err := w.batchErr(drivers[i%2], some[1:]...); err != nil {
			return err
		}
		return w.callErr(opOf(some[0].State), drivers[(i+1)%2], some[0].Instance)
	})
	w.expect(afterwards(changes)...)
}

// concurrentTakeoverInBatch is concurrentTakeover with the dead pod's call in a batch.
func concurrentTakeoverInBatch(w *world) {
	old, next := w.newProcess(), w.newProcess()
	var want []registry.Entry
	for i := range races {
		dead, bystander := w.pod(2*i), w.pod(2*i+1)
		w.register(old, dead)
		state := []registry.State{registry.Absent, registry.OutOfService}[i%2]
		w.race(i/2,
			func() error {
				return w.batchErr(old, registry.Change{Instance: dead, State: state},
					registry.Change{Instance: bystander, State: registry.InService})
			},
			func() error { return w.callErr(opRegister, next, heir(dead)) },
		)
		want = append(want, inService(heir(dead)), inService(bystander))
	}
	w.expect(want...)
}
