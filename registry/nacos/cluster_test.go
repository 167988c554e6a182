package nacos_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/nacos"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestAServerThatHasJustStarted is the first of the endpoint, and lacks the entry that the second one has in service.
func TestAServerThatHasJustStarted(t *testing.T) {
	t.Parallel()
	const key = "10.0.0.1 80"
	isOut := func(second *fake) bool { return second.put[key].Get("enabled") == "false" }
	for name, tc := range map[string]struct {
		reason string
		app    bool // the entry is the application's
		call   func(*nacos.Registry, context.Context, registry.Instance) error
		right  func(second *fake) bool
	}{
		"FailOver": {"clients are given it", false, (*nacos.Registry).FailOver, isOut},
		"Deregister": {
			"what is set there may only be undone once the entry is gone", false, (*nacos.Registry).Deregister,
			func(second *fake) bool { return second.posted[key] == nil && second.put[key].Get("metadata") == "{}" },
		},
		"Get": {
			"hooks would be released while clients are given it", false,
			func(d *nacos.Registry, ctx context.Context, in registry.Instance) error {
				state, err := d.Get(ctx, in)
				if err == nil && state != registry.InService {
					return errors.New("Get says " + string(state))
				}
				return err
			},
			func(second *fake) bool { return second.posted[key] != nil },
		},
		"FailOver of the application's": {
			"clients are given it", true,
			func(d *nacos.Registry, ctx context.Context, in registry.Instance) error {
				return d.AppEntries().FailOver(ctx, in)
			}, isOut,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second, in := newFake(t, "v3"), newFake(t, "v3"), drivertest.Pod(1)
			first.meets("GET /v3/admin/ns/instance", func(w http.ResponseWriter) {
				first.problem(w, http.StatusNotFound, 20004, "no ips found for cluster DEFAULT")
			})
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
			if state, err := at(t, endpoint, options).Get(t.Context(), in); err != nil || state != registry.InService {
				t.Errorf("Get: got %q and error %v, want %q", state, err, registry.InService)
			}
			expectListed(t, at(t, endpoint, options), "the other one has it", in)
		})
	}
}
