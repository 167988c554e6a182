package zookeeper_test

import (
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
