package lifecycle

import "strings"

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
