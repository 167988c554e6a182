package metrics

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// scraped collects metrics that are read from the process at each scrape, so that what is no more leaves no series behind.
type scraped struct {
	descs   []*prometheus.Desc
	collect func(out chan<- prometheus.Metric)
}

func (s scraped) Describe(out chan<- *prometheus.Desc) {
	for _, d := range s.descs {
		out <- d
	}
}

func (s scraped) Collect(out chan<- prometheus.Metric) { s.collect(out) }

func gauge(desc *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
}

// Wait is one pod that waits, for Rollcall or for another, as the status page shows it too.
type Wait struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"name"`
	UID       string `json:"-"`
	// Workload is the name of the pod's controller; empty if it has none.
	Workload string `json:"workload,omitempty"`
	// Hook is the one OpenKruise waits for; empty if OpenKruise waits for nothing: the registry is behind, the pod is out of rotation
	// until it is ready, or a person should check it.
	Hook   string `json:"hook,omitempty"`
	Reason string `json:"reason"`
	// Message is what is missing. It may be a registry's own words, or those of who wrote the pod.
	Message string `json:"message,omitempty"`
	// Since is when the pod came into its lifecycle state, or, if no hook waits, when it turned unready or the reason was first seen.
	Since time.Time `json:"since"`
	// Warning: a person should look, and an Event reports it. Without it the wait is part of any rollout.
	Warning bool `json:"warning"`
}

// RegisterBuild registers which build this is, and the name of the cluster that it works for. Its version has the commit, unless it is
// a release's: Go itself knows only that of a main of one's own.
func RegisterBuild(r prometheus.Registerer, version, cluster string) {
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name:        "rollcall_build_info",
		Help:        "1, by the version of the manager, that of Go which it was built with, and cluster of the configuration.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version(), "cluster": cluster},
	}).Set(1)
}

// RegisterReady registers whether the manager is ready; unready returns why it is not, or nothing.
func RegisterReady(r prometheus.Registerer, unready func() string) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_manager_ready",
		Help: "1 if /readyz reports that the manager is ready, 0 if it reports what is missing.",
	}, func() float64 {
		if unready() != "" {
			return 0
		}
		return 1
	})
}

// RegisterCertificate registers when the eviction webhook's certificate ends, zero without one.
func RegisterCertificate(r prometheus.Registerer, notAfter func() time.Time) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "rollcall_evictions_certificate_expiration_timestamp_seconds",
		Help: "When the certificate ends that the eviction webhook serves with, 0 if it has none.",
	}, func() float64 {
		if at := notAfter(); !at.IsZero() {
			return float64(at.Unix())
		}
		return 0
	})
}

// RegisterPods registers with r the metrics of pods and workloads: the pods that wait now, and how many workloads have hooks of
// which Rollcall owns none. Both are called concurrently. now is the clock that Wait.Since was taken from.
func RegisterPods(r prometheus.Registerer, waits func() []Wait, unmatchedWorkloads func() int, now func() time.Time) {
	waiting := prometheus.NewDesc("rollcall_waiting_pods",
		"Pods that wait or are out of rotation, by hook (empty if OpenKruise waits at none) and reason.", []string{"hook", "reason"}, nil)
	oldest := prometheus.NewDesc("rollcall_oldest_wait_seconds",
		"How long the oldest waiting pod has waited, by hook and reason.", []string{"hook", "reason"}, nil)
	unmatched := prometheus.NewDesc("rollcall_unmatched_workloads",
		"Workloads with lifecycle hooks of which Rollcall owns no handler.", nil, nil)
	byWorkload := prometheus.NewDesc("rollcall_workload_waiting_seconds",
		"How long the oldest waiting pod of a workload has waited, by namespace, workload and reason. At most 1000 series: the oldest "+
			"waits of each namespace, in turn. The oldest of the others is shown by reason, with an empty namespace and workload.",
		[]string{"namespace", "workload", "reason"}, nil)
	collect := func(out chan<- prometheus.Metric) {
		type key struct{ hook, reason string }
		counts, since := map[key]int{}, map[key]time.Time{}
		all, at := waits(), now()
		for _, wait := range all {
			k := key{wait.Hook, wait.Reason}
			if counts[k] == 0 || wait.Since.Before(since[k]) {
				since[k] = wait.Since
			}
			counts[k]++
		}
		for k, count := range counts {
			out <- gauge(waiting, float64(count), k.hook, k.reason)
			out <- gauge(oldest, max(at.Sub(since[k]), 0).Seconds(), k.hook, k.reason)
		}
		for _, w := range oldestByWorkload(all) {
			out <- gauge(byWorkload, max(at.Sub(w.since), 0).Seconds(), w.namespace, w.name, w.reason)
		}
		out <- gauge(unmatched, float64(unmatchedWorkloads()))
	}
	r.MustRegister(scraped{[]*prometheus.Desc{waiting, oldest, unmatched, byWorkload}, collect})
}

// workloadsAtMost bounds the series of workloads that wait.
const workloadsAtMost = 1000

// workload is one that waits, since its oldest wait for the reason began.
type workload struct {
	namespace, name, reason string
	since                   time.Time
}

// oldestByWorkload returns workloadsAtMost of the workloads. The rest is folded into one without a name for each reason. Each namespace has
// its turn, so that none with many takes the places of others. Who waits keeps its place, since whoever comes later has waited for less.
func oldestByWorkload(waits []Wait) []workload {
	since := map[workload]time.Time{}
	for _, w := range waits {
		key := workload{namespace: w.Namespace, name: w.Workload, reason: w.Reason}
		if before, found := since[key]; !found || w.Since.Before(before) {
			since[key] = w.Since
		}
	}
	all := make([]workload, 0, len(since))
	for w, at := range since {
		w.since = at
		all = append(all, w)
	}
	if len(all) <= workloadsAtMost {
		return all
	}
	slices.SortFunc(all, func(a, b workload) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name),
			cmp.Compare(a.reason, b.reason))
	})
	turns, turn := map[workload]int{}, map[string]int{}
	for _, w := range all {
		turns[w] = turn[w.namespace]
		turn[w.namespace]++
	}
	slices.SortStableFunc(all, func(a, b workload) int { return cmp.Compare(turns[a], turns[b]) })
	rest := map[string]workload{}
	for _, w := range all[workloadsAtMost:] {
		if before, found := rest[w.reason]; !found || w.since.Before(before.since) {
			rest[w.reason] = workload{reason: w.reason, since: w.since}
		}
	}
	all = all[:workloadsAtMost]
	for _, w := range rest {
		all = append(all, w)
	}
	return all
}

// Entries are those of a registry in one state: in, out or unacknowledged.
type Entries struct{ Registry, State string }

// RegisterEntries registers with r how many entries each registry has. count is called concurrently.
func RegisterEntries(r prometheus.Registerer, count func() map[Entries]int) {
	entries := prometheus.NewDesc("rollcall_entries",
		"Entries of pods, by registry and what it last acknowledged (in or out of rotation, unacknowledged while the last change has no "+
			"answer). A pod has one for each of its services.", []string{"registry", "state"}, nil)
	r.MustRegister(scraped{[]*prometheus.Desc{entries}, func(out chan<- prometheus.Metric) {
		for of, n := range count() {
			out <- gauge(entries, float64(n), of.Registry, of.State)
		}
	}})
}

// Slots is what bounds the calls to one registry, as the status page shows it too.
type Slots struct {
	// Breaker is the state of the circuit breaker: closed, halfOpen or open.
	Breaker string `json:"breaker"`
	// Slots is how many calls for pods may be under way now, InUse how many are, and Queued how many wait for their callers to be woken.
	Slots  int `json:"slots"`
	InUse  int `json:"inUse"`
	Queued int `json:"queued"`
}

// RegisterSlots registers with r the metrics of all slots by their registry's name. all is called concurrently.
func RegisterSlots(r prometheus.Registerer, all func() map[string]Slots) {
	labels := []string{"registry"}
	slots := prometheus.NewDesc("rollcall_registry_slots",
		"How many calls for pods may be in flight to a registry now, at most maxInFlight, by registry.", labels, nil)
	inUse := prometheus.NewDesc("rollcall_registry_slots_in_use",
		"Slots that calls for pods take, by registry.", labels, nil)
	queued := prometheus.NewDesc("rollcall_registry_queued_calls",
		"Calls for pods that wait for a slot or for the circuit breaker, by registry.", labels, nil)
	breaker := prometheus.NewDesc("rollcall_registry_breaker_state",
		"1 for the state that a registry's circuit breaker is in (closed, halfOpen, open), 0 for the others, by registry.",
		[]string{"registry", "state"}, nil)
	collect := func(out chan<- prometheus.Metric) {
		for name, s := range all() {
			out <- gauge(slots, float64(s.Slots), name)
			out <- gauge(inUse, float64(s.InUse), name)
			out <- gauge(queued, float64(s.Queued), name)
			for _, state := range []string{"closed", "halfOpen", "open"} {
				value := 0.
				if state == s.Breaker {
					value = 1
				}
				out <- gauge(breaker, value, name, state)
			}
		}
	}
	r.MustRegister(scraped{[]*prometheus.Desc{slots, inUse, queued, breaker}, collect})
}
