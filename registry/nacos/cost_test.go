package nacos_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestNoCallReadsTheWholeService, however many other instances it has: many pods of one service are called together.
func TestNoCallReadsTheWholeService(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v3"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			f, in := newFake(t, version), drivertest.Pod(1)
			d := atVersion(t, f, version)
			get := func(get func(context.Context, registry.Instance) (registry.State, error)) call {
				return func(ctx context.Context, in registry.Instance) error { _, err := get(ctx, in); return err }
			}
			for _, do := range []call{d.Register, get(d.Get), d.FailOver, d.Deregister} {
				expect.NoError(t, do(t.Context(), in))
			}
			f.registersItself(in, true)
			apps := d.AppEntries()
			for _, do := range []call{apps.FailOver, get(apps.Get), apps.Register, apps.Deregister} {
				expect.NoError(t, do(t.Context(), in))
			}
			for _, asked := range f.requests() {
				// v1 does not tell of a single instance whether clients are given it.
				lists := strings.Contains(asked, "/catalog/") || strings.Contains(asked, "/list ")
				if lists && !(version == "v1" && strings.HasPrefix(asked, "GET /v1/ns/instance/list ")) {
					t.Errorf("asked %s, want no list of the service", asked)
				}
			}
		})
	}
}

// TestAListIsReadOnceForAll who ask at that moment, by the exact name of the service.
func TestAListIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	const pods = 40
	f := newFake(t, "v1")
	for pod := range pods {
		f.registersItself(drivertest.Pod(pod), true)
	}
	synctest.Test(t, func(t *testing.T) {
		var lists atomic.Int64
		const list = "/v1/ns/instance/list"
		d := open(t, registry.Config{Endpoint: f.URL, Outgoing: func(ctx context.Context, asked *url.URL) map[string]string {
			if strings.HasSuffix(asked.Path, list) {
				lists.Add(1)
				expect.Equal(t, "DEFAULT_GROUP@@web", asked.Query().Get("serviceName"), "the service's name")
			}
			return drivertest.Slow(list)(ctx, asked)
		}})
		var all sync.WaitGroup
		for pod := range pods {
			all.Go(func() {
				state, err := d.AppEntries().Get(t.Context(), drivertest.Pod(pod))
				if err != nil || state != registry.InService {
					t.Errorf("Get: got %q and error %v, want %q", state, err, registry.InService)
				}
			})
		}
		all.Wait()
		if asked := lists.Load(); asked == 0 || asked > 2 {
			t.Errorf("%d calls read %d lists, want at most 2: one that is under way, and one for all that came meanwhile", pods, asked)
		}
	})
}
