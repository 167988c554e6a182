package httpregistry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/drivertest"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestBatchOutcomes: each change has the error that its call by itself would have.
func TestBatchOutcomes(t *testing.T) {
	t.Parallel()
	const two = `{"outcomes":[{"status":204},`
	type row struct {
		reason     string
		status     int
		answer     string
		want       [2]string
		terminal   bool // the second; so are the others
		notApplied bool
		after      time.Duration
	}
	expect.Each(t, map[string]row{
		"done":      {reason: "the plain case", status: 200, answer: two + `{"status":200}]}`},
		"refused":   {"it is final", 200, two + `{"status":422,"error":"frozen"}]}`, [2]string{"", "answered 422 Unprocessable Entity: frozen"}, true, false, 0},
		"busy":      {"it says when", 200, two + `{"status":503,"error":"busy","retryAfter":7}]}`, [2]string{"", "busy"}, false, false, 7 * time.Second},
		"no token":  {"a person has to look there", 200, two + `{"status":401,"error":"who?"}]}`, [2]string{"", "auth"}, true, false, 0},
		"no status": {"what is not said is not done", 200, two + `{}]}`, [2]string{"", "the registry answered 0"}, false, false, 0},
		"too few": {
			"which of them was done is not known", 200, `{"outcomes":[{"status":204}]}`,
			[2]string{"1 outcomes, for 2 changes", "1 outcomes, for 2 changes"}, false, false, 0,
		},
		"too large": {"each by itself is smaller: a proxy takes a mebibyte, say", 413, "<html>", [2]string{"413", "413"}, false, true, 0},
		"a lower limit": {
			"the server was rolled back since it said what it takes", 400, `{"error":"a batch may have 1 change, not 2"}`,
			[2]string{"may have 1 change", "may have 1 change"}, false, true, 0,
		},
		"no right":        {"each by itself would be refused too", 401, `{"error":"who?"}`, [2]string{"auth", "auth"}, true, false, 0},
		"away":            {"it may be carried out still", 503, `{"error":"busy"}`, [2]string{"busy", "busy"}, false, false, 0},
		"an older server": {"Rollcall makes each call by itself", 404, ``, [2]string{"404", "404"}, false, true, 0},
	}, func(t *testing.T, tc row) {
		errs := answering(t, tc.status, tc.answer).Batch(t.Context(), []registry.Change{
			{Instance: drivertest.Pod(1), State: registry.InService}, {Instance: drivertest.Pod(2), State: registry.Absent},
		})
		for i, want := range tc.want {
			expect.Error(t, tc.reason, errs[i], want)
		}
		after, _ := registry.RetryAfterOf(errs[1])
		if (registry.CodeOf(errs[1]) == registry.CodeTerminal) != tc.terminal || (registry.CodeOf(errs[1]) == registry.CodeNotApplied) != tc.notApplied || after != tc.after {
			t.Errorf("%s: got %v, which is terminal: %t, not applied: %t, after %s", tc.reason, errs[1],
				registry.CodeOf(errs[1]) == registry.CodeTerminal, registry.CodeOf(errs[1]) == registry.CodeNotApplied, after)
		}
		if errs[1] != nil && !strings.HasPrefix(errs[1].Error(), "deregistering web at 10.0.0.2:80: ") {
			t.Errorf("got error %v, want one that names the change", errs[1])
		}
	})
}

// TestABatchThatAGatewayLost may still be carried out, each change of it.
func TestABatchThatAGatewayLost(t *testing.T) {
	t.Parallel()
	for i, err := range answering(t, 502, `<html>`).Batch(t.Context(), []registry.Change{
		{Instance: drivertest.Pod(1), State: registry.InService}, {Instance: drivertest.Pod(2), State: registry.Absent},
	}) {
		if !drivertest.MayLand(err) || registry.CodeOf(err) == registry.CodeNotApplied {
			t.Errorf("change %d: got error %v, want one of a call that may still be carried out", i, err)
		}
	}
}
