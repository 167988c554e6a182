package lifecycle

import (
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// Domain begins the keys that are Rollcall's in every configuration.
const Domain = "rollcall.dev/"

// Ownership lists what is Rollcall's by configuration, in addition to [Domain].
type Ownership struct {
	// Owned are keys (example.com/registered) and prefixes (example.com/*).
	Owned []string
	// NewlyCreated are keys of labels or annotations that templates set to "true".
	NewlyCreated []string
}

// Owns reports whether a label or finalizer is a handler of Rollcall's, which the guard is not.
func (o Ownership) Owns(key string) bool {
	if below(Domain, key) {
		return key != GuardFinalizer
	}
	return slices.ContainsFunc(o.Owned, func(pattern string) bool {
		domain, whole := strings.CutSuffix(pattern, "*")
		return key == pattern || whole && below(domain, key)
	})
}

// Holds reports whether the pod has an owned finalizer or the guard.
func (o Ownership) Holds(pod *Pod) bool {
	return guarded(pod) || slices.ContainsFunc(pod.Finalizers, o.Owns)
}

func below(domain, key string) bool { return strings.HasPrefix(key, domain) && key != domain }

// String lists all that is owned, for a person.
func (o Ownership) String() string {
	return strings.Join(append([]string{Domain + "*"}, o.Owned...), ", ")
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
