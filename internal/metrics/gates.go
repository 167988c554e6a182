package metrics

import "github.com/prometheus/client_golang/prometheus"

// Gate is what bounds the calls to one registry.
type Gate struct {
	// Slots is how many calls may be under way, and InUse how many are.
	Slots, InUse int
	// Queued is how many calls wait for their turn.
	Queued int
	// Breaker is the state of the circuit breaker.
	Breaker string
}

// RegisterGates registers with r the metrics of all gates by their registry's name, which are read at each scrape and
// concurrently. The states are all that a breaker can have.
func RegisterGates(r prometheus.Registerer, states []string, gates func() map[string]Gate) error {
	labels := []string{"registry"}
	return register(r, &gateCollector{
		states: states, gates: gates,
		slots: prometheus.NewDesc("rollcall_registry_slots",
			"How many calls for pods may be in flight to a registry (maxInFlight), by registry.", labels, nil),
		inUse: prometheus.NewDesc("rollcall_registry_slots_in_use",
			"Slots that calls for pods take, or that are reserved for the next pod in line, by registry.", labels, nil),
		queued: prometheus.NewDesc("rollcall_registry_queued_calls",
			"Calls for pods that wait for a slot or for the circuit breaker, by registry.", labels, nil),
		breaker: prometheus.NewDesc("rollcall_registry_breaker_state",
			"1 for the state that a registry's circuit breaker is in (closed, halfOpen, open), 0 for the others, by registry.",
			[]string{"registry", "state"}, nil),
	})
}

type gateCollector struct {
	states                        []string
	gates                         func() map[string]Gate
	slots, inUse, queued, breaker *prometheus.Desc
}

func (c *gateCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.slots
	out <- c.inUse
	out <- c.queued
	out <- c.breaker
}

func (c *gateCollector) Collect(out chan<- prometheus.Metric) {
	for name, gate := range c.gates() {
		for _, of := range []struct {
			desc  *prometheus.Desc
			value int
		}{{c.slots, gate.Slots}, {c.inUse, gate.InUse}, {c.queued, gate.Queued}} {
			out <- prometheus.MustNewConstMetric(of.desc, prometheus.GaugeValue, float64(of.value), name)
		}
		for _, state := range c.states {
			value := 0.
			if state == gate.Breaker {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(c.breaker, prometheus.GaugeValue, value, name, state)
		}
	}
}
