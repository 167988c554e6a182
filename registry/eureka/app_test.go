package eureka_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAppEntryRequests has Rollcall's own entry beside the application's, which is of another form and at its secure port.
func TestAppEntryRequests(t *testing.T) {
	t.Parallel()
	in := web(1)
	in.Address = "fd00::1"
	const app, id = "/apps/SHOP%20WEB", "/apps/SHOP%20WEB/web-1.shop:web"
	type row struct {
		reason     string
		status     string
		overridden string
		call       func(apps registry.AppRegistry) error
		want       []string
		wantErr    string
	}
	expect.Each(t, map[string]row{
		"taken out": {
			reason: "Rollcall's own entry is not the application's", status: "UP", overridden: "UNKNOWN",
			call: func(apps registry.AppRegistry) error { return apps.FailOver(t.Context(), in) },
			want: []string{"GET " + app, "GET " + id, "PUT " + id + "/status?value=OUT_OF_SERVICE", "GET " + id},
		},
		"taken out already": {
			reason: "nothing is to be changed", status: "OUT_OF_SERVICE", overridden: "OUT_OF_SERVICE",
			call: func(apps registry.AppRegistry) error { return apps.Deregister(t.Context(), in) },
			want: []string{"GET " + app, "GET " + id},
		},
		"put back": {
			reason: "without the value the status would be UNKNOWN", status: "OUT_OF_SERVICE", overridden: "OUT_OF_SERVICE",
			call:    func(apps registry.AppRegistry) error { return apps.Register(t.Context(), in) },
			want:    []string{"GET " + app, "GET " + id, "DELETE " + id + "/status?value=UP", "GET " + id},
			wantErr: `"web-1.shop:web" has status OUT_OF_SERVICE`, // this server does nothing
		},
	}, func(t *testing.T, tc row) {
		entry := strings.NewReplacer(`"fd00::1"`, `"fd00:0:0:0:0:0:0:1%eth0"`, `"[fd00::1]:80:Shop web"`, `"web-1.shop:web"`,
			`"port":{"$":80,"@enabled":"true"}`, `"port":{"$":8080,"@enabled":"false"},"securePort":{"$":80,"@enabled":"true"}`,
			`"status"`, `"overriddenStatus":"`+tc.overridden+`","status"`).Replace(entryOf(registry.Instance{
			Service: in.Service, Address: in.Address, Port: in.Port,
		}, tc.status))
		var overridden atomic.Bool
		server := newFake(t, func(r *http.Request) (int, string) {
			if r.Method == http.MethodPut {
				overridden.Store(true)
			}
			if overridden.Load() {
				return http.StatusOK, `{"instance":` + strings.Replace(entry, `"status":"UP"`, `"status":"OUT_OF_SERVICE"`, 1) + `}`
			}
			if strings.HasSuffix(r.URL.Path, "/SHOP WEB") {
				return http.StatusOK, `{"application":{"instance":[` + entryOf(in, "UP") + `,` + entry + `]}}`
			}
			return http.StatusOK, `{"instance":` + entry + `}`
		})
		err := tc.call(open(t, registry.Config{Endpoint: server.URL}).AppEntries())
		if (registry.CodeOf(err) == registry.CodeNotRegistered) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
			t.Errorf("got error %v, want one that says not registered and %q\nreason: %s", err, tc.wantErr, tc.reason)
		}
		expect.Equal(t, tc.want, server.requests(), "requests: %s", tc.reason)
	})
}

// TestAppEntryThatOnlyTheListHas is of one that the server's cache shows and the registry itself does not. A real server shows
// that one whose lease has ended is given to clients until it goes.
func TestAppEntryThatOnlyTheListHas(t *testing.T) {
	t.Parallel()
	in := web(1)
	type row struct {
		reason string
		ends   time.Duration // when the lease ends, by the list and from now
		status string
	}
	expect.Each(t, map[string]row{
		"out, and its lease has ended": {"clients drop what is not UP, so it does no harm until it goes", -time.Minute, "OUT_OF_SERVICE"},
		"gone":                         {"its lease goes on, so that only a removal can hide it: the list is old", time.Minute, "UP"},
	}, func(t *testing.T, tc row) {
		const duration = 90 * time.Second
		renewed := time.Now().Add(tc.ends - duration).UnixMilli()
		entry := strings.NewReplacer(`"`+in.Endpoint()+`:Shop web"`, `"web-1.shop:web"`, `"status"`, fmt.Sprintf(
			`"leaseInfo":{"durationInSecs":%.0f,"lastRenewalTimestamp":%d},"status"`, duration.Seconds(), renewed)).Replace(
			entryOf(registry.Instance{Service: in.Service, Address: in.Address, Port: in.Port}, tc.status))
		server := newFake(t, func(r *http.Request) (int, string) {
			switch {
			case r.Method != http.MethodGet:
				return http.StatusOK, ""
			case strings.HasSuffix(r.URL.Path, "/SHOP WEB"):
				return http.StatusOK, `{"application":{"instance":[` + entry + `]}}`
			}
			return http.StatusNotFound, ""
		})
		drivertest.Says(t, tc.reason, open(t, registry.Config{Endpoint: server.URL}).AppEntries(), in, registry.Absent)
		want := []string{"GET /apps/SHOP%20WEB", "GET /apps/SHOP%20WEB/web-1.shop:web", "HEAD /apps"}
		expect.Equal(t, want, server.requests(), "requests: %s", tc.reason)
	})
}

// TestAppEntryThatIsNotThere is looked for under the IDs that clients commonly make.
func TestAppEntryThatIsNotThere(t *testing.T) {
	t.Parallel()
	in := web(1)
	in.Service = "shop"
	server := newFake(t, func(r *http.Request) (int, string) {
		if r.Method == http.MethodHead {
			return http.StatusOK, ""
		}
		return http.StatusNotFound, ""
	})
	apps := open(t, registry.Config{Endpoint: server.URL}).AppEntries()
	err := apps.Register(t.Context(), in)
	const want = "no instance of SHOP at http"
	if registry.CodeOf(err) != registry.CodeNotRegistered || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "IP 10.0.0.1 and port 80") {
		t.Errorf("got error %v, want one that says not registered and %q", err, want)
	}
	expect.Equal(t, []string{
		"GET /apps/SHOP", "GET /apps/SHOP/web-1:shop:80", "GET /apps/SHOP/10.0.0.1:shop:80", "GET /apps/SHOP/10.0.0.1:80",
		"HEAD /apps",
	}, server.requests(), "requests")
	server.answer = status(http.StatusNotFound) // a proxy that has lost its route
	for call, err := range map[string]error{"Register": apps.Register(t.Context(), in), "FailOver": apps.FailOver(t.Context(), in)} {
		if field, _ := registry.FieldOf(err); field != "endpoint" {
			t.Errorf("%s: got error %v, want one of field endpoint", call, err)
		}
	}
}

// TestEntriesThatMayBeOne: an instance can have a plain and a secure port, and clients look names up in any case.
func TestEntriesThatMayBeOne(t *testing.T) {
	t.Parallel()
	matcher := open(t, registry.Config{Endpoint: "http://eureka.invalid"}).AppEntries().(registry.EntryMatcher)
	for want, change := range map[bool]func(*registry.Instance){
		true: func(in *registry.Instance) { in.Port, in.Service = 443, "SHOP WEB" }, false: func(in *registry.Instance) { in.Address = "10.0.0.2" },
	} {
		in, other := web(1), web(1)
		change(&other)
		expect.Equal(t, want, matcher.MayBeOne(in, other), "%s at %s, and %s at %s", in.Service, in.Endpoint(), other.Service, other.Endpoint())
	}
}
