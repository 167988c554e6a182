package eureka_test

import (
	"testing"

	driver "github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{Start: eureka.StartCluster, New: driver.New, AnyServes: true, LeasesByClock: true, Reaches: true}.Run(t)
}
