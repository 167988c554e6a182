package nacos_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{Start: nacos.StartCluster, New: driver.New, Lags: true}.Run(t)
}

// TestEphemeralInACluster: another server is responsible for each address, and all are to give it to their clients, or none.
func TestEphemeralInACluster(t *testing.T) {
	t.Parallel()
	const pods = 6 // at each of three servers with all but certainty
	cluster, err := nacos.StartCluster(t.Context())
	registries.Check(t, err)
	t.Cleanup(cluster.Stop)
	var addresses []string
	for _, m := range cluster.Members() {
		addresses = append(addresses, m.Address())
	}
	d := open(t, config(t, strings.Join(addresses, ","), "", driver.Options{Ephemeral: true}))
	each := func(do func(in registry.Instance) error) {
		t.Helper()
		for n := range pods {
			expect.NoError(t, do(drivertest.Pod(n)))
		}
	}
	given := func(count int) {
		t.Helper()
		for i, m := range cluster.Members() {
			expect.Soon(t, fmt.Sprintf("server %d gives %d pods", i, count), func() error {
				given, err := m.Read(t.Context(), drivertest.Pod(0).Service)
				if err == nil && len(given) != count {
					err = fmt.Errorf("it gives %v", slices.Sorted(slices.Values(given)))
				}
				return err
			})
		}
	}
	each(func(in registry.Instance) error { return d.Register(t.Context(), in) })
	given(pods)
	renew := func(in registry.Instance) error {
		err := d.Heartbeat(t.Context(), in)
		if registry.CodeOf(err) == registry.CodeNotRegistered { // a lease has ended by a clock that has jumped
			err = d.Register(t.Context(), in)
		}
		return err
	}
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		expect.NoError(t, cluster.Members()[0].SetClock(ahead))
		each(renew)
		given(pods)
	}
	expect.NoError(t, cluster.Members()[0].SetClock(0))
	each(func(in registry.Instance) error { return d.FailOver(t.Context(), in) })
	given(0)
	each(func(in registry.Instance) error { return d.Register(t.Context(), in) })
	given(pods)
	each(func(in registry.Instance) error { return d.Deregister(t.Context(), in) })
	given(0)
}
