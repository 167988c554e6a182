package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
)

func TestCallsAreTimedAndCounted(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m := newRegistryMetrics(t, r)
	const name = "rollcall_registry_requests_in_flight"
	ended := m.Began("old", "fake", "register")
	during := gauge(t, r, name)
	ended("timeout")
	if got, want := during+" "+gauge(t, r, name), "fake/old=1 fake/old=0"; got != want {
		t.Errorf("in flight: %s, want %s", got, want)
	}
	if diff := cmp.Diff(map[string]uint64{"fake/register/timeout/old": 1}, observed(t, r)); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	m.Forget("old", "fake")
	if got := gauge(t, r, name); got != "" || len(observed(t, r)) > 0 {
		t.Errorf("got %q and %v of a registry that is no more", got, observed(t, r))
	}
}

func TestConfigMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := NewConfigMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, r, 0, 0, 1)
	m.Refused()
	expect(t, r, 0, 1, 0)
	m.Applied()
	expect(t, r, 1, 1, 1)
}

func expect(t *testing.T, r prometheus.Gatherer, applied, refused, last int) {
	t.Helper()
	want := fmt.Sprintf(`
# HELP rollcall_config_last_reload_successful 1 if the manager uses the configuration file as it is now, 0 if it refused the file.
# TYPE rollcall_config_last_reload_successful gauge
rollcall_config_last_reload_successful %d
# HELP rollcall_config_reloads_total Changes of the configuration file, by outcome (applied, refused).
# TYPE rollcall_config_reloads_total counter
rollcall_config_reloads_total{outcome="applied"} %d
rollcall_config_reloads_total{outcome="refused"} %d
`, last, applied, refused)
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestPodsAreReadAtEachScrape(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC)
	waits := []Wait{
		{Hook: "preDelete", Reason: "Draining", Since: now.Add(-5 * time.Second)},
		{Hook: "preDelete", Reason: "Draining", Since: now.Add(-20 * time.Second)},
		{Hook: "preNormal", Reason: "RegistryError", Since: now.Add(time.Second)},
	}
	r := prometheus.NewPedanticRegistry()
	err := RegisterPods(r, Pods{
		Waits:              func() []Wait { return waits },
		UnmatchedWorkloads: func() int { return 3 },
		Releases:           func() []Release { return []Release{{Hook: "preDelete", By: "skip", Count: 2}} },
		Now:                func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	const unmatched = `
# HELP rollcall_unacknowledged_releases_total Hooks that were released without a registry's acknowledgement, by hook and cause (failurePolicy, skip).
# TYPE rollcall_unacknowledged_releases_total counter
rollcall_unacknowledged_releases_total{by="skip",hook="preDelete"} 2
# HELP rollcall_unmatched_workloads Workloads with lifecycle hooks whose handlers all fail to match hooks.owned.
# TYPE rollcall_unmatched_workloads gauge
rollcall_unmatched_workloads 3
`
	want := `
# HELP rollcall_oldest_wait_seconds How long the oldest waiting pod has waited, by hook and reason.
# TYPE rollcall_oldest_wait_seconds gauge
rollcall_oldest_wait_seconds{hook="preDelete",reason="Draining"} 20
rollcall_oldest_wait_seconds{hook="preNormal",reason="RegistryError"} 0
# HELP rollcall_waiting_pods Pods that wait for Rollcall, by hook and reason.
# TYPE rollcall_waiting_pods gauge
rollcall_waiting_pods{hook="preDelete",reason="Draining"} 2
rollcall_waiting_pods{hook="preNormal",reason="RegistryError"} 1
` + unmatched
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	waits = nil
	if err := testutil.GatherAndCompare(r, strings.NewReader(unmatched)); err != nil {
		t.Errorf("nobody waits any more: %v", err)
	}
}

func TestRegisteringTwiceIsAnError(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	newRegistryMetrics(t, r)
	if _, err := NewRegistryMetrics(r); err == nil {
		t.Error("want an error")
	}
}

func newRegistryMetrics(t *testing.T, r prometheus.Registerer) *RegistryMetrics {
	t.Helper()
	m, err := NewRegistryMetrics(r)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// observed returns how often each driver/operation/outcome/registry was observed.
func observed(t *testing.T, r prometheus.Gatherer) map[string]uint64 {
	t.Helper()
	counts := map[string]uint64{}
	for _, metric := range gather(t, r, "rollcall_registry_request_duration_seconds") {
		counts[labelValues(metric)] = metric.GetHistogram().GetSampleCount()
	}
	return counts
}

// labelValues are in the order of the labels' names.
func labelValues(metric *dto.Metric) string {
	var values []string
	for _, label := range metric.GetLabel() {
		values = append(values, label.GetValue())
	}
	return strings.Join(values, "/")
}

func gauge(t *testing.T, r prometheus.Gatherer, name string) string {
	t.Helper()
	var values []string
	for _, metric := range gather(t, r, name) {
		values = append(values, fmt.Sprintf("%s=%g", labelValues(metric), metric.GetGauge().GetValue()))
	}
	return strings.Join(values, ",")
}

func gather(t *testing.T, r prometheus.Gatherer, name string) []*dto.Metric {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()
		}
	}
	return nil
}
