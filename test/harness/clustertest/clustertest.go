// Package clustertest has what every cluster of a registry must be able to do before chaos can rest on it.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// callTimeout is that of one call, as Rollcall's by default.
const callTimeout = 5 * time.Second

// mostPatience is how long it is waited at most for a server that is not to start.
const mostPatience = 45 * time.Second

// wrongBy is further than any lease lasts.
const wrongBy = 10 * time.Minute

// renewEvery is the time between two renewals.
const renewEvery = 5 * time.Second

// changesAtOnce are sent to a server that is frozen, and each is given up after a while.
const changesAtOnce, givenUpAfter = 48, 2 * time.Second

// Suite is a cluster to test.
type Suite struct {
	Start func(ctx context.Context) (registries.Cluster, error)
	New   registry.Constructor
	// AnyServes: a server that is cut off from all others takes changes, and gives them to its own clients (Eureka).
	AnyServes bool
	// Lags: a server that takes part in elections again may still lack what it missed, and can't tell (Nacos).
	Lags bool
	// LeasesByClock: a server removes an entry whose lease has ended by its time of day.
	LeasesByClock bool
	// Fences: a change that was given up is never carried out once the opposite was acknowledged, however long a server was frozen.
	Fences bool
	// FencesOthers: so is one that another driver gave up, as before a reload or a change of leader.
	FencesOthers bool
	// Reaches: a driver with one address reaches the servers behind it where the registry lists them, so it warns of none.
	Reaches bool
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
		w.everyServerTakesChanges, w.aServerThatIsCutOff, w.severalBehindOneAddress, w.theLeaderDies, w.theLeaderIsFrozen,
		w.aFrozenServerHasChanges, w.aClockIsWrong, w.everyServerLosesItsDisk, w.aDiskIsLostThatOneServerLacks, w.everyServerIsUpgraded,
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
	// startsWithin is longer than it takes a server with an empty disk that waits for no other to serve, and at most mostPatience: Wipe
	// itself gives up after five minutes.
	startsWithin time.Duration
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
	if err == nil && slices.Contains(given, pod.Endpoint()) && !w.suite.Reaches { // else the driver has told it
		w.Errorf("server %d is cut off, and gives %s, which was registered since", alone, pod.Endpoint())
	}
	expect.NoError(w, w.Network().Heal(w.Context()))
	w.whole()
	if !w.suite.AnyServes && !w.suite.Lags {
		w.givesNow(w.Members()[alone], pod)
	}
	w.eachGives(pod)
}

// severalBehindOneAddress has a server that lacks an entry behind the same address as those that give it: its word acknowledges no removal.
func (w *world) severalBehindOneAddress() {
	ctx, members := w.Context(), w.Members()
	driver := w.open(w.oneAddress())
	lister, tells := driver.(registry.MemberLister)
	if !tells {
		return
	}
	pod := w.pod()
	_, err := driver.(registry.Lister).List(ctx, pod.Cluster) //nolint:forcetypeassert // it lists
	expect.NoError(w, err)
	unlisted := len(members)
	if w.suite.Reaches {
		unlisted = 0
	}
	if got := lister.UnlistedMembers(); len(got) != unlisted {
		w.Errorf("the servers that the driver can't reach are %q, want %d", got, unlisted)
	}
	alone := 0
	if alone == w.Leader(ctx) {
		alone++
	}
	expect.NoError(w, w.Network().Isolate(ctx, alone))
	pod = w.register(slices.Delete(w.addresses(), alone, alone+1)...)
	for i, m := range members {
		if i != alone {
			w.gives(m, pod)
		}
	}
	for _, takeOut := range []func(context.Context, registry.Instance) error{driver.FailOver, driver.Deregister} {
		expect.Soon(w, pod.Endpoint()+" is taken out through one address", func() error {
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			return takeOut(ctx, pod)
		})
		for i, m := range members {
			if i != alone {
				w.losesAll(m, []registry.Instance{pod})
			}
		}
	}
	expect.NoError(w, w.Network().Heal(ctx))
}

// oneAddress leads each connection to another one of the servers, by turns, as a Kubernetes Service does.
func (w *world) oneAddress() string {
	var urls []*url.URL
	for _, address := range w.addresses() {
		if at, err := url.Parse(address); err == nil && at.Host != "" {
			urls = append(urls, at)
		}
	}
	if len(urls) == 0 {
		return w.addresses()[0] // of another protocol
	}
	var next atomic.Int64
	door := *urls[0]
	door.Host = drivertest.Leading(w, func() string { return urls[int(next.Add(1))%len(urls)].Host })
	return door.String()
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

// aFrozenServerHasChanges: it reads what it was sent once it runs again, long after that was given up and others were told the opposite.
func (w *world) aFrozenServerHasChanges() {
	if w.suite.Fences {
		w.frozenWithChanges(func(same registry.Registry) registry.Registry { return same })
	}
	if w.suite.FencesOthers {
		w.frozenWithChanges(func(former registry.Registry) registry.Registry { // its session does not move to another server
			if closes, is := former.(io.Closer); is {
				expect.NoError(w, closes.Close())
			}
			return w.open(w.addresses()...)
		})
	}
}

func (w *world) frozenWithChanges(next func(registry.Registry) registry.Registry) {
	ctx, members := w.Context(), w.Members()
	driver, frozen := w.openAndFind()
	expect.NoError(w, members[frozen].Freeze())
	began := time.Now()
	within := func(change func(context.Context, registry.Instance) error, pod registry.Instance) error {
		ctx, cancel := context.WithTimeout(ctx, givenUpAfter)
		defer cancel()
		return change(ctx, pod)
	}
	var pods []registry.Instance
	var given errgroup.Group
	for range changesAtOnce {
		pod := w.pod()
		pods = append(pods, pod)
		given.Go(func() error { return within(driver.Register, pod) })
	}
	if given.Wait() == nil {
		w.Errorf("server %d is frozen, and no registration has met it", frozen)
	}
	wait.Pause(ctx, time.Until(began.Add(2*givenUpAfter)))
	remover := next(driver)
	for _, pod := range pods {
		expect.Soon(w, pod.Endpoint()+" is taken out", func() error { return within(remover.Deregister, pod) })
	}
	expect.NoError(w, members[frozen].Thaw())
	w.whole()
	after := w.register(members[frozen].Address())
	w.eachGives(after)
	for _, m := range members {
		all, err := m.Read(ctx, after.Service)
		expect.NoError(w, err)
		for _, pod := range pods {
			if slices.Contains(all, pod.Endpoint()) {
				w.Errorf("%s gives %s, which was taken out after it had been given up", m.Address(), pod.Endpoint())
			}
		}
	}
}

// openAndFind makes a driver of all servers, and finds one that it has a connection to.
func (w *world) openAndFind() (driver registry.Registry, server int) {
	var doors []*network.Network
	var endpoints []string
	for _, address := range w.addresses() {
		host := address[strings.LastIndex(address, "/")+1:]
		door, err := network.Start(w.Context(), "127.0.0.1:0", host)
		expect.NoError(w, err)
		w.Cleanup(door.Stop)
		doors, endpoints = append(doors, door), append(endpoints, strings.Replace(address, host, door.Address, 1))
	}
	driver = w.open(endpoints...)
	expect.NoError(w, driver.Register(w.Context(), w.pod()))
	return driver, slices.IndexFunc(doors, func(door *network.Network) bool { return door.Open() > 0 })
}

// aClockIsWrong, whichever way it jumps, and also when the server starts: what was registered stays, and changes go on. If leases end by
// the time of day, the next renewal has the entries back.
func (w *world) aClockIsWrong() {
	members, wrong := w.Members(), w.leader()
	before := slices.Concat(w.addresses()[wrong:], w.addresses()[:wrong])
	after := slices.Concat(before[1:], before[:1])
	pods := []registry.Instance{w.register(before...)}
	w.eachGives(pods[0])
	for _, jump := range []struct {
		ahead   time.Duration
		forward bool
	}{{wrongBy, true}, {-wrongBy, false}, {0, true}} {
		expect.NoError(w, members[wrong].SetClock(jump.ahead))
		if w.suite.LeasesByClock && jump.forward {
			w.losesAll(members[wrong], pods)
		}
		for _, restart := range []bool{false, true} {
			if restart {
				expect.NoError(w, members[wrong].Restart(w.Context()))
				w.whole()
			}
			pods = append(pods, w.register(before...), w.register(after...))
			for i, pod := range pods {
				if w.suite.LeasesByClock {
					w.renewed(pod, [][]string{before, after}[i%2])
				} else {
					w.eachGives(pod)
				}
			}
		}
	}
}

// losesAll: a server gives none of the pods any more.
func (w *world) losesAll(m registries.Member, pods []registry.Instance) {
	for _, pod := range pods {
		expect.Soon(w, fmt.Sprintf("%s does not give %s", m.Address(), pod.Endpoint()), func() error {
			if w.read(m, pod) == nil {
				return errors.New("it does")
			}
			return nil
		})
	}
}

// renewed renews a pod's entry, and registers it again if it is gone, until each server gives it, as Rollcall does. Once is not enough: a
// server that is about to remove the entries whose leases have ended also removes one that was renewed meanwhile (Eureka's
// AbstractInstanceRegistry.evict), which on a busy machine is long enough to be met.
func (w *world) renewed(pod registry.Instance, addresses []string) {
	driver := w.open(addresses...)
	var next time.Time
	for _, m := range w.Members() {
		expect.Soon(w, fmt.Sprintf("%s gives %s, which is renewed", m.Address(), pod.Endpoint()), func() error {
			if now := time.Now(); now.After(next) {
				next = now.Add(renewEvery)
				err := driver.(registry.Heartbeater).Heartbeat(w.Context(), pod) //nolint:forcetypeassert // it has leases
				if registry.CodeOf(err) == registry.CodeNotRegistered {
					err = driver.Register(w.Context(), pod)
				}
				expect.NoError(w, err)
			}
			return w.read(m, pod)
		})
	}
}

// everyServerLosesItsDisk one after the other: what was acknowledged is still there in the end.
func (w *world) everyServerLosesItsDisk() {
	pod := w.register(w.addresses()...)
	w.eachGives(pod)
	for _, m := range w.Members() {
		began := time.Now()
		expect.NoError(w, m.Wipe(w.Context()))
		w.startsWithin = min(max(w.startsWithin, 2*time.Since(began)), mostPatience)
		w.whole()
		w.eachGives(pod)
	}
}

// aDiskIsLostThatOneServerLacks: only the lost server and one other have a change. The new server must not make a majority with the third.
func (w *world) aDiskIsLostThatOneServerLacks() {
	if w.suite.AnyServes {
		return
	}
	ctx, members := w.Context(), w.Members()
	has := w.leader()
	lost, lacks := (has+1)%registries.Electing, (has+2)%registries.Electing // the members after these are agents
	expect.NoError(w, w.Network().Isolate(ctx, lacks))
	pod := w.register(members[has].Address(), members[lost].Address())
	members[lost].Kill()
	expect.NoError(w, w.Network().Heal(ctx))
	expect.NoError(w, w.Network().Isolate(ctx, has))
	wiped := make(chan error, 1)
	go func() { wiped <- members[lost].Wipe(ctx) }()
	select {
	case err := <-wiped:
		expect.NoError(w, err)
		w.Errorf("server %d has lost its disk and serves, and server %d alone can have what was acknowledged", lost, has)
	case <-time.After(w.startsWithin):
		expect.NoError(w, w.Network().Heal(ctx))
		expect.NoError(w, <-wiped)
	}
	expect.NoError(w, w.Network().Heal(ctx))
	w.whole()
	w.eachGives(pod)
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
	pod, driver := w.pod(), w.open(addresses...)
	expect.Soon(w, fmt.Sprintf("%s is registered through %s", pod.Endpoint(), strings.Join(addresses, ", ")), func() error {
		ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
		defer cancel()
		return driver.Register(ctx, pod)
	})
	return pod
}

func (w *world) pod() registry.Instance {
	w.pods++
	return registry.Instance{
		Service: "web", Address: fmt.Sprintf("10.0.0.%d", w.pods), Port: 80, Cluster: "test", Namespace: "default",
		Pod: fmt.Sprintf("web-%d", w.pods), UID: fmt.Sprintf("uid-%d", w.pods),
	}
}

func (w *world) open(addresses ...string) registry.Registry {
	w.Helper()
	return drivertest.Open[registry.Registry](w, w.suite.New, registry.Config{Endpoint: strings.Join(addresses, ",")})
}

func (w *world) eachGives(pod registry.Instance) {
	w.Helper()
	for _, m := range w.Members() {
		w.gives(m, pod)
	}
}

func (w *world) gives(m registries.Member, pod registry.Instance) {
	w.Helper()
	expect.Soon(w, fmt.Sprintf("%s gives %s", m.Address(), pod.Endpoint()), func() error { return w.read(m, pod) })
}

// givesNow is what a server does that counts again: it is not behind.
func (w *world) givesNow(m registries.Member, pod registry.Instance) {
	w.Helper()
	if err := w.read(m, pod); err != nil {
		w.Errorf("%s counts again, and does not give %s: %v", m.Address(), pod.Endpoint(), err)
	}
}

// read returns nil if the server gives the pod.
func (w *world) read(m registries.Member, pod registry.Instance) error {
	ctx, cancel := context.WithTimeout(w.Context(), callTimeout)
	defer cancel()
	given, err := m.Read(ctx, pod.Service)
	if err == nil && !slices.Contains(given, pod.Endpoint()) {
		err = fmt.Errorf("it gives %v", given)
	}
	return err
}
