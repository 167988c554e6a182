package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// TestHistory: after a rollout a person reads in the manager's log what it did, and a release that waited for no acknowledgement.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := alone(t, "told", func(c configuration) {
		c["drain"], c["proceedAfter"] = "1s", map[string]any{"preDelete": "1s"}
	}, "--zap-log-level=debug")
	pods := s.Begin(inPlace, replicas(3))
	s.UpdateInPlace("nginx:2", pods)
	person := s.Kubectl("admin", env.cluster.Config())
	history := "history " + s.key.Name + " --file " + s.manager.LogPath()
	person.Expect(0, history, "registered", "taken out", "drain begun", "drain ended", "inPlaceUpdate by acknowledgement",
		"The lines of 3 pods show no hook that was released before the registry acknowledged")
	person.Expect(0, strings.Replace(history, s.key.Name, pods[0].Name, 1), "The lines of 1 pod show")
	person.Expect(3, strings.Replace(history, s.key.Name, "other", 1), "no line about a pod or a workload other")
	s.Expect(strings.Contains(s.manager.Log(), `"msg":"called"`) && strings.Contains(s.manager.Log(), `"operation":"list"`),
		"at debug, the log has not each call")

	repair := s.Fail(fakeregistry.OpDeregister, "out of order")
	s.DeleteByLabel(pods[0])
	s.AwaitGone(pods[0])
	repair()
	s.until("the entry to be removed after all", func() bool { return strings.Contains(s.manager.Log(), `"msg":"removed"`) })
	person.Expect(7, history, "left in rotation: ", "preDelete by proceedAfter")

	cut := filepath.Join(t.TempDir(), "cut.log")
	var without []string
	for line := range strings.Lines(s.manager.Log()) {
		if !strings.Contains(line, `"msg":"taken out"`) {
			without = append(without, line)
		}
	}
	s.must(os.WriteFile(cut, []byte(strings.Join(without, "")), 0o600))
	person.Expect(7, strings.Replace(history, s.manager.LogPath(), cut, 1), "released before acknowledged: ")
}
