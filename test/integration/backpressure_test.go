package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// TestSlowService: a registry that hangs for one service has half of the calls of that service's pods, and
// the rollout of another goes on.
func TestSlowService(t *testing.T) {
	t.Parallel()
	styles := []style{labels, mixed}
	server := startRegistry(t, onlyRegistry, registryOptions{})
	config := defaultConfiguration(server.URL(), namespacesOf("slow", styles)...)
	const timeout = 4 * time.Second
	config["registry"] = map[string]any{
		"driver": "http", "endpoint": server.URL(), "timeout": timeout.String(), "maxInFlight": 4,
	}
	m := startManager(t, "slow", config, "--workers=6")
	all := newScenarios(t, m, server, "slow", styles)
	slow, swift := all[0], all[1]
	before := swift.Begin(inPlace, replicas(2))

	began := time.Now()
	hold := server.Hold(slow.match(""))
	slow.Create(replicas(10))
	slow.AwaitCalls(hold, 2)
	slow.ExpectMetric(`rollcall_registry_slots_in_use{registry="default"} 2`)
	swift.UpdateImage("nginx:2")
	swift.ExpectSteady()
	swift.ExpectImage("nginx:2", before)
	slow.AwaitCalls(hold, 4) // time-outs make room for the next, and for no more
	calls, rounds := slow.calls(slow.match("")), int(time.Since(began)/timeout)+1
	slow.Expect(calls <= 2*rounds, "there were %d calls of the slow service in %d times its time-out, want 2 at once", calls, rounds)
	slow.Expect(len(slow.registry.serving(t, slow.ns)) == 0, "a pod was registered by a call that hangs")

	hold.Release()
	slow.ExpectSteady()
	all.finish()
}

// TestBreakerProbes: with several pods that can't be registered, the registry gets one call every five
// seconds, and all go on when it answers again.
func TestBreakerProbes(t *testing.T) {
	t.Parallel()
	styles := []style{labels, finalizer}
	server := startRegistry(t, onlyRegistry, registryOptions{})
	m := startManager(t, "outage", defaultConfiguration(server.URL(), namespacesOf("outage", styles)...))
	all := newScenarios(t, m, server, "outage", styles)

	repair := server.Fail(fakeregistry.Match{}, errors.New("out of order"))
	all.each(func(s *scenario) { s.Create(replicas(4)) })
	first := all[0]
	first.ExpectMetric(`rollcall_registry_breaker_state{registry="default",state="open"} 1`)
	opened := time.Now()
	var probes []fakeregistry.Call
	first.await("three probes", func() error {
		probes = nil
		for _, c := range server.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister}) { // resync's lists have their own pace
			if c.Started.After(opened) {
				probes = append(probes, c)
			}
		}
		if len(probes) < 3 {
			return fmt.Errorf("there were %d", len(probes))
		}
		return nil
	})
	for i, probe := range probes[1:] {
		pause := probe.Started.Sub(probes[i].Started)
		first.Expect(pause > 4*time.Second, "a call came %s after the one before", pause)
	}
	for _, s := range all {
		for _, pod := range s.Pods() {
			s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "out of order")
		}
	}

	repair()
	all.each((*scenario).ExpectSteady)
	first.ExpectMetric(`rollcall_registry_breaker_state{registry="default",state="closed"} 1`)
	first.ExpectMetric(`rollcall_registry_queued_calls{registry="default"} 0`)
	first.ExpectMetric(`rollcall_registry_slots_in_use{registry="default"} 0`)
	all.finish()
}
