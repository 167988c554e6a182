package apiproxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestFence: what a manager sends between the kill's announcement and its end never arrives.
func TestFence(t *testing.T) {
	t.Parallel()
	var arrived []string
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { arrived = append(arrived, r.Method) }))
	t.Cleanup(api.Close)
	proxy, err := Start(t.Context(), &rest.Config{Host: api.URL}, nil)
	expect.NoError(t, err)
	t.Cleanup(proxy.Stop)
	patch := func(bound time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPatch, proxy.URL+"/api/v1/namespaces/a/pods/web-1", strings.NewReader("[]"))
		expect.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	expect.NoError(t, patch(time.Minute))
	proxy.Fence(true)
	if err := patch(100 * time.Millisecond); err == nil {
		t.Error("a write behind the fence was answered")
	}
	proxy.Fence(false)
	expect.NoError(t, patch(time.Minute))
	if want := []string{http.MethodPatch, http.MethodPatch}; !slices.Equal(arrived, want) {
		t.Errorf("%q arrived, want those before and after the fence", arrived)
	}
}
