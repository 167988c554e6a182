package eureka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/eureka"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

const (
	appPath = "/apps/SHOP%20WEB"
	ownPath = appPath + "/10.0.0.1:80:Shop%20web"
	copied  = "POST " + appPath
)

// TestACallIsMadeWholeElsewhere has a peer fail in the middle: what it has acknowledged is not yet known to the other.
func TestACallIsMadeWholeElsewhere(t *testing.T) {
	t.Parallel()
	in := web(1)
	first := newFake(t, func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet {
			return http.StatusServiceUnavailable, ""
		}
		return healthy(in)(r)
	})
	second := newFake(t, healthy(in))
	expect.NoError(t, open(t, registry.Config{Endpoint: first.URL + "," + second.URL}).Register(t.Context(), in))
	expect.Equal(t, []string{"POST " + appPath, "GET " + ownPath}, second.requests(), "requests at the second peer")
}

// TestAChangeWithoutAnAnswerIsNotMadeElsewhere: the first peer may still make it. The next call begins at the other one. A renewal is
// made there at once.
func TestAChangeWithoutAnAnswerIsNotMadeElsewhere(t *testing.T) {
	t.Parallel()
	in := web(1)
	expect.Each(t, map[string]func(*http.Request) (int, string){
		"a gateway's answer": status(http.StatusBadGateway),
		"a cut connection":   func(*http.Request) (int, string) { panic(http.ErrAbortHandler) },
	}, func(t *testing.T, trouble func(*http.Request) (int, string)) {
		first := newFake(t, func(r *http.Request) (int, string) {
			if r.Method == http.MethodGet {
				return holding(entryOf(in, "UP"))(r)
			}
			return trouble(r)
		})
		second := newFake(t, holding(entryOf(in, "UP")))
		d := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
		err := d.Register(t.Context(), in)
		if !drivertest.MayLand(err) || len(second.requests()) > 0 {
			t.Errorf("got error %v, want one of a call that may still be made, and none at the second peer", err)
		}
		expect.NoError(t, d.Register(t.Context(), in))
		renewing := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
		expect.NoError(t, renewing.Heartbeat(t.Context(), in))
	})
}

// TestAPeerThatIsNoEureka is the first of two: the call is made at the other one. Only where none is a Eureka a person has to act.
func TestAPeerThatIsNoEureka(t *testing.T) {
	t.Parallel()
	in := web(1)
	list := func(d *eureka.Registry, ctx context.Context, in registry.Instance) error {
		_, err := d.List(ctx, in.Cluster)
		return err
	}
	calls := map[string]func(*eureka.Registry, context.Context, registry.Instance) error{
		"Register": (*eureka.Registry).Register, "FailOver": (*eureka.Registry).FailOver, "List": list,
		"Get": says(registry.InService, (*eureka.Registry).Get),
	}
	for name, answer := range map[string]func(*http.Request) (int, string){
		"a page":       func(*http.Request) (int, string) { return http.StatusOK, "<html>" },
		"other JSON":   func(*http.Request) (int, string) { return http.StatusOK, `{"status":"ok"}` },
		"a wrong path": status(http.StatusNotFound),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for of, call := range calls {
				first := newFake(t, answer)
				d := open(t, registry.Config{Endpoint: first.URL + "," + newFake(t, holding(entryOf(in, "UP"))).URL})
				if err := call(d, t.Context(), in); err != nil || len(first.requests()) == 0 {
					t.Errorf("%s: got error %v, want success at the second peer", of, err)
				}
				alone := call(open(t, registry.Config{Endpoint: first.URL + "," + newFake(t, answer).URL}), t.Context(), in)
				if alone == nil || (registry.CodeOf(alone) == registry.CodeTerminal) != (name == "a wrong path") || !strings.Contains(alone.Error(), first.URL) {
					t.Errorf("%s: got error %v with no Eureka, want one that names each", of, alone)
				}
			}
		})
	}
}

// TestAHeartbeatIsToldOnce: a peer tells the others of it, late and with the entry as it was, only if Rollcall could not.
func TestAHeartbeatIsToldOnce(t *testing.T) {
	t.Parallel()
	in := web(1)
	expect.Each(t, map[string]struct {
		reason, replicated string
		second             func(*http.Request) (int, string)
	}{
		"all were told":       {"the second one has it from Rollcall", "true", holding(entryOf(in, "UP"))},
		"one lacked it":       {"the second one was given it by Rollcall", "true", lackingUntilPosted()},
		"one could not be":    {"the second one may be reached from the first", "", status(http.StatusServiceUnavailable)},
		"one has a later one": {"its lease is renewed with that", "true", status(http.StatusConflict)},
	}, func(t *testing.T, tc struct {
		reason, replicated string
		second             func(*http.Request) (int, string)
	}) {
		var replicated atomic.Value
		has := holding(entryOf(in, "UP"))
		first := newFake(t, func(r *http.Request) (int, string) {
			if r.Method == http.MethodPut {
				replicated.Store(r.Header.Get("X-Netflix-Discovery-Replication"))
			}
			return has(r)
		})
		d := open(t, registry.Config{Endpoint: first.URL + "," + newFake(t, tc.second).URL})
		expect.NoError(t, d.Heartbeat(t.Context(), in))
		expect.Equal(t, any(tc.replicated), replicated.Load(), "the heartbeat has the header: %s", tc.reason)
	})
}

func lackingUntilPosted() func(*http.Request) (int, string) {
	return func(r *http.Request) (int, string) {
		if r.Method == http.MethodPost {
			return http.StatusNoContent, ""
		}
		return http.StatusNotFound, ""
	}
}

// peersCase is a call for an instance, to the first of two peers.
type peersCase struct {
	reason string
	// has is the entry that the test gives a peer, and want what is then asked of the second one.
	has  string
	call func(*eureka.Registry, context.Context, registry.Instance) error
	want []string
}

// steered is a call for the application's entry.
func steered(
	call func(registry.AppRegistry, context.Context, registry.Instance) error,
) func(*eureka.Registry, context.Context, registry.Instance) error {
	return func(d *eureka.Registry, ctx context.Context, in registry.Instance) error {
		return call(d.AppEntries(), ctx, in)
	}
}

// says is a call that is to be answered with a state.
func says[D registry.Registry](
	want registry.State, get func(D, context.Context, registry.Instance) (registry.State, error),
) func(D, context.Context, registry.Instance) error {
	return func(d D, ctx context.Context, in registry.Instance) error {
		state, err := get(d, ctx, in)
		if err == nil && state != want {
			return fmt.Errorf("Get says %s, want %s", state, want)
		}
		return err
	}
}

// TestAPeerThatHasJustStarted is the first of the endpoint and has nothing. The second one has the entry.
func TestAPeerThatHasJustStarted(t *testing.T) {
	t.Parallel()
	own, another, app := web(1), web(1), registry.Instance{Service: "Shop web", Address: "10.0.0.1", Port: 80}
	another.UID = "uid-2"
	up, appOut := entryOf(own, "UP"), []string{"PUT " + appPath + "/web-1.shop:web/status?value=OUT_OF_SERVICE"}
	ofApp := strings.Replace(entryOf(app, "UP"), `"10.0.0.1:80:Shop web"`, `"web-1.shop:web"`, 1)
	const given, released = "clients of the second one are given it", "hooks would be released while clients are given it"
	getApp := steered(says(registry.InService, registry.AppRegistry.Get))
	expect.Each(t, map[string]peersCase{
		"FailOver":                {given, up, (*eureka.Registry).FailOver, []string{copied}},
		"FailOver of another's":   {"a post at the first one would replace it", entryOf(another, "UP"), (*eureka.Registry).FailOver, nil},
		"Deregister":              {"clients have it until its lease ends", up, (*eureka.Registry).Deregister, []string{"DELETE " + ownPath}},
		"Get":                     {released, up, says(registry.InService, (*eureka.Registry).Get), nil},
		"Get beside an app":       {"it has the address", ofApp, says(registry.Foreign, (*eureka.Registry).Get), []string{"PUT " + ownPath}},
		"FailOver of the app's":   {given, ofApp, steered(registry.AppRegistry.FailOver), appOut},
		"Deregister of the app's": {"the override goes only with the entry", ofApp, steered(registry.AppRegistry.Deregister), appOut},
		"Get of the app's":        {released, ofApp, getApp, nil},
	}, func(t *testing.T, tc peersCase) {
		first := newFake(t, nothing)
		second := newFake(t, holding(tc.has))
		d := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
		if err := tc.call(d, t.Context(), own); err != nil {
			t.Errorf("got error %v\nreason: %s", err, tc.reason)
		}
		expect.Equal(t, tc.want, changes(second), "changes at the second peer: %s", tc.reason)
		for _, made := range changes(first) {
			if strings.HasPrefix(made, "POST ") && !slices.Contains(tc.want, made) {
				t.Errorf("the first peer was sent %s, want nothing that makes an entry of its own\nreason: %s", made, tc.reason)
			}
		}
		_ = first.requests()
		_ = d.Heartbeat(t.Context(), own)
		if len(first.requests()) == 0 {
			t.Errorf("the first peer was sent nothing after that, want calls to begin there still: what the second one has may be gone elsewhere")
		}
	})
}

// TestARenewalReachesEveryPeer, also if the first one tells the others nothing: it is cut off from them, or its clock was set back.
func TestARenewalReachesEveryPeer(t *testing.T) {
	t.Parallel()
	const renewal = "PUT " + ownPath + "?lastDirtyTimestamp=1700000000000&status="
	type row struct {
		reason, status string
		lacks          bool
		want           []string
	}
	expect.Each(t, map[string]row{
		"it has the entry":         {"its lease goes on", "UP", false, []string{renewal + "UP"}},
		"it lacks the entry":       {"its clients are not given the pod", "UP", true, []string{renewal + "UP", copied}},
		"it lacks one that is out": {"as its peer has it", "STARTING", true, []string{renewal + "STARTING", copied}},
		"an override":              {"a post would leave what no override undoes", "OUT_OF_SERVICE", true, []string{renewal + "OUT_OF_SERVICE"}},
	}, func(t *testing.T, tc row) {
		in := web(1)
		has := holding(entryOf(in, tc.status))
		first, second := newFake(t, has), newFake(t, has)
		if tc.lacks {
			second.answer = nothing
		}
		d := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
		expect.NoError(t, d.Heartbeat(t.Context(), in))
		expect.Equal(t, tc.want, second.requests(), "what the second peer was asked: %s", tc.reason)
		for _, body := range second.bodies {
			if body != "" && !strings.Contains(body, `"status":"`+tc.status+`"`) {
				t.Errorf("posted %s", body)
			}
		}
	})
}

// TestListHasWhatAnyPeerHas: a removal may have missed one that was about to start, whose clients are given the entry until its lease ends.
func TestListHasWhatAnyPeerHas(t *testing.T) {
	t.Parallel()
	in := web(1)
	has, lacks := `[`+entryOf(in, "UP")+`]`, `[]`
	expect.Each(t, map[string]struct {
		reason        string
		first, second string
		want          int
	}{
		"only the other one":   {"it has to be found to be removed", lacks, has, 1},
		"both":                 {"it is one entry", has, has, 1},
		"the other one is new": {"it lacks what is not replicated to it yet", has, lacks, 1},
		"the other one fails":  {"a list must not wait for all of them", has, `!`, 1},
	}, func(t *testing.T, tc struct {
		reason        string
		first, second string
		want          int
	}) {
		listing := func(instances string) string {
			return newFake(t, func(*http.Request) (int, string) {
				return http.StatusOK, `{"applications":{"application":[{"instance":` + instances + `}]}}`
			}).URL
		}
		got, err := open(t, registry.Config{Endpoint: listing(tc.first) + "," + listing(tc.second)}).List(t.Context(), in.Cluster)
		if err != nil || len(got) != tc.want {
			t.Errorf("got %v, error %v; want %d: %s", got, err, tc.want, tc.reason)
		}
	})
}

// TestAPeerThatIsAwaySaysNothing: what no peer that can be reached has is not there.
func TestAPeerThatIsAwaySaysNothing(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]string{
		"no connection": "http://" + registrytest.UnusedAddress(t),
		"503":           newFake(t, status(http.StatusServiceUnavailable)).URL,
		"no answer":     hanging(t).URL,
	}, func(t *testing.T, endpoint string) {
		in := web(1)
		d := open(t, registry.Config{Endpoint: newFake(t, nothing).URL + "," + endpoint})
		within := func(call func(context.Context, registry.Instance) error) error {
			ctx := drivertest.Within(t, 4*time.Second)
			return call(ctx, in)
		}
		get := func(ctx context.Context, in registry.Instance) error {
			return says(registry.Absent, (*eureka.Registry).Get)(d, ctx, in)
		}
		expect.NoError(t, errors.Join(within(get), within(d.Deregister), within(d.AppEntries().FailOver)))
	})
}

// TestEveryPeerGetsAChange has two peers that replicate nothing.
func TestEveryPeerGetsAChange(t *testing.T) {
	t.Parallel()
	in, app := web(1), registry.Instance{Service: "Shop web", Address: "10.0.0.1", Port: 80}
	overridden := strings.Replace(entryOf(app, "OUT_OF_SERVICE"), `"status"`, `"overriddenStatus":"OUT_OF_SERVICE","status"`, 1)
	const (
		given    = "the other one would give it to its clients for as long as it is renewed"
		lost     = "the first one has it in its memory only, and may die before it has replicated it"
		kept     = "the other one would keep it from its clients for as long as it is renewed"
		override = "an override that stays keeps out what is registered there next"
		untold   = "the call before may have failed when it read back, and have told the other one nothing"
	)
	putsBack := []string{"DELETE " + ownPath + "/status?value=UP"}
	expect.Each(t, map[string]peersCase{
		"FailOver":                {given, entryOf(in, "UP"), (*eureka.Registry).FailOver, []string{copied}},
		"Register":                {lost, entryOf(in, "UP"), (*eureka.Registry).Register, []string{copied}},
		"Register of what is out": {kept, entryOf(in, "OUT_OF_SERVICE"), (*eureka.Registry).Register, append(putsBack, copied)},
		"FailOver of the app's":   {given, entryOf(app, "UP"), steered(registry.AppRegistry.FailOver), []string{"PUT " + ownPath + "/status?value=OUT_OF_SERVICE"}},
		"Register of the app's":   {kept, overridden, steered(registry.AppRegistry.Register), putsBack},
		"Deregister":              {override, entryOf(in, "UP"), (*eureka.Registry).Deregister, []string{"DELETE " + ownPath}},
		"FailOver again":          {untold, entryOf(in, "STARTING"), (*eureka.Registry).FailOver, []string{copied}},
		"FailOver of what is out": {untold, entryOf(in, "OUT_OF_SERVICE"), (*eureka.Registry).FailOver, []string{copied}},
		"Get of what is out":      {untold, entryOf(in, "STARTING"), says(registry.OutOfService, (*eureka.Registry).Get), []string{copied}},
	}, func(t *testing.T, tc peersCase) {
		first := newFake(t, holding(tc.has))
		other := holding(tc.has)
		second := newFake(t, func(r *http.Request) (int, string) {
			expect.Equal(t, "true", r.Header.Get("X-Netflix-Discovery-Replication"), "%s is not marked as replicated: the peer would send it back, after a later change maybe", r.URL)
			return other(r)
		})
		d := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
		if err := tc.call(d, t.Context(), in); err != nil {
			t.Errorf("got error %v\nreason: %s", err, tc.reason)
		}
		expect.Equal(t, tc.want, second.requests(), "requests at the other peer: %s", tc.reason)
	})
}

// TestAPodIsTakenOutWithoutAnOverride: a peer that gets one late, after it was removed, keeps the pod from its clients for as long as it
// is renewed.
func TestAPodIsTakenOutWithoutAnOverride(t *testing.T) {
	t.Parallel()
	in := web(1)
	var posted atomic.Bool
	first := newFake(t, func(r *http.Request) (int, string) {
		switch {
		case r.Method == http.MethodPost:
			posted.Store(true)
		case posted.Load() && r.Method == http.MethodGet:
			return http.StatusOK, `{"instance":` + entryOf(in, "STARTING") + `}`
		}
		return nothing(r)
	})
	second := newFake(t, nothing)
	d := open(t, registry.Config{Endpoint: first.URL + "," + second.URL})
	expect.NoError(t, d.FailOver(t.Context(), in))
	expect.NoError(t, d.FailOver(t.Context(), in))
	renew := "PUT " + ownPath
	expect.Equal(t, []string{renew, copied}, changes(first), "changes at the first peer")
	expect.Equal(t, []string{renew, copied, copied}, changes(second), "changes at the other peer, which may not have taken the first")
	if sent := second.bodies[len(second.bodies)-1]; !strings.Contains(sent, `"status":"STARTING"`) || !strings.Contains(sent, "1700000000000") {
		t.Errorf("the other peer was sent %s, want the status and the time that the first one has", sent)
	}
}

// TestAPeerThatIsAwayCostsNoAcknowledgement has one of three peers that does not take the entry.
func TestAPeerThatIsAwayCostsNoAcknowledgement(t *testing.T) {
	t.Parallel()
	in := web(1)
	expect.Each(t, map[string]string{
		"no connection": "http://" + registrytest.UnusedAddress(t),
		"no entry":      newFake(t, nothing).URL,
		"500":           newFake(t, status(http.StatusInternalServerError)).URL,
		"no answer":     hanging(t).URL,
	}, func(t *testing.T, away string) {
		ctx := drivertest.Within(t, 10*time.Second)
		first, third := newFake(t, holding(entryOf(in, "UP"))), newFake(t, holding(entryOf(in, "UP")))
		began := time.Now()
		expect.NoError(t, open(t, registry.Config{Endpoint: first.URL + "," + away + "," + third.URL}).FailOver(ctx, in))
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s, want most of the time to be left", took)
		}
		expect.Equal(t, []string{copied}, third.requests(), "requests at the peer behind it")
	})
}

// changes are the requests so far that are no reads.
func changes(f *fake) (made []string) {
	for _, asked := range f.requests() {
		if !strings.HasPrefix(asked, "GET ") && !strings.HasPrefix(asked, "HEAD ") {
			made = append(made, asked)
		}
	}
	return made
}

// nothing answers as a Eureka that has no entry.
func nothing(r *http.Request) (int, string) {
	switch {
	case r.URL.Path == "/apps":
		return http.StatusOK, `{"applications":{"application":[]}}`
	case r.Method == http.MethodPost:
		return http.StatusNoContent, ""
	}
	return http.StatusNotFound, ""
}

// holding answers as a Eureka that has one entry, and carries out changes of its status.
func holding(entry string) func(r *http.Request) (int, string) {
	const up, out, starting = `"status":"UP"`, `"status":"OUT_OF_SERVICE"`, `"status":"STARTING"`
	_, id, _ := strings.Cut(entry, `"instanceId":"`)
	id, _, _ = strings.Cut(id, `"`)
	var mu sync.Mutex
	return func(r *http.Request) (int, string) {
		mu.Lock()
		defer mu.Unlock()
		of, isStatus := strings.CutSuffix(r.URL.Path, "/status")
		switch {
		case r.URL.Path == "/apps":
			return http.StatusOK, `{"applications":{"application":[{"instance":[` + entry + `]}]}}`
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			for _, status := range []string{up, starting} {
				if strings.Contains(string(body), status) {
					entry = strings.NewReplacer(up, status, starting, status).Replace(entry)
				}
			}
			return http.StatusNoContent, ""
		case strings.HasSuffix(r.URL.Path, "/SHOP WEB"):
			return http.StatusOK, `{"application":{"instance":[` + entry + `]}}`
		case !strings.HasSuffix(of, "/"+id):
			return http.StatusNotFound, ""
		case isStatus && r.Method == http.MethodPut:
			entry = strings.Replace(entry, up, out, 1)
		case isStatus:
			entry = strings.Replace(entry, out, up, 1)
		}
		return http.StatusOK, `{"instance":` + entry + `}`
	}
}

// hanging is a peer that takes requests and does not answer until its client has gone.
func hanging(t *testing.T) *fake {
	t.Helper()
	return newFake(t, func(r *http.Request) (int, string) {
		<-r.Context().Done()
		return http.StatusOK, ""
	})
}
