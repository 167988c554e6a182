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
	"github.com/rollcall-dev/rollcall/test/harness/expect"
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
	drivertest.Refused(t, "the key is wrong", open(t, cfg).Register(t.Context(), drivertest.Pod(1)), "auth.username", "sign check failed")
	for _, asked := range f.requests() {
		if strings.Contains(asked, "/login") || strings.Contains(asked, "S3cret") {
			t.Errorf("the secret key was sent: %s", asked)
		}
	}
}

// TestTemporaryCredentialsSign has credentials as STS gives them, in either form.
func TestTemporaryCredentialsSign(t *testing.T) {
	t.Parallel()
	const key = `"AccessKeyId": "STS.id", "AccessKeySecret": "S3cret", "SecurityToken": "t0ken", "Expiration": "2026-01-31T12:00:00Z"`
	expect.Each(t, map[string]string{
		"of a server's metadata": "{\n  " + key + `, "Code": "Success"}`, "of AssumeRole": `{"RequestId": "1", "Credentials": {` + key + `}}`,
	}, func(t *testing.T, file string) {
		refuses := false
		server := drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/state") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			_ = r.ParseForm()
			if r.Form.Get("ak") != "STS.id" || r.Form.Get("signatureVersion") != "v4" || r.Header.Get("Spas-Securitytoken") != "t0ken" {
				t.Errorf("%s is not signed: %v, %v", r.URL.Path, r.Form, r.Header)
			}
			if strings.Contains(r.URL.String(), "t0ken") {
				t.Errorf("the token is in the URL %s", r.URL)
			}
			if refuses {
				w.WriteHeader(http.StatusForbidden)
				_, _ = w.Write([]byte("SignatureDoesNotMatch t0ken"))
				return
			}
			_, _ = w.Write([]byte("[]"))
		})
		d := open(t, registry.Config{
			Endpoint: server, Auth: registry.Auth{TokenFile: drivertest.File(t, file)},
			Options: []byte(`{"login":"sts","signatureRegionId":"cn-hangzhou"}`),
		})
		_, err := d.List(t.Context(), "test")
		expect.NoError(t, err)
		refuses = true
		_, err = d.List(t.Context(), "test")
		field, _ := registry.FieldOf(err)
		if field != "auth.tokenFile" || !strings.Contains(err.Error(), "2026-01-31T12:00:00Z") || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("got error %v of field %q, want one of auth.tokenFile with the end of the token, and not the token", err, field)
		}
	})
}

func TestUnfitCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	file := func(text string) registry.Auth { return registry.Auth{TokenFile: drivertest.File(t, text)} }
	expect.Each(t, map[string]struct {
		reason, options string
		auth            registry.Auth
		field           string
	}{
		"sts without a file":     {"there is nothing to sign with", `{"login":"sts"}`, registry.Auth{}, "auth.tokenFile"},
		"sts with a bare token":  {"its key is missing", `{"login":"sts"}`, file("t0ken"), "auth.tokenFile"},
		"sts with half of it":    {"its token is missing", `{"login":"sts"}`, file(`{"AccessKeyId":"a","AccessKeySecret":"b"}`), "auth.tokenFile"},
		"a token for a password": {"it is of no use", `{}`, file("t0ken"), "auth.tokenFile"},
		"a region for nothing":   {"nothing is signed", `{"signatureRegionId":"cn-hangzhou"}`, registry.Auth{}, "options.signatureRegionId"},
	}, func(t *testing.T, tc struct {
		reason, options string
		auth            registry.Auth
		field           string
	}) {
		_, err := nacos.New(t.Context(), registry.Config{Endpoint: "http://127.0.0.1:1", Options: []byte(tc.options), Auth: tc.auth})
		if field, _ := registry.FieldOf(err); field != tc.field {
			t.Errorf("got error %v of field %q, want one of %q: %s", err, field, tc.field, tc.reason)
		}
	})
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
