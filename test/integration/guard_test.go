package integration

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/uninstall"
	"github.com/rollcall-dev/rollcall/registry"
	httpregistry "github.com/rollcall-dev/rollcall/registry/http"
)

func guarded(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, "rollcall.dev/guard") }

// expectGuarded waits until all pods carry the guard, or none does.
func (s *scenario) expectGuarded(want bool) {
	s.Helper()
	s.await(fmt.Sprintf("pods with the guard: %t", want), func() error {
		for _, pod := range s.Pods() {
			if guarded(pod) != want {
				return fmt.Errorf("pod %s has the finalizers %v", pod.Name, pod.Finalizers)
			}
		}
		return nil
	})
}

// unlisted is a registry of somebody's own, without a list.
type unlisted struct{ registry.Registry }

func newUnlisted(ctx context.Context, config registry.Config) (registry.Registry, error) {
	made, err := httpregistry.New(ctx, config)
	return unlisted{made}, err
}

// expectUninstallFreesGuarded frees the pods as kubectl rollcall uninstall --free-pods does.
func (s *scenario) expectUninstallFreesGuarded() {
	s.Helper()
	text := fmt.Sprintf("cluster: gone\nregistry: {driver: memory}\nnamespaces: [%s]\n", s.ns)
	parsed, err := config.Parse([]byte(text), config.Limits{})
	s.must(err)
	gone := &uninstall.Cluster{Client: s.k8s, Config: parsed, Owner: "test"}
	left, err := gone.Survey(s.Context())
	s.must(err)
	s.must(gone.FreePods(s.Context(), left, func(uninstall.Finding) {}))
	s.expectGuarded(false)
}

// TestGuard: where the registry can't list, a pod that is deleted past the hooks while no manager runs can't vanish before it was taken
// out; unless a person wants that.
func TestGuard(t *testing.T) {
	t.Parallel()
	s := alone(t, "guard", func(c configuration) { c["registry"].(map[string]any)["driver"] = "unlisted" })
	m := s.manager
	s.troubled = false
	s.Begin(inPlace, replicas(2))
	s.expectGuarded(true)
	s.UpdateInPlace("nginx:2", nil)
	s.ScaleTo(1)
	s.troubled = true

	pod := s.Pods()[0]
	m.Kill()
	s.DeletePod(pod)
	s.untilPod(pod, "to be stopped", func(now *corev1.Pod) bool { return now == nil || now.DeletionTimestamp != nil })
	s.Expect(s.Now(pod.UID) != nil, "the pod is gone, and no call took it out")
	s.Expect(s.registry.gives(t, s.ns, pod), "the pod was taken out without a call")
	restart(t, m)
	s.AwaitGone(pod)
	s.ExpectSteady()

	m.Kill()
	s.expectUninstallFreesGuarded()
	restart(t, m)
	s.expectGuarded(true)
	s.ExpectNothingLeft()
	s.ExpectAlways()
}
