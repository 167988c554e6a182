package integration

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const selectedBy = "example.com/rollcall"

// TestNamespacesByLabel: without a restart, the pods of a namespace are taken in when its label begins to match, and left alone when it no
// longer does: no write, no call, and their entries do not count as left over.
func TestNamespacesByLabel(t *testing.T) {
	t.Parallel()
	const name = "by-label"
	s := alone(t, name, func(c configuration) {
		c["namespaces"] = map[string]any{"matchLabels": map[string]string{selectedBy: name}}
		c["resync"] = map[string]any{"interval": "1s", "maxRemovals": "100%"}
	})
	process := s.manager.Process()
	other := newScenario(t, s.manager, s.registry, preNormal, name+"-other")
	other.troubled, s.style = true, preNormal
	s.Create(replicas(2))
	s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	other.selectNamespace(name)
	other.Begin(replicas(1))
	s.expectUntouched("no label has ever matched", 0, 0)

	s.selectNamespace(name)
	s.ExpectSteady()

	s.selectNamespace("another")
	s.ExpectLogged("no longer matches the selector", s.ns)
	written, called := s.countWrites(toPod), len(s.registry.Answers(s.ns, ""))
	gone := s.Pods()[0]
	s.DeletePod(gone)
	s.AwaitGone(gone)
	s.AwaitPodIn(appspub.LifecycleStatePreparingNormal)
	lists := func() int { return len(s.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpList})) }
	s.awaitAtLeast(lists()+3, "lists of the registry", lists)
	other.ScaleTo(2)
	s.expectUntouched("its namespace no longer matches", written, called)
	s.Expect(len(s.registry.serving(t, s.ns)) == 2, "the entry of pod %s is not left as it is", gone.Name)

	s.selectNamespace(name)
	s.ExpectSteady()
	s.Expect(s.manager.Process() == process, "the manager was started again")
	s.ExpectNothingLeft()
	other.ExpectNothingLeft()
}

func (s *scenario) selectNamespace(value string) {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	s.must(s.k8s.Patch(s.Context(), namespace, kube.Merge(`{"metadata":{"labels":{%q:%q}}}`, selectedBy, value)))
}

// expectUntouched expects no more writes of pods and calls than so many.
func (s *scenario) expectUntouched(why string, writes, calls int) {
	s.Helper()
	if got := s.countWrites(toPod); got != writes {
		s.Errorf("%d writes to pods, want %d: %s\n%s", got, writes, why, s.describe())
	}
	if got := len(s.registry.Answers(s.ns, "")); got != calls {
		s.Errorf("%d calls, want %d: %s\n%s", got, calls, why, s.describe())
	}
}

func toPod(w apiproxy.Write) bool { return w.ToPod() }
