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

func TestServers(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]etcd.Options{
		"plain": {}, "tls": {TLS: true}, "mutual": {ClientCertificates: true}, "auth": {RootPassword: "secret"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := registries.Use(t, func(ctx context.Context) (*etcd.Server, error) { return etcd.Start(ctx, opts) })
			s.Kill()
			if err := s.Restart(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestShared(t *testing.T) {
	t.Parallel()
	shared.Use(t)
}
