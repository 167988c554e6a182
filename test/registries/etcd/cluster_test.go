package etcd_test

import (
	"testing"

	driver "github.com/rollcall-dev/rollcall/registry/etcd"
	"github.com/rollcall-dev/rollcall/test/harness/clustertest"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	clustertest.Suite{Start: etcd.StartCluster, New: driver.New, Fences: true, FencesOthers: true}.Run(t)
}
