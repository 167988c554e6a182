package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// TestRecordsOfOtherVersions: Rollcall is rolled back, and then upgraded, while pods carry the records of the other version.
// A later version's record acknowledges nothing, and an earlier one's is as good as our own.
func TestRecordsOfOtherVersions(t *testing.T) {
	t.Parallel()
	const name = "record-versions"
	m := startManager(t, name, defaultConfiguration(env.registry.URL(), name))
	s := newScenario(t, m, env.registry, finalizer, name)
	s.troubled = true // it is asked again what it had acknowledged
	before := s.Begin(inPlace, replicas(2))

	// Back: a pod waits at its hook, and the other is in service; of both the record says that they are out.
	m.Kill()
	s.UpdateImage("nginx:2")
	waits := s.AwaitPodIn(appspub.LifecycleStatePreparingUpdate)
	for _, pod := range before {
		s.rewriteRecord(pod, func(r map[string]any) {
			r["version"], r["want"], r["phases"] = 99, "OutOfService", []string{"drained"}
			r["outSince"] = time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)
		})
	}
	hold := s.HoldCalls(fakeregistry.OpFailOver)
	restart(t, m)
	s.AwaitCalls(hold, 1)
	s.Expect(stateOf(s.Now(waits.UID)) == string(appspub.LifecycleStatePreparingUpdate),
		"a hook was released by the word of a later version")
	s.ExpectServing(before...)
	hold.Release()
	s.ExpectSteady()
	s.ExpectImage("nginx:2", before)
	s.await("records of our own", func() error {
		for _, pod := range s.Pods() {
			if version := s.readRecord(pod)["version"]; version != 1.0 {
				return fmt.Errorf("that of pod %s is of version %v", pod.Name, version)
			}
		}
		return nil
	})

	// Forward: what was written before there were versions counts, and no write is made for a version alone.
	m.Kill()
	for _, pod := range before {
		s.rewriteRecord(pod, func(r map[string]any) { delete(r, "version") })
	}
	restart(t, m)
	s.ExpectSteady()
	s.DeleteByLabel(s.Pods()[0])
	s.AwaitGone(before[0])
	s.ExpectSteady()
	s.Expect(s.readRecord(s.Now(before[1].UID))["version"] == nil, "a record was written for its version alone")
	scenarios{s}.finish()
}

func (s *scenario) readRecord(pod *corev1.Pod) map[string]any {
	s.Helper()
	var record map[string]any
	s.must(json.Unmarshal([]byte(pod.Annotations[recordKey]), &record))
	return record
}

// rewriteRecord changes the record of a pod as it is now, and stamps it as one of the pod's present stay in its state.
func (s *scenario) rewriteRecord(pod *corev1.Pod, edit func(map[string]any)) {
	s.Helper()
	now := s.Now(pod.UID)
	if now == nil {
		s.must(errors.New("pod " + pod.Name + " is gone"))
	}
	record := s.readRecord(now)
	edit(record)
	record["stamp"] = map[string]any{
		"uid": now.UID, "timestamp": now.Annotations[appspub.LifecycleTimestampKey], "state": stateOf(now),
	}
	text, err := json.Marshal(record)
	s.must(err)
	s.PatchPod(now, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, recordKey, text))
}
