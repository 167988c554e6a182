package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// TestDryRun: a dry run says what it would do, by itself and beside a manager that works, and writes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	const name = "dry-run"
	config := defaultConfiguration(env.registry.URL(), name)
	dry := startManager(t, name, config, append(elect(t, name+"-lease"), "--dry-run")...)
	s := newScenario(t, dry, env.registry, finalizer, name)
	s.Create(inPlace, replicas(1), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Lifecycle.PreNormal = &appspub.LifecycleHook{LabelsHandler: map[string]string{"example.com/online": "true"}}
	})
	pod := s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	s.ExpectTold(dry, pod, "would register", name, ":80")
	s.ExpectTold(dry, pod, "would patch", "example.com/online: true")
	s.ExpectMetric(`rollcall_dry_run_total{operation="register",registry="default"} 1`)
	// Whatever happens to the pod: what would be done is the same.
	for i := range 3 {
		s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{"example.org/touched":"%d"}}}`, i))
	}
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:"many"}}}`, servicesKey))
	s.ExpectTold(dry, pod, "would event", "InvalidPod", "name=port")
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, servicesKey))
	s.ExpectTold(dry, pod, "would event", "Resolved")
	s.Expect(len(told(dry, pod, "would register")) == 1, "it was logged more than once: %v", told(dry, pod, "would register"))
	s.Expect(len(s.registry.Answers(s.ns, "")) == 0, "the registry was called for the pod")
	s.Expect(s.Now(pod.UID).Annotations[recordKey] == "", "the pod has a record")
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStatePreparingNormal), "the pod went on")

	s.manager = startManager(t, name+"-beside", config)
	s.ExpectSteady()
	s.UpdateImage("nginx:2")
	s.ExpectTold(dry, pod, "would failOver", name)
	s.ExpectSteady()
	s.ExpectNothingLeft()
	s.ExpectTold(dry, pod, "would deregister", name)
	s.ExpectAlways() // of the manager that works: no call was made twice
	s.Expect(len(dry.proxy.Writes("")) == 0, "the dry run sent %+v", dry.proxy.Writes(""))
}

// ExpectTold waits until a dry run has told a step with these words in it.
func (s *scenario) ExpectTold(m *rollcall, pod *corev1.Pod, step string, words ...string) {
	s.Helper()
	s.await(fmt.Sprintf("the dry run to say %q with %q", step, words), func() error {
		for _, line := range told(m, pod, step) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return errors.New("it has not")
	})
}

// told are the lines of a dry run about one step with a pod.
func told(m *rollcall, pod *corev1.Pod, step string) []string {
	var lines []string
	for line := range strings.Lines(m.Log()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == step && entry["pod"] == pod.Name {
			lines = append(lines, line)
		}
	}
	return lines
}
