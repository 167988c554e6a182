package eureka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

// app is an application that registers itself by the requests of Netflix' client.
type app struct {
	testing.TB
	server *eureka.Server
	at     registry.Instance

	id, status string
	port       string // as JSON: the fields that tell of ports
	dirty      int64  // when its client last had something new to tell, in ms
	lease      int    // in seconds
	meta       map[string]string
}

func newApp(t testing.TB, server *eureka.Server, at registry.Instance) *app {
	t.Helper()
	a := appOf(t, server, at)
	t.Cleanup(a.Deregister)
	return a
}

func appOf(t testing.TB, server *eureka.Server, at registry.Instance) *app {
	return &app{
		TB: t, server: server, at: at, status: "UP", dirty: time.Now().UnixMilli(), lease: 3600,
		meta: map[string]string{"management.port": "8081"},
		id:   fmt.Sprintf("%s.shop:%s:%s", at.Pod, at.Service, at.Endpoint()),
		port: fmt.Sprintf(`"port":{"$":%d,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"}`, at.Port),
	}
}

func (a *app) path() string { return "/apps/" + strings.ToUpper(a.at.Service) }

// Register makes the request, and returns when readers are given the answer by the server's cache.
func (a *app) Register() {
	a.Helper()
	a.post()
	a.await(true)
}

func (a *app) post() {
	a.Helper()
	a.do(http.MethodPost, a.path(), a.document())
}

func (a *app) document() string {
	meta, err := json.Marshal(a.meta)
	expect.NoError(a, err)
	return fmt.Sprintf(`{"instance":{"instanceId":%q,"app":%q,"vipAddress":%q,
		"hostName":"%s.shop","ipAddr":%q,"status":%q,%s,"lastDirtyTimestamp":"%d",
		"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},
		"leaseInfo":{"renewalIntervalInSecs":30,"durationInSecs":%d},"metadata":%s}}`,
		a.id, strings.ToUpper(a.at.Service), a.at.Service, a.at.Pod, a.at.Address, a.status, a.port, a.dirty, a.lease, meta)
}

// bare makes the requests of an application's client, and nothing else.
func bare(t testing.TB, server *eureka.Server) registrytest.Bare {
	client := registries.Client{
		URL: server.Endpoint, HTTP: &http.Client{Transport: &http.Transport{}},
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/json"}},
	}
	call := func(method, query string) func(context.Context, registry.Instance) error {
		return func(ctx context.Context, in registry.Instance) error {
			a := appOf(t, server, in)
			a.meta = in.Meta()
			path, body := a.path(), ""
			if method == http.MethodPost {
				body = a.document()
			} else {
				path += "/" + url.PathEscape(a.id)
			}
			_, err := client.Do(ctx, method, path+query, []byte(body))
			if registries.IsNotFound(err) {
				err = nil
			}
			return err
		}
	}
	return registrytest.Bare{
		Register: call(http.MethodPost, ""), FailOver: call(http.MethodPut, "/status?value=OUT_OF_SERVICE"),
		Deregister: call(http.MethodDelete, ""), Get: call(http.MethodGet, ""),
	}
}

// Renew sends the heartbeat, with the client's own status, and registers once more, as the client does where the server does not
// know it.
func (a *app) Renew() {
	a.Helper()
	a.do(http.MethodPut, fmt.Sprintf("%s/%s?status=%s&lastDirtyTimestamp=%d", a.path(), url.PathEscape(a.id), a.status, a.dirty), "")
	a.post()
}

// say changes what the application says of itself.
func (a *app) say(status string) {
	a.Helper()
	a.status = status
	a.dirty++
	a.post()
}

func (a *app) Deregister() {
	a.Helper()
	path := a.path() + "/" + url.PathEscape(a.id)
	if _, err := a.server.Do(context.WithoutCancel(a.Context()), http.MethodDelete, path, nil); err != nil && !registries.IsNotFound(err) {
		a.Fatalf("the application: %v", err)
	}
}

// Look leaves out of the entry what says whether clients are given it.
func (a *app) Look() (given bool, entry string) {
	a.Helper()
	all, err := everything(a.Context(), a.server)
	expect.NoError(a, err)
	for _, i := range all {
		if i.ID == a.id && i.App == strings.ToUpper(a.at.Service) {
			given = i.Status == "UP"
			i.Status, i.OverriddenStatus, i.Action = "", "", ""
			return given, fmt.Sprintf("%+v", i)
		}
	}
	return false, ""
}

// await waits until the server's caches show the entry, or don't.
func (a *app) await(there bool) {
	a.Helper()
	expect.Becomes(a, fmt.Sprintf("the server's cache to show the entry of %s: %t", a.id, there), func() bool {
		raw, err := a.server.Do(a.Context(), http.MethodGet, a.path(), nil)
		return there == (err == nil && strings.Contains(string(raw), a.id))
	})
}

func (a *app) do(method, path, body string) {
	a.Helper()
	_, err := a.server.Do(a.Context(), method, path, []byte(body))
	expect.NoError(a, err)
}

// TestAppEntryIsFoundPastTheCache is on a server whose cache is a second old.
func TestAppEntryIsFoundPastTheCache(t *testing.T) {
	t.Parallel()
	server := cached.Use(t)
	a := newApp(t, server, web(t, 1))
	a.await(false) // which the cache keeps
	a.id = fmt.Sprintf("%s:%s:%d", a.at.Pod, a.at.Service, a.at.Port)
	a.post()
	expect.NoError(t, open(t, configOf(t, server)).AppEntries().FailOver(t.Context(), a.at))
	a.is(false)
}

// TestAppEntryWhoseLeaseHasEnded is on a server that goes on to list what has no lease.
func TestAppEntryWhoseLeaseHasEnded(t *testing.T) {
	t.Parallel()
	server := cached.Use(t)
	a := newApp(t, server, web(t, 1))
	a.lease = 3
	a.Register()
	expect.Becomes(t, "the lease to end", func() bool { return !a.isShown() })
	apps := open(t, configOf(t, server)).AppEntries()
	for range 2 { // the first would bring it to light for the second
		state, err := apps.Get(t.Context(), a.at)
		expect.NoError(t, err)
		if state != registry.InService {
			t.Errorf("got state %s, want %s: clients are given it", state, registry.InService)
		}
		expect.Code(t, registry.CodeNotRegistered, apps.Register(t.Context(), a.at), "Register: the application is dead")
	}
	if a.isShown() {
		t.Error("the entry's lease was renewed, and it is its application's to renew")
	}
	expect.NoError(t, apps.FailOver(t.Context(), a.at))
	a.is(false)
}

// isShown reports whether the registry itself has the entry, past the caches.
func (a *app) isShown() bool {
	a.Helper()
	_, err := a.server.Do(a.Context(), http.MethodGet, a.path()+"/"+url.PathEscape(a.id), nil)
	if err != nil && !registries.IsNotFound(err) {
		a.Fatalf("reading Eureka: %v", err)
	}
	return err == nil
}

// TestAppThatIsNotUp has an application say so itself, in each way there is.
func TestAppThatIsNotUp(t *testing.T) {
	t.Parallel()
	server := uncached.Use(t)
	type row struct {
		reason string
		do     func(a *app, apps registry.AppRegistry)
		want   string // "": it is put back
	}
	expect.Each(t, map[string]row{
		"starting":      {"its client registers before the application serves", func(a *app, _ registry.AppRegistry) { a.say("STARTING") }, "STARTING"},
		"unhealthy":     {"its health check failed", func(a *app, _ registry.AppRegistry) { a.say("DOWN") }, "DOWN"},
		"out by itself": {"it has registered so, and no override holds it", func(a *app, _ registry.AppRegistry) { a.Deregister(); a.say("OUT_OF_SERVICE") }, "OUT_OF_SERVICE"},
		"unhealthy while it is out": {"its word is believed before the override", func(a *app, apps registry.AppRegistry) {
			expect.NoError(a, apps.FailOver(a.Context(), a.at))
			a.say("DOWN")
		}, "DOWN"},
		"healthy again while it is out": {"the override is all that holds it", func(a *app, apps registry.AppRegistry) {
			expect.NoError(a, apps.FailOver(a.Context(), a.at))
			a.say("DOWN")
			a.say("UP")
			a.is(false)
		}, ""},
		"taken out before it is up": {"it may say UP at any time", func(a *app, apps registry.AppRegistry) {
			a.say("STARTING")
			expect.NoError(a, apps.FailOver(a.Context(), a.at))
			a.say("UP")
			a.is(false)
		}, ""},
		"taken out by a person": {"Rollcall knows no other override than its own", func(a *app, _ registry.AppRegistry) {
			a.do(http.MethodPut, a.path()+"/"+url.PathEscape(a.id)+"/status?value=DOWN", "")
		}, ""},
	}, func(t *testing.T, tc row) {
		a := newApp(t, server, web(t, 1))
		a.Register()
		apps := open(t, configOf(t, server)).AppEntries()
		tc.do(a, apps)
		err := apps.Register(t.Context(), a.at)
		if (registry.CodeOf(err) == registry.CodeNotRegistered) != (tc.want != "") {
			t.Errorf("Register: got error %v, want one that says not registered: %t\nreason: %s", err, tc.want != "", tc.reason)
		}
		expect.Error(t, tc.reason, err, tc.want)
		a.is(tc.want == "")
	})
}

func (a *app) is(given bool) {
	a.Helper()
	if got, entry := a.Look(); got != given {
		a.Fatalf("clients are given the application's entry: %t, want %t: %s", got, given, entry)
	}
}
