package etcd_test

import (
	"context"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/etcd"
)

// shared is the server of all tests that don't restart it.
var shared = registries.Share(func(ctx context.Context) (*etcd.Server, error) { return etcd.Start(ctx, etcd.Options{}) })

func TestMain(m *testing.M) { registries.Main(m, shared) }
