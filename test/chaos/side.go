package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/network"
)

// registrySide is where the managers of a game register pods: the stand-in in this process, or a cluster of real servers.
type registrySide interface { //nolint:interfacebloat // a game asks for no less, and the two have no more in common
	// plan is that of chaos for a seed, with what can happen to this registry, and promised are the kinds of it that must have come in a
	// run that is long enough. Those that are met must have met calls or connections.
	plan(seed uint64) planner
	promised() []kind
	met() []kind
	workloads() []*workload

	// begin prepares it for a game, which ends with the context.
	begin(ctx context.Context, g *game) error
	// section is what a manager's configuration says of it; usual is the registry of pods that choose none.
	section(manager, usual string) string
	// written is what the configuration says besides of what the registries must have; without Metadata, that is not judged.
	written(usual string) checker.Written
	// plays takes in a version of a pod, as its application does.
	plays(pod *corev1.Pod, gone bool)
	// play plays what happens to the registry, until it is over, and reports whether it was done.
	play(ctx context.Context, g *game, a action) (done bool, err error)
	// killAtAnswer kills a manager that has an answer of the registry, before it can write what follows.
	killAtAnswer(ctx context.Context, g *game) (done bool, err error)
	// quiet ends every fault.
	quiet(ctx context.Context) error
	// grievances are what is not as it should be for the pods that there are.
	grievances(ctx context.Context, live map[string]checker.Pod) []grievance
	// judge holds what clients were given since it was called last against the pods.
	judge(j *checker.Journal)
	// evidence is what the flips were held against.
	evidence(n checker.Counts) string
	// hits is how many connections met each fault of the network.
	hits() map[network.Fault]int
	// sum is the end of the last line.
	sum(done *tally) string
	Stop()
}

// standIn is a server in this process, behind a network that fails.
type standIn struct {
	*registryServer

	network *network.Network
}

var _ registrySide = (*standIn)(nil)

func startStandIn(ctx context.Context) (registrySide, error) {
	server, err := startRegistry(ctx, newJournal(), callTimeout)
	if err != nil {
		return nil, err
	}
	between, err := network.Start(ctx, "127.0.0.1:0", server.address)
	if err != nil {
		server.Stop()
		return nil, fmt.Errorf("starting the network: %w", err)
	}
	return &standIn{registryServer: server, network: between}, nil
}

// sideFrom reads which registry is played on from REGISTRY.
func sideFrom(name string) (func(context.Context) (registrySide, error), error) {
	if name == "" {
		return startStandIn, nil
	}
	kinds := clusterKinds()
	of, known := kinds[name]
	if !known {
		return nil, fmt.Errorf("REGISTRY is %q: set it to one of %s, or leave it out for the stand-in", name,
			strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	return func(ctx context.Context) (registrySide, error) { return startServers(ctx, of) }, nil
}

func (s *standIn) plan(seed uint64) planner         { return fullPlan(seed, len(workloads())) }
func (s *standIn) promised() []kind                 { return promisedKinds() }
func (s *standIn) met() []kind                      { return lasting }
func (s *standIn) workloads() []*workload           { return workloads() }
func (s *standIn) judge(*checker.Journal)           {}
func (s *standIn) evidence(n checker.Counts) string { return fmt.Sprintf("%d calls", n.Calls) }
func (s *standIn) sum(*tally) string                { return "" }
func (s *standIn) hits() map[network.Fault]int      { return s.network.Hits() }

func (s *standIn) Stop() {
	s.network.Stop()
	s.registryServer.Stop()
}

func (s *standIn) begin(ctx context.Context, g *game) error {
	g.journal.Cluster, g.journal.ReaderLag = clusterName, map[string]time.Duration{secondRegistry: secondLags}
	if err := s.identify(ctx, g.k8s); err != nil {
		return err
	}
	s.reset(ctx, g.journal, g.plan.seed)
	if err := s.network.Clear(ctx); err != nil {
		return fmt.Errorf("ending the faults of the network: %w", err)
	}
	s.network.Forget()
	return nil
}

func (s *standIn) quiet(ctx context.Context) error {
	s.setFault("")
	s.killNext(nil)
	return s.network.Clear(ctx) //nolint:wrapcheck // it says what it is about
}

// play reports whether the action was done: one may come at a moment in which there is nothing that it could happen to.
func (s *standIn) play(ctx context.Context, g *game, a action) (done bool, err error) {
	switch a.kind {
	case wipeHalf:
		return s.wipe(ctx, a.rng()) > 0, nil
	case addForeign:
		s.addForeign(ctx, a.rng(), g.services(), a.count)
		return true, nil
	case leaveEntries:
		s.leave(ctx, a.rng(), g.services(), a.count, s.uid, g.plan.removals == noRemovals)
		return true, nil
	case leaveTheirs:
		s.leave(ctx, a.rng(), g.services(), a.count, "another-"+s.uid, true)
		return true, nil
	case loseApps:
		return s.loseApps(a.rng(), a.lasts) > 0, nil //nolint:contextcheck // what applications do outlives the hit
	default:
		return s.last(ctx, g, a)
	}
}

// last plays a fault of the registry that lasts. It begins when a manager talks to the registry, and continues until it has met
// something: nothing comes while no manager leads. The one before has ended for long enough by then.
func (s *standIn) last(ctx context.Context, g *game, a action) (done bool, err error) {
	begin, end := func() { s.setFault(a.kind) }, func() error { s.setFault(""); return nil }
	if a.kind.isOfNetwork() {
		begin, end = func() { s.network.Set(a.terms()) }, func() error { return s.network.Clear(ctx) }
	}
	return g.lastWhile(ctx, a, s.network.Open, begin, end)
}

// grievances compares the registry with the pods.
func (s *standIn) grievances(ctx context.Context, live map[string]checker.Pod) []grievance {
	entries := map[string][]registry.Entry{}
	for name := range s.books {
		entries[name] = s.ours(ctx, name)
	}
	all := compare(live, entries)
	for _, foreign := range s.touched(ctx) {
		all = append(all, grievance{kind: lost, text: "I10: the foreign entry " + foreign + " was touched"})
	}
	return all
}

// section has all registries, which one server serves.
func (s *standIn) section(manager, usual string) string {
	var text strings.Builder
	drivers := map[string]string{
		leasedRegistry: "chaos-leased", unlistedRegistry: "chaos-unlisted", placedRegistry: "chaos-placed",
		appsRegistry: "chaos-steered",
	}
	for _, name := range registryNames() {
		more := ""
		switch name {
		case appsRegistry:
			more = ", registeredBy: App"
		case secondRegistry:
			more = fmt.Sprintf(", readerLag: %s", secondLags)
		}
		fmt.Fprintf(&text, "- {name: %s, default: %t, driver: %s, endpoint: http://%s/%s/%[1]s, timeout: %[6]s%s}\n",
			name, name == usual, cmp.Or(drivers[name], "http"), s.network.Address, manager, callTimeout, more)
	}
	return text.String()
}

// killAtAnswer kills the manager to which the next changing call is acknowledged, before it can write what follows.
func (s *standIn) killAtAnswer(ctx context.Context, g *game) (done bool, err error) {
	struck := make(chan bool, 1)
	s.killNext(func(name string) func() {
		victim := g.managers.named(name)
		running := victim.seize()
		if running == nil {
			return nil // it is paused or about to end: the next answer will do
		}
		victim.proxy.Fence(true)
		return func() {
			defer victim.release()
			struck <- kill(running)
		}
	})
	waiting, cancel := context.WithTimeout(ctx, hitWithin)
	defer cancel()
	select {
	case done := <-struck:
		return done, nil
	case <-waiting.Done():
		s.killNext(nil)
		return false, errNoneToHit
	}
}
