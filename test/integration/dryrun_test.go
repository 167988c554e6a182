package integration

import (
	"fmt"
	"testing"
)

// TestDryRun: a dry run says what it would do with a pod, and writes nothing. Its metric counts each step once.
func TestDryRun(t *testing.T) {
	t.Parallel()
	s := alone(t, "dry-run", nil, "--dry-run")
	s.Create(replicas(1), annotated(servicesKey, "many"))
	pod := s.AwaitRunning()
	s.ExpectLogged("would event", pod.Name, "InvalidPod", "name=port")
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, servicesKey))
	s.ExpectLogged("would event", pod.Name, "Resolved")
	s.ExpectLogged("would register", pod.Name, s.ns, ":80")
	s.ExpectLogged("would patch", pod.Name, "remove /metadata/labels/example.com/newly-create")
	s.ExpectMetric(`rollcall_dry_run_total{operation="register",registry="default"} 1`)
	s.Expect(len(s.registry.Answers(s.ns, "")) == 0, "the registry was called for the pod")
	s.Expect(len(s.manager.proxy.Writes("")) == 0, "the dry run sent %+v", s.manager.proxy.Writes(""))
	s.DeleteCloneSet("Background")
}
