package integration

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"

	"github.com/rollcall-dev/rollcall/internal/plugin"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// kubectl is a person with the plugin.
type kubectl struct {
	*scenario

	kubeconfig string
	// installation is the namespace of the manager.
	installation string
}

// Kubectl gives a person the rights of a client configuration.
func (s *scenario) Kubectl(name string, as *rest.Config) *kubectl {
	s.Helper()
	path := filepath.Join(s.TempDir(), name)
	s.must(account.WriteKubeconfig(path, as))
	return &kubectl{scenario: s, kubeconfig: path, installation: s.ns}
}

// Expect runs the plugin and holds its exit status and what it prints, errors included, to what is wanted.
func (k *kubectl) Expect(status int, arguments string, words ...string) {
	k.Helper()
	var out bytes.Buffer
	all := append(strings.Fields(arguments), "--kubeconfig", k.kubeconfig, "-n", k.ns, "--rollcall-namespace", k.installation)
	streams := genericiooptions.IOStreams{In: strings.NewReader("no\n"), Out: &out, ErrOut: &out}
	if got := plugin.Run(k.Context(), "test", all, streams); got != status {
		k.Errorf("kubectl rollcall %s: exit status %d, want %d\n%s", arguments, got, status, out.String())
	}
	for _, word := range words {
		if !strings.Contains(out.String(), word) {
			k.Errorf("kubectl rollcall %s: no %q in\n%s", arguments, word, out.String())
		}
	}
}

// TestKubectlPlugin: a person looks at pods that serve, finds the one that waits and why, and lets it go.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	s := alone(t, "plugin", labels, nil)
	s.Create(inPlace, replicas(2), func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.MaxUnavailable = nil })
	s.ExpectSteady()
	person := s.Kubectl("admin", env.cluster.Config())
	person.Expect(6, "status", "namespace plugin has no ConfigMap rollcall-config", "--rollcall-namespace")
	s.must(s.k8s.Create(s.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "rollcall-config"}, Data: map[string]string{"config.yaml": s.manager.config.text()},
	}))
	pods := s.Pods()
	person.Expect(0, "status", pods[0].Name, pods[1].Name, "Normal", "In")
	person.Expect(0, "explain "+pods[0].Name, "is in rotation: registry default acknowledged", "Nothing waits for Rollcall.")
	person.Expect(0, "rollout "+s.key.Name+" --watch", "2 of 2 pods updated, 2 available, 2 in rotation")

	repair := s.Fail(fakeregistry.OpDeregister, "out of order")
	pod := pods[0]
	s.DeleteByLabel(pod)
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook preDelete waits")
	person.Expect(0, "status", "PreparingDelete", "preDelete", "RegistryUnavailable")
	person.Expect(0, "explain "+pod.Name, "OpenKruise waits at the hook preDelete, reason RegistryUnavailable", "out of order",
		"reasons.md#registryunavailable", "kubectl rollcall release "+pod.Name)

	person.Expect(1, "release "+pods[1].Name+" --yes", "waits at no hook that can be released")
	person.Expect(1, "release "+pod.Name, "Write yes to go on", "was not released")
	person.Expect(0, "release "+pod.Name+" --yes", "the manager releases preDelete")
	s.AwaitGone(pod)
	repair()
	s.ExpectSteady()

	person.Expect(3, "explain web-none", "has no pod web-none")
	s.must(s.k8s.Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "stranger"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx"}}},
	}))
	person.Expect(4, "explain stranger", "is not managed by Rollcall", `"example.com/*"`)
	s.Kubectl("anyone", rest.AnonymousClientConfig(env.cluster.Config())).Expect(5, "status", "reading ConfigMap")
	s.expectAlwaysBut()
}
