package zookeeper_test

import (
	"context"
	stdpath "path"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestDriversTakeTurns: each driver's first change raises the version of the services' folder, on which the changes of the others rest.
func TestDriversTakeTurns(t *testing.T) {
	t.Parallel()
	s, anybody := shared.Use(t), connect(t, shared.Use(t).Endpoint)
	version := func(folder string) int32 {
		_, stat, err := anybody.Exists(folder)
		expect.NoError(t, err)
		return stat.Version
	}
	for base, acl := range map[string][]zk.ACL{
		"/turns":        zk.WorldACL(zk.PermAll),
		"/turns-closed": zk.WorldACL(zk.PermAll &^ zk.PermWrite),
	} {
		_, err := anybody.Create(base, []byte("theirs"), zk.FlagPersistent, acl)
		expect.NoError(t, err)
		before := version(base)
		var drivers []registry.Registry
		for range 3 {
			drivers = append(drivers, open(t, registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint, Options: options("base", base)}))
			for i, d := range drivers { // those that began before as well
				for _, err := range d.(registry.Batcher).Batch(t.Context(), []registry.Change{
					{Instance: pod(i), State: registry.InService}, {Instance: pod(i + 10), State: registry.InService},
				}) {
					expect.NoError(t, err)
				}
				expect.NoError(t, d.Deregister(t.Context(), pod(i)))
			}
		}
		want := int32(0)
		if acl[0].Perms&zk.PermWrite != 0 {
			want = int32(len(drivers))
		}
		expect.Equal(t, want, version(base)-before, "how often the version of %s was raised", base)
		data, _, err := anybody.Get(base)
		expect.NoError(t, err)
		expect.Equal(t, "theirs", string(data), "what others keep in %s", base)
	}
}

// TestALateRegistrationIsRefused: a frozen server carries it out once another driver has begun, which has raised the version of the services'
// folder. An entry that is not there is removed by raising the version alone.
func TestALateRegistrationIsRefused(t *testing.T) {
	t.Parallel()
	s := shared.Use(t)
	expect.Each(t, registrations(), func(t *testing.T, r registration) {
		base := "/late-" + stdpath.Base(t.Name())
		p := startProxy(t, s.Endpoint)
		d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", base)})
		expect.NoError(t, d.Register(t.Context(), pod(0)))
		p.givenUp(t, opMulti, r.emptyTransactions, func(ctx context.Context) error { return r.call(ctx, d) })
		next := open(t, registry.Config{Cluster: "prod-1", Endpoint: s.Endpoint, Options: options("base", base)})
		expect.NoError(t, next.Deregister(t.Context(), pod(1)))
		p.release()
		stranger := pod(1)
		stranger.UID = "somebody else's"
		expect.NoError(t, d.FailOver(t.Context(), stranger)) // it comes after what is still under way for the entry
		entries, err := next.List(t.Context(), "prod-1")
		if err != nil || len(entries) != 1 {
			t.Errorf("List gives %+v and error %v, want the first pod alone: the second was removed after its registration began", entries, err)
		}
	})
}

// TestOthersBegin while a call is made, more often than there are tries at an entry that somebody else keeps changing: each that begins is
// done with the folder, so the call succeeds.
func TestOthersBegin(t *testing.T) {
	t.Parallel()
	const base, others = "/begun", 40
	s, p := shared.Use(t), startProxy(t, shared.Use(t).Endpoint)
	anybody := connect(t, s.Endpoint)
	create(t, anybody, base, openACL())
	d := open(t, registry.Config{Cluster: "prod-1", Endpoint: p.endpoint, Options: options("base", base)})
	p.hold(opMulti)
	registered := make(chan error, 1)
	go func() { registered <- d.Register(t.Context(), pod(1)) }()
	for range others {
		select {
		case <-p.arrived:
		case err := <-registered:
			t.Fatalf("Register has ended while others begin: %v", err)
		}
		_, err := anybody.Set(base, nil, -1)
		expect.NoError(t, err)
		p.next(opMulti)
	}
	p.release()
	expect.NoError(t, <-registered)
}
