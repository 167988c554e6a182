package nacos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

type call = func(context.Context, registry.Instance) error

// meets has the fake meet the requests of a path, of a method alone, or all of them with something else than its answer.
func (f *fake) meets(path string, meet func(w http.ResponseWriter)) {
	f.meddle(func(w http.ResponseWriter, asked string, _ url.Values) bool {
		if path != "" && asked != path && !strings.HasPrefix(asked, path+" ") {
			return false
		}
		meet(w)
		return true
	})
}

// once does so with the next request alone.
func (f *fake) once(path string, meet func(w http.ResponseWriter)) {
	f.meets(path, func(w http.ResponseWriter) {
		f.first = nil
		meet(w)
	})
}

// checksBy answers that instances of the service are probed so.
func (f *fake) checksBy(w http.ResponseWriter, checker string) {
	f.answer(w, map[string]any{"clusterMap": map[string]any{"DEFAULT": map[string]any{"healthChecker": map[string]string{"type": checker}}}})
}

// expectListed wants the cluster to hold these instances, in service.
func expectListed(t *testing.T, d *nacos.Registry, reason string, want ...registry.Instance) {
	t.Helper()
	var entries []registry.Entry
	for _, in := range want {
		entries = append(entries, registry.Entry{Instance: in, State: registry.InService})
	}
	got, err := d.List(t.Context(), "test")
	if diff := cmp.Diff(entries, got); err != nil || diff != "" {
		t.Errorf("error %v, and listed something else (-want +got):\n%s\nreason: %s", err, diff, reason)
	}
}

// TestClusterUIDIsLeftOutWhereItIsTooMuch: an upgrade must not have a pod refused whose metadata fitted before.
func TestClusterUIDIsLeftOutWhereItIsTooMuch(t *testing.T) {
	t.Parallel()
	for long, want := range map[int]string{100: "uid-of-the-cluster", 900: ""} {
		d := atVersion(t, newFake(t, "v3"), "v3")
		in := drivertest.Pod(1)
		in.ClusterUID, in.Metadata = "uid-of-the-cluster", map[string]string{"note": strings.Repeat("x", long)}
		expect.NoError(t, d.Register(t.Context(), in))
		entries, err := d.List(t.Context(), "test")
		if err != nil || len(entries) != 1 || !entries[0].Equal(in) || entries[0].ClusterUID != want {
			t.Errorf("error %v, and with %d bytes of metadata listed %+v, want cluster UID %q", err, long, entries, want)
		}
	}
}

// TestHeartbeatOfWhatWent between the look and the beat.
func TestHeartbeatOfWhatWent(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1", "v2", "v3"} {
		f := newFake(t, version)
		d := at(t, f.URL, `{"ephemeral":true,"apiVersion":"`+version+`"}`)
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		f.meddle(func(_ http.ResponseWriter, path string, _ url.Values) bool {
			if !strings.HasPrefix(path, "GET") {
				clear(f.posted)
			}
			return false
		})
		expect.Code(t, registry.CodeNotRegistered, d.Heartbeat(t.Context(), drivertest.Pod(1)), "%s", version)
	}
}

// Nothing else than Nacos' own words means that an instance is absent.
func TestAnswers(t *testing.T) {
	t.Parallel()
	own := map[string]drivertest.Answer{
		"a proxy's 404":       {Reason: "the server is being exchanged", Status: 404, Body: "<html>no such host</html>"},
		"the framework's 404": {Reason: "it is another version", Status: 404, Body: `{"status":404,"error":"Not Found","message":"No message available"}`},
		"Nacos' own 501": {
			Reason: "3.2 has no such path", Status: 501,
			Body: `{"status":501,"error":"Not Implemented","message":"no such api:GET:/nacos/v1/ns/instance"}`,
		},
		"another instance": {Reason: "it is not about the instance", Status: 200, Body: `{"ip":"10.0.0.2","port":80,"metadata":{}}`},
	}
	drivertest.Answers(t, func(t *testing.T, endpoint string) registry.Registry {
		t.Helper()
		return at(t, endpoint, `{"apiVersion":"v1","ephemeral":true}`) // which has heartbeats
	}, own)
}

// Nacos 3.2 has v3 alone, and answers the paths of the others as the filter before its naming module or as its framework does.
func TestAnUpgradeToAServerWithoutTheOlderAPIs(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]int{"the framework": 404, "the filter": 501, "3.1, with its switch off": 410}, func(t *testing.T, status int) {
		f := newFake(t, "v1")
		d, fixed := at(t, f.URL, `{}`), at(t, f.URL, `{"apiVersion":"v1"}`)
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		f.meddle(func(w http.ResponseWriter, path string, _ url.Values) bool {
			f.version = "v3"
			_, rest, _ := strings.Cut(path, " ")
			if strings.HasPrefix(rest, "/v1/") {
				f.page(w, status, "no such api")
			}
			return strings.HasPrefix(rest, "/v1/")
		})
		expect.NoError(t, d.FailOver(t.Context(), drivertest.Pod(1)))
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(2)))
		drivertest.Passes(t, "with a fixed API", fixed.Register(t.Context(), drivertest.Pod(1)), "options.apiVersion: ")
	})
}

// A list is whole or an error.
func TestListIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]string{
		"not JSON":           "<html>",
		"no data":            `{"code":0,"data":null}`,
		"no total":           `{"code":0,"data":{"pageItems":[]}}`,
		"fewer than told":    `{"code":0,"data":{"totalCount":2,"pageItems":[{"serviceName":"web"}]}}`,
		"an error's code":    `{"code":30000,"message":"server error","data":{"totalCount":0,"pageItems":[]}}`,
		"ours without state": `{"code":0,"data":{"totalCount":1,"pageItems":[{"serviceName":"web","groupName":"DEFAULT_GROUP","clusterMap":{"DEFAULT":{"hosts":[{"ip":"10.0.0.1","port":80,"metadata":{"rollcall-cluster":"test"}}]}}}]}}`,
	}, func(t *testing.T, body string) {
		f := newFake(t, "v3")
		d := at(t, f.URL, `{"apiVersion":"v3"}`)
		f.meets("", func(w http.ResponseWriter) { _, _ = io.WriteString(w, body) })
		if got, err := d.List(t.Context(), "test"); err == nil {
			t.Errorf("got %v, want an error", got)
		}
	})
}

// A write that another one undoes before readers see it is made again.
func TestWhatIsUndoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	type row struct {
		undo string
		call func(*nacos.Registry, context.Context, registry.Instance) error
	}
	expect.Each(t, map[string]row{
		"removed after it was registered": {"PUT /v1/ns/instance", (*nacos.Registry).Register},
		"put in after it was failed over": {"PUT /v1/ns/instance", (*nacos.Registry).FailOver},
		"put back after it was removed":   {"DELETE /v1/ns/instance", (*nacos.Registry).Deregister},
	}, func(t *testing.T, tc row) {
		f := newFake(t, "v1")
		d := at(t, f.URL, `{"apiVersion":"v1"}`)
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		posted, put := f.posted["10.0.0.1 80"], f.put["10.0.0.1 80"]
		f.requests()
		f.once(tc.undo, func(w http.ResponseWriter) {
			f.posted["10.0.0.1 80"], f.put["10.0.0.1 80"] = posted, put // as if a late call came after ours
			f.ok(w)
		})
		expect.NoError(t, tc.call(d, t.Context(), drivertest.Pod(1)))
		if n := strings.Count(strings.Join(f.requests(), "\n"), tc.undo); n < 2 {
			t.Errorf("%d requests of %s, want it once more", n, tc.undo)
		}
	})
}

// The last request of a removal fails, and then the process dies: another one makes the call again.
func TestARemovalThatFailedAtTheEndIsCompleted(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{}`)
	for _, call := range []call{d.Register, d.FailOver} {
		expect.NoError(t, call(t.Context(), drivertest.Pod(1)))
	}
	f.meets("PUT", func(w http.ResponseWriter) { f.problem(w, http.StatusInternalServerError, 30000, "server error") })
	if err := d.Deregister(t.Context(), drivertest.Pod(1)); err == nil {
		t.Fatal("Deregister: got none of the error of its last request")
	}
	f.meddle(nil)
	expect.NoError(t, at(t, f.URL, `{}`).Deregister(t.Context(), drivertest.Pod(1)))
	if left := f.put["10.0.0.1 80"]; left.Get("enabled") != "true" || left.Get("metadata") != "{}" {
		t.Errorf("it left %v behind, want it enabled and without metadata", left)
	}
}

// The next pod's entry is not touched by a removal that it comes in the middle of.
func TestRemovalLeavesTheNextPodsEntry(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{}`)
	heir := drivertest.Pod(1)
	heir.UID = "uid-of-heir"
	expect.NoError(t, d.Register(t.Context(), heir))
	theirs := f.put["10.0.0.1 80"]
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	f.requests()
	f.once("DELETE /v3/admin/ns/instance", func(w http.ResponseWriter) {
		f.put["10.0.0.1 80"] = theirs // the heir has registered again by now
		f.ok(w)
	})
	expect.NoError(t, d.Deregister(t.Context(), drivertest.Pod(1)))
	if asked := strings.Join(f.requests(), "\n"); strings.Contains(asked, "PUT") {
		t.Errorf("asked %s, want no PUT: the entry is the next pod's", asked)
	}
}

// A server shows its readers 500 ms late what it has acknowledged. A hundred calls that wait for that must not read all the
// time.
func TestReadsWhileItWaits(t *testing.T) {
	t.Parallel()
	type row struct {
		lag  time.Duration
		most int // reads after the write
	}
	expect.Each(t, map[string]row{
		"as long as it takes by default": {500 * time.Millisecond, 2},
		"longer":                         {700 * time.Millisecond, 3},
		"long":                           {950 * time.Millisecond, 4},
	}, func(t *testing.T, tc row) {
		f := newFake(t, "v3")
		d := at(t, f.URL, `{}`)
		var written time.Time
		reads := 0
		f.meddle(func(w http.ResponseWriter, path string, _ url.Values) bool {
			switch path {
			case "PUT /v3/admin/ns/instance":
				written = time.Now()
			case "GET /v3/admin/ns/instance":
				if written.IsZero() {
					return false
				}
				if reads++; time.Since(written) < tc.lag {
					f.problem(w, http.StatusNotFound, 20004, "no matched ip found!")
					return true
				}
			}
			return false
		})
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		if reads > tc.most {
			t.Errorf("it read %d times until readers saw the write after %s, want at most %d", reads, tc.lag, tc.most)
		}
	})
}

// A call ends with its context although readers never see the write. If it ends in the middle of a question, the error is of that.
func TestReadersNeverSeeIt(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{}`)
	f.meets("GET /v3/admin/ns/instance", func(w http.ResponseWriter) { f.problem(w, http.StatusNotFound, 20004, "no matched ip found!") })
	expect.Soon(t, "an error that says that readers do not see it", func() error {
		ctx := drivertest.Within(t, 3*time.Second)
		err := d.Register(ctx, drivertest.Pod(1))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got error %v, want that of the context", err)
		}
		if !strings.Contains(err.Error(), "did not yet show it") {
			return err
		}
		return nil
	})
}

// What Nacos takes for something else, or what could be taken for anybody's entry, is not sent.
func TestUnfitInstancesAreNotSent(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{"ephemeral":true}`)
	for name, unfit := range map[string]func(*registry.Instance){
		"a group":     func(in *registry.Instance) { in.Service = "a@@b" },
		"white space": func(in *registry.Instance) { in.Service = "web " },
		"no UID":      func(in *registry.Instance) { in.UID = "" },
		"a lease":     func(in *registry.Instance) { in.Metadata = map[string]string{"preserved.heart.beat.timeout": "1"} },
	} {
		in := drivertest.Pod(1)
		unfit(&in)
		for _, what := range []call{
			d.Register, d.FailOver, d.Deregister, d.Probe, d.Heartbeat,
		} {
			expect.Code(t, registry.CodeTerminal, what(t.Context(), in), "%s", name)
		}
	}
	_, err := d.List(t.Context(), "")
	expect.Code(t, registry.CodeTerminal, err, "listing no cluster")
	if got := f.requests(); len(got) != 0 {
		t.Errorf("sent %q, want nothing", got)
	}
}

// Metadata comes through whoever takes a form for Latin-1, or decodes it once more.
func TestMetadataIsSentInASCII(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v1")
	d := at(t, f.URL, `{}`)
	var sent []string
	f.meddle(func(_ http.ResponseWriter, _ string, form url.Values) bool {
		if form.Has("metadata") {
			sent = append(sent, form.Get("metadata"))
		}
		return false
	})
	in := drivertest.Pod(1)
	in.Metadata = map[string]string{"näme": "a+b %41 ü🦆名\x7f\n\"\\", "empty": ""}
	expect.NoError(t, d.Register(t.Context(), in))
	if len(sent) != 2 {
		t.Fatalf("metadata was sent %d times, want twice", len(sent))
	}
	for _, text := range sent {
		if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '%' || c == '+' }) {
			t.Errorf("sent %s, want ASCII without %% and +", text)
		}
	}
	expectListed(t, d, "it comes back as it was", in)
}

// A late call for the pod that had the address may come when readers have seen its heir.
func TestRegisterOutlastsALateCallAfterATakeover(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{}`)
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	heir := drivertest.Pod(1)
	heir.UID = "uid-of-heir"
	looks := 0
	f.meddle(func(w http.ResponseWriter, path string, _ url.Values) bool {
		if path != "GET /v3/admin/ns/instance" {
			return false
		}
		if looks++; looks != 2 {
			return false
		}
		f.answer(w, f.entry("10.0.0.1 80")) // the heir is seen, and then goes
		clear(f.posted)
		return true
	})
	expect.NoError(t, d.Register(t.Context(), heir))
	expectListed(t, d, "the heir is registered last", heir)
}

// An entry with another lease than the configuration's is registered again, and then has it.
func TestLeaseFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	before, after := at(t, f.URL, `{"ephemeral":true}`), at(t, f.URL, `{"ephemeral":true,"heartbeatInterval":"20s"}`)
	if before.Traits().HeartbeatInterval != 5*time.Second || after.Traits().HeartbeatInterval != 20*time.Second {
		t.Errorf("renewed every %s and %s, want 5s and 20s", before.Traits().HeartbeatInterval, after.Traits().HeartbeatInterval)
	}
	expect.Equal(t, 0, at(t, f.URL, `{}`).Traits().HeartbeatInterval, "persistent instances are renewed")
	expect.NoError(t, before.Register(t.Context(), drivertest.Pod(1)))
	expect.Code(t, registry.CodeNotRegistered, after.Heartbeat(t.Context(), drivertest.Pod(1)), "it is to be registered")
	expect.NoError(t, after.Register(t.Context(), drivertest.Pod(1)))
	expect.NoError(t, after.Heartbeat(t.Context(), drivertest.Pod(1)))
	if asked := strings.Join(f.requests(), "\n"); !strings.Contains(asked, `"preserved.heart.beat.timeout":"90000"`) {
		t.Errorf("the lease is not what was asked for: %s", asked)
	}
	expectListed(t, after, "the lease is no metadata", drivertest.Pod(1))
}

// What the servers judge starts unhealthy again for as long as they have not seen it healthy.
func TestWhatTheServersJudgeIsNotCalledHealthyForThem(t *testing.T) {
	t.Parallel()
	const tcp = `{"name":"DEFAULT","healthChecker":{"type":"TCP"}}`
	for name, tc := range map[string]struct {
		reason, options, clusters string
		times                     int
	}{
		"registered twice":            {"the first Register proved nothing", `{"healthChecker":"server"}`, "", 2},
		"a checker that others chose": {"it is set for the service, and probes ours too", `{}`, tcp, 1},
		"and registered twice":        {"as above", `{}`, tcp, 2},
	} {
		for _, version := range []string{"v1", "v3"} {
			t.Run(name+", "+version, func(t *testing.T) {
				t.Parallel()
				f := newFake(t, version)
				f.meddle(func(w http.ResponseWriter, path string, _ url.Values) bool {
					if tc.clusters == "" || !strings.HasPrefix(path, "GET ") || !strings.HasSuffix(path, "/ns/service") {
						return false
					}
					if version == "v1" {
						f.bare(w, map[string]any{"clusters": json.RawMessage("[" + tc.clusters + "]")})
					} else {
						f.answer(w, map[string]any{"clusterMap": json.RawMessage(`{"DEFAULT":` + tc.clusters + "}")})
					}
					return true
				})
				f.registersItself(drivertest.Pod(2), true)
				d := at(t, f.URL, tc.options)
				for range tc.times {
					expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
				}
				drivertest.Passes(t, tc.reason, d.Probe(t.Context(), drivertest.Pod(1)), "")
				if asked := strings.Join(f.requests(), "\n"); strings.Contains(asked, "/ns/cluster ") {
					t.Errorf("asked %s, want no change of the checker", asked)
				}
			})
		}
	}
}

// A rollout reads once of a service that its instances are not probed, not for each pod.
func TestTheCheckerIsNotReadForEachPod(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{}`)
	reads := 0
	f.meets("GET /v3/admin/ns/service", func(w http.ResponseWriter) {
		reads++
		f.checksBy(w, "NONE")
	})
	for pod := range 3 {
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(pod+1)))
	}
	if reads != 1 {
		t.Errorf("read the service %d times for three pods, want once", reads)
	}
}

// What is listed is ours, of this group and Nacos cluster, and what clients are given that no Rollcall has written.
func TestListIsOnlyOurs(t *testing.T) {
	t.Parallel()
	const host = `{"ip":"10.0.0.%d","port":80,"enabled":%t,"metadata":{"rollcall-cluster":"%s","rollcall-namespace":"shop",` +
		`"rollcall-pod":"web-%[1]d","rollcall-uid":"uid-%[1]d"}}`
	ours := fmt.Sprintf(host, 1, true, "test") + "," + fmt.Sprintf(host, 2, false, "test")
	theirs := fmt.Sprintf(host, 3, true, "test-2") + `,{"ip":"10.0.0.4","port":80,"enabled":true,"metadata":{}},{"ip":"10.0.0.5"},` +
		`{"ip":"10.0.0.6","port":0,"enabled":true,"metadata":{"side":"consumer"}},{"ip":"","port":80,"enabled":true,"metadata":{}},` +
		`{"ip":"10.0.0.8","port":0,"enabled":true,"metadata":{"rollcall-cluster":"test"}}` // somebody copied the metadata
	const app = `{"ip":"10.0.0.7","port":80,"enabled":true,"metadata":{"IPv6":"fd00::7","preserved.register.source":"SPRING_CLOUD"}}`
	twice := `{"ip":"10.0.0.4","port":80,"enabled":true,"metadata":{}},` + app // in two Nacos clusters: it is no second entry
	body := fmt.Sprintf(`[
		{"serviceName":"web","groupName":"DEFAULT_GROUP","clusterMap":{"DEFAULT":{"hosts":[%[1]s,%[2]s]},"C2":{"hosts":[%[1]s,%[4]s]},"C3":{"hosts":[%[3]s]}}},
		{"serviceName":"empty","groupName":"DEFAULT_GROUP","clusterMap":{}},
		{"serviceName":"web","groupName":"DEFAULT_GROUP_2","clusterMap":{"DEFAULT":{"hosts":[%[1]s]}}}]`, ours, theirs, app, twice)
	f := newFake(t, "v1")
	f.meets("GET /v1/ns/catalog/services", func(w http.ResponseWriter) { _, _ = io.WriteString(w, body) })
	got, err := at(t, f.URL, `{}`).List(t.Context(), "test")
	want := []registry.Entry{
		{Instance: drivertest.Pod(1), State: registry.InService},
		{Instance: drivertest.Pod(1), State: registry.Foreign, ID: "in Nacos cluster C2"}, // no call changes it there
		{Instance: drivertest.Pod(2), State: registry.OutOfService},
		{Instance: registry.Instance{Service: "web", Address: "10.0.0.4", Port: 80}, State: registry.Foreign},
		{Instance: registry.Instance{
			Service: "web", Address: "10.0.0.7", Port: 80, Metadata: map[string]string{registry.MetaIPv6: "fd00::7"},
		}, State: registry.Foreign},
	}
	slices.SortStableFunc(got, func(a, b registry.Entry) int { return strings.Compare(a.Address, b.Address) })
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, and listed something else (-want +got):\n%s", err, diff)
	}
}
