package integration

import (
	"fmt"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
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

// TestDryRunOfALabelledNamespace: a newcomer's CloneSets have no hooks. Those of a namespace with the label count as enrolled, from the moment
// at which it is labelled.
func TestDryRunOfALabelledNamespace(t *testing.T) {
	t.Parallel()
	s := alone(t, "dry-run-labelled", nil, "--dry-run")
	s.Create(replicas(1), unhooked)
	pod := s.AwaitRunning()
	namespace := clusterstate.NamespaceMetadata()
	namespace.SetName(s.ns)
	s.must(s.k8s.Patch(s.Context(), namespace, client.RawPatch("application/merge-patch+json",
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, enrollLabel))))
	s.ExpectLogged("would register", pod.Name, s.ns, ":80")
	s.ExpectLogged("would patch", pod.Name, "rollcall.dev/pre-delete")
	var set kruisev1alpha1.CloneSet
	s.must(s.k8s.Get(s.Context(), s.key, &set))
	s.Expect(set.Spec.Lifecycle == nil, "the CloneSet got hooks: %+v", set.Spec.Lifecycle)
	s.Expect(len(s.manager.proxy.Writes("")) == 0, "the dry run sent %+v", s.manager.proxy.Writes(""))
	s.DeleteCloneSet("Background")
}
