package nacos_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func withUser(t *testing.T, endpoint string) registry.Config {
	t.Helper()
	return registry.Config{
		Endpoint: endpoint,
		Auth:     registry.Auth{Username: "rollcall", PasswordFile: drivertest.File(t, "S3cret&=%+\n")},
	}
}

// Whatever a server says, no error tells a secret.
func TestErrorsHaveNoSecrets(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]int{"refused": 403, "failed": 500, "unfit": 400, "unknown": 404}, func(t *testing.T, status int) {
		f := newFake(t, "v3")
		f.meddle(func(w http.ResponseWriter, path string, form url.Values) bool {
			if strings.HasSuffix(path, "/state") {
				return false
			}
			if strings.HasSuffix(path, "/login") && status != 403 && status != 404 {
				return false
			}
			said := "you sent " + form.Encode() + " S3cret&=%+"
			if !strings.HasSuffix(path, "/login") {
				said += " a-token"
			}
			f.page(w, status, said)
			return true
		})
		err := open(t, withUser(t, f.URL)).Register(t.Context(), drivertest.Pod(1))
		if err == nil || strings.Contains(err.Error(), "S3cret") || strings.Contains(err.Error(), "a-token") {
			t.Errorf("got error %v, want one without secrets", err)
		}
		for _, asked := range f.requests() {
			if strings.Contains(asked, "a-token") || strings.Contains(asked, "S3cret") && !strings.Contains(asked, "/login ") {
				t.Errorf("a secret stands in the parameters of %s", asked)
			}
		}
	})
}

// A change that is not answered in time may still be made there: it is not made elsewhere, and the error tells. The next
// call begins elsewhere.
func TestUnansweredChangeIsNotMadeElsewhere(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(http.ResponseWriter, *http.Request){
		"silence":          func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"a proxy's answer": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGatewayTimeout) },
		"a proxy's other":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"a cut connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	}, func(t *testing.T, trouble func(http.ResponseWriter, *http.Request)) {
		f, second := newFake(t, "v3"), newFake(t, "v3")
		slow := drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/instance") {
				_ = r.ParseForm() // so that the server sees the client go
				trouble(w, r)
				return
			}
			f.ServeHTTP(w, r)
		})
		d := at(t, slow+","+second.URL, `{}`)
		ctx := drivertest.Within(t, time.Second)
		err := d.Register(ctx, drivertest.Pod(1))
		drivertest.Passes(t, "it may still be made", err, "")
		expect.Equal(t, true, drivertest.MayLand(err), "the error %v is of a change that may still be made", err)
		if asked := second.requests(); len(asked) != 0 {
			t.Errorf("the second address was asked %q", asked)
		}
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		if asked := second.requests(); len(asked) == 0 {
			t.Error("the next call did not begin at the second address")
		}
	})
}
