package eureka_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// oneAddress leads to the peers by turns. They know each other by addresses that can't be reached from here.
func oneAddress(t *testing.T, peers ...*fake) (address string) {
	t.Helper()
	names := []string{"http://127.0.0.1:1/eureka/", "http://127.0.0.1:2/eureka/", "http://127.0.0.1:3/eureka/"}[:len(peers)]
	var urls []string
	for i, f := range peers {
		others := append(append([]string{}, names[:i]...), names[i+1:]...)
		f.replicas, urls = strings.Join(others, ", "), append(urls, f.URL)
	}
	return drivertest.InTurn(t, urls...)
}

// TestSeveralPeersBehindOneAddress: two of three lack an entry that clients of the third one are given. What changes it reaches that one.
func TestSeveralPeersBehindOneAddress(t *testing.T) {
	t.Parallel()
	in, app := web(1), registry.Instance{Service: "Shop web", Address: "10.0.0.1", Port: 80}
	up, ofApp := entryOf(in, "UP"), entryOf(app, "UP")
	const given, released = "clients are given it", "hooks would be released while clients are given it"
	out := []string{"PUT " + ownPath + "/status?value=OUT_OF_SERVICE"}
	expect.Each(t, map[string]peersCase{
		"FailOver":                {given, up, (*eureka.Registry).FailOver, []string{copied}},
		"Deregister":              {given, up, (*eureka.Registry).Deregister, []string{"DELETE " + ownPath}},
		"Get":                     {released, up, says(registry.InService, (*eureka.Registry).Get), nil},
		"FailOver of the app's":   {given, ofApp, steered(registry.AppRegistry.FailOver), out},
		"Deregister of the app's": {given, ofApp, steered(registry.AppRegistry.Deregister), out},
		"Get of the app's":        {released, ofApp, steered(says(registry.InService, registry.AppRegistry.Get)), nil},
	}, func(t *testing.T, tc peersCase) {
		for _, tells := range []bool{true, false} {
			has := newFake(t, holding(tc.has))
			one, two := newFake(t, nothing), newFake(t, nothing)
			address := oneAddress(t, one, two, has)
			if !tells {
				one.replicas, two.replicas, has.replicas = "-", "-", "-"
			}
			ctx := drivertest.Within(t, 10*time.Second)
			if err := tc.call(open(t, registry.Config{Endpoint: address}), ctx, in); err != nil {
				t.Errorf("got error %v\nreason: %s", err, tc.reason)
			}
			expect.Equal(t, tc.want, changes(has), "changes at the peer that has it: %s", tc.reason)
		}
	})
}

// TestPeersThatOnlyEurekaListsAreToldToo, if they can be reached: the one at the address has a change in its memory alone for half a
// second. If it is killed then, and starts with what the others have, the change is lost, whatever was acknowledged.
func TestPeersThatOnlyEurekaListsAreToldToo(t *testing.T) {
	t.Parallel()
	in, app := web(1), registry.Instance{Service: "Shop web", Address: "10.0.0.1", Port: 80}
	up, ofApp := entryOf(in, "UP"), entryOf(app, "UP")
	const lost = "a pod would be given to clients that was taken out, once the first one has been killed"
	const lacks = "the first one lacks it, and all connections lead there"
	put := []string{"PUT " + ownPath + "/status?value=OUT_OF_SERVICE"}
	expect.Each(t, map[string]struct {
		peersCase

		first string
	}{
		"Register":                    {peersCase{lost, up, (*eureka.Registry).Register, []string{copied}}, up},
		"FailOver":                    {peersCase{lost, up, (*eureka.Registry).FailOver, []string{copied}}, up},
		"Deregister":                  {peersCase{lost, up, (*eureka.Registry).Deregister, []string{"DELETE " + ownPath}}, up},
		"FailOver of the app's":       {peersCase{lost, ofApp, steered(registry.AppRegistry.FailOver), put}, ofApp},
		"FailOver of what it lacks":   {peersCase{lacks, up, (*eureka.Registry).FailOver, []string{copied}}, ""},
		"Deregister of what it lacks": {peersCase{lacks, up, (*eureka.Registry).Deregister, []string{"DELETE " + ownPath}}, ""},
		"Get of what it lacks":        {peersCase{lacks, up, says(registry.InService, (*eureka.Registry).Get), nil}, ""},
	}, func(t *testing.T, tc struct {
		peersCase

		first string
	}) {
		first, second := newFake(t, nothing), newFake(t, holding(tc.has))
		if tc.first != "" {
			first.answer = holding(tc.first)
		}
		d := open(t, registry.Config{Endpoint: oneAddress(t, first)})
		first.replicas, second.replicas = second.URL+"/", first.URL+"/"
		entries, err := d.List(t.Context(), in.Cluster)
		if err != nil || len(entries) == 0 {
			t.Errorf("List: got %v, error %v; want what the second one has: a removal may have missed it", entries, err)
		}
		if unlisted := d.UnlistedMembers(); unlisted != nil {
			t.Errorf("the endpoint lacks %q, want none: they can be reached", unlisted)
		}
		_ = second.requests()
		if err := tc.call(d, t.Context(), in); err != nil {
			t.Errorf("got error %v\nreason: %s", err, tc.reason)
		}
		expect.Equal(t, tc.want, changes(second), "changes at the second peer: %s", tc.reason)
	})
}

// TestACallBehindOneAddressStaysAtOnePeer, also if others are made at the same time: what one has acknowledged another has not heard of yet.
func TestACallBehindOneAddressStaysAtOnePeer(t *testing.T) {
	t.Parallel()
	const pods = 16
	d := open(t, registry.Config{Endpoint: oneAddress(t, newFake(t, registering(pods)), newFake(t, registering(pods)))})
	var all sync.WaitGroup
	for pod := range pods {
		all.Go(func() {
			for range 8 {
				if err := d.Register(t.Context(), web(pod)); err != nil {
					t.Errorf("got error %v, want each request of a call at the same peer", err)
				}
			}
		})
	}
	all.Wait()
}

// TestTheFirstCallKnowsOfSeveralPeers: a leader takes pods out before it has listed the registry. If a removal reaches a peer that lacks the
// entry, the one that gave it still does.
func TestTheFirstCallKnowsOfSeveralPeers(t *testing.T) {
	t.Parallel()
	in := web(1)
	for replicas, removed := range map[string]bool{"": true, "http://127.0.0.1:1/eureka/": false} {
		has := holding(entryOf(in, "UP"))
		f := newFake(t, func(r *http.Request) (int, string) {
			if r.Method == http.MethodDelete {
				return http.StatusNotFound, ""
			}
			return has(r)
		})
		f.replicas = replicas
		err := open(t, registry.Config{Endpoint: f.URL}).Deregister(t.Context(), in)
		if removed {
			expect.NoError(t, err)
			continue
		}
		drivertest.Passes(t, "the one that gave it still does", err, "disappeared during the call")
	}
}

// registering answers as a Eureka that has the entry of a pod until it was read, once it was posted.
func registering(pods int) func(r *http.Request) (int, string) {
	var mu sync.Mutex
	posted := map[string]bool{}
	return func(r *http.Request) (int, string) {
		time.Sleep(rand.N(2 * time.Millisecond)) // so that connections become free in any order
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		for pod := range pods {
			in := web(pod)
			id := in.Endpoint() + ":" + in.Service
			switch {
			case r.Method == http.MethodPost && strings.Contains(string(body), `"`+id+`"`):
				posted[id] = true
				return http.StatusNoContent, ""
			case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/"+id) && posted[id]:
				delete(posted, id)
				return http.StatusOK, `{"instance":` + entryOf(in, "UP") + `}`
			}
		}
		return nothing(r)
	}
}

// TestUnlistedMembers are told of if there are more of them than addresses.
func TestUnlistedMembers(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]struct {
		reason, replicas string
		want             int
	}{
		"two others":              {"the server does not list itself", "http://eureka-1:8761/eureka/, http://me:secret@eureka-2:8761/eureka/", 3},
		"none":                    {"it runs alone", "", 0},
		"Spring's default":        {"it means itself", "%s/", 0},
		"one on this machine":     {"it is another one", "http://127.0.0.1:1/eureka/", 2},
		"untold":                  {"it is not known", "-", 0},
		"one that can be reached": {"it is told of changes, but does not know which the other is", "%o/", 2},
	}, func(t *testing.T, tc struct {
		reason, replicas string
		want             int
	}) {
		f := newFake(t, nothing)
		f.replicas = strings.NewReplacer("%s", f.URL, "%o", newFake(t, nothing).URL).Replace(tc.replicas)
		d := open(t, registry.Config{Endpoint: f.URL})
		_, err := d.List(t.Context(), "test")
		expect.NoError(t, err)
		got := d.UnlistedMembers()
		if len(got) != tc.want || strings.Contains(strings.Join(got, " "), "secret") {
			t.Errorf("got %q, want %d: %s", got, tc.want, tc.reason)
		}
	})
}

// TestTheApplicationIsReadOnceForAll who ask at that moment: a read of one entry has to see whether another has its address.
func TestTheApplicationIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	const pods = 40
	in := web(1)
	f := newFake(t, holding(entryOf(in, "UP")))
	reads := func() (n int) {
		for _, asked := range f.requests() {
			if asked == "GET "+appPath {
				n++
			}
		}
		return n
	}
	synctest.Test(t, func(t *testing.T) {
		d := open(t, registry.Config{Endpoint: f.URL, Outgoing: drivertest.Slow("/SHOP WEB")})
		get := func(get func(context.Context, registry.Instance) (registry.State, error), pod int) func() error {
			return func() error { _, err := get(t.Context(), web(pod)); return err }
		}
		var all errgroup.Group
		for pod := range pods { // calls for the same one would wait for each other
			all.Go(get(d.Get, pod))
			all.Go(get(d.AppEntries().Get, pods+pod))
		}
		expect.NoError(t, all.Wait())
		if n := reads(); n == 0 || n > 2 {
			t.Errorf("%d calls read the application %d times, want at most 2: once under way, and once for all that came meanwhile", 2*pods, n)
		}
		for name, do := range map[string]func(context.Context, registry.Instance) error{
			"Register": d.Register, "FailOver": d.FailOver, "Deregister": d.Deregister, "Heartbeat": d.Heartbeat,
		} {
			if _ = do(t.Context(), in); reads() > 0 {
				t.Errorf("%s read the whole application", name)
			}
		}
	})
}
