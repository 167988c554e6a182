package eureka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	const other = "it is not what was asked for"
	in := drivertest.Pod(1)
	list := func(entry string) string { return `{"applications":{"application":[{"instance":[` + entry + `]}]}}` }
	drivertest.Answers(t, func(t *testing.T, endpoint string) registry.Registry {
		t.Helper()
		return withPassword(t, endpoint)
	}, map[string]drivertest.Answer{
		"a wrong password":            {Reason: "a person has to act", Status: 401, Final: true, Field: "auth.passwordFile"},
		"no list":                     {Reason: other, Status: 200, Body: `{"applications":{}}`},
		"no applications":             {Reason: other, Status: 200, Body: `{"application":[]}`},
		"another entry":               {Reason: other, Status: 200, Body: `{"instance":` + entryOf(drivertest.Pod(2), "UP") + `}`},
		"our entry, without a status": {Reason: "it is half of it", Status: 200, Body: list(entryOf(in, ""))},
		"our entry, with a strange port": {
			Reason: "it is at no pod", Status: 200, Body: list(strings.Replace(entryOf(in, "UP"), `"$":80`, `"$":null`, 1)),
		},
	})
	for field, code := range map[string]int{"auth.username": http.StatusUnauthorized, "endpoint": http.StatusNotFound} {
		anonymous := open(t, registry.Config{Endpoint: newFake(t, status(code)).URL})
		drivertest.Refused(t, "a person has to act", anonymous.Register(t.Context(), in), field, "")
	}
}

// TestPolarisIsNotEureka: it takes what is posted, gives it to readers only seconds later, and knows no HEAD (1.18.1). That it
// has no entry is no proof that there will be none.
func TestPolarisIsNotEureka(t *testing.T) {
	t.Parallel()
	polaris := newFake(t, func(r *http.Request) (int, string) {
		switch r.Method {
		case http.MethodPost:
			return http.StatusNoContent, ""
		case http.MethodHead:
			return http.StatusMethodNotAllowed, ""
		}
		return http.StatusNotFound, ""
	})
	d := open(t, registry.Config{Endpoint: polaris.URL})
	if err := d.Register(t.Context(), web(1)); err == nil {
		t.Error("registered, and no reader has it")
	}
	drivertest.Refused(t, "no Eureka answers so", d.Deregister(t.Context(), web(1)), "endpoint", "Polaris")
}

// TestForbiddenHasTwoReasons that are hard to guess.
func TestForbiddenHasTwoReasons(t *testing.T) {
	t.Parallel()
	d := answering(t, http.StatusForbidden, "")
	_, err := d.List(t.Context(), "test")
	drivertest.Passes(t, "List: Netflix's server gives out none at first", err, "just started")
	drivertest.Refused(t, "Register", d.Register(t.Context(), web(1)), "", "CSRF")
}

func TestListIsOfOneCluster(t *testing.T) {
	t.Parallel()
	ours, out, theirs, copied := web(1), web(2), web(3), web(4)
	ours.Weight, ours.Zone, ours.Metadata = 7, "zone-b", map[string]string{"version": "v1"}
	theirs.Cluster = "other"
	app := func(entries ...string) string { return `{"name":"A","instance":[` + strings.Join(entries, ",") + `]}` }
	listing := `{"applications":{"versions__delta":"1","apps__hashcode":"UP_2_","application":[` + strings.Join([]string{
		app(entryOf(ours, "UP"), entryOf(theirs, "UP")),
		app(), // one whose last entry has just gone
		app(entryOf(out, "STARTING"), strings.Replace(entryOf(copied, "UP"), "10.0.0.4:80:", "4711:", 1)),
		app(`{"instanceId":"host:web:80","vipAddress":"web","ipAddr":"10.0.0.5","port":{"$":80},"status":"UP","metadata":{}}`,
			`{"instanceId":"host:web:8443","vipAddress":"web","ipAddr":"10.0.0.5","port":{"$":80,"@enabled":"false"},`+
				`"securePort":{"$":8443,"@enabled":"true"},"status":"UP","metadata":{}}`,
			`{"instanceId":"host:web:82","vipAddress":"web","ipAddr":"10.0.0.5","port":{"$":82,"@enabled":"true"},`+
				`"securePort":{"$":8482,"@enabled":"true"},"status":"UP","metadata":{}}`,
			`{"instanceId":"host:web:81","vipAddress":"web","ipAddr":"10.0.0.5","port":{"$":81},"status":"DOWN","metadata":{}}`),
		app(`{"instanceId":"x","status":"UP","metadata":{"@class":"java.util.Collections$EmptyMap"}}`),
	}, ",") + `]}}`
	got, err := answering(t, 200, listing).List(t.Context(), "test")
	expect.NoError(t, err)
	want := []registry.Entry{
		{Instance: ours, State: registry.InService}, {Instance: out, State: registry.OutOfService},
		{Instance: copied, State: registry.Foreign, ID: "instance ID 4711:Shop web"}, // no call changes what has another ID
		{Instance: registry.Instance{Service: "web", Address: "10.0.0.5", Port: 80}, State: registry.Foreign},
		{Instance: registry.Instance{Service: "web", Address: "10.0.0.5", Port: 8443}, State: registry.Foreign},
		{Instance: registry.Instance{Service: "web", Address: "10.0.0.5", Port: 82}, State: registry.Foreign},
		{Instance: registry.Instance{Service: "web", Address: "10.0.0.5", Port: 8482}, State: registry.Foreign},
	}
	expect.Equal(t, want, got, "what there is")
	_, err = answering(t, 200, listing).List(t.Context(), "")
	expect.Code(t, registry.CodeTerminal, err, "List of no cluster")
}

// TestForeignNamesAreAsClientsFindThem: the entry in the list is of no Rollcall, beside one of the cluster's service "Shop web".
func TestForeignNamesAreAsClientsFindThem(t *testing.T) {
	t.Parallel()
	for vip, tc := range map[string]struct {
		reason string
		want   []string
	}{
		"SHOP WEB":          {"clients look a VIP up in any case", []string{"Shop web"}},
		"shop WEB,Shop API": {"clients split it at commas, and no entry of the cluster spells the other name", []string{"Shop web", "Shop API"}},
		"Shop webs":         {"it is another name", []string{"Shop webs"}},
	} {
		listing := fmt.Sprintf(`{"applications":{"application":[{"instance":[{"instanceId":"x","vipAddress":%q,"ipAddr":"10.0.0.5",`+
			`"port":{"$":80},"status":"UP"},%s]}]}}`, vip, entryOf(web(1), "UP"))
		got, err := answering(t, 200, listing).List(t.Context(), "test")
		expect.NoError(t, err)
		var names []string
		for _, e := range got {
			if e.State == registry.Foreign {
				names = append(names, e.Service)
			}
		}
		expect.Equal(t, tc.want, names, "%s: %s", vip, tc.reason)
	}
}

// TestAnApplicationWithTwoPorts has the instance's port as its secure one, beside a plain one.
func TestAnApplicationWithTwoPorts(t *testing.T) {
	t.Parallel()
	server := newFake(t, func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet && r.URL.Path == "/apps/SHOP WEB" {
			return http.StatusOK, `{"application":{"instance":[{"instanceId":"x","vipAddress":"Shop web","ipAddr":"10.0.0.1","status":"UP",` +
				`"port":{"$":8080,"@enabled":"true"},"securePort":{"$":80,"@enabled":"true"}}]}}`
		}
		return http.StatusNotFound, ""
	})
	drivertest.Says(t, "it has the address and port", open(t, registry.Config{Endpoint: server.URL}), web(1), registry.Foreign)
}

// TestWhatIsPosted is what clients of any kind read.
func TestWhatIsPosted(t *testing.T) {
	t.Parallel()
	in := web(1)
	in.Address, in.Weight, in.Zone, in.Metadata = "fd00::1", 7, "zone-b", map[string]string{"version": "v1"}
	server := newFake(t, healthy(in))
	d := open(t, registry.Config{Endpoint: server.URL + "/eureka/", Options: json.RawMessage(
		`{"renewalIntervalInSecs":5,"durationInSecs":45,"statusPageUrl":""}`)})
	expect.NoError(t, d.Register(t.Context(), in))
	const want = `{"instance":{"instanceId":"[fd00::1]:80:Shop web","app":"Shop web","hostName":"[fd00::1]","ipAddr":"fd00::1",` +
		`"vipAddress":"Shop web","homePageUrl":"http://[fd00::1]:80/","healthCheckUrl":"http://[fd00::1]:80/actuator/health",` +
		`"status":"UP","overriddenstatus":"UNKNOWN","port":{"$":80,"@enabled":"true"},"securePort":{"$":443,"@enabled":"false"},` +
		`"dataCenterInfo":{"@class":"com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo","name":"MyOwn"},` +
		`"leaseInfo":{"renewalIntervalInSecs":5,"durationInSecs":45},"metadata":{"rollcall-cluster":"test",` +
		`"rollcall-namespace":"shop","rollcall-pod":"web-1","rollcall-uid":"uid-1","version":"v1","weight":"7","zone":"zone-b"}}}`
	if got := server.bodies[0]; got != want {
		t.Errorf("posted\n%s\nwant\n%s", got, want)
	}
	if asked := server.requests(); len(asked) != 2 || asked[0] != "POST /eureka/apps/SHOP%20WEB" ||
		asked[1] != "GET /eureka/apps/SHOP%20WEB/%5Bfd00::1%5D:80:Shop%20web" {
		t.Errorf("asked %q", asked)
	}
}

// TestHTTPS: an instance that says so is given to clients with its port as the secure one, and its URLs there are https.
func TestHTTPS(t *testing.T) {
	t.Parallel()
	in := web(1)
	in.Metadata = map[string]string{"secure": "true"}
	server := newFake(t, healthy(in))
	d := open(t, registry.Config{Endpoint: server.URL, Options: json.RawMessage(`{"healthCheckUrl":"http://{host}:9000/{port}/health"}`)})
	expect.NoError(t, d.Register(t.Context(), in))
	for _, want := range []string{
		`"port":{"$":80,"@enabled":"false"},"securePort":{"$":80,"@enabled":"true"}`, `"secureVipAddress":"Shop web"`,
		`"homePageUrl":"https://` + in.Endpoint() + `/"`, `"statusPageUrl":"https://` + in.Endpoint() + `/actuator/info"`,
		`"healthCheckUrl":"http://` + in.Address + `:9000/80/health"`,
	} {
		if !strings.Contains(server.bodies[0], want) {
			t.Errorf("posted\n%s\nwithout %s", server.bodies[0], want)
		}
	}
}

// TestHostName: clients that check a certificate call the pod by the name in it, and Rollcall finds the entry by the address.
func TestHostName(t *testing.T) {
	t.Parallel()
	in := web(1)
	for written, want := range map[string]string{"web-0.web.shop.svc": "web-0.web.shop.svc", "fd00::1": "[fd00::1]"} {
		in.Metadata = map[string]string{"hostName": written}
		server := newFake(t, healthy(in))
		expect.NoError(t, open(t, registry.Config{Endpoint: server.URL}).Register(t.Context(), in))
		for _, part := range []string{
			`"instanceId":"` + in.Endpoint() + `:Shop web"`, `"hostName":"` + want + `","ipAddr":"` + in.Address + `"`, `"homePageUrl":"http://` + want + `:80/"`,
		} {
			if !strings.Contains(server.bodies[0], part) {
				t.Errorf("posted\n%s\nwithout %s", server.bodies[0], part)
			}
		}
	}
}

func TestWhatEurekaCantTakeIsNotSent(t *testing.T) {
	t.Parallel()
	server := newFake(t, status(200))
	d := open(t, registry.Config{Endpoint: server.URL})
	service := func(name string) func(*registry.Instance) {
		return func(in *registry.Instance) { in.Service = name }
	}
	metadata := func(key, value string) func(*registry.Instance) {
		return func(in *registry.Instance) { in.Metadata = map[string]string{key: value} }
	}
	for name, spoil := range map[string]func(*registry.Instance){
		"no service": service(""),
		"no uid":     func(in *registry.Instance) { in.UID = "" },
		"a dot":      service("."), "two dots": service(".."), "a slash": service("a/b"), "a backslash": service(`a\b`),
		"a percent sign": service("a%20b"), "a semicolon": service("a;b"), "a comma": service("a,b"), "a line": service("a\nb"),
		"a separator": service("a\u2028b"), "no UTF-8": service("a\xff"), "a bell": service("a\ab"), "a C1 control": service("a\u0085b"),
		"an empty key": metadata("", "x"), "a colon in a key": metadata("a:b", ""), "the key of a Java class": metadata("@class", "x"),
		"a control character": metadata("note", "a\x01b"), "a NUL in a key": metadata("a\x00b", "x"),
		"no character": metadata("note", "\uffff"), "metadata that is no UTF-8": metadata("note", "\xff"),
		"odd namespace": func(in *registry.Instance) { in.Namespace = "a\x00" },
	} {
		in := web(1)
		spoil(&in)
		for call, err := range drivertest.Calls(t.Context(), d, in) {
			if call != "List" && registry.CodeOf(err) != registry.CodeTerminal {
				t.Errorf("%s of an instance with %s: got error %v, want a terminal one", call, name, err)
			}
		}
	}
	for _, asked := range server.requests() {
		if asked != "GET /apps" {
			t.Errorf("the server was asked %s, want nothing but the list", asked)
		}
	}
}

// TestForeignEntryIsLeftAlone has an entry that has our ID and no mark at all.
func TestForeignEntryIsLeftAlone(t *testing.T) {
	t.Parallel()
	unmarked := web(1)
	unmarked.Cluster, unmarked.Namespace, unmarked.Pod, unmarked.UID = "", "", "", ""
	server := newFake(t, healthy(unmarked))
	d := open(t, registry.Config{Endpoint: server.URL})
	expect.NoError(t, errors.Join(d.FailOver(t.Context(), web(1)), d.Deregister(t.Context(), web(1))))
	expect.Code(t, registry.CodeNotRegistered, d.Heartbeat(t.Context(), web(1)), "Heartbeat")
	for _, asked := range server.requests() {
		if !strings.HasPrefix(asked, "GET ") {
			t.Errorf("sent %s, want nothing that changes anything", asked)
		}
	}
}

// TestRegisterBelievesOnlyTheRegistry has a server that acknowledges everything and does nothing of it.
func TestRegisterBelievesOnlyTheRegistry(t *testing.T) {
	t.Parallel()
	type row struct {
		has  func(in registry.Instance) (int, string)
		says string
	}
	expect.Each(t, map[string]row{
		"no entry": {func(registry.Instance) (int, string) { return 404, "" }, "does not have the entry"},
		"out of service": {func(in registry.Instance) (int, string) {
			return 200, `{"instance":` + entryOf(in, "OUT_OF_SERVICE") + `}`
		}, "status OUT_OF_SERVICE"},
		"another pod's": {func(in registry.Instance) (int, string) {
			in.UID = "other"
			return 200, `{"instance":` + entryOf(in, "UP") + `}`
		}, "another pod"},
		"a half-done entry": {func(in registry.Instance) (int, string) { return 200, `{"instance":` + entryOf(in, "STARTING") + `}` }, "status STARTING"},
	}, func(t *testing.T, tc row) {
		in := web(1)
		server := newFake(t, func(r *http.Request) (int, string) {
			if r.Method == http.MethodGet {
				return tc.has(in)
			}
			return 204, ""
		})
		err := open(t, registry.Config{Endpoint: server.URL}).Register(t.Context(), in)
		drivertest.Passes(t, "it is not in service", err, tc.says)
		if n := len(server.requests()); n > 10 {
			t.Errorf("it took %d requests to give up", n)
		}
	})
}

// TestCallsForOneIdentityTakeTurns has calls that wait for another one, and no longer than they may.
func TestCallsForOneIdentityTakeTurns(t *testing.T) {
	t.Parallel()
	in, other := web(1), web(2)
	reached, release := make(chan struct{}, 1), make(chan struct{})
	server := newFake(t, func(r *http.Request) (int, string) {
		if strings.Contains(r.URL.Path, other.Address) {
			return healthy(other)(r)
		}
		if r.Method == http.MethodPost {
			reached <- struct{}{}
			<-release
		}
		return healthy(in)(r)
	})
	d := open(t, registry.Config{Endpoint: server.URL})
	first := make(chan error, 1)
	go func() { first <- d.Register(t.Context(), in) }()
	<-reached
	for name, call := range map[string]func(context.Context, registry.Instance) error{
		"Deregister": d.Deregister, "Heartbeat": d.Heartbeat,
	} {
		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := call(short, in); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s of the identity: got error %v, want the deadline's", name, err)
		}
		if err := call(t.Context(), other); err != nil {
			t.Errorf("%s of another identity: %v", name, err)
		}
	}
	close(release)
	expect.NoError(t, <-first)
}

// TestTagsCostNoCall: Eureka has no place for tags, so that they are missing in the answer says nothing of whose entry it is.
func TestTagsCostNoCall(t *testing.T) {
	t.Parallel()
	in := web(1)
	server := newFake(t, healthy(in))
	d := open(t, registry.Config{Endpoint: server.URL})
	in.Tags = []string{"primary"}
	expect.NoError(t, d.Register(t.Context(), in))
	want := []string{"POST /apps/SHOP%20WEB", "GET /apps/SHOP%20WEB/10.0.0.1:80:Shop%20web"}
	expect.Equal(t, want, server.requests(), "requests")
}
