package zookeeper_test

import (
	"testing"

	driver "github.com/rollcall-dev/rollcall/registry/zookeeper"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries/zookeeper"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{Start: zookeeper.StartCluster, New: driver.New, Fences: true, FencesOthers: true}.Run(t)
}
