package nacos_test

import (
	"testing"

	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{Start: nacos.StartCluster, New: driver.New}.Run(t)
}
