package nacos_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

// TestAccessKeySigns has a driver with an access key work on a real server, behind a gate that takes the place of Alibaba
// Cloud's: Nacos itself knows no access keys. Nacos' own Go client then says what each signature is to be.
func TestAccessKeySigns(t *testing.T) {
	t.Parallel()
	const id, secret = "an-access-key", "a secret+key/ü="
	onEach(t, driver.Options{Group: "SHOP", Login: "accessKey"}, func(s *scenario) {
		var mu sync.Mutex
		signed := map[string]string{} // by what was signed
		server := drivertest.Through(s.T, s.server.Endpoint)
		front := drivertest.Serve(s, func(w http.ResponseWriter, r *http.Request) {
			form := parameters(r)
			if token, err := s.server.Login(r.Context(), nacos.Admin, password); err == nil {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			if !strings.HasSuffix(r.URL.Path, "/state") {
				if form.Get("ak") != id {
					s.Errorf("%s %s: got parameters %v, want the access key", r.Method, r.URL.Path, form)
				}
				mu.Lock()
				signed[form.Get("data")] = form.Get("signature")
				mu.Unlock()
			}
			server.ServeHTTP(w, r)
		})
		cfg := config(s, front, "", s.opts)
		cfg.Auth = registry.Auth{Username: id, PasswordFile: drivertest.File(s, secret+"\n")}
		d := open(s, cfg)
		s.do(d.Register, s.pod(1))
		s.do(d.FailOver, s.pod(1))
		entries, err := d.List(s.Context(), "test")
		expect.NoError(s, err)
		expect.Equal(s, []registry.Entry{{Instance: s.pod(1), State: registry.OutOfService}}, entries, "entries")
		s.do(d.Deregister, s.pod(1))

		var kinds []string
		for data, got := range signed {
			want, err := nacos.Sign(s.Context(), id, secret, data, "SHOP", s.service)
			expect.NoError(s, err)
			millis, of, _ := strings.Cut(data, "@@")
			_, theirs, _ := strings.Cut(want.Added["data"], "@@")
			at, err := strconv.ParseInt(millis, 10, 64)
			if got != want.Signature || of != "" && of != theirs || err != nil || time.Since(time.UnixMilli(at)).Abs() > bound {
				s.Errorf("signed %q as %q; Nacos' client signs %q, and that as %q", data, got, want.Added["data"], want.Signature)
			}
			for name := range want.Added {
				if !slices.Contains([]string{"ak", "data", "signature"}, name) {
					s.Errorf("Nacos' client adds %s, which the driver does not", name)
				}
			}
			kinds = append(kinds, strconv.FormatBool(of != ""))
		}
		if slices.Sort(kinds); len(slices.Compact(kinds)) != 2 {
			s.Errorf("got signatures of %v, want some of the service and some of none", signed)
		}
	})
}

// parameters are those of the query and the body, which stays there for others.
func parameters(r *http.Request) url.Values {
	raw, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(raw))
	all, _ := url.ParseQuery(string(raw))
	maps.Copy(all, r.URL.Query())
	return all
}
