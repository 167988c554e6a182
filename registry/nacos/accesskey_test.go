package nacos_test

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/nacos"
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

// TestAccessKeyUnderFIPS: Go ends a process that signs with HMAC-SHA1 under fips140=only, so the driver refuses the option before.
func TestAccessKeyUnderFIPS(t *testing.T) {
	t.Parallel()
	const inside = "ROLLCALL_TEST_FIPS"
	if os.Getenv(inside) != "" {
		cfg := withUser(t, "http://127.0.0.1:1")
		cfg.Options = []byte(`{"login":"accessKey"}`)
		_, err := nacos.New(t.Context(), cfg)
		if field, _ := registry.FieldOf(err); field != "options.login" || !strings.Contains(err.Error(), "fips140=only does not allow") {
			t.Errorf("got error %v of field %q, want one of options.login that shows what to set", err, field)
		}
		return
	}
	itself := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAccessKeyUnderFIPS$")
	itself.Env = append(os.Environ(), inside+"=true", "GODEBUG=fips140=only")
	if out, err := itself.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
