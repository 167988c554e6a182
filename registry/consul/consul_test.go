package consul_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// What only a real server can prove is in test/registries/consul: the suite too. Here is what no server does when it is
// asked, and what goes over the wire.

func open(t *testing.T, cfg registry.Config) *consul.Registry {
	t.Helper()
	return drivertest.Open[*consul.Registry](t, consul.New, cfg)
}

// answering makes a driver whose server gives one answer to everything.
func answering(t *testing.T, status int, header map[string]string, body string) *consul.Registry {
	t.Helper()
	return open(t, registry.Config{Endpoint: drivertest.Answering(t, status, header, body)})
}

func TestNew(t *testing.T) {
	t.Parallel()
	d := drivertest.Driver{New: consul.New, Good: "https://consul.example.com:8501", Auth: []driverkit.AuthKind{driverkit.Token}}
	d.Run(t, map[string]drivertest.Case{
		"datacenter":    d.Options("it goes into a query", `{"datacenter": "dc 1"}`, "options.datacenter", "letters"),
		"namespace":     d.Options("a wildcard reads all and writes none", `{"namespace": "*"}`, "options.namespace", "letters"),
		"partition":     d.Options("a wildcard reads all and writes none", `{"partition": "*"}`, "options.partition", "letters"),
		"place":         d.Options("as documented", `{"namespace": "{namespace}", "partition": "p-{nsLabel:example.com/team}"}`, "", ""),
		"no place":      d.Options("there is none such", `{"namespace": "{pod}"}`, "options.namespace", "use {namespace}, {label:KEY} or"),
		"no such state": d.Options("clients would be sent to it", `{"outOfRotation": "maintenance"}`, "options.outOfRotation", "critical, delete"),
		"bad place":     d.Options("no pod could have it", `{"partition": "a.{namespace}"}`, "options.partition", "letters"),
		"node":          d.Options("it goes into a path", `{"nodePrefix": "a/b"}`, "options.nodePrefix", "letters"),
		"node, dot":     d.Options("that separates the namespace", `{"nodePrefix": "a."}`, "options.nodePrefix", "letters"),
		"node, empty":   d.Options("00 is no name", `{"nodePrefix": ""}`, "options.nodePrefix", "is empty"),
		"node, long": d.Options(
			"it goes into every request", `{"nodePrefix": "`+strings.Repeat("n", 65)+`"}`, "options.nodePrefix", "65"),
		"server name over http": drivertest.Wrong(
			"it promises what is not there",
			registry.Config{Endpoint: "http://consul:8500", Options: json.RawMessage(`{"serverName": "x"}`)},
			"options.serverName", "endpoint is not https://"),
		"a login without a token": d.Options("there is nothing to log in with", `{"authMethod": "kubernetes"}`, "auth.tokenFile", "is missing"),
		"one agent for all": d.Options(
			"each node has its own", `{"agentEndpoint": "http://consul:8500"}`, "options.agentEndpoint", "use {nodeIP} or {node}"),
		"agent without a scheme": d.Options(
			"a bare host is ambiguous", `{"agentEndpoint": "{nodeIP}:8500"}`, "options.agentEndpoint", "use an http or https URL"),
		"agent's name over http": d.Options("it promises what is not there",
			`{"agentEndpoint": "http://{nodeIP}:8500", "agentServerName": "x"}`, "options.agentServerName", "is not https://"),
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	const token = "auth.tokenFile"
	drivertest.Answers(t, func(t *testing.T, endpoint string) registry.Registry {
		t.Helper()
		return open(t, registry.Config{Endpoint: endpoint})
	}, map[string]drivertest.Answer{
		"who are you":  {Reason: "a person has to act", Status: 401, Final: true, Field: token},
		"no right":     {Reason: "a person has to act", Status: 403, Final: true, Field: token},
		"no such path": {Reason: "it stays so", Status: 404, Final: true},
		"rolled back":  {Reason: "it does not say why", Status: 409},
		"no results":   {Reason: "nothing was done", Status: 200, Body: `{"Results": null, "Errors": null}`},
		"a list":       {Reason: "it is not the outcome", Status: 200, Body: "[]"},
	})
}

// TestChangesThatMayLand: Consul says of some changes that it does not know what became of them. The next leader may have them.
func TestChangesThatMayLand(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, said string
		late         bool
	}
	expect.Each(t, map[string]row{
		"deposed":            {"its peers may have the log's entry", "leadership lost while committing log", true},
		"deposed, passed on": {"the same by way of another server", "rpc error making call: leadership lost while committing log", true},
		"the leader died":    {"it may have passed the entry on", "rpc error making call: EOF", true},
		"the leader hangs":   {"it may still do it", "rpc error making call: i/o deadline reached: i/o timeout", true},
		"no leader":          {"nothing was begun", "No cluster leader", false},
		"no way to it":       {"nothing was sent", "rpc error getting client: failed to get conn: dial tcp: connection refused", false},
		"refused by it":      {"the leader has answered", "rpc error making call: Permission denied: token lacks permission", false},
		"not the leader":     {"raft took nothing", "rpc error making call: node is not the leader", false},
	}, func(t *testing.T, tc row) {
		d := answering(t, http.StatusInternalServerError, nil, tc.said)
		for op, call := range map[string]func(context.Context, registry.Instance) error{
			"Register": d.Register, "FailOver": d.FailOver, "Deregister": d.Deregister,
		} {
			err := call(t.Context(), drivertest.Pod(1))
			if is := drivertest.MayLand(err); err == nil || is != tc.late {
				t.Errorf("%s: got error %v, of a change that may land: %t; %s", op, err, is, tc.reason)
			}
		}
	})
}

// TestATokenThatIsNotKnownYetIsNotWrong has a server that was just restarted: it knows no token before it has replayed
// its log, which only a consistent transaction that reads waits for.
func TestATokenThatIsNotKnownYetIsNotWrong(t *testing.T) {
	t.Parallel()
	d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		var ops []map[string]map[string]any
		_ = json.NewDecoder(r.Body).Decode(&ops)
		for _, op := range ops {
			for _, o := range op {
				if o["Verb"] == "get" {
					_, _ = io.WriteString(w, `{"Results": [{"Service": {"ID": "web-10.0.0.1-80", "ModifyIndex": 7,
						"Meta": {"rollcall-uid": "uid-1"}}}]}`)
					return
				}
			}
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "ACL not found")
	})})
	for op, err := range drivertest.Calls(t.Context(), d, drivertest.Pod(1)) {
		drivertest.Passes(t, op, err, "ACL not found")
	}
}

func TestWhatARolledBackTransactionSaysDecides(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		what     string
		terminal bool
		field    string
	}
	expect.Each(t, map[string]row{
		"no right":        {"a person has to grant it", "Permission denied: token lacks permission", true, "auth.tokenFile"},
		"an agent's node": {"another name must be found", "Node name rollcall-07 is reserved by node x", true, "options.nodePrefix"},
		"bad meta":        {"it stays as it is", "Invalid Service Meta for node x", true, ""},
		"bad address":     {"it stays as it is", "Invalid service address", true, ""},
		"stale":           {"somebody else was faster", "failed to set node, index is stale", false, ""},
		"no node":         {"it went in the same moment", "Missing node registration", false, ""},
		"anything else":   {"unknown is retryable", "the sky fell", false, ""},
	}, func(t *testing.T, tc row) {
		body := fmt.Sprintf(`{"Results": null, "Errors": [{"OpIndex": 1, "What": %q}]}`, tc.what)
		err := answering(t, http.StatusConflict, nil, body).Register(t.Context(), drivertest.Pod(1))
		if tc.terminal {
			drivertest.Refused(t, tc.reason, err, tc.field, "")
			return
		}
		drivertest.Passes(t, tc.reason, err, "")
	})
}

// TestAConditionThatNeverHoldsIsGivenUp has a server on which somebody else is always faster.
func TestAConditionThatNeverHoldsIsGivenUp(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"Results": null, "Errors": [{"OpIndex": 1, "What": "failed to set service, index is stale"}]}`)
	})})
	err := d.Register(t.Context(), drivertest.Pod(1))
	if err == nil || registry.CodeOf(err) == registry.CodeTerminal || registry.CodeOf(err) == registry.CodeNotApplied {
		t.Errorf("Register: got error %v, want a retryable one", err)
	}
	if n := requests.Load(); n < 2 || n > 10 {
		t.Errorf("Register made %d requests, want a few", n)
	}
	changes := []registry.Change{{Instance: drivertest.Pod(1), State: registry.InService}, {Instance: drivertest.Pod(2), State: registry.InService}}
	for i, err := range d.Batch(t.Context(), changes) {
		expect.Code(t, registry.CodeNotApplied, err, "change %d of a batch", i)
	}
}

// wire keeps what a driver sends, and answers as a Consul does that has the entry of drivertest.Pod(1).
type wire struct {
	mu       sync.Mutex
	requests []request
}

type request struct {
	path  string
	query map[string][]string
	ops   []map[string]map[string]any
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	got := request{path: r.URL.Path, query: r.URL.Query()}
	_ = json.NewDecoder(r.Body).Decode(&got.ops)
	w.mu.Lock()
	w.requests = append(w.requests, got)
	w.mu.Unlock()
	rw.Header().Set("X-Consul-Lastcontact", "0")
	rw.Header().Set("X-Consul-Knownleader", "true")
	_, _ = io.WriteString(rw, w.answer(got))
}

func (w *wire) answer(r request) string {
	switch {
	case strings.HasPrefix(r.path, "/v1/health/state/"):
		return `[]`
	case strings.HasPrefix(r.path, "/v1/catalog/node-services/"):
		return `{"Node": null, "Services": []}`
	case r.path == "/v1/catalog/services":
		return `{}`
	}
	return `{"Results": [{"Service": {"ID": "web-10.0.0.1-80", "Service": "web", "ModifyIndex": 7,
		"Meta": {"rollcall-uid": "uid-1"}}}], "Errors": null}`
}

// sent returns what the driver sent for all of its calls in a place.
func (w *wire) sent(t *testing.T, options, place string) []request {
	t.Helper()
	d := drivertest.Open[registry.Registry](t, consul.New, registry.Config{
		Cluster: "test", Endpoint: drivertest.Serve(t, w.ServeHTTP), Options: json.RawMessage(options),
	})
	in := drivertest.Pod(1)
	in.Place = place
	calls := drivertest.Calls(t.Context(), d, in)
	if placer, is := d.(registry.PlaceLister); is {
		_, calls["ListPlace"] = placer.ListPlace(t.Context(), "test", place)
	}
	for op, err := range calls {
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

// TestNamespaceAndPartitionAreSent is all that is proven of Consul Enterprise.
func TestNamespaceAndPartitionAreSent(t *testing.T) {
	t.Parallel()
	type row struct {
		reason                                string
		options                               string
		dc, namespace, partition, node, place string
	}
	expect.Each(t, map[string]row{
		"none":      {"the free edition refuses them", `{}`, "", "", "", "rollcall-??", ""},
		"namespace": {"the nodes are others for each", `{"namespace": "team"}`, "", "team", "", "rollcall-??.team", ""},
		"all": {
			"each has its place", `{"datacenter": "dc2", "namespace": "team", "partition": "part", "nodePrefix": "mine"}`,
			"dc2", "team", "part", "mine??.team", "",
		},
		"placed": {"the pod has it", `{"namespace": "ns-{namespace}"}`, "", "ns-shop", "", "rollcall-??.ns-shop", "ns-shop"},
		"placed twice": {
			"the partition is before the namespace", `{"namespace": "{namespace}", "partition": "{nsLabel:team}"}`,
			"", "shop", "a", "rollcall-??.shop", "a/shop",
		},
		"placed in a partition": {
			"the namespace is the same for all", `{"namespace": "team", "partition": "{label:part}"}`, "", "team", "b", "rollcall-??.team", "b",
		},
	}, func(t *testing.T, tc row) {
		requests := (&wire{}).sent(t, tc.options, tc.place)
		want := map[string]string{"dc": tc.dc, "ns": tc.namespace, "partition": tc.partition}
		reads := 0
		for _, r := range requests {
			if r.path == "/v1/txn" {
				expectOperations(t, r, tc.dc, tc.namespace, tc.partition, tc.node)
				expectQuery(t, r, map[string]string{"dc": tc.dc, "ns": "", "partition": ""})
				continue
			}
			reads++
			expectQuery(t, r, want)
			if of := path.Base(r.path); of != "critical" && of != "services" && !matches(tc.node, of) {
				t.Errorf("%s: want a node like %s", r.path, tc.node)
			}
		}
		if reads == 0 || reads == len(requests) {
			t.Errorf("%d of %d requests were no transactions: some of each are needed\nreason: %s", reads, len(requests), tc.reason)
		}
	})
}

func matches(pattern, name string) bool {
	matched, err := path.Match(pattern, name)
	return matched && err == nil
}

func expectQuery(t *testing.T, r request, want map[string]string) {
	t.Helper()
	if _, consistent := r.query["consistent"]; !consistent {
		t.Errorf("%s is not asked to be consistent", r.path)
	}
	for key, value := range want {
		expect.Equal(t, value, strings.Join(r.query[key], ","), "%s: the query says %s", r.path, key)
	}
}

// expectOperations looks into each operation for where it is.
func expectOperations(t *testing.T, r request, dc, namespace, partition, node string) {
	t.Helper()
	text := func(v any) string {
		s, _ := v.(string)
		return s
	}
	for _, op := range r.ops {
		for kind, o := range op {
			if o == nil {
				continue
			}
			inner, _ := o[kind].(map[string]any)
			ns, name := namespace, text(inner["Node"])
			switch kind {
			case "Node":
				ns = "" // nodes are in no namespace
				expect.Equal(t, dc, text(inner["Datacenter"]), "the node is in datacenter")
			case "Service":
				name = text(o["Node"])
			}
			if text(inner["Namespace"]) != ns || text(inner["Partition"]) != partition || !matches(node, name) {
				t.Errorf("%s %v: got namespace %q, partition %q, node %q; want %q, %q, %q", kind, o["Verb"],
					inner["Namespace"], inner["Partition"], name, ns, partition, node)
			}
		}
	}
}

// TestTheNodeIsSynthetic has the record as it is sent.
func TestTheNodeIsSynthetic(t *testing.T) {
	t.Parallel()
	for _, r := range (&wire{}).sent(t, `{}`, "") {
		for _, op := range r.ops {
			if op["Node"] == nil {
				continue
			}
			node := op["Node"]["Node"].(map[string]any)
			want := map[string]any{"synthetic-node": "true", "rollcall-nodes": "rollcall-"}
			expect.Equal(t, any(want), node["Meta"], "the node's meta")
			got := fmt.Sprint(node["Node"], " ", node["ID"], " ", node["Address"])
			if want := "rollcall-21 c387a211-aa14-e84f-df31-b68370e9d662 127.0.0.1"; got != want {
				t.Errorf("the node is %s, want %s as in every version before", got, want)
			}
		}
	}
}

// TestAServerThatIsNoConsul is the first of two, and keeps no call: the next one begins at the other.
func TestAServerThatIsNoConsul(t *testing.T) {
	t.Parallel()
	known := map[string]string{"X-Consul-Knownleader": "true"}
	list := func(d *consul.Registry) error {
		_, err := d.List(t.Context(), "test")
		return err
	}
	register := func(d *consul.Registry) error { return d.Register(t.Context(), drivertest.Pod(1)) }
	type row struct {
		reason string
		first  string
		call   func(*consul.Registry) error
	}
	expect.Each(t, map[string]row{
		"a page, to a read":   {"it has no header of Consul's", drivertest.Answering(t, 200, nil, "<html>"), list},
		"a list of something": {"it is not what was asked for", drivertest.Answering(t, 200, known, `{"a": 1}`), list},
		"a page, to a change": {"it is no outcome", drivertest.Answering(t, 200, nil, "<html>"), register},
		"a page, to a look": {"it is no list", drivertest.Answering(t, 200, nil, "<html>"), func(d *consul.Registry) error {
			_, err := d.AppEntries().Get(t.Context(), drivertest.Pod(1))
			return err
		}},
	}, func(t *testing.T, tc row) {
		var asked atomic.Int64
		second := drivertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		d := open(t, registry.Config{Endpoint: tc.first + "," + second})
		drivertest.Passes(t, tc.reason, tc.call(d), tc.first)
		asked.Store(0) // a list has requests that are made at once
		if err := tc.call(d); err == nil || asked.Load() == 0 {
			t.Errorf("got error %v, want the next call to begin at the other server\nreason: %s", err, tc.reason)
		}
	})
}
