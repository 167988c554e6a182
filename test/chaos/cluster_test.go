package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/lan"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// fakeCluster is three servers that write down what happens to them. Each gives the same.
type fakeCluster struct {
	s      *servers
	leader atomic.Int64
	given  []string

	mu  sync.Mutex
	log []string
}

func newFake(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{}
	f.leader.Store(1)
	var err error
	f.s, err = newServers(t.Context(), clusterKind{section: "driver: etcd", lag: time.Second}, f, f)
	expect.NoError(t, err)
	t.Cleanup(f.s.Stop)
	return f
}

// happens writes it down, with the servers that count as apart meanwhile.
func (f *fakeCluster) happens(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for i, apart := range f.s.apart {
		if apart {
			all = append(all, fmt.Sprint(i))
		}
	}
	f.log = append(f.log, fmt.Sprintf(format, args...)+" apart "+strings.Join(all, ","))
	return nil
}

func (f *fakeCluster) Members() []registries.Member {
	return []registries.Member{fakeMember{f, 0}, fakeMember{f, 1}, fakeMember{f, 2}}
}
func (f *fakeCluster) Leader(context.Context) int { return int(f.leader.Load()) }
func (*fakeCluster) Network() *lan.LAN            { return nil }
func (f *fakeCluster) Cut(_ context.Context, from, to int) error {
	return f.happens("cut %d-%d", from, to)
}
func (f *fakeCluster) Heal(context.Context) error  { return f.happens("heal") }
func (f *fakeCluster) Whole(context.Context) error { return f.happens("whole") }
func (*fakeCluster) Stop()                         {}

type fakeMember struct {
	f *fakeCluster
	i int
}

func (m fakeMember) does(what string) error { return m.f.happens("%s %d", what, m.i) }

func (m fakeMember) Address() string               { return fmt.Sprintf("http://127.0.0.1:%d", m.i+1) }
func (m fakeMember) Kill()                         { _ = m.does("kill") }
func (m fakeMember) Freeze() error                 { return m.does("freeze") }
func (m fakeMember) Thaw() error                   { return m.does("thaw") }
func (m fakeMember) Restart(context.Context) error { return m.does("restart") }
func (m fakeMember) Wipe(context.Context) error    { return m.does("wipe") }
func (m fakeMember) Upgrade(context.Context) error { return m.does("upgrade") }
func (m fakeMember) SetClock(ahead time.Duration) error {
	return m.does(fmt.Sprintf("%s ahead", ahead))
}
func (m fakeMember) SlowDisk(context.Context, time.Duration) (func() int, error) {
	return func() int { _ = m.does("fast"); return 1 }, m.does("slow")
}
func (fakeMember) Ready(context.Context) error { return nil }
func (fakeMember) Logs() string                { return "" }
func (fakeMember) Stop()                       {}

func (m fakeMember) Read(context.Context, string) ([]string, error) {
	return slices.Clone(m.f.given), nil
}

func (m fakeMember) Keeps() bool { return true }

func (m fakeMember) ReadLeader(ctx context.Context, service string) ([]string, error) {
	return m.Read(ctx, service)
}

// TestFaultsOfACluster: what each does to which server, and who is apart from the majority meanwhile.
func TestFaultsOfACluster(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		kind   kind
		dice   uint64
		want   []string
	}
	expect.Each(t, map[string]row{
		"the leader is killed": {"it comes back after a while", killLeader, 2, []string{"kill 1 apart 0,1,2", "restart 1 apart 0,1,2", "whole apart 0,1,2"}},
		"one is cut off":       {"both ways", cutServer, 3, []string{"cut 0-1 apart 0", "cut 1-0 apart 0", "cut 0-2 apart 0", "cut 2-0 apart 0", "heal apart 0", "whole apart 0"}},
		"one hears nothing":    {"one way, and it is the leader", cutServer, 1, []string{"cut 0-1 apart 0,1,2", "cut 2-1 apart 0,1,2", "heal apart 0,1,2", "whole apart 0,1,2"}},
		"one is heard by none": {"the other way", cutServer, 2, []string{"cut 2-0 apart 2", "cut 2-1 apart 2", "heal apart 2", "whole apart 2"}},
		"the one in use":       {"that of the most connections, the first where there is none", cutUsed, 2, []string{"cut 0-1 apart 0", "cut 1-0 apart 0", "cut 0-2 apart 0", "cut 2-0 apart 0", "heal apart 0", "whole apart 0"}},
		"the one in use stops": {"its peers continue", freezeUsed, 2, []string{"freeze 0 apart 0", "thaw 0 apart 0", "whole apart 0"}},
		"an empty disk":        {"the cluster has the data", wipeServer, 2, []string{"wipe 2 apart 2", "whole apart 2"}},
		"a restart of each":    {"one after the other", rollServers, 0, []string{"restart 0 apart 0", "whole apart 0", "restart 1 apart 0,1,2", "whole apart 0,1,2", "restart 2 apart 2", "whole apart 2"}},
		"an upgrade of each":   {"one after the other", upgradeServers, 0, []string{"upgrade 0 apart 0", "whole apart 0", "upgrade 1 apart 0,1,2", "whole apart 0,1,2", "upgrade 2 apart 2", "whole apart 2"}},
		"stop and go":          {"the server may be behind", stutter, 2, []string{"freeze 2 apart 2", "thaw 2 apart 2", "whole apart 2"}},
		"a slow disk":          {"the server may be behind", slowDisk, 2, []string{"slow 2 apart 2", "fast 2 apart 2", "whole apart 2"}},
		"all are on their own": {"no majority is left", cutAll, 0, []string{"cut 0-1 apart 0,1,2", "cut 0-2 apart 0,1,2", "cut 1-0 apart 0,1,2", "cut 1-2 apart 0,1,2", "cut 2-0 apart 0,1,2", "cut 2-1 apart 0,1,2", "heal apart 0,1,2", "whole apart 0,1,2"}},
	}, func(t *testing.T, tc row) {
		f := newFake(t)
		done, err := f.s.strike(t.Context(), action{kind: tc.kind, dice: tc.dice, lasts: time.Millisecond})
		expect.NoError(t, err)
		if !done || !slices.Equal(f.log, tc.want) {
			t.Errorf("done %t: %q, want %q: %s", done, f.log, tc.want, tc.reason)
		}
		_ = f.happens("")
		if last := f.log[len(f.log)-1]; last != " apart " {
			t.Errorf("after it:%s", last)
		}
	})
}

// TestWrongClocks: a server's is wrong until the calm, and the server counts meanwhile.
func TestWrongClocks(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for count := range 2 {
		done, err := f.s.play(t.Context(), nil, action{kind: wrongClock, dice: 1, count: count})
		if err != nil || !done {
			t.Errorf("done %t: %v", done, err)
		}
	}
	expect.NoError(t, f.s.clear(t.Context()))
	expect.Equal(t, []string{"10m0s ahead 1 apart ", "-10m0s ahead 1 apart "}, f.log, "what happened")
	expect.NoError(t, f.s.quiet(t.Context()))
	expect.Equal(t, []string{"0s ahead 0 apart ", "0s ahead 1 apart ", "0s ahead 2 apart "}, f.log[2:], "what happened in the calm")
}

// TestWithoutALeader: what the leader has acknowledged last, the others give only once one of them leads.
func TestWithoutALeader(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	_, err := f.s.without(t.Context(), []int{1}, func() error {
		err := f.happens("first")
		f.leader.Store(2)
		expect.Becomes(t, "the others to count", func() bool {
			f.s.mu.Lock()
			defer f.s.mu.Unlock()
			return !f.s.apart[0] && !f.s.apart[2]
		})
		return errors.Join(err, f.happens("then"))
	})
	expect.NoError(t, err)
	expect.Equal(t, []string{"first apart 0,1,2", "then apart 1", "whole apart 1"}, f.log, "what happened")
}

// TestPeersAreApartTogether: each takes changes, and tells the others when it can.
func TestPeersAreApartTogether(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.s.peers = true
	_, err := f.s.strike(t.Context(), action{kind: wipeServer, dice: 2})
	expect.NoError(t, err)
	expect.Equal(t, []string{"wipe 2 apart 0,1,2", "whole apart 0,1,2"}, f.log, "what happened")
}

// TestApart: what a client was given by a server that may not have known of the majority.
func TestApart(t *testing.T) {
	t.Parallel()
	began := time.Now()
	at := func(seconds float64) time.Time { return began.Add(time.Duration(seconds * float64(time.Second))) }
	type row struct {
		reason string
		apart  bool
		back   time.Time
		asked  time.Time
		want   bool
		from   source
	}
	expect.Each(t, map[string]row{
		"one of the majority":  {reason: "nothing is wrong", asked: at(0)},
		"cut off":              {reason: "it knows nothing new", apart: true, asked: at(0), want: true},
		"cut off meanwhile":    {reason: "it may have answered while it was cut off", back: at(1), asked: at(0), want: true},
		"back":                 {reason: "it may not have heard yet", back: at(0), asked: at(0.5), want: true},
		"back for long enough": {reason: "it has heard", back: at(0), asked: at(1.5)},
		"another one":          {reason: "it is none of its matter", apart: true, asked: at(0), from: source{server: 1}},
		"the leader":           {reason: "that may be the one which is apart", apart: true, asked: at(0), from: source{server: 1, leads: true}, want: true},
	}, func(t *testing.T, tc row) {
		f := newFake(t)
		f.s.apart[2], f.s.back[2] = tc.apart, tc.back
		if tc.from == (source{}) {
			tc.from.server = 2
		}
		f.s.take(tc.from, answer{Reading: checker.Reading{Server: tc.from.server, Asked: tc.asked, Answered: tc.asked}})
		if got := f.s.readings[tc.from.leads][0].Apart; got != tc.want {
			t.Errorf("apart is %t: %s", got, tc.reason)
		}
		f.s.take(tc.from, answer{err: errors.New("no leader")})
		expect.Equal(t, 1, len(f.s.readings[tc.from.leads]), "an error tells nothing of what there is")
	})
}

// TestGrievancesOfACluster: each server has to have the pods, and no other.
func TestGrievancesOfACluster(t *testing.T) {
	t.Parallel()
	k := checker.Key{Registry: defaultRegistry, UID: testUID, Service: "web", Address: "10.0.0.1", Port: 8080}
	live := map[string]checker.Pod{testUID: {UID: testUID, Sighting: checker.Sighting{
		State: string(appspub.LifecycleStateNormal), Ready: true, Address: k.Address, Keys: []checker.Key{k},
	}}}
	type row struct {
		reason string
		given  []string // by server 1
		err    error
		want   []string
	}
	const other = "10.0.0.2:8080"
	expect.Each(t, map[string]row{
		"equal":     {"nothing is wrong", []string{"10.0.0.1:8080"}, nil, nil},
		"lost":      {"its clients do not find the pod", nil, nil, []string{"lost at server 1: pod"}},
		"leaked":    {"its clients are sent to no pod", []string{"10.0.0.1:8080", other}, nil, []string{"leaked at server 1: web at " + other}},
		"no answer": {"nothing is known", nil, errors.New("no leader"), []string{"lost at server 1: pod", "stuck a client of server 1 can't be served: no leader"}},
	}, func(t *testing.T, tc row) {
		f := newFake(t)
		for server := range 3 {
			f.s.take(source{server: server, service: "web"}, answer{Reading: checker.Reading{Given: []string{"10.0.0.1:8080"}}})
		}
		f.s.take(source{server: 1, service: "web"}, answer{checker.Reading{Given: tc.given}, tc.err})
		var got []string
		for _, g := range f.s.grievances(t.Context(), live) {
			got = append(got, string(g.kind)+" "+g.text)
		}
		slices.Sort(got)
		if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
			t.Errorf("got %q, want %q: %s", got, tc.want, tc.reason)
		}
	})
}

// TestReadersOfACluster ask every server for every service, of its own and the leader's answer, and what they were given reaches the judge.
func TestReadersOfACluster(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.given = []string{"b:1", "a:1"}
	g := &game{journal: newJournal(), workloads: f.s.workloads(), plan: f.s.plan(1), world: &world{out: newOutput(io.Discard)}}
	expect.NoError(t, f.s.begin(t.Context(), g))
	all := 2 * 3 * len(g.services())
	expect.Becomes(t, "every client to be answered", func() bool {
		f.s.mu.Lock()
		defer f.s.mu.Unlock()
		return len(f.s.latest) == all && !slices.ContainsFunc(slices.Concat(f.s.readings[false], f.s.readings[true]), func(r checker.Reading) bool {
			return !slices.Equal(r.Given, []string{"a:1", "b:1"})
		})
	})
	f.s.judge(g.journal)
	broken := g.journal.Broken()
	nobodys := func(v checker.Violation) bool { return strings.HasPrefix(v.Text, "I10: ") }
	if want := 2 * 2 * len(g.services()); len(broken) != want || !slices.ContainsFunc(broken, nobodys) {
		t.Errorf("got %v, want %d addresses of no pod that anybody knows, by both kinds of clients", broken, want)
	}
	if f.s.judged < all {
		t.Errorf("%d answers were judged, want all %d", f.s.judged, all)
	}
	if one, other := f.s.section("m1", ""), f.s.section("m2", ""); one == other || strings.Count(one, "http://") != 1 {
		t.Errorf("with an odd seed each manager knows one server: %s and %s", one, other)
	}
}

// TestOthersInACluster: what others have written is theirs, and its place is known to be.
func TestOthersInACluster(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	book := fakeregistry.Memory(t.Context())
	f.s.others = book
	g := &game{journal: newJournal(), workloads: f.s.workloads(), world: &world{out: newOutput(io.Discard)}}
	f.s.isForeign = g.journal.IsForeign
	g.journal.Saw(testUID, types.NamespacedName{Name: "pod-1"}, nil, checker.Sighting{Version: 1, Address: "10.0.0.1", Workload: g.workloads[0].id()})
	done, err := f.s.addForeign(t.Context(), g, action{count: 1, dice: 1})
	expect.NoError(t, err)
	if !done {
		t.Fatal("there is a pod at whose address others can be")
	}
	entries, err := book.List(t.Context(), "other")
	expect.NoError(t, err)
	for _, e := range entries {
		f.s.take(source{service: e.Service}, answer{Reading: checker.Reading{Given: []string{e.Endpoint(), "10.0.0.2:80"}}})
	}
	var texts []string
	for _, one := range f.s.grievances(t.Context(), nil) {
		texts = append(texts, one.text)
	}
	if len(texts) != 1 || !strings.Contains(texts[0], "10.0.0.2:80") {
		t.Errorf("got %q, want the one entry that neither a pod nor others have", texts)
	}
}

// TestUnknownRegistry: what there is, is listed.
func TestUnknownRegistry(t *testing.T) {
	t.Parallel()
	_, err := sideFrom("mysql")
	if err == nil || !strings.Contains(err.Error(), `REGISTRY is "mysql": set it to one of `) {
		t.Errorf("got %v", err)
	}
}
