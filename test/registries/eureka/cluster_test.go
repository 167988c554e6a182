package eureka_test

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{
		Start: eureka.StartCluster,
		Open: func(t testing.TB, addresses ...string) registry.Registry {
			return open(t, registry.Config{Endpoint: strings.Join(addresses, ",")})
		},
		AnyServes: true,
	}.Run(t)
}
