package consul_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
)

// TestATokenWithTooFewRightsIsNamed has an entry there, and asks with tokens that may do less than they need.
func TestATokenWithTooFewRightsIsNamed(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		rules   string // with the nodes' prefix and the service's name; "": no token at all
		refused []string
	}
	expect.Each(t, map[string]row{
		"may read only": {
			reason:  "who watches must not write",
			rules:   `node_prefix %q { policy = "read" } service %q { policy = "read" }`,
			refused: []string{"Register", "FailOver", "Deregister", "Batch"},
		},
		"may not write the service": {
			reason:  "one of many services was forgotten in the rules",
			rules:   `node_prefix %q { policy = "write" } service %q { policy = "read" }`,
			refused: []string{"Register", "FailOver", "Deregister", "Batch"},
		},
		"may not see the service": {
			reason:  "an entry that is hidden is not absent, and a list without it is not whole",
			rules:   `node_prefix %q { policy = "write" } service "not-%s" { policy = "write" }`,
			refused: []string{"Register", "FailOver", "Deregister", "Batch", "List"},
		},
		"may not see the node": {
			reason:  "a list that looks empty would read as if all had gone",
			rules:   `node_prefix "not-%s" { policy = "write" } service %q { policy = "write" }`,
			refused: []string{"Register", "List", "Batch"},
		},
		"nothing": {
			reason:  "a list that looks empty would read as if all had gone",
			rules:   ``,
			refused: []string{"Register", "FailOver", "Deregister", "Batch", "List"},
		},
	}, func(t *testing.T, tc row) {
		server, prefix := guarded.Use(t), prefixOf(t)
		in := pod(t, 1)
		in.Service = prefix // without characters that mean something in a rule
		full := cfgOn(t, server, prefix, fmt.Sprintf(`node_prefix %q { policy = "write" } service %q { policy = "write" }`,
			prefix, prefix))
		must(t, open(t, full).Register, in)

		few := full
		few.Auth.TokenFile = ""
		if tc.rules != "" {
			few = cfgOn(t, server, prefix, fmt.Sprintf(tc.rules, prefix, prefix))
		}
		d := open(t, few)
		for op, err := range drivertest.Calls(t.Context(), d, in) {
			field, _ := registry.FieldOf(err)
			refused := err != nil && registry.CodeOf(err) == registry.CodeTerminal && field == "auth.tokenFile"
			switch want := slices.Contains(tc.refused, op); {
			case want && !refused:
				t.Errorf("%s: got error %v, want a terminal one of auth.tokenFile\nreason: %s", op, err, tc.reason)
			case !want && err != nil:
				t.Errorf("%s: got error %v, want success: the token may do what it takes", op, err)
			}
		}
	})
}

// TestNoTokenMakesNoApplicationAbsent: Consul hides its service from those without one, and does not say so.
func TestNoTokenMakesNoApplicationAbsent(t *testing.T) {
	t.Parallel()
	server, prefix := guarded.Use(t), prefixOf(t)
	cfg := cfgOn(t, server, prefix, `node_prefix "" { policy = "read" } service_prefix "" { policy = "write" }`)
	expect.NoError(t, open(t, cfg).AppEntries().FailOver(t.Context(), pod(t, 1))) // with one it is absent
	cfg.Auth.TokenFile = ""
	drivertest.Refused(t, "it may be hidden", open(t, cfg).AppEntries().FailOver(t.Context(), pod(t, 1)), "auth.tokenFile", "")
}

// cfgOn is that of a driver of the test's own cluster which writes under nodes of the prefix with a token of these rules.
func cfgOn(t *testing.T, server *consul.Server, prefix, rules string) registry.Config {
	t.Helper()
	cfg := at(server.URL)
	cfg.Cluster, cfg.Options = t.Name(), fmt.Appendf(nil, `{"nodePrefix": %q}`, prefix)
	cfg.Auth.TokenFile = tokenFile(t, server, rules)
	return cfg
}

// TestTroubleOfOthersIsNothingToTheList has a critical check on a node that the token may not see.
func TestTroubleOfOthersIsNothingToTheList(t *testing.T) {
	t.Parallel()
	server, prefix := guarded.Use(t), prefixOf(t)
	node := "agent-of-" + prefix
	write(t, server,
		object{"Node": object{"Verb": "set", "Node": object{"Node": node, "Address": "10.9.0.1"}}},
		object{"Check": object{"Verb": "set", "Check": object{"Node": node, "CheckID": "disk", "Name": "disk", "Status": "critical"}}},
	)
	rules := fmt.Sprintf(`node_prefix %q { policy = "write" } service_prefix "" { policy = "write" }`, prefix)
	d := open(t, cfgOn(t, server, prefix, rules))
	must(t, d.Register, pod(t, 1))
	if got, err := d.List(t.Context(), t.Name()); err != nil || len(got) != 1 {
		t.Errorf("List: got %v, %v; want our pod", got, err)
	}
	must(t, d.Deregister, pod(t, 1))
}

// TestAServiceThatTheTokenMayNotWriteIsAloneInABatch has one of three refused.
func TestAServiceThatTheTokenMayNotWriteIsAloneInABatch(t *testing.T) {
	t.Parallel()
	server, prefix := guarded.Use(t), prefixOf(t)
	rules := fmt.Sprintf(`node_prefix %q { policy = "write" } service "fine" { policy = "write" }`, prefix)
	d := open(t, cfgOn(t, server, prefix, rules))
	a, b, c := pod(t, 1), pod(t, 2), pod(t, 3)
	a.Service, c.Service = "fine", "fine"
	errs := d.Batch(t.Context(), []registry.Change{
		{Instance: a, State: registry.InService}, {Instance: b, State: registry.InService}, {Instance: c, State: registry.Absent},
	})
	expect.Code(t, registry.CodeNotApplied, errs[0], "the change in a batch with the refused one")
	drivertest.Refused(t, "the service may not be written", errs[1], "auth.tokenFile", "")
	expect.NoError(t, errs[2]) // nothing was to be done for what is absent
	must(t, d.Register, a)
}

// TestServerNameIsThatOfTheCertificate holds what the driver makes of it. Other certificates are the kit's.
func TestServerNameIsThatOfTheCertificate(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, registries.With(consul.Start, consul.Options{ClientCertificates: true}))
	cfg := configOf(t, server)
	cfg.Options = fmt.Appendf(nil, `{"serverName": %q, "datacenter": %q}`, consul.ServerName, consul.Datacenter)
	must(t, open(t, cfg).Register, pod(t, 1))
	cfg.Options = []byte(`{"serverName": "server.dc2.consul"}`)
	for op, err := range drivertest.Calls(t.Context(), open(t, cfg), pod(t, 1)) {
		drivertest.Refused(t, op, err, "options.serverName", "")
	}
}

// TestABatchTakesAsMuchAsTheServer has a batch of changes under as many nodes as there are: the worst case.
func TestABatchTakesAsMuchAsTheServer(t *testing.T) {
	t.Parallel()
	server, prefix := shared.Use(t), prefixOf(t)
	d := openOn(t, server, prefix, "")
	all := underAllNodes(t, server, d, d.BatchLimit()+1)
	expectApplied := func(what string, changes []registry.Change, want bool) {
		t.Helper()
		for i, err := range d.Batch(t.Context(), changes) {
			if applied := err == nil; applied != want || !want && registry.CodeOf(err) != registry.CodeNotApplied {
				t.Fatalf("%s, change %d: got error %v, want it applied: %t", what, i, err, want)
			}
		}
	}
	expectApplied("as many as there may be", all[1:], true)
	expectApplied("one more, which the server refuses or else the limit should be higher", all, false)

	large := slices.Clone(all[1:])
	for i := range large { // each within what Consul takes, and together more than it takes at once
		large[i].Instance.Metadata = map[string]string{}
		for key := range 50 {
			large[i].Instance.Metadata[fmt.Sprintf("key-%d", key)] = strings.Repeat("x", 500)
		}
	}
	expectApplied("large ones", large, false)
	must(t, d.Register, large[0].Instance)
	for _, c := range all {
		must(t, d.Deregister, c.Instance)
	}
}

// underAllNodes returns registrations for which every node is needed.
func underAllNodes(t *testing.T, server *consul.Server, d *driver.Registry, n int) []registry.Change {
	t.Helper()
	const addresses = 250
	for i := range addresses {
		must(t, d.Register, pod(t, i))
	}
	entries, err := health(t.Context(), server, pod(t, 0).Service, false)
	expect.NoError(t, err)
	var first, others []registry.Change
	seen := map[string]bool{}
	for _, e := range entries {
		c := registry.Change{Instance: entryOf(e, true).Instance, State: registry.InService}
		if seen[e.Node.Node] {
			others = append(others, c)
			continue
		}
		seen[e.Node.Node] = true
		first = append(first, c)
	}
	for i := range addresses {
		must(t, d.Deregister, pod(t, i))
	}
	return append(others, first...)[len(others)+len(first)-n:]
}
