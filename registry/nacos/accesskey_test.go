package nacos_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
)

// TestRefusedAccessKeyIsNamed; that signatures are right is proven in test/registries/nacos.
func TestRefusedAccessKeyIsNamed(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v1")
	f.first = func(w http.ResponseWriter, path string, form url.Values) bool {
		if strings.HasSuffix(path, "/state") {
			return false
		}
		if form.Get("ak") != "rollcall" || form.Get("signature") == "" {
			t.Errorf("%s is not signed: %v", path, form)
		}
		f.page(w, http.StatusForbidden, "sign check failed")
		return true
	}
	cfg := withUser(t, f.URL)
	cfg.Options = []byte(`{"login":"accessKey"}`)
	err := open(t, cfg).Register(t.Context(), drivertest.Pod(1))
	if field, _ := registry.FieldOf(err); !registry.IsTerminal(err) || field != "auth.username" || !strings.Contains(err.Error(), "sign check failed") {
		t.Errorf("got error %v of field %q, want a terminal one of auth.username with the server's words", err, field)
	}
	for _, asked := range f.requests() {
		if strings.Contains(asked, "/login") || strings.Contains(asked, "S3cret") {
			t.Errorf("the secret key was sent: %s", asked)
		}
	}
}
