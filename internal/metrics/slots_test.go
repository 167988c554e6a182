package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSlotsAreReadAtEachScrape(t *testing.T) {
	t.Parallel()
	all := map[string]Slots{"old": {Slots: 96, InUse: 3, Queued: 7, Breaker: "open"}}
	r := prometheus.NewPedanticRegistry()
	if err := RegisterSlots(r, []string{"closed", "open"}, func() map[string]Slots { return all }); err != nil {
		t.Fatal(err)
	}
	const want = `
# HELP rollcall_registry_breaker_state 1 for the state that a registry's circuit breaker is in (closed, halfOpen, open), 0 for the others, by registry.
# TYPE rollcall_registry_breaker_state gauge
rollcall_registry_breaker_state{registry="old",state="closed"} 0
rollcall_registry_breaker_state{registry="old",state="open"} 1
# HELP rollcall_registry_queued_calls Calls for pods that wait for a slot or for the circuit breaker, by registry.
# TYPE rollcall_registry_queued_calls gauge
rollcall_registry_queued_calls{registry="old"} 7
# HELP rollcall_registry_slots How many calls for pods may be in flight to a registry (maxInFlight), by registry.
# TYPE rollcall_registry_slots gauge
rollcall_registry_slots{registry="old"} 96
# HELP rollcall_registry_slots_in_use Slots that calls for pods take, by registry.
# TYPE rollcall_registry_slots_in_use gauge
rollcall_registry_slots_in_use{registry="old"} 3
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	all = nil
	if err := testutil.GatherAndCompare(r, strings.NewReader("")); err != nil {
		t.Errorf("the configuration names no such registry any more: %v", err)
	}
	if err := RegisterSlots(r, nil, nil); err == nil {
		t.Error("registering twice: want an error")
	}
}
