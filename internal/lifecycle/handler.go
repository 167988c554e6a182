package lifecycle

import (
	"cmp"
	"slices"
	"strings"
)

// Hook is a point at which OpenKruise waits.
type Hook string

// The hooks of spec.lifecycle.
const (
	PreNormal     Hook = "preNormal"
	InPlaceUpdate Hook = "inPlaceUpdate"
	PreDelete     Hook = "preDelete"
)

// Handler is one label or finalizer of a hook.
type Handler struct {
	Label string `json:"label,omitempty"`
	// Value means "set"; the workload chooses it, not always "true".
	Value     string `json:"value,omitempty"`
	Finalizer string `json:"finalizer,omitempty"`
}

// Key is the label's key or the finalizer.
func (h Handler) Key() string { return h.Label + h.Finalizer }

func (h Handler) String() string {
	if h.Finalizer != "" {
		return "finalizer " + h.Finalizer
	}
	return "label " + h.Label + "=" + h.Value
}

// SetOn reports whether the pod has the handler, a label with exactly its value.
func (h Handler) SetOn(pod *Pod) bool {
	if h.Finalizer != "" {
		return slices.Contains(pod.Finalizers, h.Finalizer)
	}
	value, present := pod.Labels[h.Label]
	return present && value == h.Value
}

func compareHandlers(a, b Handler) int {
	return cmp.Or(strings.Compare(a.Label, b.Label), strings.Compare(a.Finalizer, b.Finalizer), strings.Compare(a.Value, b.Value))
}

// union sorts, and drops duplicates.
func union(lists ...[]Handler) []Handler { return sorted(slices.Concat(lists...)) }

// sorted is union of one list, in place.
func sorted(all []Handler) []Handler {
	slices.SortFunc(all, compareHandlers)
	return slices.Compact(all)
}

func without(list, other []Handler) []Handler {
	return filter(list, func(h Handler) bool { return !slices.Contains(other, h) })
}

func filter(list []Handler, keep func(Handler) bool) []Handler {
	var kept []Handler
	for _, h := range list {
		if keep(h) {
			kept = append(kept, h)
		}
	}
	return kept
}
