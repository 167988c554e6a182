package registrytest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// maxLines bounds how many wrong entries a failure shows.
	maxLines = 10
	// cleaners is how many concurrent calls remove what a case wrote. They are more if each would make more than so many one after another.
	cleaners, callsOfEach = 16, 50
)

// world is one case's corner of the registry. It fails the case with what was expected; only the case's own
// goroutine may use it, unless a method's comment allows others.
type world struct {
	testing.TB

	h       Harness
	why     string
	cluster string
	service string

	cleaned map[string]bool     // the clusters that have a driver which cleans up
	has     map[Capability]bool // which of the optional interfaces the drivers have

	restarted bool // whether the registry was restarted

	mu      sync.Mutex
	written []registry.Instance
	seen    map[string]bool // the keys of written
}

func newWorld(t testing.TB, c testCase, h Harness) *world {
	id := strings.ToLower(rand.Text()[:10])
	w := &world{
		TB: t, h: h, why: c.why, cluster: "cluster-" + id, service: "svc-" + id,
		cleaned: map[string]bool{}, seen: map[string]bool{},
	}
	w.cleansUp(w.cluster)
	return w
}

// Fatalf ends the case, and adds what goes wrong in production because of the fault.
func (w *world) Fatalf(format string, args ...any) {
	w.Helper()
	w.TB.Fatalf("%s\nwhy: %s", strings.TrimSuffix(fmt.Sprintf(format, args...), "\n"), w.why)
}

// cleansUp opens a driver that removes at the end what the case wrote for the cluster, and for clusters without a driver of
// their own: a registry that outlives the test is left as it was.
func (w *world) cleansUp(cluster string) {
	w.Helper()
	if w.cleaned[cluster] {
		return
	}
	w.cleaned[cluster] = true
	d := w.opened(w.h.Open(w.TB, cluster))
	w.Cleanup(func() { w.cleanUp(d, cluster) })
}

func (w *world) cleanUp(d registry.Registry, cluster string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.Context()), cleanUpTimeout)
	defer cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	var mine []registry.Instance
	for _, in := range w.written {
		in.Registry = "" // whichever registry the entry has
		if in.Cluster == cluster || !w.cleaned[in.Cluster] {
			mine = append(mine, in)
		}
	}
	_ = each(len(mine), max(cleaners, len(mine)/callsOfEach), func(i int) error {
		_, err := within(cleanUpTimeout, w, func() (any, error) { return nil, d.Deregister(ctx, mine[i]) })
		if err != nil {
			w.Logf("cleaning up: deregistering %s: %v", show(mine[i]), err)
		}
		return nil
	})
}

// wrote remembers an instance for cleanUp. It may be used from any goroutine.
func (w *world) wrote(in registry.Instance) {
	key := fmt.Sprint(in.Place, in.Service, in.Endpoint(), in.UID)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.seen[key] {
		w.seen[key] = true
		w.written = append(w.written, in)
	}
}

// closeDriver closes a driver whose error does not matter.
func (w *world) closeDriver(d registry.Registry) {
	if c, ok := d.(io.Closer); ok {
		_, _ = within(callTimeout, w, func() (any, error) { return nil, c.Close() })
	}
}

// newProcess returns a driver with no memory.
func (w *world) newProcess() registry.Registry {
	w.Helper()
	return w.newProcessOf(w.cluster)
}

func (w *world) newProcessOf(cluster string) registry.Registry {
	w.Helper()
	w.cleansUp(cluster)
	return w.opened(w.h.Open(w.TB, cluster))
}

func (w *world) opened(d registry.Registry) registry.Registry {
	w.Helper()
	if err := w.h.checkDriver(d); err != nil {
		w.Fatalf("%v", err)
	}
	w.has = interfacesOf(d)
	w.Cleanup(func() { w.closeDriver(d) })
	return d
}

// pod returns the instance of a pod, with a different address for each n.
func (w *world) pod(n int) registry.Instance {
	name := fmt.Sprintf("web-%d", n)
	return registry.Instance{
		Service: w.service, Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250+1), Port: 8080,
		Cluster: w.cluster, Namespace: "shop", Pod: name, UID: fmt.Sprintf("uid-%s-%d", w.service, n),
	}
}

// pods returns the first n.
func (w *world) pods(n int) []registry.Instance {
	all := make([]registry.Instance, 0, n)
	for i := range n {
		all = append(all, w.pod(i))
	}
	return all
}

// heir returns the instance of another pod, which was given the same address.
func heir(of registry.Instance) registry.Instance {
	of.Pod += "-heir"
	of.UID += "-heir"
	return of
}

func (w *world) register(d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	w.must(opRegister, d, ins...)
}

// registered returns a new driver that has registered only these.
func (w *world) registered(ins ...registry.Instance) registry.Registry {
	w.Helper()
	d := w.newProcess()
	w.register(d, ins...)
	return d
}

func (w *world) failOver(d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	w.must(opFailOver, d, ins...)
}

func (w *world) deregister(d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	w.must(opDeregister, d, ins...)
}

func (w *world) must(op operation, d registry.Registry, ins ...registry.Instance) {
	w.Helper()
	for _, in := range ins {
		if err := w.call(op, d, in); err != nil {
			w.Fatalf("%s of %s: got error %q, want success", op, show(in), err)
		}
	}
}

// call makes one call with a generous deadline, and fails the case if the driver is still blocked after it.
func (w *world) call(op operation, d registry.Registry, in registry.Instance) error {
	w.Helper()
	err := w.try(op, d, in)
	if errors.Is(err, errBlocked) {
		w.Fatalf("%s of %s: %v", op, show(in), err)
	}
	return err
}

// try is call for goroutines other than the case's own.
func (w *world) try(op operation, d registry.Registry, in registry.Instance) error {
	_, err := ask(w.Context(), w, func(ctx context.Context) (any, error) { return nil, w.invoke(ctx, op, d, in) })
	return err
}

// invoke makes one call, and remembers what it may have written.
func (w *world) invoke(ctx context.Context, op operation, d registry.Registry, in registry.Instance) error {
	if op == opRegister || op == opFailOver || op == opBatch {
		w.wrote(in)
	}
	return invoke(ctx, op, d, in)
}

// errBlocked is the error of a call that did not return.
var errBlocked = errors.New("still blocked")

// ask makes a call with a generous deadline. It may be used from any goroutine.
func ask[T any](ctx context.Context, w *world, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := within(callTimeout+prompt, w, func() (T, error) { return call(ctx) })
	if errors.Is(err, errBlocked) {
		err = fmt.Errorf("%w %s after its deadline", errBlocked, prompt)
	}
	return answer, err
}

// errPanicked is the error of a call that panicked, which has failed the case.
var errPanicked = errors.New("the driver panicked")

// within makes a call and waits for it, but no longer than the bound. It may be used from any goroutine.
func within[T any](bound time.Duration, w *world, call func() (T, error)) (answer T, err error) {
	ended := make(chan error, 1)
	var called T
	go func() {
		err := errPanicked
		defer func() {
			if p := recover(); p != nil {
				w.Errorf("panic: %v\n%s", p, debug.Stack())
			}
			ended <- err
		}()
		called, err = call()
	}()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case err := <-ended:
		w.keepsSecrets(err)
		return called, err
	case <-timer.C:
		return answer, errBlocked
	}
}

// keepsSecrets fails the case for an error that contains a secret. It may be used from any goroutine.
func (w *world) keepsSecrets(errs ...error) {
	for _, err := range errs {
		for _, secret := range w.h.Secrets {
			if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
				w.Errorf("an error contains a secret: %s\nwhy: errors end up in Events and logs, which many people can read",
					strings.ReplaceAll(err.Error(), secret, "[secret]"))
			}
		}
	}
}

func inService(in registry.Instance) registry.Entry {
	return registry.Entry{Instance: in, State: registry.InService}
}

func outOfService(in registry.Instance) registry.Entry {
	return registry.Entry{Instance: in, State: registry.OutOfService}
}

// allInService returns the instances' entries.
func allInService(ins []registry.Instance) []registry.Entry {
	return afterwards(to(registry.InService, ins))
}

// each makes n calls, atOnce of them concurrently, and returns their errors joined.
func each(n, atOnce int, call func(i int) error) error {
	errs := make([]error, n)
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	start := make(chan struct{})
	var all sync.WaitGroup
	for range min(n, atOnce) {
		all.Go(func() {
			<-start
			for i := range next {
				errs[i] = call(i)
			}
		})
	}
	close(start)
	all.Wait()
	return joined(errs)
}

// atOnce runs n calls that start together, and fails the case with their errors.
func (w *world) atOnce(n int, call func(i int) error) {
	w.Helper()
	w.some(n, n, call)
}

// some runs n calls, atOnce of them concurrently, and fails the case with their errors.
func (w *world) some(n, atOnce int, call func(i int) error) {
	w.Helper()
	if err := each(n, atOnce, call); err != nil {
		w.Fatalf("%d calls, %d of them concurrently: got errors\n%v\nwant success", n, atOnce, err)
	}
}

// callErr is try with an error that shows what was called.
func (w *world) callErr(op operation, d registry.Registry, in registry.Instance) error {
	if err := w.try(op, d, in); err != nil {
		return fmt.Errorf("%s of %s: %w", op, show(in), err)
	}
	return nil
}

func show(in registry.Instance) string {
	text := fmt.Sprintf("%q at %s (cluster %q, pod %q in %q, uid %q)",
		in.Service, in.Endpoint(), in.Cluster, in.Pod, in.Namespace, in.UID)
	if in.Place != "" {
		text = fmt.Sprintf("in place %q: %s", in.Place, text)
	}
	if in.ClusterUID != "" {
		text += fmt.Sprintf(" of the cluster with uid %q", in.ClusterUID)
	}
	if in.Registry != "" {
		text += fmt.Sprintf(" of registry %q", in.Registry)
	}
	if in.Weight != 0 {
		text += fmt.Sprintf(" of weight %d", in.Weight)
	}
	if in.Zone != "" {
		text += fmt.Sprintf(" in zone %q", in.Zone)
	}
	if len(in.Tags) > 0 {
		text += fmt.Sprintf(" with tags %q", in.Tags)
	}
	if len(in.Metadata) > 0 {
		text += fmt.Sprintf(" with %q", in.Metadata) // fmt sorts the keys
	}
	return text
}
