package eureka_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestACallIsMadeWholeElsewhere has a peer fail in the middle: what it has acknowledged is not yet known to the other.
func TestACallIsMadeWholeElsewhere(t *testing.T) {
	t.Parallel()
	in := web(1)
	first := newFake(t, func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet {
			return http.StatusServiceUnavailable, ""
		}
		return healthy(in)(r)
	})
	second := newFake(t, healthy(in))
	expect.NoError(t, open(t, registry.Config{Endpoint: first.URL + "," + second.URL}).Register(t.Context(), in))
	const app, id = "/apps/SHOP%20WEB", "/apps/SHOP%20WEB/10.0.0.1:80:Shop%20web"
	if diff := cmp.Diff([]string{"POST " + app, "GET " + id}, second.requests()); diff != "" {
		t.Errorf("requests at the second peer, -want +got:\n%s", diff)
	}
}
