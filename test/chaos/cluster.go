package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	consuldriver "github.com/rollcall-dev/rollcall/registry/consul"
	etcddriver "github.com/rollcall-dev/rollcall/registry/etcd"
	nacosdriver "github.com/rollcall-dev/rollcall/registry/nacos"
	zookeeperdriver "github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// readEvery is how often a client of each server asks for each service, and answerWithin how long it waits for the answer.
	readEvery    = 250 * time.Millisecond
	answerWithin = 2 * time.Second
	// wholeWithin bounds how long servers take to serve again.
	wholeWithin = time.Minute
)

// clusterKind is a registry that chaos can be played on as a cluster of servers.
type clusterKind struct {
	// section is the driver and its options, as the managers' configuration has them.
	section string
	start   func(context.Context) (registries.Cluster, error)
	// timeout is that of the managers' calls, where it is not the usual one.
	timeout time.Duration
	// peers: there is no majority. While anything happens to one of the servers, none counts as one of it: each takes changes.
	peers bool
	// lag is how far a server of the majority may be behind what the registry has acknowledged.
	lag time.Duration
	// syncs: the servers wait for their disk before they acknowledge a change.
	syncs bool
	// fences: what managers have given up is never carried out later.
	fences bool
	// told is in Events that ask to restart the servers which they identify; empty if none does.
	told string
	// wrongBy is how far a clock jumps that is set wrong, if not as far as usual.
	wrongBy time.Duration
	// opens makes a driver that writes what others have, which must need no renewal; nil: there are no others.
	opens registry.Constructor
}

// clusterKinds are those that can be played on, by the value of REGISTRY.
func clusterKinds() map[string]clusterKind {
	return map[string]clusterKind{
		"consul": {section: "driver: consul", start: consul.StartCluster, lag: 2 * time.Second, syncs: true, opens: consuldriver.New},
		"etcd":   {section: "driver: etcd", start: etcd.StartCluster, lag: 2 * time.Second, syncs: true, fences: true, opens: etcddriver.New},
		// Its servers and clients keep an answer for a second here, not for half a minute. A lease outlasts the time without a manager.
		"eureka": {
			section: "driver: eureka, readerLag: 2s, options: {listStalenessInSecs: 2, durationInSecs: 300}", start: eureka.StartCluster,
			peers: true, lag: 3 * time.Second, wrongBy: 4 * time.Minute, // a server removes what has no lease by its time of day
		},
		// A server that was cut off gives its old list until the servers have elected a leader again, which they try every 5 s.
		"nacos": {
			section: "driver: nacos", start: nacos.StartCluster, timeout: 5 * time.Second, lag: 7 * time.Second, told: misread,
			opens: nacosdriver.New,
		},
		"zookeeper": {
			section: "driver: zookeeper", start: zookeeper.StartCluster, lag: 2 * time.Second, syncs: true, fences: true,
			opens: zookeeperdriver.New,
		},
	}
}

// servers are a cluster, each behind a network of its own that can fail.
type servers struct {
	clusterKind

	cluster   registries.Cluster
	wires     wires
	doors     []*network.Network
	endpoints []string
	// say tells what happens to which server.
	say func(format string, args ...any)
	// alone: each manager knows one server, and not all of them. Otherwise first is the one that it tries first.
	alone bool
	first int
	// others writes entries that are not Rollcall's, and isForeign tells them.
	others    registry.Registry
	isForeign func(checker.Place) bool

	mu sync.Mutex
	// apart are the servers that something keeps from the majority, and back is when that ended last.
	apart []bool
	back  []time.Time
	// readings are those since they were judged last, by whether the leader gave them, and latest the last of each source.
	readings map[bool][]checker.Reading
	latest   map[source]answer
	// judged is how many readings were.
	judged int
	worst  worst
}

// worst is how long after its release a pod was given at the worst: by a server of the majority, by one apart, and by the leader that
// one apart took for it.
type worst struct{ majority, apart, forwarded checker.Stale }

// wires are what the servers send each other over.
type wires interface {
	Cut(ctx context.Context, from, to int) error
	Heal(ctx context.Context) error
}

// source is what a client asks.
type source struct {
	server  int
	service string
	// leads: the client wants the leader's answer.
	leads bool
}

// answer is what it was given last, or why it was given nothing.
type answer struct {
	checker.Reading

	err error
}

var _ registrySide = (*servers)(nil)

func startServers(ctx context.Context, of clusterKind) (registrySide, error) {
	c, err := of.start(ctx)
	if err != nil {
		return nil, err
	}
	return newServers(ctx, of, c, c.Network())
}

func newServers(ctx context.Context, of clusterKind, c registries.Cluster, between wires) (*servers, error) {
	n := len(c.Members())
	s := &servers{
		clusterKind: of, cluster: c, wires: between, apart: make([]bool, n), back: make([]time.Time, n), latest: map[source]answer{},
		readings: map[bool][]checker.Reading{},
		say:      func(string, ...any) {}, isForeign: func(checker.Place) bool { return false },
	}
	for _, member := range c.Members() {
		endpoint := member.Address()
		address := network.HostPort(endpoint)
		door, err := network.Start(ctx, "127.0.0.1:0", address)
		if err != nil {
			s.Stop()
			return nil, fmt.Errorf("opening a door to %s: %w", endpoint, err)
		}
		s.doors = append(s.doors, door)
		s.endpoints = append(s.endpoints, strings.Replace(endpoint, address, door.Address, 1))
	}
	if of.opens == nil {
		return s, nil
	}
	var err error
	if s.others, err = of.opens(ctx, registry.Config{Endpoint: strings.Join(s.endpoints, ",")}); err != nil {
		s.Stop()
		return nil, fmt.Errorf("opening the driver of others: %w", err)
	}
	return s, nil
}

// Stop ends the servers.
func (s *servers) Stop() {
	if closer, closes := s.others.(io.Closer); closes {
		_ = closer.Close()
	}
	for _, door := range s.doors {
		door.Stop()
	}
	s.cluster.Stop()
}

func (s *servers) plan(seed uint64) planner {
	p := clusterPlan(seed, len(s.workloads()))
	if s.opens != nil {
		p.always = append(p.always, addForeign)
	}
	if s.syncs {
		p.faults = append(p.faults, slowDisk)
	}
	return p
}

func (s *servers) promised() []kind {
	p := s.plan(0)
	faults := slices.DeleteFunc(slices.Clone(p.faults), func(k kind) bool { return k.isOfNetwork() || k == upgradeServers })
	return slices.Concat(faults, s.met(), p.blows, p.always, []kind{rollBack, cancelDelete, turnUnready})
}

func (s *servers) met() []kind { return []kind{netSlow, netCut} }

// workloads are those that need one registry and no application.
func (s *servers) workloads() []*workload {
	all := slices.DeleteFunc(workloads(), func(w *workload) bool { return len(w.registries) > 0 })
	for _, w := range all {
		w.says = nil // what readers are given has no more than an address
	}
	return all
}

func (*servers) written(usual string) checker.Written { return checker.Written{Usual: usual} }

// section has the servers as one registry.
func (s *servers) section(manager, _ string) string {
	known := slices.Concat(s.endpoints[s.first:], s.endpoints[:s.first])
	if s.alone {
		i := int(manager[len(manager)-1]) % len(known)
		known = known[i : i+1]
	}
	return fmt.Sprintf("- {name: %s, default: true, %s, endpoint: %q, timeout: %s}\n",
		defaultRegistry, s.clusterKind.section, strings.Join(known, ","), cmp.Or(s.timeout, callTimeout))
}

func (s *servers) plays(*corev1.Pod, bool) {}

// begin has a client of each server ask for each service, until ctx ends. With an odd seed each manager knows one server alone; with
// others the seed chooses the server that the managers try first. Servers that may lag need a drain that is longer, or nothing of it could
// be judged.
func (s *servers) begin(ctx context.Context, g *game) error {
	g.journal.CallsUnseen, g.journal.Drain, s.isForeign = true, s.lag+drainTime, g.journal.IsForeign
	s.alone, s.say = g.plan.seed%2 == 1, g.out.printf
	s.first = int(g.plan.seed / 2 % uint64(len(s.endpoints)))
	if s.told != "" {
		go s.restartAsTold(ctx, g)
	}
	for server, member := range s.cluster.Members() {
		for _, service := range g.services() {
			m, forwards := member.(registries.Forwarder)
			if !forwards || m.Keeps() {
				go s.follow(ctx, source{server: server, service: service}, member.Read)
			}
			if forwards {
				go s.follow(ctx, source{server, service, true}, m.ReadLeader)
			}
		}
	}
	return nil
}

func (s *servers) follow(ctx context.Context, from source, ask func(ctx context.Context, service string) ([]string, error)) {
	for ; ctx.Err() == nil; wait.Pause(ctx, readEvery) {
		asked := time.Now()
		within, cancel := context.WithTimeout(ctx, answerWithin)
		given, err := ask(within, from.service)
		cancel()
		slices.Sort(given)
		s.take(from, answer{checker.Reading{
			Server: from.server, Service: from.service, Asked: asked, Answered: time.Now(), Given: given,
		}, err})
	}
}

// take writes down what a client was given. What it was given before is not kept twice.
func (s *servers) take(from source, now answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.latest[from].Given; slices.Equal(before, now.Given) {
		now.Given = before
	}
	s.latest[from] = now
	if now.err == nil {
		now.Apart = s.isApart(from, now.Asked)
		s.readings[from.leads] = append(s.readings[from.leads], now.Reading)
	}
}

// isApart reports whether what a client was given may be what somebody had who did not know of the majority. Where a server forwards, that
// is the leader, which may be any of them: one that was just elected answers before it has applied what the one before had acknowledged.
func (s *servers) isApart(from source, asked time.Time) bool {
	for server := range s.apart {
		if (from.leads || server == from.server) && (s.apart[server] || s.back[server].Add(s.lag).After(asked)) {
			return true
		}
	}
	return false
}

// without does something to servers, which count as apart from the majority until it is over and all servers serve again.
func (s *servers) without(ctx context.Context, apart []int, do func() error) (done bool, err error) {
	if s.peers {
		apart = s.all()
	}
	rejoined := func() {}
	if !s.peers && slices.Contains(apart, s.cluster.Leader(ctx)) {
		rejoined = s.withoutLeader(ctx, apart)
	}
	s.setApart(true, apart)
	s.say("apart are servers %d", apart)
	err = do()
	whole := wait.Until(ctx, wholeWithin, readEvery, s.cluster.Whole)
	s.say("all servers serve")
	rejoined()
	s.setApart(false, apart)
	return err == nil, errors.Join(err, whole)
}

// withoutLeader counts the others as apart as well until one of them leads: what the leader has acknowledged last they have, and do not
// know that they may give it. The caller calls rejoined when the leader is back.
func (s *servers) withoutLeader(ctx context.Context, apart []int) (rejoined func()) {
	others := slices.DeleteFunc(s.all(), func(server int) bool { return slices.Contains(apart, server) })
	s.setApart(true, others)
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_ = wait.Until(ctx, wholeWithin, readEvery, func(ctx context.Context) error {
			within, cancel := context.WithTimeout(ctx, answerWithin)
			defer cancel()
			if !slices.Contains(others, s.cluster.Leader(within)) {
				return errors.New("none of the others leads")
			}
			return nil
		})
		s.setApart(false, others)
	})
	return func() {
		cancel()
		waiting.Wait()
	}
}

func (s *servers) setApart(apart bool, all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, server := range all {
		s.apart[server], s.back[server] = apart, time.Now()
	}
}

// judge holds what clients were given since the last time against the pods.
func (s *servers) judge(j *checker.Journal) {
	s.mu.Lock()
	all := s.readings
	s.readings = map[bool][]checker.Reading{}
	s.mu.Unlock()
	for leads, readings := range all {
		s.judged += len(readings)
		slices.SortStableFunc(readings, func(a, b checker.Reading) int { return a.Asked.Compare(b.Asked) })
		majority, apart := j.JudgeReadings(readings, s.lag)
		s.worst.majority = checker.Worse(s.worst.majority, majority)
		if leads {
			s.worst.forwarded = checker.Worse(s.worst.forwarded, apart)
		} else {
			s.worst.apart = checker.Worse(s.worst.apart, apart)
		}
	}
}

// grievances compares what clients of each server are given with the pods.
func (s *servers) grievances(_ context.Context, live map[string]checker.Pod) (all []grievance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := map[source][]registry.Entry{}
	for from, last := range s.latest {
		ours := slices.DeleteFunc(slices.Clone(last.Given), func(endpoint string) bool {
			return s.isForeign(checker.Place{Service: from.service, Endpoint: endpoint})
		})
		if last.err != nil {
			all = append(all, grievance{kind: stuck, within: settleWithin, text: fmt.Sprintf("a client of server %d can't be served: %v",
				from.server, last.err)})
		}
		reader := source{server: from.server, leads: from.leads}
		entries[reader] = append(entries[reader], entriesOf(live, from.service, ours)...)
	}
	for reader, those := range entries {
		for _, one := range compare(live, map[string][]registry.Entry{defaultRegistry: those}) {
			if one.kind != stuck {
				one.text = fmt.Sprintf("at server %d: %s", reader.server, one.text)
			}
			if one.kind != stuck || reader == (source{}) { // a pod that is on its way is so for all
				all = append(all, one)
			}
		}
	}
	return all
}

// entriesOf are the entries behind what a client was given: those of the pods that are there, and of none.
func entriesOf(live map[string]checker.Pod, service string, given []string) []registry.Entry {
	holders := map[string]string{}
	for uid, p := range live {
		for _, k := range p.Keys {
			holders[k.Service+" "+checker.PlaceOf(k).Endpoint] = uid
		}
	}
	var all []registry.Entry
	for _, endpoint := range given {
		host, port, err := net.SplitHostPort(endpoint)
		number, convErr := strconv.Atoi(port)
		if err != nil || convErr != nil {
			host = endpoint
		}
		all = append(all, registry.Entry{State: registry.InService, Instance: registry.Instance{
			Service: service, Address: host, Port: number, UID: holders[service+" "+endpoint],
		}})
	}
	return all
}

func (s *servers) evidence(checker.Counts) string {
	return fmt.Sprintf("%d answers to clients of %d servers", s.judged, len(s.apart))
}

func (s *servers) hits() map[network.Fault]int {
	all := map[network.Fault]int{}
	for _, door := range s.doors {
		for fault, connections := range door.Hits() {
			all[fault] += connections
		}
	}
	return all
}

// sum says what was done to the servers, and the worst that came of it.
func (s *servers) sum(done *tally) string {
	return fmt.Sprintf(", %d kills of servers, %d cuts, given after its release: %s", s.kills(done),
		done.of(cutServer, cutAll, cutUsed, freezeUsed), s.worst)
}

func (w worst) String() string {
	text := w.majority.String() + ", by a server apart " + w.apart.String()
	if w.forwarded.For > 0 {
		text += ", by what one apart took for the leader " + w.forwarded.String()
	}
	return text
}

// kills counts each server of a round.
func (s *servers) kills(done *tally) int {
	return done.of(killLeader, wipeServer) + len(s.apart)*done.of(rollServers, upgradeServers)
}
