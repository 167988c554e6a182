package lifecycle

import (
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Ownership lists what is Rollcall's by configuration.
type Ownership struct {
	// Owned are keys (example.com/registered) and prefixes (example.com/*).
	Owned []string
	// NewlyCreated are keys of labels or annotations that templates set to "true".
	NewlyCreated []string
}

// Owns reports whether a label or finalizer is Rollcall's. Those of enrollment always are.
func (o Ownership) Owns(key string) bool {
	switch key {
	case LabelPreNormal, LabelInPlaceUpdate, LabelPreDelete:
		return true
	}
	for _, pattern := range o.Owned {
		if prefix, whole := strings.CutSuffix(pattern, "*"); whole && strings.HasPrefix(key, prefix) && key != prefix {
			return true
		}
		if key == pattern {
			return true
		}
	}
	return false
}

// The handlers of an enrolled CloneSet.
const (
	LabelPreNormal     = "rollcall.dev/pre-normal"
	LabelInPlaceUpdate = "rollcall.dev/in-place-update"
	LabelPreDelete     = "rollcall.dev/pre-delete"
)

// Enrolled returns the hooks of an enrolled CloneSet.
func Enrolled() *appspub.Lifecycle {
	hook := func(label string) *appspub.LifecycleHook {
		return &appspub.LifecycleHook{LabelsHandler: map[string]string{label: "true"}}
	}
	return &appspub.Lifecycle{
		PreNormal: hook(LabelPreNormal), InPlaceUpdate: hook(LabelInPlaceUpdate), PreDelete: hook(LabelPreDelete),
	}
}

// IsEnrolled reports whether the hooks have all of [Enrolled]'s handlers.
func IsEnrolled(l *appspub.Lifecycle) bool {
	has := HandlersOf(l)
	return !slices.ContainsFunc(HandlersOf(Enrolled()), func(n Named) bool { return !slices.Contains(has, n) })
}
