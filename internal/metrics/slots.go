package metrics

import "github.com/prometheus/client_golang/prometheus"

// Slots is what bounds the calls to one registry.
type Slots struct {
	// Slots is how many calls may be under way, and InUse how many are.
	Slots, InUse int
	// Queued is how many callers wait to be woken.
	Queued int
	// Breaker is the state of the circuit breaker.
	Breaker string
}

// RegisterSlots registers with r the metrics of all slots by their registry's name, which are read at each scrape and
// concurrently. The states are all that a breaker can have.
func RegisterSlots(r prometheus.Registerer, states []string, all func() map[string]Slots) error {
	labels := []string{"registry"}
	return register(r, &slotCollector{
		states: states, all: all,
		slots: prometheus.NewDesc("rollcall_registry_slots",
			"How many calls for pods may be in flight to a registry (maxInFlight), by registry.", labels, nil),
		inUse: prometheus.NewDesc("rollcall_registry_slots_in_use",
			"Slots that calls for pods take, by registry.", labels, nil),
		queued: prometheus.NewDesc("rollcall_registry_queued_calls",
			"Calls for pods that wait for a slot or for the circuit breaker, by registry.", labels, nil),
		breaker: prometheus.NewDesc("rollcall_registry_breaker_state",
			"1 for the state that a registry's circuit breaker is in (closed, halfOpen, open), 0 for the others, by registry.",
			[]string{"registry", "state"}, nil),
	})
}

type slotCollector struct {
	states                        []string
	all                           func() map[string]Slots
	slots, inUse, queued, breaker *prometheus.Desc
}

func (c *slotCollector) Describe(out chan<- *prometheus.Desc) {
	out <- c.slots
	out <- c.inUse
	out <- c.queued
	out <- c.breaker
}

func (c *slotCollector) Collect(out chan<- prometheus.Metric) {
	for name, s := range c.all() {
		for _, of := range []struct {
			desc  *prometheus.Desc
			value int
		}{{c.slots, s.Slots}, {c.inUse, s.InUse}, {c.queued, s.Queued}} {
			out <- prometheus.MustNewConstMetric(of.desc, prometheus.GaugeValue, float64(of.value), name)
		}
		for _, state := range c.states {
			value := 0.
			if state == s.Breaker {
				value = 1
			}
			out <- prometheus.MustNewConstMetric(c.breaker, prometheus.GaugeValue, value, name, state)
		}
	}
}
