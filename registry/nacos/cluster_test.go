package nacos_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// laggingCase is a call for an entry that one server has in service and others lack.
type laggingCase struct {
	reason string
	app    bool // the entry is the application's
	call   func(*nacos.Registry, context.Context, registry.Instance) error
	right  func(has *fake) bool
}

func laggingCases() map[string]laggingCase {
	const key, given, released = "10.0.0.1 80", "clients are given it", "hooks would be released while clients are given it"
	isOut := func(has *fake) bool { return has.put[key].Get("enabled") == "false" }
	isThere := func(has *fake) bool { return has.posted[key] != nil }
	return map[string]laggingCase{
		"FailOver": {given, false, (*nacos.Registry).FailOver, isOut},
		"Deregister": {
			"what is set there may only be undone once the entry is gone", false, (*nacos.Registry).Deregister,
			func(has *fake) bool { return has.posted[key] == nil && has.put[key].Get("metadata") == "{}" },
		},
		"Get": {released, false, func(d *nacos.Registry, ctx context.Context, in registry.Instance) error {
			return wrong(d.Get(ctx, in))
		}, isThere},
		"FailOver of the application's": {given, true, func(d *nacos.Registry, ctx context.Context, in registry.Instance) error {
			return d.AppEntries().FailOver(ctx, in)
		}, isOut},
		"Get of the application's": {released, true, func(d *nacos.Registry, ctx context.Context, in registry.Instance) error {
			return wrong(d.AppEntries().Get(ctx, in))
		}, isThere},
	}
}

// TestAServerThatLagsBehind is the first of the endpoint, and lacks the entry that the second one has in service, or has that of a pod
// which had the address before.
func TestAServerThatLagsBehind(t *testing.T) {
	t.Parallel()
	for name, tc := range laggingCases() {
		for has, lags := range map[string]func(*testing.T, *fake){"has nothing": func(*testing.T, *fake) {}, "has an older one": hasAnOlderOne} {
			for _, version := range []string{"v1", "v3"} {
				t.Run(name+" "+has+" "+version, func(t *testing.T) {
					t.Parallel()
					first, second, in := newFake(t, version), newFake(t, version), drivertest.Pod(1)
					lags(t, first)
					if tc.app {
						second.registersItself(in, true)
					} else {
						expect.NoError(t, at(t, second.URL, `{}`).Register(t.Context(), in))
					}
					expect.NoError(t, tc.call(at(t, first.URL+","+second.URL, `{}`), t.Context(), in))
					if !tc.right(second) {
						t.Errorf("the second server has %v and %v\nreason: %s", second.posted, second.put, tc.reason)
					}
					for _, asked := range first.requests() {
						if !strings.HasPrefix(asked, "GET ") {
							t.Errorf("the first server was sent %s, want no change to begin where the entry is missing", asked)
						}
					}
				})
			}
		}
	}
}

func wrong(state registry.State, err error) error {
	if err == nil && state != registry.InService {
		return errors.New("Get says " + string(state))
	}
	return err
}

// hasAnOlderOne puts the entry of a pod that had the address of [drivertest.Pod] before into the fake.
func hasAnOlderOne(t *testing.T, f *fake) {
	t.Helper()
	older := drivertest.Pod(1)
	older.UID = "older"
	expect.NoError(t, at(t, f.URL, `{}`).Register(t.Context(), older))
	_ = f.requests()
}

// TestSomebodyElsesEntryAtOneServer: clients are given it there, while the first server has an older pod's.
func TestSomebodyElsesEntryAtOneServer(t *testing.T) {
	t.Parallel()
	first, second, in := newFake(t, "v1"), newFake(t, "v1"), drivertest.Pod(1)
	hasAnOlderOne(t, first)
	second.registersItself(in, true)
	d := at(t, first.URL+","+second.URL, `{}`)
	for name, call := range map[string]call{"FailOver": d.FailOver, "Deregister": d.Deregister} {
		expect.Code(t, registry.CodeForeignEntry, call(t.Context(), in), "%s: clients are given the application's entry", name)
	}
}

// within makes a call for a pod in a time.
func within(t *testing.T, d time.Duration, call call, pod int) error {
	t.Helper()
	ctx := drivertest.Within(t, d)
	return call(ctx, drivertest.Pod(pod))
}

// forwardsTo has the fake pass changes on, and show none of them to its own readers, as one does whose Raft no longer applies.
func (f *fake) forwardsTo(other *fake) {
	f.meddle(func(w http.ResponseWriter, path string, form url.Values) bool {
		if strings.HasPrefix(path, "GET ") {
			return false
		}
		other.mu.Lock()
		defer other.mu.Unlock()
		other.serve(w, path, form)
		return true
	})
}

// TestAServerThatShowsNoChange holds up what is under way, and no more: later calls begin at the other one.
func TestAServerThatShowsNoChange(t *testing.T) {
	t.Parallel()
	stale, good := newFake(t, "v3"), newFake(t, "v3")
	stale.forwardsTo(good)
	d := at(t, stale.URL+","+good.URL, `{}`)
	var failed error
	expect.Becomes(t, "calls to begin at the other one", func() bool {
		_ = stale.requests()
		if err := within(t, 3*time.Second, d.Register, 1); err != nil { // a busy machine may have written it once only
			failed = err
			return false
		}
		return len(stale.requests()) == 0
	})
	expect.Error(t, "readers of the first server do not see it", failed, "did not yet show it")
}

// TestAServerWithAnEntryThatIsGoneElsewhere takes the calls for that entry alone: what it shows never changes.
func TestAServerWithAnEntryThatIsGoneElsewhere(t *testing.T) {
	t.Parallel()
	good, stale := newFake(t, "v3"), newFake(t, "v3")
	expect.NoError(t, at(t, stale.URL, `{}`).Register(t.Context(), drivertest.Pod(1)))
	stale.forwardsTo(good)
	d := at(t, good.URL+","+stale.URL, `{}`)
	err := within(t, 2*time.Second, d.Deregister, 1)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), stale.URL) {
		t.Errorf("got error %v, want that readers of the second server still see it, with its address", err)
	}
	_ = stale.requests()
	expect.NoError(t, within(t, 10*time.Second, d.Register, 2))
	if asked := stale.requests(); len(asked) > 0 {
		t.Errorf("the second server was asked %q, want other pods' calls to go on at the first", asked)
	}
}

// TestAServerThatIsAwaySaysNothing: what no server that can be reached has is not there.
func TestAServerThatIsAwaySaysNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL+",http://"+registrytest.UnusedAddress(t), `{}`)
	for _, what := range []call{d.FailOver, d.Deregister} {
		expect.NoError(t, what(t.Context(), drivertest.Pod(1)))
	}
}

// TestAServerThatIsNoNacos is the first of two, and answers everything with a page: the call is made at the other one.
func TestAServerThatIsNoNacos(t *testing.T) {
	t.Parallel()
	for options, version := range map[string]string{
		`{}`: "v3", `{"apiVersion": "v3"}`: "v3", `{"apiVersion": "v2"}`: "v2", `{"apiVersion": "v1"}`: "v1", `{"cluster": "DEFAULT"}`: "v1",
	} {
		t.Run(version+" "+options, func(t *testing.T) {
			t.Parallel()
			f, in := newFake(t, version), drivertest.Pod(1)
			endpoint := drivertest.Answering(t, 200, nil, "<html>") + "," + f.URL
			expect.NoError(t, at(t, endpoint, options).Register(t.Context(), in))
			drivertest.Says(t, "the other one has it", at(t, endpoint, options), in, registry.InService)
			expectListed(t, at(t, endpoint, options), "the other one has it", in)
		})
	}
}

// TestWhatOneServerRefuses is made at another one. It is refused for good only if every server refuses it.
func TestWhatOneServerRefuses(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		refuses func(f *fake, w http.ResponseWriter)
		final   bool
		field   string
		says    string
	}
	expect.Each(t, map[string]row{
		"the other kind": {
			"it has started with the service as an ephemeral one",
			func(f *fake, w http.ResponseWriter) {
				f.problem(w, http.StatusBadRequest, 10000,
					"Current service DEFAULT_GROUP@@web is ephemeral service, can't register persistent instance.")
			},
			true, "options.ephemeral", "restart the Nacos servers that refuse",
		},
		"parameters": {
			"it has other settings",
			func(f *fake, w http.ResponseWriter) {
				f.problem(w, http.StatusBadRequest, 10000, "Param check invalid")
			},
			true, "", "Param check invalid",
		},
		"the path": {
			"what is at the address is not Nacos, now", func(f *fake, w http.ResponseWriter) { f.page(w, http.StatusNotFound, "no backend") },
			false, "endpoint", "no backend",
		},
	}, func(t *testing.T, tc row) {
		refusing := func() *fake {
			f := newFake(t, "v3")
			f.meets("POST /v3/admin/ns/instance", func(w http.ResponseWriter) { tc.refuses(f, w) })
			return f
		}
		first, good := refusing(), newFake(t, "v3")
		d := at(t, first.URL+","+good.URL, `{}`)
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
		_ = first.requests()
		expect.NoError(t, d.Register(t.Context(), drivertest.Pod(2)))
		if asked := first.requests(); len(asked) > 0 {
			t.Errorf("the first server was asked %q, want calls to begin at the other one\nreason: %s", asked, tc.reason)
		}

		err := at(t, first.URL+","+refusing().URL, `{}`).Register(t.Context(), drivertest.Pod(1))
		if tc.final {
			drivertest.Refused(t, "all servers refuse it", err, tc.field, tc.says)
		} else {
			drivertest.Passes(t, "all servers refuse it", err, tc.field+": ")
			expect.Error(t, "the server's words", err, tc.says)
		}
		err = at(t, first.URL+",http://"+registrytest.UnusedAddress(t), `{}`).Register(t.Context(), drivertest.Pod(1))
		drivertest.Passes(t, "one server refuses it and one is away", err, "")
	})
}

// TestAServerThatKnowsNobodyYet has just started, and refuses who the other one takes.
func TestAServerThatKnowsNobodyYet(t *testing.T) {
	t.Parallel()
	first, good := newFake(t, "v3"), newFake(t, "v3")
	d := open(t, withUser(t, first.URL+","+good.URL))
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	first.meddle(func(w http.ResponseWriter, path string, _ url.Values) bool {
		if strings.HasSuffix(path, "/state") {
			return false
		}
		first.page(w, http.StatusForbidden, "user not found!")
		return true
	})
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(2)))
}

// TestEphemeralEntriesAreWrittenEverywhere: over v2 and v3 a server keeps them for itself.
func TestEphemeralEntriesAreWrittenEverywhere(t *testing.T) {
	t.Parallel()
	const key = "10.0.0.1 80"
	for version, everywhere := range map[string]bool{"v1": false, "v2": true, "v3": true} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			first, second, in := newFake(t, version), newFake(t, version), drivertest.Pod(1)
			d := at(t, first.URL+",http://"+registrytest.UnusedAddress(t)+","+second.URL, `{"ephemeral": true, "apiVersion": "`+version+`"}`)
			expect.NoError(t, d.Register(t.Context(), in))
			if first.posted[key] == nil || (second.posted[key] != nil) != everywhere {
				t.Errorf("the servers have %v and %v, want it at both: %t", first.posted, second.posted, everywhere)
			}
			expect.NoError(t, d.Heartbeat(t.Context(), in))
			if version == "v3" {
				delete(second.posted, key)
				expect.Code(t, registry.CodeNotRegistered, d.Heartbeat(t.Context(), in), "a heartbeat: it is to be registered: the second server lacks it")
				expect.NoError(t, d.Register(t.Context(), in))
			}
			expect.NoError(t, d.Deregister(t.Context(), in))
			if first.posted[key] != nil || second.posted[key] != nil {
				t.Errorf("the servers still have %v and %v", first.posted, second.posted)
			}
		})
	}
}

// TestAServerThatHasAnInstanceBeforeItsChecker has not applied yet that the checker was turned off: no one would probe the next instance.
func TestAServerThatHasAnInstanceBeforeItsChecker(t *testing.T) {
	t.Parallel()
	f := newFake(t, "v3")
	d := at(t, f.URL, `{}`)
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(1)))
	f.meets("GET /v3/admin/ns/service", func(w http.ResponseWriter) { f.checksBy(w, "TCP") })
	expect.NoError(t, d.Register(t.Context(), drivertest.Pod(2)))
	expect.NoError(t, d.Probe(t.Context(), drivertest.Pod(2)))
}
