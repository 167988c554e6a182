package eureka_test

import (
	"net/http"
	"strings"
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

func TestAllPeersAwayTellsOfAll(t *testing.T) {
	t.Parallel()
	first, second := newFake(t, status(503)), newFake(t, status(500))
	d := open(t, registry.Config{Endpoint: first.URL + "/a," + second.URL + "/b"})
	for call, err := range calls(t, d, web(1)) {
		if err == nil || registry.IsTerminal(err) || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), first.URL+"/a answered 503") || !strings.Contains(err.Error(), second.URL+"/b answered 500") {
			t.Errorf("%s: got error %v, want one that passes, in one line, and tells of both", call, err)
		}
	}
}
