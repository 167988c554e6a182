package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// stopped of each stride is how long a server does nothing that stops and goes: longer than a heartbeat, and shorter than
	// what has its peers elect another leader.
	stopped, stride = 300 * time.Millisecond, 400 * time.Millisecond
	// syncTakes is how much longer one does of a disk that is slow: as long as on a disk that others keep busy.
	syncTakes = 250 * time.Millisecond
	// wrongBy is how far a clock jumps that is set wrong: further than any lease, timeout or election lasts.
	wrongBy = 10 * time.Minute
)

// play plays a fault of the network before the servers, or of the servers.
func (s *servers) play(ctx context.Context, g *game, a action) (done bool, err error) {
	if a.kind.isOfNetwork() {
		begin := func() {
			for i, door := range s.doors {
				terms := a.terms()
				terms.Seed += uint64(i)
				door.Set(terms)
			}
		}
		return g.lastWhile(ctx, a, s.open, begin, func() error { return s.clear(ctx) })
	}
	switch a.kind {
	case addForeign:
		return s.addForeign(ctx, g, a)
	case wrongClock:
		return s.setWrong(a)
	default: // never two at once
	}
	g.lasting.Lock()
	defer g.lasting.Unlock()
	g.await(ctx, fmt.Sprintf("a leader, and a connection for %q", a.kind), func() bool { return g.managers.leader() != nil && s.open() > 0 })
	done, err = s.strike(ctx, a)
	wait.Pause(ctx, faultGap)
	return done, err
}

func (s *servers) strike(ctx context.Context, a action) (done bool, err error) {
	drawn := int(a.dice % uint64(len(s.apart)))
	switch a.kind {
	case killLeader:
		return s.kill(ctx, a, drawn)
	case cutServer:
		return s.cutOff(ctx, a, drawn)
	case cutUsed:
		a.dice = 0 // both ways
		return s.cutOff(ctx, a, s.used())
	case cutAll:
		return s.cutApart(ctx, a)
	case freezeUsed:
		return s.freeze(ctx, a, s.used())
	case stutter:
		return s.stutter(ctx, a, drawn)
	case slowDisk:
		return s.slow(ctx, a, drawn)
	case wipeServer:
		return s.one(ctx, drawn, s.cluster.Members()[drawn].Wipe)
	case rollServers:
		return s.each(ctx, registries.Member.Restart)
	case upgradeServers:
		return s.each(ctx, registries.Member.Upgrade)
	default:
		return false, fmt.Errorf("this registry has no action %s", a.kind)
	}
}

// addForeign writes entries of another cluster at the addresses of pods, in any service, and every other one with the pod's UID.
func (s *servers) addForeign(ctx context.Context, g *game, a action) (done bool, err error) {
	rng := a.rng()
	services := g.services()
	for i, p := range g.choose(g.workloads[a.workload], a, func(p checker.Pod) bool { return p.Address != "" }) {
		in := registry.Instance{
			Service: services[rng.IntN(len(services))], Address: p.Address, Port: foreignPort,
			Cluster: "other", Namespace: p.Name.Namespace, Pod: p.Name.Name, UID: p.UID,
		}
		if i%2 == 1 {
			in.UID = "other-" + in.UID
		}
		place := checker.PlaceOf(checker.KeyOf(defaultRegistry, in))
		g.journal.Foreign(place, time.Time{})
		err := attempt(ctx, func() error {
			within, cancel := context.WithTimeout(ctx, callTimeout)
			defer cancel()
			return s.others.Register(within, in)
		})
		if err != nil {
			return done, fmt.Errorf("registering %s of %s for others: %w", place.Endpoint, place.Service, err)
		}
		g.journal.Foreign(place, time.Now())
		done = true
	}
	return done, nil
}

// used is the server that managers have the most connections with.
func (s *servers) used() (most int) {
	for i, door := range s.doors {
		if door.Open() > s.doors[most].Open() {
			most = i
		}
	}
	return most
}

func (s *servers) open() (all int) {
	for _, door := range s.doors {
		all += door.Open()
	}
	return all
}

// kill kills the leader, or the server drawn where none leads, and starts it again after a while.
func (s *servers) kill(ctx context.Context, a action, drawn int) (bool, error) {
	leader := s.cluster.Leader(ctx)
	if leader == registries.NoLeader {
		leader = drawn
	}
	member := s.cluster.Members()[leader]
	return s.without(ctx, []int{leader}, func() error {
		member.Kill()
		wait.Pause(ctx, a.lasts)
		return member.Restart(ctx)
	})
}

// cutOff cuts one server off, so that it hears none of its peers, is heard by none, or both.
func (s *servers) cutOff(ctx context.Context, a action, server int) (bool, error) {
	var ways [][2]int
	for peer := range s.apart {
		if peer == server {
			continue
		}
		if a.dice%3 != 1 { //nolint:mnd // of three ways
			ways = append(ways, [2]int{server, peer})
		}
		if a.dice%3 != 2 { //nolint:mnd // of three ways
			ways = append(ways, [2]int{peer, server})
		}
	}
	return s.without(ctx, []int{server}, func() error { return s.cut(ctx, a, ways) })
}

// cutApart leaves no majority.
func (s *servers) cutApart(ctx context.Context, a action) (bool, error) {
	var ways [][2]int
	for server := range s.apart {
		for peer := range s.apart {
			if peer != server {
				ways = append(ways, [2]int{server, peer})
			}
		}
	}
	return s.without(ctx, s.all(), func() error { return s.cut(ctx, a, ways) })
}

func (s *servers) all() (servers []int) {
	for server := range s.apart {
		servers = append(servers, server)
	}
	return servers
}

// cut loses what is sent these ways for a while.
func (s *servers) cut(ctx context.Context, a action, ways [][2]int) (err error) {
	for _, way := range ways {
		err = errors.Join(err, s.wires.Cut(ctx, way[0], way[1]))
	}
	wait.Pause(ctx, a.lasts)
	return errors.Join(err, s.wires.Heal(context.WithoutCancel(ctx)))
}

// freeze has a server do nothing. If what managers have given up is never carried out, it takes longer than they wait for that: what they
// have sent the server, it reads afterwards.
func (s *servers) freeze(ctx context.Context, a action, server int) (bool, error) {
	lasts := a.lasts
	if s.fences {
		lasts += 2 * cmp.Or(s.timeout, callTimeout)
	}
	return s.without(ctx, []int{server}, func() error { return s.stop(ctx, server, lasts) })
}

// stop has a server do nothing for a while.
func (s *servers) stop(ctx context.Context, server int, lasts time.Duration) error {
	member := s.cluster.Members()[server]
	err := member.Freeze()
	wait.Pause(ctx, lasts)
	return errors.Join(err, member.Thaw())
}

// stutter has a server stop and go. It may be further behind than one of the majority that does not.
func (s *servers) stutter(ctx context.Context, a action, server int) (bool, error) {
	return s.without(ctx, []int{server}, func() error {
		var all []error
		for began := time.Now(); time.Since(began) < a.lasts && ctx.Err() == nil; {
			all = append(all, s.stop(ctx, server, stopped))
			wait.Pause(ctx, stride-stopped)
		}
		return errors.Join(all...)
	})
}

// slow has a server's disk take its time, which may leave the server further behind, too.
func (s *servers) slow(ctx context.Context, a action, server int) (bool, error) {
	syncs := 0
	_, err := s.without(ctx, []int{server}, func() error {
		end, err := s.cluster.Members()[server].SlowDisk(ctx, syncTakes)
		if err != nil {
			return err
		}
		wait.Pause(ctx, a.lasts)
		syncs = end()
		return nil
	})
	return syncs > 0, err
}

// one has something happen to a server that ends it, and starts it again.
func (s *servers) one(ctx context.Context, server int, do func(context.Context) error) (bool, error) {
	done, err := s.without(ctx, []int{server}, func() error { return do(ctx) })
	if errors.Is(err, registries.ErrOneVersion) {
		err = nil // it has been upgraded
	}
	return done, err
}

// each has it happen to one server after the other.
func (s *servers) each(ctx context.Context, do func(registries.Member, context.Context) error) (done bool, err error) {
	for i, member := range s.cluster.Members() {
		if done, err = s.one(ctx, i, func(ctx context.Context) error { return do(member, ctx) }); !done {
			break
		}
	}
	return done, err
}

// killAtAnswer kills a manager that is about to patch a pod: its patch rests on an answer, and is never done.
func (s *servers) killAtAnswer(ctx context.Context, g *game) (done bool, err error) {
	victim, running, err := g.managers.seize(ctx, true)
	if err != nil {
		return false, err
	}
	defer victim.release()
	gates := map[string]*apiproxy.Gate{}
	for _, w := range g.workloads {
		if gates[w.namespace] == nil {
			gates[w.namespace] = victim.proxy.HoldPodWritesIn(w.namespace, "")
		}
	}
	held := func() (holds bool) {
		for _, gate := range gates {
			holds = holds || gate.Held() > 0
		}
		return holds
	}
	g.await(ctx, "a manager that is about to patch a pod", held)
	victim.proxy.Fence(true)
	if done = held() && kill(running); !done {
		err = errNoneToHit
		victim.proxy.Fence(false)
	}
	for _, gate := range gates {
		gate.Release()
	}
	return done, err
}

// setWrong has a server's clock jump. The server stays one of the majority, and other faults may meet it.
func (s *servers) setWrong(a action) (bool, error) {
	server, ahead := int(a.dice%uint64(len(s.apart))), cmp.Or(s.wrongBy, wrongBy)
	if a.count%2 == 1 {
		ahead = -ahead
	}
	s.say("the clock of server %d is %s ahead", server, ahead)
	err := s.cluster.Members()[server].SetClock(ahead)
	return err == nil, err
}

// quiet ends every fault of the network before the servers, and sets their clocks right; all else ends with its action.
func (s *servers) quiet(ctx context.Context) error {
	err := s.clear(ctx)
	for _, member := range s.cluster.Members() {
		err = errors.Join(err, member.SetClock(0))
	}
	return err
}

// clear ends every fault of the network before the servers.
func (s *servers) clear(ctx context.Context) error {
	var all []error
	for _, door := range s.doors {
		all = append(all, door.Clear(ctx))
	}
	return errors.Join(all...)
}
