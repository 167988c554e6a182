package lifecycle

import (
	"cmp"
	"slices"
	"strings"

	"github.com/rollcall-dev/rollcall/internal/suggest"
)

// UnknownName returns the remedy for an annotation or a label of a pod in Rollcall's domain that nothing reads, or nothing:
//
//	annotation rollcall.dev/drian    did you mean rollcall.dev/drain?
//	label rollcall.dev/drain         it is an annotation
//
// described are the annotations by which people describe a pod.
func (in Input) UnknownName(described []string) string {
	marks := in.Ownership.NewlyCreated
	if key := firstOf(in.Pod.Annotations, func(key string) bool {
		return !slices.Contains(described, key) && !slices.Contains(marks, key) && key != AnnotationSkip && key != AnnotationRecord &&
			key != AnnotationEndsAt && key != AnnotationHold
	}); key != "" {
		return unknownAnnotation(key, described)
	}
	handlers := [...]string{LabelPreNormal, LabelInPlaceUpdate, LabelPreDelete}
	key := firstOf(in.Pod.Labels, func(key string) bool {
		return !slices.Contains(handlers[:], key) && !slices.Contains(marks, key) && !in.Hooks.names(Handler{Label: key})
	})
	if key == "" {
		return ""
	}
	nearest := meant(key, handlers[:])
	switch {
	case slices.Contains(described, key):
		return "label " + key + ", which Rollcall reads as an annotation only"
	case nearest != "":
		return "label " + key + ", which Rollcall does not know: " + nearest
	}
	return ""
}

func unknownAnnotation(key string, described []string) string {
	if key == AnnotationTraffic {
		return "annotation " + key + ", which Rollcall reads on the CloneSet only: move it from spec.template.metadata to metadata"
	}
	return "annotation " + key + ", which Rollcall does not know: " +
		cmp.Or(meant(key, described), "known are "+strings.Join(described, ", "))
}

// meant asks for the known name that is nearest behind the domain, or is empty.
func meant(key string, known []string) string {
	names := make([]string, len(known))
	for i, one := range known {
		names[i] = strings.TrimPrefix(one, Domain)
	}
	if nearest := suggest.Nearest(strings.TrimPrefix(key, Domain), names); nearest != "" {
		return "did you mean " + Domain + nearest + "?"
	}
	return ""
}

// firstOf returns the first such name in the domain, or nothing. Usually there is none, and nothing is allocated.
func firstOf(values map[string]string, such func(string) bool) (first string) {
	for key := range values {
		if strings.HasPrefix(key, Domain) && (first == "" || key < first) && such(key) {
			first = key
		}
	}
	return first
}
