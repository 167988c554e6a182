package integration

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// TestReaderLag: OpenKruise counts a pod available, or has it back after an update, no earlier than the registry's clients know
// of it.
func TestReaderLag(t *testing.T) {
	t.Parallel()
	const lag = 2 * time.Second
	for style, waits := range map[style]appspub.LifecycleStateType{
		preNormal: appspub.LifecycleStatePreparingNormal, finalizer: appspub.LifecycleStateUpdated,
	} {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			ns := namespaceOf("reader-lag", style)
			server := startRegistry(t, onlyRegistry, registryOptions{})
			config := defaultConfiguration(server.URL(), ns)
			config["registry"].(map[string]any)["readerLag"] = lag.String()
			s := newScenario(t, startManager(t, ns, config), server, style, ns)

			s.UpdateInPlace("nginx:2", s.Begin(inPlace, replicas(2)))

			judged := 0
			for _, pod := range s.Pods() {
				for _, v := range s.history.Of(pod.UID) {
					before := s.versionBefore(v.pod)
					if before == nil || stateOf(before) != string(waits) || v.state() != string(appspub.LifecycleStateNormal) {
						continue
					}
					judged++
					registered := s.lastRegistration(string(pod.UID), v.arrived)
					s.Expect(v.arrived.Sub(registered) >= lag, "pod %s went from %s to Normal %s after it was registered, before its clients know it",
						pod.Name, stateOf(before), v.arrived.Sub(registered))
				}
			}
			s.Expect(judged >= 2, "only %d pods were seen to come into Normal", judged)
			s.ExpectAlways()
		})
	}
}

// lastRegistration is when the registry acknowledged the pod last before that time.
func (s *scenario) lastRegistration(uid string, before time.Time) (last time.Time) {
	for _, a := range s.registry.Answers(s.ns, uid) {
		if a.Op == fakeregistry.OpRegister && a.Acknowledged() && a.Answered.Before(before) {
			last = a.Answered
		}
	}
	return last
}
