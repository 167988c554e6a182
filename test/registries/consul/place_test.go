package consul_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	driver "github.com/rollcall-dev/rollcall/registry/consul"
	"github.com/rollcall-dev/rollcall/registry/registrytest"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestPlacesNeedEnterprise: the free edition has neither namespaces nor partitions. It says so of what the driver sends, which names them.
func TestPlacesNeedEnterprise(t *testing.T) {
	t.Parallel()
	server := shared.Use(t)
	type row struct {
		reason, options, place, field string
		asked                         []string
	}
	expect.Each(t, map[string]row{
		"namespace": {"the list names it", `{"namespace": "{namespace}"}`, "shop", "options.namespace", []string{"ns=shop"}},
		"partition": {"the list names it", `{"partition": "p-{nsLabel:team}"}`, "p-blue", "options.partition", []string{"partition=p-blue"}},
		"both": {
			"the list names both", `{"partition": "{nsLabel:team}", "namespace": "{namespace}"}`, "blue/shop", "options.",
			[]string{"ns=shop", "partition=blue"},
		},
	}, func(t *testing.T, tc row) {
		asked, endpoint := recorded(t, server.URL)
		cfg := at(endpoint)
		cfg.Options = []byte(tc.options)
		d := drivertest.Open[registrytest.Placed](t, driver.New, cfg)
		in := neighbour(t, 1)
		in.Place = tc.place
		_, listErr := d.ListPlace(t.Context(), in.Cluster, tc.place)
		for call, err := range map[string]error{"ListPlace": listErr, "Register": d.Register(t.Context(), in)} {
			field, _ := registry.FieldOf(err)
			if registry.CodeOf(err) != registry.CodeTerminal || !strings.HasPrefix(field, tc.field) || !strings.Contains(err.Error(), "Consul Enterprise feature") {
				t.Errorf("%s: got error %v of field %q, want that it takes Enterprise\nreason: %s", call, err, field, tc.reason)
			}
		}
		for _, want := range tc.asked {
			if !strings.Contains(asked(), want) {
				t.Errorf("asked\n%s\nwant %s in it", asked(), want)
			}
		}
	})
}

// recorded is the address of a proxy in front of a server, and what was asked through it.
func recorded(t *testing.T, server string) (asked func() string, endpoint string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	proxy := drivertest.Through(t, server)
	endpoint = drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		all = append(all, r.Method+" "+r.URL.String())
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}, endpoint
}
