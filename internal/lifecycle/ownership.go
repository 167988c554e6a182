package lifecycle

import (
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Ownership says which handler keys and newly-created marks Rollcall owns, as the configuration lists them.
type Ownership struct {
	// Owned holds exact keys (example.com/registered) and whole prefixes (example.com/*).
	Owned []string
	// NewlyCreated holds the keys of labels or annotations that a template sets to "true" on a new pod.
	NewlyCreated []string
}

// Owns reports whether Rollcall owns a label key or finalizer. Those of enrolment are always its own.
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

// The handlers that enrolment gives to a CloneSet. Rollcall owns them whatever the configuration says.
const (
	LabelPreNormal     = "rollcall.dev/pre-normal"
	LabelInPlaceUpdate = "rollcall.dev/in-place-update"
	LabelPreDelete     = "rollcall.dev/pre-delete"
)

// Enrolled returns the hooks of an enrolled CloneSet: all three, each with one label as its handler.
func Enrolled() *appspub.Lifecycle {
	hook := func(label string) *appspub.LifecycleHook {
		return &appspub.LifecycleHook{LabelsHandler: map[string]string{label: "true"}}
	}
	return &appspub.Lifecycle{
		PreNormal: hook(LabelPreNormal), InPlaceUpdate: hook(LabelInPlaceUpdate), PreDelete: hook(LabelPreDelete),
	}
}

// IsEnrolled reports whether the hooks have all handlers that enrolment gives.
func IsEnrolled(l *appspub.Lifecycle) bool {
	has := HandlersOf(l)
	return !slices.ContainsFunc(HandlersOf(Enrolled()), func(n Named) bool { return !slices.Contains(has, n) })
}
