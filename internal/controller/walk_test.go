package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
)

const (
	walks     = 40
	walkSteps = 60
	walkDrain = 6 * time.Second
)

// TestARandomLife leads pods through Kruise's moves at random while calls fail, time out and land late, writes get lost,
// the cache lags and the manager is restarted. No hook may be flipped too early, and once the faults stop, the registry
// must hold the pod if and only if it serves, and the pod must be where Kruise wants it.
func TestARandomLife(t *testing.T) {
	t.Parallel()
	for seed := range uint64(walks) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			newWalk(t, seed).lead()
		})
	}
}

// TestARandomLifeInSeveralRegistries adds a second registry, which the configuration puts the pod into and takes it out of,
// and which comes and goes itself. Registries are made anew, as when a credential was rotated, and lose entries. What a
// manager that died had not written down of a registry or an address that the pod has left meanwhile, nobody knows: so in
// half of the lives nobody dies, and in the other half the pod stays in both, at its address.
func TestARandomLifeInSeveralRegistries(t *testing.T) {
	t.Parallel()
	for seed := range uint64(walks) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWalk(t, seed)
			w.backends["new"] = newBackend(t)
			w.wanders = seed%2 == 0
			w.goInto("default", "new")
			w.lead()
		})
	}
}

// walk is one pod's random life.
type walk struct {
	*world
	rng    *rand.Rand
	pod    *corev1.Pod
	faulty bool
	// backends are the registries, by name.
	backends map[string]*memory.Registry
	// wanders: the pod goes from one registry to another, and no manager dies.
	wanders bool
	// asks: the registries can be asked for one instance.
	asks bool
	// doubted are the registries and addresses of calls that nobody knows the outcome of, since the registry was not asked.
	doubted map[string]bool
	// pending are calls that timed out and may still land.
	pending []pendingCall
	// lastIn is when a registry last had the pod in service.
	lastIn time.Time
	told   bool
	trace  []string
}

type pendingCall struct {
	op, registry, address string
	until                 time.Time
	land                  func()
}

func newWalk(t *testing.T, seed uint64) *walk {
	t.Helper()
	w := &walk{rng: rand.New(rand.NewPCG(seed, 7)), asks: seed%4 < 2, doubted: map[string]bool{}} //nolint:mnd // every second pair
	w.world = newWorld(t, func(s *choices) { s.Drain = walkDrain })
	w.backends = map[string]*memory.Registry{"default": w.backend}
	w.goInto("default")
	w.patching(w.write)
	web := w.cloneSet("web")
	w.pod = w.bornPod(web, "web-1", unready)
	w.faulty = true
	return w
}

func (w *walk) lead() {
	for range walkSteps {
		w.step()
		if w.gone() {
			break
		}
	}
	w.settle()
}

func (w *walk) say(format string, args ...any) {
	w.trace = append(w.trace, w.clock.Now().Format("04:05.0 ")+fmt.Sprintf(format, args...))
}

func (w *walk) broken(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s\nthe way there:\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace, "\n"))
}

func (w *walk) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *walk) gone() bool { return w.current(w.pod) == nil }

// pass lets time go by, and late calls land or get lost in it.
func (w *walk) pass(d time.Duration) {
	if !w.isOut() {
		w.lastIn = w.clock.Now().Add(d)
	}
	w.sleep(d)
	w.pending = slices.DeleteFunc(w.pending, func(c pendingCall) bool {
		switch {
		case w.clock.Now().After(c.until):
			w.say("late %s is lost", c.op)
			return true
		case w.chance(30):
			c.land()
			w.say("late %s lands", c.op)
			w.noteIn()
			return true
		}
		return false
	})
}

// goInto makes these the pod's registries, all of them anew.
func (w *walk) goInto(names ...string) {
	w.say("into %q", names)
	w.apply(func(s *choices) {
		s.DefaultRegistries, s.Registries = names, map[string]Registry{}
		for name := range w.backends {
			reg := &walkRegistry{w, name, map[string]string{}}
			s.Registries[name] = Registry{Calls: reg, Timeout: testTimeout}
			if w.asks {
				s.Registries[name] = Registry{Calls: reg, Getter: reg, Timeout: testTimeout}
			}
		}
	})
}

// in are the registries that give the pod to clients.
func (w *walk) in() []string {
	var in []string
	for name, backend := range w.backends {
		entries, err := backend.List(context.WithoutCancel(w.Context()), testCluster)
		w.must(err, "reading the registry")
		if slices.ContainsFunc(entries, func(e registry.Entry) bool {
			return e.UID == string(w.pod.UID) && e.State == registry.InService
		}) {
			in = append(in, name)
		}
	}
	slices.Sort(in)
	return in
}

// inService reports whether all of the pod's registries give it to clients, and no other does.
func (w *walk) inService() bool {
	return slices.Equal(w.in(), slices.Sorted(slices.Values(w.settings.DefaultRegistries)))
}

// found reports whether all of the pod's registries give it to clients. It may have yet to leave others.
func (w *walk) found() bool {
	in := w.in()
	return !slices.ContainsFunc(w.settings.DefaultRegistries, func(name string) bool { return !slices.Contains(in, name) })
}

// isOut reports whether no registry gives it to clients.
func (w *walk) isOut() bool { return len(w.in()) == 0 }

func (w *walk) noteIn() {
	if !w.isOut() {
		w.lastIn = w.clock.Now()
	}
}

func (w *walk) step() {
	w.pass(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	if w.chance(45) {
		w.kruise()
	}
	if w.gone() {
		return
	}
	if w.chance(30) {
		w.kubelet()
	}
	w.trouble()
	for range 1 + w.rng.IntN(2) {
		w.look()
	}
}

func (w *walk) look() {
	result, err := w.r.Reconcile(w.Context(), lifecycle.PodIDOf(w.pod))
	w.say("reconciled: %v %v", result.RequeueAfter, err)
}

func (w *walk) kubelet() {
	w.changePod(w.pod, func(p *corev1.Pod) {
		if w.chance(60) {
			ready(p)
			return
		}
		unready(p)
		if w.chance(10) && (w.wanders || len(w.backends) == 1) {
			w.addresses++
			p.Status.PodIP = fmt.Sprintf("10.0.0.%d", w.addresses)
		}
	})
}

func (w *walk) trouble() {
	if len(w.backends) > 1 && w.chance(30) {
		w.troubleRegistries()
	}
	switch n := w.rng.IntN(100); {
	case n < 6 && !w.wanders:
		w.say("restart")
		w.cacheCatchesUp()
		for _, c := range w.pending {
			if w.chance(50) {
				c.land() // the lease keeps the next manager away for as long
			}
		}
		w.pending = nil
		clear(w.doubted) // of what another process did nobody knows, and so each call is made again
		w.noteIn()
		w.restart()
	case n < 20:
		w.say("the cache stops")
		w.cacheLags(w.pod, w.current(w.pod))
	case n < 40:
		w.cacheCatchesUp()
	}
}

// troubleRegistries changes the configuration of the registries, or has one lose an entry.
func (w *walk) troubleRegistries() {
	one := []string{"default", "new"}[w.rng.IntN(2)]
	switch n := w.rng.IntN(100); {
	case n < 20:
		w.say("%s is made anew", one)
		w.goInto(w.settings.DefaultRegistries...)
	case n < 50:
		w.say("%s loses the entry", one)
		for _, in := range w.r.Tracker.Kept(one) {
			w.must(w.backends[one].Deregister(context.WithoutCancel(w.Context()), in), "losing the entry")
			w.sleep(time.Millisecond)
			w.lost(one, in, w.clock.Now())
		}
	case !w.wanders:
	case n < 60:
		w.goInto("default", "new")
	case n < 80:
		w.goInto(one)
	default:
		w.goInto(one)
		w.say("there is no other")
		w.apply(func(s *choices) { s.Registries = map[string]Registry{one: s.Registries[one]} })
	}
}

// kruise makes one of the moves that Kruise or a person can make now.
func (w *walk) kruise() {
	p := w.current(w.pod)
	has := func(hook string) bool { return strings.Contains(w.hooks(p), hook) }
	move := func(to appspub.LifecycleStateType, change ...func(*corev1.Pod)) {
		w.pass(time.Second)
		w.world.kruiseMoves(p, to, change...)
		w.noteIn()
		w.say("Kruise: %s", to)
	}
	update := func() {
		if has("inPlaceUpdate") {
			move(appspub.LifecycleStatePreparingUpdate)
			return
		}
		move(appspub.LifecycleStateUpdating, unready)
	}
	scaleIn := func() {
		if has("preDelete") {
			move(appspub.LifecycleStatePreparingDelete)
			return
		}
		w.kill(p)
	}
	if w.chance(2) {
		w.kill(p)
		return
	}
	switch appspub.LifecycleStateType(p.Labels[appspub.LifecycleStateKey]) {
	case appspub.LifecycleStatePreparingNormal:
		switch {
		case has("preNormal"):
			move(appspub.LifecycleStateNormal)
		case w.chance(12):
			update()
		case w.chance(18):
			scaleIn()
		}
	case appspub.LifecycleStateNormal:
		if w.chance(60) {
			update()
			return
		}
		scaleIn()
	case appspub.LifecycleStatePreparingUpdate:
		switch {
		case w.faulty && w.chance(30) && has("inPlaceUpdate"):
			move(appspub.LifecycleStateNormal)
		case w.faulty && w.chance(30):
			move(appspub.LifecycleStateUpdated)
		case !has("inPlaceUpdate"):
			move(appspub.LifecycleStateUpdating, unready)
		}
	case appspub.LifecycleStateUpdating:
		if has("inPlaceUpdate") {
			move(appspub.LifecycleStateNormal)
			return
		}
		move(appspub.LifecycleStateUpdated)
	case appspub.LifecycleStateUpdated:
		switch {
		case has("inPlaceUpdate"):
			move(appspub.LifecycleStateNormal)
		case w.faulty && w.chance(20):
			move(appspub.LifecycleStatePreparingUpdate, func(p *corev1.Pod) { p.Labels[inPlaceLabel] = "hold" })
		}
	case appspub.LifecycleStatePreparingDelete:
		switch {
		case w.faulty && w.chance(40):
			move(appspub.LifecycleStatePreparingNormal)
		case !has("preDelete"):
			w.kill(p)
		}
	}
}

// kill is a direct deletion. The pod stays for as long as it has finalizers.
func (w *walk) kill(p *corev1.Pod) {
	w.say("deleted")
	if w.current(p).DeletionTimestamp == nil {
		w.deletePod(p)
	}
}

// settle stops all faults and has everybody go on until nothing moves any more.
func (w *walk) settle() {
	w.say("the faults stop")
	w.faulty = false
	w.cacheCatchesUp()
	w.goInto(w.settings.DefaultRegistries...)
	for range 60 {
		w.pass(15 * time.Second)
		if w.gone() {
			w.depart()
			return
		}
		w.look()
		w.look()
		if w.atRest() {
			break
		}
		if w.gone() {
			continue
		}
		w.changePod(w.pod, ready)
		if w.current(w.pod).Labels[appspub.LifecycleStateKey] != string(appspub.LifecycleStateNormal) {
			w.kruise()
		}
	}
	if !w.atRest() {
		p := w.current(w.pod)
		w.broken("stuck in %s, hooks %q, in %q", p.Labels[appspub.LifecycleStateKey], w.hooks(p), w.in())
	}
	if left := w.r.Waits(); len(left) > 0 {
		w.broken("still waits: %+v", left)
	}
	for name := range w.backends {
		held, want := len(w.r.Tracker.Kept(name)), 0
		if slices.Contains(w.settings.DefaultRegistries, name) {
			want = 1
		}
		if held != want {
			w.broken("holds %d entries of %s, want %d", held, name, want)
		}
	}
}

func (w *walk) atRest() bool {
	p := w.current(w.pod)
	return p != nil && p.DeletionTimestamp == nil && w.inService() && len(w.pending) == 0 &&
		p.Labels[appspub.LifecycleStateKey] == string(appspub.LifecycleStateNormal) &&
		strings.HasSuffix(w.hooks(p), "inPlaceUpdate preDelete") // a pod that skipped preNormal is asked for it no more
}

func (w *walk) depart() {
	if !w.told {
		w.tellGone(w.pod)
		w.told = true
	}
	for range 5 {
		w.look()
		w.pass(15 * time.Second)
	}
	for name, backend := range w.backends {
		if entries, err := backend.List(context.WithoutCancel(w.Context()), testCluster); err != nil || len(entries) > 0 {
			w.broken("the pod is gone, and %s has %v (%v)", name, entries, err)
		}
	}
	if pages := w.r.Tracker.Pods(); pages > 0 {
		w.broken("the pod is gone, and %d pages are left", pages)
	}
}

// write is how a write to the API server goes, and looks at what it flipped.
func (w *walk) write(attempt func() error) error {
	n := w.rng.IntN(100)
	if w.faulty && n < 10 {
		w.say("write is lost")
		return errors.New("connection reset")
	}
	if w.faulty && n < 18 && !w.gone() {
		w.kruise()
	}
	before := w.current(w.pod)
	err := attempt()
	w.say("write: %v", err)
	if before != nil && err == nil {
		w.check(before)
	}
	if w.faulty && n > 90 {
		return errors.New("connection reset")
	}
	return err
}

func (w *walk) check(before *corev1.Pod) {
	after := w.current(w.pod)
	if after == nil || before.DeletionTimestamp != nil {
		return
	}
	was, is := strings.Fields(hooksOn(before)), strings.Fields(hooksOn(after))
	set := func(hook string) bool { return !slices.Contains(was, hook) && slices.Contains(is, hook) }
	cleared := func(hook string) bool { return slices.Contains(was, hook) && !slices.Contains(is, hook) }
	state := appspub.LifecycleStateType(before.Labels[appspub.LifecycleStateKey])
	switch {
	case set("preNormal"), set("inPlaceUpdate") && state == appspub.LifecycleStateUpdated:
		w.checkDoubts(w.settings.DefaultRegistries)
		if !w.found() {
			w.broken("asserted while it is in %q of %q", w.in(), w.settings.DefaultRegistries)
		}
		if w.canLand(func(c pendingCall) bool {
			return c.op != "Register" && c.address == before.Status.PodIP && slices.Contains(w.settings.DefaultRegistries, c.registry)
		}) {
			w.broken("asserted while a call can still take it out")
		}
	case cleared("preDelete"), cleared("inPlaceUpdate"):
		w.checkDoubts(w.settings.names())
		if !w.isOut() {
			w.broken("released in service in %q", w.in())
		}
		if w.canLand(func(c pendingCall) bool { return c.op == "Register" }) {
			w.broken("released while a call can still put it in")
		}
		if drained := w.clock.Now().Sub(w.lastIn); !w.lastIn.IsZero() && drained < walkDrain {
			w.broken("released %s after it was in service", drained)
		}
	}
}

// checkDoubts wants each of the registries asked what became of the calls that failed.
func (w *walk) checkDoubts(names []string) {
	for doubted := range w.doubted {
		name, _, _ := strings.Cut(doubted, " ")
		if _, there := w.settings.Registries[name]; w.asks && there && slices.Contains(names, name) {
			w.broken("flipped, and nobody has asked %s what became of a call", doubted)
		}
	}
}

func (w *walk) canLand(which func(pendingCall) bool) bool {
	return slices.ContainsFunc(w.pending, func(c pendingCall) bool { return which(c) && w.clock.Now().Before(c.until) })
}

// walkRegistry is one of the walk's registries, with faults.
type walkRegistry struct {
	*walk
	name string
	last map[string]string // what it was told last, by address
}

// Register implements registry.Registry, as do the others.
func (w *walkRegistry) Register(ctx context.Context, in registry.Instance) error {
	return w.call(ctx, "Register", in, w.backends[w.name].Register)
}

func (w *walkRegistry) FailOver(ctx context.Context, in registry.Instance) error {
	return w.call(ctx, "FailOver", in, w.backends[w.name].FailOver)
}

func (w *walkRegistry) Deregister(ctx context.Context, in registry.Instance) error {
	return w.call(ctx, "Deregister", in, w.backends[w.name].Deregister)
}

// Get implements registry.Getter.
func (w *walkRegistry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	if w.canLand(func(c pendingCall) bool {
		return c.registry == w.name && c.address == in.Address && c.op != w.last[in.Address]
	}) {
		w.broken("asked %s while a call can still undo what it says", w.name)
	}
	if w.faulty && w.chance(20) {
		w.say("%s: Get fails", w.name)
		return "", errors.New("refused")
	}
	state, err := w.backends[w.name].Get(ctx, in)
	w.say("%s: Get %s: %s", w.name, in.Endpoint(), state)
	delete(w.doubted, w.name+" "+in.Address)
	return state, err
}

func (w *walkRegistry) call(
	ctx context.Context, op string, in registry.Instance, do func(context.Context, registry.Instance) error,
) (err error) {
	w.last[in.Address] = op
	defer func() {
		if err != nil {
			w.doubted[w.name+" "+in.Address] = true
		}
	}()
	n, told := w.rng.IntN(100), fmt.Sprintf("%s: %s %s", w.name, op, in.Endpoint())
	w.noteIn()
	defer w.noteIn()
	switch {
	case w.faulty && n < 10:
		w.say("%s fails", told)
		return errors.New("refused")
	case w.faulty && n < 20:
		w.say("%s, answer lost", told)
		_ = do(ctx, in)
		return errors.New("connection reset")
	case w.faulty && n < 35:
		w.say("%s times out", told)
		land := context.WithoutCancel(ctx)
		w.pending = append(w.pending, pendingCall{
			op: op, registry: w.name, address: in.Address,
			until: w.clock.Now().Add(2 * testTimeout), land: func() { _ = do(land, in) },
		})
		return context.DeadlineExceeded
	}
	w.say("%s", told)
	return do(ctx, in)
}
