package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestGatesAreReadAtEachScrape(t *testing.T) {
	t.Parallel()
	gates := map[string]Gate{"old": {Slots: 96, InUse: 3, Queued: 7, Breaker: "open"}}
	r := prometheus.NewPedanticRegistry()
	if err := RegisterGates(r, []string{"closed", "open"}, func() map[string]Gate { return gates }); err != nil {
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
# HELP rollcall_registry_slots_in_use Slots that calls for pods take, or that are reserved for the next pod in line, by registry.
# TYPE rollcall_registry_slots_in_use gauge
rollcall_registry_slots_in_use{registry="old"} 3
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	gates = nil
	if err := testutil.GatherAndCompare(r, strings.NewReader("")); err != nil {
		t.Errorf("the configuration names no such registry any more: %v", err)
	}
	if err := RegisterGates(r, nil, nil); err == nil {
		t.Error("registering twice: want an error")
	}
}
