package lifecycle

import (
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
)

// The handlers that enrolment gives to a CloneSet. Rollcall owns them whatever the configuration says.
const (
	LabelPreNormal     = "rollcall.dev/pre-normal"
	LabelInPlaceUpdate = "rollcall.dev/in-place-update"
	LabelPreDelete     = "rollcall.dev/pre-delete"

	// enrolledValue is what each of them has where it is set.
	enrolledValue = "true"
)

// Enrolled returns the hooks of an enrolled CloneSet: all three, each with one label as its handler.
func Enrolled() *appspub.Lifecycle {
	hook := func(label string) *appspub.LifecycleHook {
		return &appspub.LifecycleHook{LabelsHandler: map[string]string{label: enrolledValue}}
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
