package consul_test

import (
	"testing"

	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{Start: consul.StartCluster, New: driver.New}.Run(t)
}
