package zookeeper_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{
		Start: func(ctx context.Context) (registries.Cluster, error) { return zookeeper.StartCluster(ctx, 3) },
		Open: func(t testing.TB, addresses ...string) registry.Registry {
			return open(t, registry.Config{Endpoint: strings.Join(addresses, ",")})
		},
	}.Run(t)
}
