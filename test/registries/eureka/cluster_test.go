package eureka_test

import (
	"context"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{
		Start: func(ctx context.Context) (registries.Cluster, error) { return eureka.StartCluster(ctx) },
		Open: func(t testing.TB, addresses ...string) registry.Registry {
			return open(t, registry.Config{Endpoint: strings.Join(addresses, ",")})
		},
		AnyServes: true,
	}.Run(t)
}
