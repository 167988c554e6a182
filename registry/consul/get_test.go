package consul_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestWhatIsReadBack has a server answer the transaction that reads service and check, and the one after it. The states that an
// entry has when all is well are the suite's.
func TestWhatIsReadBack(t *testing.T) {
	t.Parallel()
	const (
		service   = `{"Service": {"ID": "web-10.0.0.1-80", "Meta": {"rollcall-uid": "uid-1", "rollcall-cluster": "test"}}}`
		noService = `{"OpIndex": 0, "What": "service \"web-10.0.0.1-80\" on node \"rollcall-07\" doesn't exist"}`
		noCheck   = `{"OpIndex": 1, "What": "check \"web-10.0.0.1-80\" on node \"rollcall-07\" doesn't exist"}`
		denied    = `{"OpIndex": 0, "What": "Permission denied"}`
	)
	holds := func(results string) string { return `{"Results": [` + results + `], "Errors": null}` }
	lacks := func(errors string) string { return `{"Results": null, "Errors": [` + errors + `]}` }
	type row struct {
		reason  string
		both    string
		service string // the answer where the service alone is asked for
		foreign string // what the service's health shows of others
		want    registry.State
		field   string // of a terminal error
	}
	expect.Each(t, map[string]row{
		"without a check":  {reason: "clients get it", both: lacks(noCheck), service: holds(service), want: registry.InService},
		"gone in between":  {reason: "it went", both: lacks(noCheck), service: lacks(noService), want: registry.Absent},
		"hidden from us":   {reason: "it may be there", both: holds(""), field: "auth.tokenFile"},
		"the check hidden": {reason: "it may be out", both: holds(service), field: "auth.tokenFile"},
		"an agent's, which fails": {
			reason: "clients are not given it", both: lacks(noService + "," + noCheck),
			foreign: `{"Service": {"ID": "web", "Address": "10.0.0.1", "Port": 80}, "Checks": [{"CheckID": "load", "Status": "critical"}]}`, want: registry.Absent,
		},
		"an agent's": {
			reason: "clients are given it", both: lacks(noService + "," + noCheck),
			foreign: `{"Service": {"ID": "web", "Address": "10.0.0.1", "Port": 80}}`, want: registry.Foreign,
		},
		"an agent's, elsewhere": {
			reason: "it is another pod's", both: lacks(noService + "," + noCheck),
			foreign: `{"Service": {"ID": "web", "Address": "10.0.0.2", "Port": 80}}`, want: registry.Absent,
		},
		"not allowed": {reason: "a person has to grant it", both: lacks(denied), field: "auth.tokenFile"},
		"not allowed, with a name like that": {
			reason: "a name is a tenant's", field: "auth.tokenFile",
			both: lacks(`{"OpIndex": 0, "What": "Permission denied: token lacks permission 'service:read' on \"it doesn't exist\""}`),
		},
	}, func(t *testing.T, tc row) {
		d := open(t, registry.Config{Endpoint: drivertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			var ops []json.RawMessage
			_ = json.NewDecoder(r.Body).Decode(&ops)
			if !r.URL.Query().Has("consistent") {
				t.Errorf("asked for %s, want a consistent read", r.URL)
			}
			if r.URL.Path == "/v1/health/service/web" {
				if filter := r.URL.Query().Get("filter"); strings.Contains(filter, "10.0.0.1") {
					t.Errorf("asked with filter %s, want one that fits all instances of the service", filter)
				}
				_, _ = io.WriteString(w, "["+tc.foreign+"]")
				return
			}
			answer := tc.both
			if len(ops) == 1 {
				answer = tc.service
			}
			if strings.HasPrefix(answer, `{"Results": null`) {
				w.WriteHeader(http.StatusConflict)
			}
			_, _ = io.WriteString(w, answer)
		})})
		got, err := d.Get(t.Context(), drivertest.Pod(1))
		field, _ := registry.FieldOf(err)
		if got != tc.want || field != tc.field || (registry.CodeOf(err) == registry.CodeTerminal) != (tc.field != "") || (err == nil) != (tc.want != "") {
			t.Errorf("got %q, error %v of field %q; want %q, %q\nreason: %s", got, err, field, tc.want, tc.field, tc.reason)
		}
	})
}
