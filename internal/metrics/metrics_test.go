package metrics

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-dev/rollcall/test/harness/series"
)

func TestRegistryMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := NewRegistryMetrics(r)
	m.Called("old", "fake", "register", "timeout", time.Second)
	series.Expect(t, r, "it has ended",
		`rollcall_registry_request_duration_seconds_count{driver="fake",operation="register",outcome="timeout",registry="old"} 1`)
	m.Forget("old", "fake")
	series.Expect(t, r, "the registry is no more")
}

func TestConfigMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := NewConfigMetrics(r)
	expect := func(when, applied, refused, last string) {
		t.Helper()
		series.Expect(t, r, when, "rollcall_config_last_reload_successful "+last,
			`rollcall_config_reloads_total{outcome="applied"} `+applied, `rollcall_config_reloads_total{outcome="refused"} `+refused)
	}
	expect("at start", "0", "0", "1")
	m.Refused()
	expect("after a refusal", "0", "1", "0")
	m.Applied()
	expect("after a change", "1", "1", "1")
}

func TestBuild(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	RegisterBuild(r, "v1.2.3", "prod-eu")
	series.Expect(t, r, "at start", `rollcall_build_info{cluster="prod-eu",goversion="`+runtime.Version()+`",version="v1.2.3"} 1`)
}

func TestReady(t *testing.T) {
	t.Parallel()
	r, missing := prometheus.NewPedanticRegistry(), "no list of pods yet"
	RegisterReady(r, func() string { return missing })
	series.Expect(t, r, "at start", "rollcall_manager_ready 0")
	missing = ""
	series.Expect(t, r, "with all it needs", "rollcall_manager_ready 1")
}

func TestCertificate(t *testing.T) {
	t.Parallel()
	r, ends := prometheus.NewPedanticRegistry(), time.Time{}
	RegisterCertificate(r, func() time.Time { return ends })
	series.Expect(t, r, "without one", "rollcall_evictions_certificate_expiration_timestamp_seconds 0")
	ends = time.Unix(1700000000, 0)
	series.Expect(t, r, "with one", "rollcall_evictions_certificate_expiration_timestamp_seconds 1.7e+09")
}

func TestDryRunMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	NewDryRunMetrics(r).Step("", OperationPatch)
	series.Expect(t, r, "a patch", `rollcall_dry_run_total{operation="patch",registry=""} 1`)
}

func TestResyncMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := NewResyncMetrics(r)
	m.Interval(time.Hour)
	const interval = `rollcall_resync_interval_seconds 3600`
	at := time.Unix(1000, 0)
	m.Began("mute", at, false)
	series.Expect(t, r, "a registry that can't list has nothing else to show", interval, `rollcall_resync_listable{registry="mute"} 0`)
	m.Forget("mute")

	m.Began("old", at, true)
	expect := func(when string, counts, success string, durations ...string) {
		t.Helper()
		n := strings.Fields(counts)
		series.Expect(t, r, when, append([]string{`rollcall_resync_blocked_removals{registry="old"} ` + n[0]}, append(durations,
			`rollcall_resync_entries_total{finding="different",registry="old"} 0`,
			`rollcall_resync_entries_total{finding="missing",registry="old"} `+n[1],
			`rollcall_resync_entries_total{finding="reaped",registry="old"} 0`,
			interval, `rollcall_resync_last_success_timestamp_seconds{registry="old"} `+success,
			`rollcall_resync_listable{registry="old"} 1`, `rollcall_resync_unfinished_removals{registry="old"} `+n[2],
			`rollcall_resync_unlisted_places{registry="old"} `+n[3])...)...)
	}
	const failed, ok = `rollcall_resync_duration_seconds_count{outcome="failed",registry="old"} 1`,
		`rollcall_resync_duration_seconds_count{outcome="ok",registry="old"} 1`
	expect("before the first run", "0 0 0 0", "1000")
	m.Ran("old", at, at.Add(time.Minute), true)
	expect("a failed run is no success", "0 0 0 0", "1000", failed)
	m.Ran("old", at, at.Add(2*time.Minute), false)
	m.Found("old", FoundMissing, 3)
	m.Blocked("old", 4)
	m.Unfinished("old", 5)
	m.Unlisted("old", 6)
	expect("a run with findings", "4 3 5 6", "1120", failed, ok)
	m.Forget("old")
	series.Expect(t, r, "the registry is no more", interval)
}

func TestReleaseMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := NewReleaseMetrics(r)
	m.Count("preDelete", BySkip)
	m.Drained("idle")
	series.Expect(t, r, "each hook and each cause is shown from the start",
		`rollcall_drains_total{by="fixed"} 0`, `rollcall_drains_total{by="idle"} 1`, `rollcall_drains_total{by="max"} 0`,
		`rollcall_releases_total{by="acknowledgement",hook="inPlaceUpdate"} 0`,
		`rollcall_releases_total{by="acknowledgement",hook="preDelete"} 0`,
		`rollcall_releases_total{by="acknowledgement",hook="preNormal"} 0`,
		`rollcall_releases_total{by="failurePolicy",hook="inPlaceUpdate"} 0`,
		`rollcall_releases_total{by="failurePolicy",hook="preDelete"} 0`,
		`rollcall_releases_total{by="skip",hook="inPlaceUpdate"} 0`,
		`rollcall_releases_total{by="skip",hook="preDelete"} 1`)
}

func TestRegisterPods(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	waits := []Wait{
		{Namespace: "shop", Workload: "web", Hook: "preDelete", Reason: "Draining", Since: now.Add(-5 * time.Second)},
		{Namespace: "shop", Workload: "web", Hook: "preDelete", Reason: "Draining", Since: now.Add(-20 * time.Second)},
		{Namespace: "bank", Workload: "web", Hook: "preNormal", Reason: "RegistryError", Since: now.Add(time.Second)},
	}
	r := prometheus.NewPedanticRegistry()
	RegisterPods(r, func() []Wait { return waits }, func() int { return 3 }, func() time.Time { return now })
	series.Expect(t, r, "the oldest counts",
		`rollcall_oldest_wait_seconds{hook="preDelete",reason="Draining"} 20`,
		`rollcall_oldest_wait_seconds{hook="preNormal",reason="RegistryError"} 0`, `rollcall_unmatched_workloads 3`,
		`rollcall_waiting_pods{hook="preDelete",reason="Draining"} 2`, `rollcall_waiting_pods{hook="preNormal",reason="RegistryError"} 1`,
		`rollcall_workload_waiting_seconds{namespace="bank",reason="RegistryError",workload="web"} 0`,
		`rollcall_workload_waiting_seconds{namespace="shop",reason="Draining",workload="web"} 20`)
	waits = nil
	series.Expect(t, r, "no pod waits any more", `rollcall_unmatched_workloads 3`)
}

// TestManyWorkloads: an outage, or a tenant, with ten thousand workloads costs Prometheus a thousand series, and hides no other tenant's.
func TestManyWorkloads(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wait := func(namespace string, i int, after time.Duration) Wait {
		return Wait{Namespace: namespace, Workload: fmt.Sprintf("w-%05d", i), Reason: "RegistryUnavailable", Since: start.Add(after)}
	}
	var waits []Wait
	for i := range 10_000 {
		waits = append(waits, wait("hostile", i, time.Duration(i)*time.Millisecond))
	}
	waits = append(waits, wait("shop", 1, time.Hour))
	shown := oldestByWorkload(waits)
	byNamespace := map[string]int{}
	for _, w := range shown {
		byNamespace[w.namespace]++
	}
	if want := map[string]int{"hostile": workloadsAtMost - 1, "shop": 1, "": 1}; !maps.Equal(byNamespace, want) {
		t.Errorf("shown are %v, want %v: who waits for long hides no other namespace", byNamespace, want)
	}
	rest := workload{reason: "RegistryUnavailable", since: start.Add((workloadsAtMost - 1) * time.Millisecond)}
	if !slices.Contains(shown, rest) {
		t.Error("the oldest of those that are left out is not shown")
	}
	later := oldestByWorkload(append(waits, wait("hostile", 10_001, 2*time.Hour), wait("shop", 2, 2*time.Hour)))
	for _, w := range shown[:workloadsAtMost-1] {
		if !slices.Contains(later, w) {
			t.Errorf("%s/%s has lost its place to one that came later", w.namespace, w.name)
		}
	}
}

func BenchmarkManyWorkloads(b *testing.B) {
	var waits []Wait
	for i := range 100_000 {
		waits = append(waits, Wait{
			Namespace: fmt.Sprintf("team-%d", i%10), Workload: fmt.Sprintf("w-%05d", i%10_000), Reason: "RegistryUnavailable",
			Since: time.Unix(int64(i), 0),
		})
	}
	for b.Loop() {
		oldestByWorkload(waits)
	}
}

func TestRegisterEntries(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	RegisterEntries(r, func() map[Entries]int { return map[Entries]int{{"old", "in"}: 3, {"old", "out"}: 0} })
	series.Expect(t, r, "a registry", `rollcall_entries{registry="old",state="in"} 3`, `rollcall_entries{registry="old",state="out"} 0`)
}

func TestRegisterSlots(t *testing.T) {
	t.Parallel()
	all := map[string]Slots{"old": {Slots: 96, InUse: 3, Queued: 7, Breaker: "open"}}
	r := prometheus.NewPedanticRegistry()
	RegisterSlots(r, func() map[string]Slots { return all })
	series.Expect(t, r, "a registry with an open breaker",
		`rollcall_registry_breaker_state{registry="old",state="closed"} 0`, `rollcall_registry_breaker_state{registry="old",state="halfOpen"} 0`,
		`rollcall_registry_breaker_state{registry="old",state="open"} 1`,
		`rollcall_registry_queued_calls{registry="old"} 7`, `rollcall_registry_slots{registry="old"} 96`,
		`rollcall_registry_slots_in_use{registry="old"} 3`)
	all = nil
	series.Expect(t, r, "the configuration names no such registry any more")
}
