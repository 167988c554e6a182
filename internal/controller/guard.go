package controller

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// observeGuard says what shall become of the pod's guard. hasWorkload: its CloneSet is there.
func observeGuard(seen *observation, hasWorkload bool) {
	pod := seen.pod()
	seen.input.Guard = seen.settings.Guard.Of(lifecycle.GuardFacts{
		Dying:       pod.DeletionTimestamp != nil,
		Hooked:      seen.input.Hooks.Any(),
		OwnerGone:   !hasWorkload && metav1.GetControllerOf(pod) != nil && seen.unsupported == "",
		Unlisted:    seen.unlisted(),
		Undescribed: seen.problem.reason != "",
	})
}

// unlisted reports whether the pod is, or shall be, in a registry that can't list. One that the configuration no longer has
// can't.
func (o *observation) unlisted() bool {
	for _, t := range o.targets {
		if !o.settings.Registries[t.registry].Lists() {
			return true
		}
	}
	for in := range o.known() {
		if !o.settings.Registries[in.Registry].Lists() {
			return true
		}
	}
	return false
}
