package registrytest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

// callTimeout bounds a call that nothing is wrong with; prompt bounds one whose context has ended. Both are generous:
// a driver that keeps the contract is faster by orders.
const (
	callTimeout = 30 * time.Second
	prompt      = 5 * time.Second
)

// maxLines bounds how many wrong entries a failure shows.
const maxLines = 10

// world is one case's corner of the registry. It fails the case, naming what was expected; only the case's own
// goroutine may use it.
type world struct {
	T
	h       Harness
	why     string
	cluster string
	service string

	mu      sync.Mutex
	written []registry.Instance
}

func newWorld(t T, c Case, h Harness) *world {
	id := strings.ToLower(rand.Text()[:10])
	w := &world{T: t, h: h, why: c.Why, cluster: "cluster-" + id, service: "svc-" + id}
	cleaner := w.newProcess()
	t.Cleanup(func() { w.cleanUp(cleaner) })
	return w
}

// cleanUp removes what the case wrote, so that a registry which outlives the test is left as it was.
func (w *world) cleanUp(d registry.Registry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), callTimeout)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, in := range w.written {
		if err := d.Deregister(ctx, in); err != nil {
			w.Logf("cleaning up: deregistering %s: %v", show(in), err)
		}
	}
}

func closeDriver(d registry.Registry) {
	if c, ok := d.(io.Closer); ok {
		_ = c.Close()
	}
}

// newProcess returns a driver with no memory.
func (w *world) newProcess() registry.Registry {
	w.Helper()
	return w.opened(w.h.Open(w.T, w.cluster))
}

func (w *world) opened(d registry.Registry) registry.Registry {
	w.Helper()
	if d == nil {
		w.Fatalf("the harness returned no driver")
	}
	w.Cleanup(func() { closeDriver(d) })
	_, lists := d.(registry.Lister)
	if _, lacks := w.h.Lacks[Listing]; lists == lacks {
		w.Fatalf("the harness says lacks %s: %t, but the driver is a Lister: %t", Listing, lacks, lists)
	}
	return d
}

// pod returns the instance of a pod, at an address of its own for each n.
func (w *world) pod(n int) registry.Instance {
	name := fmt.Sprintf("web-%d", n)
	return registry.Instance{
		Service: w.service, Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), Port: 8080,
		Cluster: w.cluster, Namespace: "shop", Pod: name, UID: "uid-of-" + name,
	}
}

// heir returns the instance of the pod that was given the address of another.
func heir(of registry.Instance) registry.Instance {
	of.Pod += "-heir"
	of.UID += "-heir"
	return of
}

func (w *world) register(d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	w.must(OpRegister, d, ins...)
}

func (w *world) failOver(d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	w.must(OpFailOver, d, ins...)
}

func (w *world) deregister(d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	w.must(OpDeregister, d, ins...)
}

func (w *world) must(op Op, d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	for _, in := range ins {
		if err := w.call(op, d, in); err != nil {
			w.Fatalf("%s of %s: got error %q, want success\nwhy: %s", op, show(in), err, w.why)
		}
	}
}

// call makes one call with a generous deadline, and fails the case if the driver blocks past it.
func (w *world) call(op Op, d registry.Registry, in registry.Instance) error {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
	defer cancel()
	returned, err := w.bounded(ctx, callTimeout+prompt, op, d, in)
	if !returned {
		w.Fatalf("%s of %s: still blocked %s after its deadline\nwhy: %s", op, show(in), prompt, w.why)
	}
	return err
}

// bounded makes one call and waits for it no longer than the bound. It may be used from any goroutine.
func (w *world) bounded(
	ctx context.Context, bound time.Duration, op Op, d registry.Registry, in registry.Instance,
) (returned bool, err error) {
	if op == OpRegister {
		w.mu.Lock()
		w.written = append(w.written, in)
		w.mu.Unlock()
	}
	answer := make(chan error, 1)
	go func() { answer <- invoke(ctx, op, d, in) }()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-answer:
		return true, err
	case <-timer.C:
		return false, nil
	}
}

func invoke(ctx context.Context, op Op, d registry.Registry, in registry.Instance) error {
	switch op {
	case OpRegister:
		return d.Register(ctx, in)
	case OpFailOver:
		return d.FailOver(ctx, in)
	case OpDeregister:
		return d.Deregister(ctx, in)
	case OpList:
		_, err := d.(registry.Lister).List(ctx, in.Cluster)
		return err
	}
	return fmt.Errorf("no such operation: %s", op)
}

// operations returns those that the driver has.
func operations(d registry.Registry) []Op {
	all := []Op{OpRegister, OpFailOver, OpDeregister}
	if _, lists := d.(registry.Lister); lists {
		all = append(all, OpList)
	}
	return all
}

func inService(in registry.Instance) registry.Entry {
	return registry.Entry{Instance: in, State: registry.InService}
}

func outOfService(in registry.Instance) registry.Entry {
	return registry.Entry{Instance: in, State: registry.OutOfService}
}

// expect holds the whole of the case's cluster against what it should be. Where the registry has no out-of-service
// state, what should be out of service should be absent.
func (w *world) expect(want ...registry.Entry) {
	w.Helper()
	if _, lacks := w.h.Lacks[OutOfServiceState]; lacks {
		want = slices.DeleteFunc(slices.Clone(want), func(e registry.Entry) bool { return e.State != registry.InService })
	}
	if diff := difference(w.truth(w.cluster), want); diff != "" {
		w.Fatalf("the registry does not hold what it should\n%swhy: %s", diff, w.why)
	}
}

// expectNotInService allows out of service as well as absent.
func (w *world) expectNotInService(in registry.Instance) {
	w.Helper()
	for _, e := range w.truth(w.cluster) {
		if e.Service == in.Service && e.Endpoint() == in.Endpoint() && e.State != registry.OutOfService {
			w.Fatalf("the registry holds %s, want it out of service or absent\nwhy: %s", showEntry(e), w.why)
		}
	}
}

// truth returns what the registry holds of a cluster.
func (w *world) truth(cluster string) []registry.Entry {
	w.Helper()
	read := w.h.Truth
	if read == nil {
		read = w.newProcess().(registry.Lister).List
	}
	ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
	defer cancel()
	entries, err := read(ctx, cluster)
	if err != nil {
		w.Fatalf("reading the registry: %v", err)
	}
	return entries
}

// difference says which entries are missing and which are there for no reason, "" if none. An entry that is there twice
// counts twice.
func difference(got, want []registry.Entry) string {
	surplus := map[string]int{}
	for _, e := range got {
		surplus[showEntry(e)]++
	}
	for _, e := range want {
		surplus[showEntry(e)]--
	}
	var lines []string
	for e, n := range surplus {
		switch {
		case n > 0:
			lines = append(lines, fmt.Sprintf("  %dx not wanted: %s\n", n, e))
		case n < 0:
			lines = append(lines, fmt.Sprintf("  %dx missing:    %s\n", -n, e))
		}
	}
	slices.Sort(lines)
	if more := len(lines) - maxLines; more > 0 {
		lines = append(lines[:maxLines], fmt.Sprintf("  and %d more\n", more))
	}
	return strings.Join(lines, "")
}

func showEntry(e registry.Entry) string {
	return fmt.Sprintf("%s, %s", e.State, show(e.Instance))
}

func show(in registry.Instance) string {
	return fmt.Sprintf("%q at %s (cluster %q, pod %q in %q, uid %q)",
		in.Service, in.Endpoint(), in.Cluster, in.Pod, in.Namespace, in.UID)
}
