package consul_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
)

// TestSpringApplication has a Spring application with the defaults of Spring Cloud Consul look up what Rollcall registers. It asks for no
// check: only an entry that is deleted is out of its rotation.
func TestSpringApplication(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	reader, err := server.StartSpringReader(t.Context())
	registries.Check(t, err)
	t.Cleanup(reader.Stop)
	type row struct{ options, whileOut, reason string }
	expect.Each(t, map[string]row{
		"critical": {`{}`, "http://10.1.0.1:8080", "the default: Spring's query-passing is false, so it calls critical instances too"},
		"delete":   {`{"outOfRotation":"delete"}`, "", "there is no entry that it could be given"},
	}, func(t *testing.T, tc row) {
		cfg := configOf(t, server)
		cfg.Cluster, cfg.Options = t.Name(), json.RawMessage(tc.options)
		d, a, b := open(t, cfg), pod(t, 1), pod(t, 2)
		gets := func(when string, want ...string) {
			t.Helper()
			want = slices.DeleteFunc(want, func(uri string) bool { return uri == "" })
			expect.Becomes(t, when+", the application gets those in rotation", func() bool {
				t.Helper()
				instances, err := reader.Instances(a.Service)
				expect.NoError(t, err)
				var got []string
				for _, i := range instances {
					got = append(got, i.URI)
				}
				slices.Sort(got)
				return slices.Equal(got, want)
			})
		}
		must(t, d.Register, a, b)
		gets("registered", "http://10.1.0.1:8080", "http://10.1.0.2:8080")
		must(t, d.FailOver, a)
		gets("taken out: "+tc.reason, tc.whileOut, "http://10.1.0.2:8080")
		must(t, d.Register, a)
		gets("put back", "http://10.1.0.1:8080", "http://10.1.0.2:8080")
		must(t, d.Deregister, a, b)
		gets("deregistered")
	})
}
