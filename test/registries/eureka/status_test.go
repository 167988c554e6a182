package eureka_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
)

// TestRegisterEndsUp has somebody else set each status there is in each way there is, before a pod is put in service.
func TestRegisterEndsUp(t *testing.T) {
	t.Parallel()
	server := uncached.Use(t)
	type row struct {
		reason string
		do     func(w *scene)
	}
	expect.Each(t, map[string]row{
		"nothing there":       {"the plain case", func(*scene) {}},
		"in service":          {"it is called again whenever its outcome is unknown", func(w *scene) { w.post("UP") }},
		"taken out by us":     {"an in-place update ends so", func(w *scene) { w.post("UP"); w.put("OUT_OF_SERVICE") }},
		"taken down":          {"any status can be an override", func(w *scene) { w.post("UP"); w.put("DOWN") }},
		"overridden with UP":  {"a person's way to put it back", func(w *scene) { w.post("UP"); w.put("OUT_OF_SERVICE"); w.put("UP") }},
		"posted out":          {"no override is there to be removed, and POST is not believed (#1398)", func(w *scene) { w.post("OUT_OF_SERVICE") }},
		"posted as starting":  {"a fail over was interrupted", func(w *scene) { w.post("STARTING") }},
		"posted as down":      {"the pod's own client, from before it was Rollcall's", func(w *scene) { w.post("DOWN") }},
		"status removed":      {"an override removed without a value leaves UNKNOWN (#955)", func(w *scene) { w.post("UP"); w.put("OUT_OF_SERVICE"); w.remove("") }},
		"removed with a down": {"an override can be removed with any value", func(w *scene) { w.post("UP"); w.put("OUT_OF_SERVICE"); w.remove("?value=DOWN") }},
		"override of an entry that went": {
			"overrides are kept by ID, and this one is left of another entry", func(w *scene) { w.leaveOverride("OUT_OF_SERVICE") },
		},
		"override DOWN of an entry that went": {"the same", func(w *scene) { w.leaveOverride("DOWN") }},
		"a clock ahead": {
			"what a client says of a later time beats what we say now",
			func(w *scene) { w.postAt(time.Now().Add(time.Hour)) },
		},
		"a clock ahead, and taken out": {"both at once", func(w *scene) { w.postAt(time.Now().Add(time.Hour)); w.put("OUT_OF_SERVICE") }},
	}, func(t *testing.T, tc row) {
		w := &scene{T: t, server: server, in: web(t, 1)}
		tc.do(w)
		d := open(t, configOf(t, server))
		for _, version := range []string{"v2", "v3"} {
			w.in.Metadata = map[string]string{"version": version}
			if err := d.Register(t.Context(), w.in); err != nil {
				t.Fatalf("Register: %v\nreason: %s", err, tc.reason)
			}
			w.expect("UP", tc.reason)
			if err := d.Heartbeat(t.Context(), w.in); err != nil {
				t.Errorf("Heartbeat: %v\nreason: %s", err, tc.reason)
			}
			w.expect("UP", tc.reason)
		}
	})
}

// TestALostEntryIsFailedOverUnseen looks at the entry after each request of the driver's.
func TestALostEntryIsFailedOverUnseen(t *testing.T) {
	t.Parallel()
	server := uncached.Use(t)
	type row struct {
		reason string
		do     func(w *scene)
	}
	expect.Each(t, map[string]row{
		"nothing there":              {"the server was restarted, or has evicted it", func(*scene) {}},
		"override UP of one before":  {"a left-over must not put it in service", func(w *scene) { w.leaveOverride("UP") }},
		"override out of one before": {"nothing is overridden", func(w *scene) { w.leaveOverride("OUT_OF_SERVICE") }},
	}, func(t *testing.T, tc row) {
		in := web(t, 1)
		w := &scene{T: t, server: server, in: in}
		tc.do(w)
		seen := &seen{scene: w}
		d := open(t, after(t, configOf(t, server), func(*http.Request) { seen.look() }))
		expect.NoError(t, d.FailOver(t.Context(), in))
		w.expect("STARTING", tc.reason)
		if got := seen.statuses(); len(got) < 3 || strings.Contains(strings.Join(got, " "), "UP") {
			t.Errorf("after each request the status was %q, want never UP\nreason: %s", got, tc.reason)
		}
		expect.NoError(t, errors.Join(d.Heartbeat(t.Context(), in), d.FailOver(t.Context(), in)))
		w.expect("STARTING", tc.reason)
		expect.NoError(t, d.Register(t.Context(), in))
		w.expect("UP", "it must come back, whatever was there")
	})
}

// TestWhatHasExpiredIsFound is on a server that has not come to evict what has no lease any more: it denies the entry and
// goes on to give it to clients.
func TestWhatHasExpiredIsFound(t *testing.T) {
	t.Parallel()
	server := cached.Use(t)
	short := configOf(t, server)
	short.Options = options(server, 1, 22)
	const another = "the entry is of the pod that has the address now, expired or not"
	type row struct {
		reason string
		uid    string // of the pod that the call is for; "": it is the entry's
		call   func(registry.Registry, context.Context, registry.Instance) error
		want   string // "": absent
	}
	expect.Each(t, map[string]row{
		"Deregister":                {"clients were sent there until the eviction, minutes later", "", registry.Registry.Deregister, ""},
		"FailOver":                  {"the pod is updated while clients are sent there", "", registry.Registry.FailOver, "STARTING"},
		"Register":                  {"the lease begins anew", "", registry.Registry.Register, "UP"},
		"Deregister of another pod": {another, "other", registry.Registry.Deregister, "UP"},
		"FailOver of another pod":   {another, "other", registry.Registry.FailOver, "UP"},
	}, func(t *testing.T, tc row) {
		in := web(t, 1)
		expect.NoError(t, open(t, short).Register(t.Context(), in))
		d := open(t, configOf(t, server))
		expect.Becomes(t, "the lease has ended", func() bool {
			_, err := server.Do(t.Context(), http.MethodGet, pathOf(in), nil)
			return err != nil && strings.Contains(err.Error(), "404")
		})
		if got := statusOf(t, server, in); got != "UP" {
			t.Fatalf("the server gives it to clients with status %q, want UP: this test needs it to", got)
		}
		expect.Code(t, registry.CodeNotRegistered, d.Heartbeat(t.Context(), in), "Heartbeat")
		asking := in
		asking.UID = cmp.Or(tc.uid, in.UID)
		expect.NoError(t, tc.call(d, t.Context(), asking))
		expect.Equal(t, tc.want, statusOf(t, server, in), "clients get it with status: %s", tc.reason)
	})
}

// TestTakenOutStaysOut has a renewal that is on its way put the status back that FailOver has just overridden for an application, which
// renews its entry whenever it likes. Here the override is removed at that moment.
func TestTakenOutStaysOut(t *testing.T) {
	t.Parallel()
	server := uncached.Use(t)
	for times, want := range []string{"OUT_OF_SERVICE", "OUT_OF_SERVICE", "UP"} {
		t.Run(fmt.Sprintf("%d times", times), func(t *testing.T) {
			t.Parallel()
			w := &scene{T: t, server: server, in: web(t, 1)}
			left := times
			cfg := after(t, configOf(t, server), func(r *http.Request) {
				if left > 0 && strings.HasSuffix(r.URL.RequestURI(), "/status?value=OUT_OF_SERVICE") {
					left--
					w.remove("?value=UP")
				}
			})
			w.post("UP")
			if err := open(t, cfg).AppEntries().FailOver(t.Context(), w.in); (err == nil) != (want == "OUT_OF_SERVICE") {
				t.Errorf("FailOver: got error %v, and the status is to be %s", err, want)
			}
			expect.Equal(t, want, statusOf(t, server, w.in), "clients get it with status")
		})
	}
}

// scene is an entry that somebody else deals with.
type scene struct {
	*testing.T
	server *eureka.Server
	in     registry.Instance
}

func (w *scene) do(method, path, body string) {
	w.Helper()
	if _, err := w.server.Do(w.Context(), method, path, []byte(body)); err != nil {
		w.Fatal(err)
	}
}

func (w *scene) post(status string) { w.Helper(); w.postTo(w.in.Service, status, "") }
func (w *scene) put(status string) {
	w.Helper()
	w.do(http.MethodPut, pathOf(w.in)+"/status?value="+status, "")
}
func (w *scene) remove(query string) {
	w.Helper()
	w.do(http.MethodDelete, pathOf(w.in)+"/status"+query, "")
}

func (w *scene) postAt(dirty time.Time) {
	w.Helper()
	w.postTo(w.in.Service, "UP", fmt.Sprintf(`,"lastDirtyTimestamp":"%d"`, dirty.UnixMilli()))
}

// postTo registers an instance as its own client would, with the ID that Rollcall gives it.
func (w *scene) postTo(app, status, more string) {
	w.Helper()
	id, err := json.Marshal(w.in.Endpoint() + ":" + w.in.Service)
	expect.NoError(w, err)
	w.do(http.MethodPost, "/apps/"+url.PathEscape(app), fmt.Sprintf(`{"instance":{"instanceId":%s,"app":%q,"vipAddress":%q,
		"hostName":%q,"ipAddr":%q,"status":%q,"port":{"$":%d,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},
		"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},
		"leaseInfo":{"renewalIntervalInSecs":30,"durationInSecs":3600},"metadata":{"version":"v1"}%s}}`,
		id, app, w.in.Service, w.in.Address, w.in.Address, status, w.in.Port, more))
}

// leaveOverride makes an override that is kept although there is no such entry, by one of the same ID elsewhere.
func (w *scene) leaveOverride(status string) {
	w.Helper()
	elsewhere := "elsewhere-" + w.in.Service
	first := "STARTING"
	w.postTo(elsewhere, first, "")
	w.do(http.MethodPut, "/apps/"+elsewhere+"/"+url.PathEscape(w.in.Endpoint()+":"+w.in.Service)+"/status?value="+status, "")
}

// expect holds the entry against what the contract wants, as clients see it.
func (w *scene) expect(status, reason string) {
	w.Helper()
	got, err := w.read()
	expect.NoError(w, err)
	if got == nil {
		w.Fatalf("there is no entry, want status %s\nreason: %s", status, reason)
	}
	if got.Status != status || got.Metadata[registry.MetaUID] != w.in.UID || got.Metadata["version"] != w.in.Metadata["version"] {
		w.Errorf("got status %s of pod %q, version %q; want %s of %q, %q\nreason: %s", got.Status,
			got.Metadata[registry.MetaUID], got.Metadata["version"], status, w.in.UID, w.in.Metadata["version"], reason)
	}
}

// read returns the entry as clients see it, nil where there is none.
func (w *scene) read() (*instance, error) {
	all, err := everything(w.Context(), w.server)
	for _, i := range all {
		if i.ID == w.in.Endpoint()+":"+w.in.Service && i.VIP == w.in.Service && strings.EqualFold(i.App, w.in.Service) {
			return &i, err
		}
	}
	return nil, err
}

// seen is what clients could see of an entry after each request.
type seen struct {
	scene *scene
	mu    sync.Mutex
	all   []string
}

func (s *seen) look() {
	got, err := s.scene.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.all = append(s.all, err.Error())
	case got == nil:
		s.all = append(s.all, "absent")
	default:
		s.all = append(s.all, got.Status)
	}
}

func (s *seen) statuses() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// after is the configuration with a proxy before the server, which does something after each request.
func after(t *testing.T, cfg registry.Config, do func(*http.Request)) registry.Config {
	t.Helper()
	proxy := drivertest.Through(t, strings.TrimSuffix(cfg.Endpoint, "/eureka"))
	cfg.Endpoint = drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		proxy.ServeHTTP(w, r)
		do(r)
	}) + "/eureka"
	return cfg
}

// statusOf is what clients get of an entry, "" where it is absent.
func statusOf(t *testing.T, server *eureka.Server, in registry.Instance) string {
	t.Helper()
	got, err := (&scene{T: t, server: server, in: in}).read()
	expect.NoError(t, err)
	if got == nil {
		return ""
	}
	return got.Status
}
