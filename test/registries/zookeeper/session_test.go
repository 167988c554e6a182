package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	driver "github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

// again makes a call until it succeeds, as Rollcall does.
func again(t *testing.T, call func(context.Context) error) {
	t.Helper()
	expect.Soon(t, "the call to succeed", func() error {
		ctx := drivertest.Within(t, 5*time.Second)
		err := call(ctx)
		if registry.CodeOf(err) == registry.CodeTerminal {
			t.Fatal(err)
		}
		return err
	})
}

// What was given up while there was no connection is not sent when there is one again.
func TestNothingIsSentLongAfterItWasAskedFor(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/late"
	p := startProxy(t, s.Endpoint)
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", base)})
	expect.NoError(t, d.Register(t.Context(), pod(0)))
	p.refuse(true)
	for i := 1; i < 40; i++ { // more than the client queues
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := d.Register(ctx, pod(i)); err == nil {
			t.Fatal("Register without a connection: got success")
		}
		cancel()
	}
	p.refuse(false)
	again(t, func(ctx context.Context) error { return d.Register(ctx, pod(0)) })
	entries, err := d.List(t.Context(), "prod-1")
	expect.NoError(t, err)
	if len(entries) != 1 {
		t.Errorf("there are %d entries, want 1: the others were given up", len(entries))
	}
}

// A server that has lost its data refuses whoever has seen more of it.
func TestServerThatLostItsData(t *testing.T) {
	t.Parallel()
	before := shared.Use(t)
	after := use(t, zookeeper.Options{})
	p := startProxy(t, before.Endpoint)
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", "/lost")})
	for i := range 50 {
		expect.NoError(t, d.Register(t.Context(), pod(i)))
	}
	p.lead(after.Endpoint)
	again(t, func(ctx context.Context) error {
		entries, err := d.List(ctx, "prod-1")
		if len(entries) > 0 {
			t.Fatalf("got %d entries of a server that has none", len(entries))
		}
		return err
	})
	expect.NoError(t, d.Register(t.Context(), pod(0)))
}

// registrations are calls that register the pod 1. A batch first has the server catch up, by an empty transaction.
func registrations() map[string]registration {
	return map[string]registration{
		"alone": {0, func(ctx context.Context, d *driver.Registry) error { return d.Register(ctx, pod(1)) }},
		"in a batch": {1, func(ctx context.Context, d *driver.Registry) error {
			return d.Batch(ctx, []registry.Change{{Instance: pod(1), State: registry.InService}})[0]
		}},
	}
}

type registration struct {
	emptyTransactions int
	call              func(context.Context, *driver.Registry) error
}

// holdOnly begins a call, and returns when the proxy holds its request of the kind, after letting some go.
func (p *proxy) holdOnly(request int32, after int, call func() error) (ended chan error) {
	p.hold(request)
	ended = make(chan error, 1)
	go func() { ended <- call() }()
	for range after {
		<-p.arrived
		p.next(request)
	}
	<-p.arrived
	return ended
}

// givenUp makes a call, and gives it up when the proxy holds its request.
func (p *proxy) givenUp(t *testing.T, request int32, after int, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	given := p.holdOnly(request, after, func() error { return call(ctx) })
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Fatalf("a call that was given up: got error %v", err)
	}
}

// A call that was given up after its first request makes no second one.
func TestGivenUpCallGoesNoFurther(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	p := startProxy(t, s.Endpoint)
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", "/no-further")})
	p.givenUp(t, opGetData, 0, func(ctx context.Context) error { return d.Register(ctx, pod(1)) })
	p.release()
	stranger := pod(1)
	stranger.UID = "somebody else's"
	expect.NoError(t, d.FailOver(t.Context(), stranger)) // it spares the entry, and comes after what is still under way for it
	entries, err := d.List(t.Context(), "prod-1")
	expect.NoError(t, err)
	if len(entries) != 0 {
		t.Errorf("List gives %+v, want nothing: the call was given up before it wrote", entries)
	}
}

// A call that was given up on its way lands before any later call of this process for the same entry.
func TestGivenUpCallLandsBeforeTheNext(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/given-up"
	p := startProxy(t, s.Endpoint)
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", base)})
	expect.NoError(t, d.Register(t.Context(), pod(0)))

	p.givenUp(t, opMulti, 0, func(ctx context.Context) error { return d.Register(ctx, pod(1)) })
	next := make(chan error, 1)
	go func() { next <- d.Deregister(t.Context(), pod(1)) }()
	p.release()
	expect.NoError(t, <-next)
	entries, err := d.List(t.Context(), "prod-1")
	expect.NoError(t, err)
	if len(entries) != 1 || entries[0].UID != pod(0).UID {
		t.Errorf("List gives %+v, want only the first pod: the second was deregistered last", entries)
	}
}

// What was sent when a connection breaks may still be carried out, by a server that the leader has yet to hear.
func TestAConnectionThatBreaksInAChange(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	for name, r := range registrations() {
		for request, want := range map[int32]bool{opGetData: false, opMulti: true} {
			p := startProxy(t, s.Endpoint)
			d := open(t, registry.Config{Endpoint: p.endpoint, Options: options("base", "/breaks")})
			expect.NoError(t, d.Register(t.Context(), pod(0)))
			after := map[bool]int{true: r.emptyTransactions}[request == opMulti]
			failed := p.holdOnly(request, after, func() error { return r.call(drivertest.Within(t, bound), d) })
			p.refuse(true)
			err := <-failed
			if is := drivertest.MayLand(err); err == nil || errors.Is(err, context.DeadlineExceeded) || is != want {
				t.Errorf("%s, in request %d: got error %v, of a change that may land: %t, want %t", name, request, err, is, want)
			}
		}
	}
}

// A server that vanishes without a word is left when a call has waited in vain, before the client, which waits for 26 s, takes it for lost.
func TestSilentServerIsLeft(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const base = "/silent"
	proxies := []*proxy{startProxy(t, s.Endpoint), startProxy(t, s.Endpoint)}
	d := open(t, registry.Config{
		Cluster: "prod-1", Endpoint: proxies[0].endpoint + "," + proxies[1].endpoint, Timeout: 4 * time.Second,
		Options: options("base", base),
	})
	expect.NoError(t, d.Register(t.Context(), pod(1)))
	for _, p := range proxies {
		if p.inUse() {
			p.hold(0)
		}
	}
	for i := 0; ; i++ {
		err := d.Register(drivertest.Within(t, 4*time.Second), pod(1))
		if err == nil {
			break
		}
		if i == 3 {
			t.Fatalf("four calls of 4 s have failed, the last with %v: want the other server by then", err)
		}
	}
}

// A list holds all that was acknowledged before, whichever server it asks.
func TestListsDoNotLag(t *testing.T) {
	t.Parallel()
	var servers []*zookeeper.Server
	registries.Use(t, func(ctx context.Context) (first *zookeeper.Server, err error) {
		if servers, err = zookeeper.StartEnsemble(ctx, 3); err == nil {
			first = servers[0]
		}
		return first, err
	})
	for _, s := range servers[1:] {
		t.Cleanup(s.Stop)
	}
	writer := open(t, registry.Config{Cluster: "prod-1", Endpoint: servers[0].Endpoint})
	var readers []*driver.Registry
	for _, s := range servers[1:] {
		readers = append(readers, open(t, registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint}))
	}
	expect.NoError(t, writer.Register(t.Context(), pod(0)))
	for i := range 150 {
		in := pod(1)
		in.UID = fmt.Sprint("uid-", i)
		expect.NoError(t, writer.Register(t.Context(), in))
		for _, r := range readers {
			entries, err := r.List(t.Context(), "prod-1")
			expect.NoError(t, err)
			if len(entries) != 2 || !hasUID(entries, in.UID) {
				t.Fatalf("round %d: List gives %+v, want what was acknowledged before", i, entries)
			}
		}
		// Who does not see the entry must not say that it is gone.
		expect.NoError(t, readers[i%len(readers)].Deregister(t.Context(), in))
		entries, err := writer.List(t.Context(), "prod-1")
		expect.NoError(t, err)
		if hasUID(entries, in.UID) {
			t.Fatalf("round %d: the entry is there after Deregister by a driver at another server", i)
		}
	}
}

func hasUID(entries []registry.Entry, uid string) bool {
	return slices.ContainsFunc(entries, func(e registry.Entry) bool { return e.UID == uid })
}

// A list taken while entries come and go holds those that stay, and is no error.
func TestListWhileEntriesComeAndGo(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	const staying, passing, lists = 20, 8, 200
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint, Options: options("base", "/changing")})
	for i := range staying {
		expect.NoError(t, d.Register(t.Context(), pod(i)))
	}
	done := make(chan struct{})
	var changing sync.WaitGroup
	defer changing.Wait()
	defer close(done)
	for i := range passing {
		in := pod(staying + i)
		if i%2 == 0 {
			in.Service = fmt.Sprint("passing-", i) // its folder goes, too
		}
		changing.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if err := errors.Join(d.Register(t.Context(), in), d.Deregister(t.Context(), in)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range lists {
		entries, err := d.List(t.Context(), "prod-1")
		expect.NoError(t, err)
		for i := range staying {
			if !hasUID(entries, pod(i).UID) {
				t.Fatalf("the list lacks %s, which did not change", pod(i).Pod)
			}
		}
	}
}

// Folders that are empty go, and come again when they are needed.
func TestEmptyFoldersGo(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint, Options: options("base", "/empty/below")})
	conn := connect(t, s.Endpoint)
	for range 2 {
		expect.NoError(t, d.Register(t.Context(), pod(1)))
		expect.NoError(t, d.Deregister(t.Context(), pod(1)))
		for _, folder := range []string{"/empty/below/web", "/empty/below", "/empty"} {
			expect.Soon(t, folder+" to go", func() error {
				if there, _, err := conn.Exists(folder); there || err != nil {
					return errors.Join(fmt.Errorf("it is there: %t", there), err)
				}
				return nil
			})
		}
	}
	expect.NoError(t, d.Register(t.Context(), pod(1)))
}

// Nothing that a driver began goes on after its Close.
func TestCloseLeavesNothingBehind(t *testing.T) { //nolint:paralleltest // it counts goroutines
	s := shared.Use(t)
	p := startProxy(t, s.Endpoint)
	for _, endpoint := range []string{
		s.Endpoint, p.endpoint, registrytest.SilentAddress(t), registrytest.UnusedAddress(t),
	} {
		d, err := driver.New(t.Context(), registry.Config{
			Endpoint: endpoint, Options: options("base", "/leaks"),
			Auth: registry.Auth{Username: user, PasswordFile: drivertest.File(t, password)},
		})
		expect.NoError(t, err)
		r := d.(*driver.Registry)
		if endpoint == p.endpoint {
			expect.NoError(t, r.Register(t.Context(), pod(0)))
			p.hold(0)
		}
		for i := range 40 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			_ = r.Register(ctx, pod(i))
			_, _ = r.List(ctx, "prod-1")
			cancel()
		}
		expect.NoError(t, r.Close())
		expect.NoError(t, r.Close())
		drivertest.Passes(t, "Register after Close", r.Register(t.Context(), pod(0)), "")
	}
	expect.Soon(t, "no goroutine to be left", func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "registry/zookeeper.") || strings.Contains(stack, "go-zookeeper/zk.") {
				return errors.New("this goroutine is still there:\n" + stack)
			}
		}
		return nil
	})
}

// A service that listens at a wrong port costs no memory whatever it sends, and the error says what is wrong.
func TestOtherServersAreNoZooKeeper(t *testing.T) {
	t.Parallel()
	web := drivertest.Saying(t, "HTTP/1.1 400 Bad Request\r\n\r\n")
	type row struct {
		endpoint, says string
		tls            bool
	}
	expect.Each(t, map[string]row{
		"HTTP":                {web, "does not answer as a ZooKeeper server does", false},
		"HTTP instead of TLS": {web, "does not look like a TLS handshake", true},
		"TLS":                 {secure.Use(t).SecureEndpoint, "whether it speaks TLS", false},
		"no TLS":              {shared.Use(t).Endpoint, "no connection to ZooKeeper", true},
	}, func(t *testing.T, tc row) {
		config := registry.Config{Endpoint: tc.endpoint}
		if tc.tls {
			config.TLS.CAFile = secure.Use(t).CAFile
		}
		d := open(t, config)
		drivertest.Passes(t, "Register", d.Register(drivertest.Within(t, bound), pod(1)), tc.says)
	})
}
