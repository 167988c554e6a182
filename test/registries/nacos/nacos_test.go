package nacos_test

import (
	"testing"
	"time"

	"context"

	"github.com/rollcall-dev/rollcall/test/registries"
	"github.com/rollcall-dev/rollcall/test/registries/nacos"
)

func TestServers(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]nacos.Options{
		"2": {Version: nacos.V2, Password: "secret-1"}, "3": {Version: nacos.V3, Password: "secret-1"}, "3 open": {Version: nacos.V3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			s := registries.Use(t, func(ctx context.Context) (*nacos.Server, error) { return nacos.Start(ctx, opts) })
			t.Logf("started in %s", time.Since(start))
			start = time.Now()
			if err := s.Restart(t.Context()); err != nil {
				t.Error(err)
			}
			t.Logf("restarted in %s", time.Since(start))
		})
	}
}
