// Package clustertest has what every cluster of a registry must be able to do before chaos can rest on it.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// callTimeout is that of one call, as Rollcall's by default.
const callTimeout = 5 * time.Second

// Suite is a cluster to test.
type Suite struct {
	Start func(ctx context.Context) (registries.Cluster, error)
	New   registry.Constructor
	// AnyServes: a server that is cut off from all others takes changes, and gives them to its own clients (Eureka).
	AnyServes bool
}

// Run goes through it with one cluster.
func (s Suite) Run(t *testing.T) {
	t.Helper()
	cluster, err := s.Start(t.Context())
	registries.Check(t, err)
	t.Cleanup(cluster.Stop)
	t.Cleanup(func() {
		for i, m := range cluster.Members() {
			if t.Failed() {
				t.Logf("the end of the log of server %d:\n%s", i, m.Logs())
			}
		}
	})
	w := &world{T: t, Cluster: cluster, suite: s}
	for _, step := range []func(){
		w.everyServerTakesChanges, w.aServerThatIsCutOff, w.theLeaderDies, w.theLeaderIsFrozen, w.everyServerLosesItsDisk,
		w.everyServerIsUpgraded,
	} {
		step()
		w.whole()
	}
}

type world struct {
	*testing.T
	registries.Cluster

	suite Suite
	pods  int
}

func (w *world) addresses() (all []string) {
	for _, m := range w.Members() {
		all = append(all, m.Address())
	}
	return all
}

func (w *world) everyServerTakesChanges() {
	for _, m := range w.Members() {
		w.eachGives(w.register(m.Address()))
	}
}

// aServerThatIsCutOff: the others go on, and what it was not told it does not know. Then it learns.
func (w *world) aServerThatIsCutOff() {
	alone := 0
	if alone == w.Leader(w.Context()) {
		alone++
	}
	before := w.register(w.addresses()...)
	w.eachGives(before)
	expect.NoError(w, w.Network().Isolate(w.Context(), alone))
	pod := w.register(slices.Delete(w.addresses(), alone, alone+1)...)
	for i, m := range w.Members() {
		if i != alone {
			w.gives(m, pod)
		}
	}
	given, err := w.Members()[alone].Read(w.Context(), pod.Service)
	if err == nil && slices.Contains(given, pod.Endpoint()) {
		w.Errorf("server %d is cut off, and gives %s, which was registered since", alone, pod.Endpoint())
	}
	expect.NoError(w, w.Network().Heal(w.Context()))
	w.eachGives(pod)
}

func (w *world) theLeaderDies() {
	leader := w.leader()
	w.Members()[leader].Kill()
	pod := w.register(w.addresses()...)
	expect.NoError(w, w.Members()[leader].Restart(w.Context()))
	w.eachGives(pod)
}

func (w *world) theLeaderIsFrozen() {
	leader := w.leader()
	expect.NoError(w, w.Members()[leader].Freeze())
	pod := w.register(slices.Delete(w.addresses(), leader, leader+1)...)
	expect.NoError(w, w.Members()[leader].Thaw())
	w.eachGives(pod)
}

// everyServerLosesItsDisk one after the other: what was acknowledged is still there in the end.
func (w *world) everyServerLosesItsDisk() {
	pod := w.register(w.addresses()...)
	w.eachGives(pod)
	for _, m := range w.Members() {
		expect.NoError(w, m.Wipe(w.Context()))
		w.whole()
		w.eachGives(pod)
	}
}

func (w *world) everyServerIsUpgraded() {
	pod := w.register(w.addresses()...)
	for _, m := range w.Members() {
		w.eachGives(pod)
		if err := m.Upgrade(w.Context()); !errors.Is(err, registries.ErrOneVersion) {
			expect.NoError(w, err)
		}
		w.whole()
	}
	w.eachGives(pod)
}

func (w *world) whole() {
	w.Helper()
	expect.Soon(w, "the cluster is whole", func() error { return w.Whole(w.Context()) })
}

// leader is the index of one, once there is one. Where none is elected it is the first.
func (w *world) leader() (leader int) {
	if w.suite.AnyServes {
		return 0
	}
	expect.Becomes(w, "there is a leader", func() bool {
		leader = w.Leader(w.Context())
		return leader != registries.NoLeader
	})
	return leader
}

// register registers another pod through these servers, as often as it takes.
func (w *world) register(addresses ...string) registry.Instance {
	w.Helper()
	w.pods++
	pod := registry.Instance{
		Service: "web", Address: fmt.Sprintf("10.0.0.%d", w.pods), Port: 80, Cluster: "test", Namespace: "default",
		Pod: fmt.Sprintf("web-%d", w.pods), UID: fmt.Sprintf("uid-%d", w.pods),
	}
	driver := drivertest.Open[registry.Registry](w, w.suite.New, registry.Config{Endpoint: strings.Join(addresses, ",")})
	expect.Soon(w, fmt.Sprintf("%s is registered through %s", pod.Endpoint(), strings.Join(addresses, ", ")), func() error {
		ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
		defer cancel()
		return driver.Register(ctx, pod)
	})
	return pod
}

func (w *world) eachGives(pod registry.Instance) {
	w.Helper()
	for _, m := range w.Members() {
		w.gives(m, pod)
	}
}

func (w *world) gives(m registries.Member, pod registry.Instance) {
	w.Helper()
	expect.Soon(w, fmt.Sprintf("%s gives %s", m.Address(), pod.Endpoint()), func() error {
		ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
		defer cancel()
		given, err := m.Read(ctx, pod.Service)
		if err == nil && !slices.Contains(given, pod.Endpoint()) {
			err = fmt.Errorf("it gives %v", given)
		}
		return err
	})
}
