package checker

import (
	"maps"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// The hooks.
const (
	PreNormal     = "preNormal"
	InPlaceUpdate = "inPlaceUpdate"
	PreDelete     = "preDelete"
)

// Hooks are a workload's handlers by hook: label=value, or a finalizer.
type Hooks map[string][]string

// Serves reports whether the handler is one of the hook.
func (h Hooks) Serves(hook, handler string) bool { return slices.Contains(h[hook], handler) }

// HandlersOf are those of all hooks, each once.
func HandlersOf(h Hooks) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(h))...))))
}

// SetOn are the hooks' handlers that are set on a pod.
func SetOn(h Hooks, pod *corev1.Pod) map[string]bool {
	on := map[string]bool{}
	for _, handler := range HandlersOf(h) {
		label, value, isLabel := strings.Cut(handler, "=")
		if isLabel && pod.Labels[label] == value || slices.Contains(pod.Finalizers, handler) {
			on[handler] = true
		}
	}
	return on
}

// leaves reports whether a pod in the state is out of rotation, ready or not.
func leaves(state string) bool {
	return slices.Contains([]appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete,
	}, appspub.LifecycleStateType(state))
}

// clearing returns the hook that is released if the handler is cleared in a state, none if OpenKruise does not wait for it there, and
// whether a manager may clear it there. What OpenKruise reads in which state:
//
//	PreparingDelete   it deletes the pod once no handler of preDelete is set
//	PreparingUpdate   it updates the pod once no handler of inPlaceUpdate is set
//	Updating          the pod is back with all handlers of inPlaceUpdate, as in Updated
//	Normal            it asks only while one of the next hook is set
//
// A handler of preNormal alone is cleared whenever the pod goes out, so that OpenKruise waits again if it changes its mind.
func (h Hooks) clearing(handler, state string, deleting bool) (released string, allowed bool) {
	start, update, end := h.Serves(PreNormal, handler), h.Serves(InPlaceUpdate, handler), h.Serves(PreDelete, handler)
	if deleting {
		return PreDelete, true
	}
	switch appspub.LifecycleStateType(state) {
	case appspub.LifecycleStatePreparingDelete:
		if end {
			return PreDelete, true
		}
		return "", start
	case appspub.LifecycleStatePreparingUpdate:
		if update {
			return InPlaceUpdate, true
		}
		return "", !end
	case appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated:
		return "", update || !end
	case appspub.LifecycleStateNormal:
		return "", false
	default:
		return "", !update && !end
	}
}

// setting returns the hook that is asserted if the handler is set in a state, none if the pod is only armed by it, and whether a
// manager may set it there. A handler that preDelete shares with preNormal arms a pod in Updated. One of preDelete alone may have been
// taken away by an update of a pod in rotation, so it may be set in Updating.
func (h Hooks) setting(handler, state string, deleting bool) (asserted string, allowed bool) {
	start, update, end := h.Serves(PreNormal, handler), h.Serves(InPlaceUpdate, handler), h.Serves(PreDelete, handler)
	if deleting {
		return "", false
	}
	switch appspub.LifecycleStateType(state) {
	case appspub.LifecycleStatePreparingDelete, appspub.LifecycleStatePreparingUpdate:
		return "", false
	case appspub.LifecycleStateUpdating:
		return "", !update && !start
	case appspub.LifecycleStatePreparingNormal:
		if start {
			return PreNormal, true
		}
	case appspub.LifecycleStateUpdated:
		switch {
		case update:
			return InPlaceUpdate, true
		case !end:
			return PreNormal, true // both are set together
		}
	default:
	}
	return "", true
}
