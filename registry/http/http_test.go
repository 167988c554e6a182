package httpregistry_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func open(t *testing.T, cfg registry.Config) *httpregistry.Registry {
	t.Helper()
	return drivertest.Open[*httpregistry.Registry](t, httpregistry.New, cfg)
}

// answering makes a driver whose server gives one answer to everything.
func answering(t *testing.T, status int, body string) *httpregistry.Registry {
	t.Helper()
	return open(t, registry.Config{Endpoint: drivertest.Answering(t, status, nil, body)})
}

func TestErrorsHaveTheServersWords(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		body   string
		want   string // what follows the status
	}
	expect.Each(t, map[string]row{
		"documented form": {"it is there for this", `{"error":"service web is frozen","code":7}`, ": service web is frozen"},
		"other JSON":      {"better than nothing", `{"message":"frozen"}`, `: {"message":"frozen"}`},
		"text":            {"a proxy on the way answers so", "upstream down\n", ": upstream down"},
	}, func(t *testing.T, tc row) {
		err := answering(t, 422, tc.body).FailOver(t.Context(), drivertest.Pod(1))
		want := "taking out web at 10.0.0.1:80: the registry answered 422 Unprocessable Entity" + tc.want
		if err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s\nreason: %s", err, want, tc.reason)
		}
	})
}

// TestTheFieldsOfAnInstance: servers that others wrote read them. The document lets pass what it does not name.
func TestTheFieldsOfAnInstance(t *testing.T) {
	t.Parallel()
	in := drivertest.Pod(1)
	in.Weight, in.Zone, in.Tags, in.Metadata, in.Registry = 7, "a", []string{"v1"}, map[string]string{"version": "v1"}, "main"
	const want = `{"service":"web","address":"10.0.0.1","port":80,` +
		`"cluster":"test","namespace":"shop","pod":"web-1","uid":"uid-1","registry":"main",` +
		`"weight":7,"zone":"a","tags":["v1"],"metadata":{"version":"v1"}}`
	d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if got, _ := io.ReadAll(r.Body); string(got) != want {
			t.Errorf("sent %s, want %s", got, want)
		}
	})})
	expect.NoError(t, d.Register(t.Context(), in))
}

func TestAnInstanceThatIsNotWholeIsNotSent(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	server := drivertest.Serve(t, func(http.ResponseWriter, *http.Request) { requests.Add(1) })
	d := open(t, registry.Config{Endpoint: server})
	for name, spoil := range map[string]func(*registry.Instance){
		"uid":    func(in *registry.Instance) { in.UID = "" },
		"weight": func(in *registry.Instance) { in.Weight = 10001 },
	} {
		in := drivertest.Pod(1)
		spoil(&in)
		drivertest.Refused(t, "it stays so", d.Deregister(t.Context(), in), "", name)
	}
	_, err := d.List(t.Context(), "")
	drivertest.Refused(t, "List of no cluster", err, "", "")
	if n := requests.Load(); n != 0 {
		t.Errorf("the server got %d requests, want none", n)
	}
}

func TestCredentialsThatAreNotGoodAreNamed(t *testing.T) {
	t.Parallel()
	token := registry.Auth{TokenFile: drivertest.File(t, wrongToken)}
	password := registry.Auth{Username: "me", PasswordFile: drivertest.File(t, wrongPassword)}
	type row struct {
		reason string
		auth   registry.Auth
		status int
		field  string
	}
	expect.Each(t, map[string]row{
		"token, 403":    {"it may not do that", token, 403, "auth.tokenFile"},
		"password, 403": {"it may not do that", password, 403, "auth.passwordFile"},
		"none, 401":     {"it must be said that some are needed", registry.Auth{}, 401, "auth"},
		"token, 422":    {"it has nothing to do with the token", token, 422, ""},
		"token, 407":    {"a proxy asks for its own", token, 407, ""},
	}, func(t *testing.T, tc row) {
		server := drivertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) })
		err := open(t, registry.Config{Endpoint: server, Auth: tc.auth}).Register(t.Context(), drivertest.Pod(1))
		drivertest.Refused(t, tc.reason, err, tc.field, "")
	})
}

func TestListIsAllOrNothing(t *testing.T) {
	t.Parallel()
	entry := func(cluster, state string) string {
		return `{"service":"web","address":"10.0.0.1","port":80,"cluster":"` + cluster + `","state":"` + state + `"}`
	}
	type row struct {
		reason string
		body   string
		want   int
		says   string // "": no error
	}
	expect.Each(t, map[string]row{
		"some":            {reason: "the plain case", body: `{"instances":[` + entry("test", "InService") + `]}`, want: 1},
		"none":            {reason: "nothing is an answer", body: `{"instances":[]}`, want: 0},
		"unknown fields":  {reason: "a later version may have more", body: `{"instances":[],"next":null}`, want: 0},
		"other cluster's": {reason: "a server may ignore the filter", body: `{"instances":[` + entry("other", "UP") + `]}`, want: 0},
		"empty metadata": {
			reason: "it is nil rather than empty", want: 1,
			body: `{"instances":[` + strings.Replace(entry("test", "InService"), "{", `{"metadata":{},`, 1) + `]}`,
		},
		"strange state":  {reason: "it can't be told what it means", body: `{"instances":[` + entry("test", "UP") + `]}`, says: "state"},
		"no list":        {reason: "an answer by somebody else must not read as empty", body: `{"items":[]}`, says: "instances"},
		"null":           {reason: "it is no list", body: `{"instances":null}`, says: "instances"},
		"no JSON":        {reason: "a login page answers 200, too", body: `<html>`, says: "decoding"},
		"nothing at all": {reason: "it is no list", body: ``, says: "decoding"},
		"two answers":    {reason: "the second would be ignored", body: `{"instances":[]}{}`, says: "decoding"},
	}, func(t *testing.T, tc row) {
		got, err := answering(t, 200, tc.body).List(t.Context(), "test")
		if tc.says == "" {
			if err != nil || len(got) != tc.want || tc.want > 0 && got[0].Metadata != nil {
				t.Errorf("got %d entries, error %v; want %d\nreason: %s", len(got), err, tc.want, tc.reason)
			}
			return
		}
		drivertest.Passes(t, tc.reason, err, tc.says)
		expect.Equal(t, 0, len(got), "entries, with an error: %s", tc.reason)
	})
}

// TestAServerThatKnowsNoNarrowing is of version 1.1 of the protocol or older: it lists the whole cluster.
func TestAServerThatKnowsNoNarrowing(t *testing.T) {
	t.Parallel()
	entry := func(n int, state registry.State) string {
		raw, err := json.Marshal(registry.Entry{Instance: drivertest.Pod(n), State: state})
		expect.NoError(t, err)
		return string(raw)
	}
	all := `{"instances":[` + entry(1, registry.InService) + "," + entry(2, registry.OutOfService) + `]}`
	d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		if query := r.URL.Query(); query.Get("service") != "web" || query.Get("address") == "" || query.Get("port") != "80" {
			t.Errorf("asked for %s, want it narrowed: a later server lists one instance", r.URL)
		}
		_, _ = io.WriteString(w, all)
	})})
	next := drivertest.Pod(1)
	next.UID = "another"
	for _, tc := range []struct {
		reason string
		in     registry.Instance
		want   registry.State
	}{
		{"it is among others", drivertest.Pod(1), registry.InService},
		{"the first one is not it", drivertest.Pod(2), registry.OutOfService},
		{"the others are not it", drivertest.Pod(3), registry.Absent},
		{"the entry is another pod's", next, registry.Absent},
	} {
		if got, err := d.Get(t.Context(), tc.in); err != nil || got != tc.want {
			t.Errorf("Get of %s: got %q, %v; want %q\nreason: %s", tc.in.UID, got, err, tc.want, tc.reason)
		}
	}
	lost := answering(t, http.StatusNotFound, `{"error":"no such list"}`)
	if got, err := lost.Get(t.Context(), drivertest.Pod(1)); err == nil || got != "" {
		t.Errorf("Get: got %q, %v; want an error: that there is no list is not that there is no instance", got, err)
	}
}

// TestAServerThatDoesNotSpeakTheProtocol is the first of two, and keeps no call: the next one begins at the other.
func TestAServerThatDoesNotSpeakTheProtocol(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(*httpregistry.Registry) error{
		"List": func(d *httpregistry.Registry) error { _, err := d.List(t.Context(), "test"); return err },
		"Get":  func(d *httpregistry.Registry) error { _, err := d.Get(t.Context(), drivertest.Pod(1)); return err },
		"Batch": func(d *httpregistry.Registry) error {
			return d.Batch(t.Context(), []registry.Change{{Instance: drivertest.Pod(1), State: registry.Absent}})[0]
		},
	}, func(t *testing.T, call func(*httpregistry.Registry) error) {
		first := drivertest.Answering(t, 200, nil, "<html>")
		second := drivertest.Answering(t, 200, nil, `{"instances":[],"outcomes":[{"status":204}]}`)
		d := open(t, registry.Config{Endpoint: first + "," + second})
		drivertest.Passes(t, "it does not speak the protocol", call(d), first)
		expect.NoError(t, call(d))
	})
}
