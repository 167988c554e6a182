package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// AnnotationSkip is how a person skips hooks: "preDelete" or "preDelete,inPlaceUpdate".
const AnnotationSkip = "rollcall.dev/skip"

// Skip is a parsed [AnnotationSkip].
type Skip struct {
	// Hooks are released once, without registry and drain.
	Hooks []Hook
	// Refused is why nothing is skipped, with the remedy.
	Refused string
	// FromTemplate: it must leave the pod, where it would later pass for a person's.
	FromTemplate bool
}

// SkipOf reads the annotation. The workload may be nil.
func SkipOf(pod *Pod, w *Workload) Skip {
	text, found, err := Written(pod.Annotations, AnnotationSkip)
	if !found {
		return Skip{}
	}
	if w != nil {
		if _, templated := w.TemplateAnnotations[AnnotationSkip]; templated {
			return Skip{FromTemplate: true, Refused: fmt.Sprintf("annotation %s is in the workload's template, where it would "+
				"release the hooks of every pod: remove it from spec.template, and write it on the one pod", AnnotationSkip)}
		}
	}
	if err != nil {
		return Skip{Refused: err.Error()}
	}
	var hooks []Hook
	for name := range strings.SplitSeq(text, ",") {
		hook := Hook(strings.TrimSpace(name))
		if hook != PreDelete && hook != InPlaceUpdate {
			return Skip{Refused: fmt.Sprintf("annotation %s: %q: use %s, %s or both with a comma between; %s can't be skipped, "+
				"because no pod joins without the registry's acknowledgement", AnnotationSkip, text, PreDelete, InPlaceUpdate, PreNormal)}
		}
		hooks = append(hooks, hook)
	}
	return Skip{Hooks: hooks}
}

// RefusedIn returns why this decision can't be skipped, if asked for.
func (s Skip) RefusedIn(d Decision) string {
	updated := d.Row == RowUpdated || d.Row == RowUpdatedNotReady
	if !updated || !slices.Contains(s.Hooks, d.Waiting) {
		return s.Refused
	}
	return fmt.Sprintf("annotation %s: hook %s waits for the pod to be in rotation, and that can't be skipped: take the annotation off",
		AnnotationSkip, d.Waiting)
}

// Skip is [Decision.Unacknowledged], and from a pod that ends the guard too.
func (d Decision) Skip() Edit {
	edit := d.Unacknowledged()
	if d.Row == RowGone && d.Waiting != "" {
		edit.Clear = d.Then.Clear
	}
	return edit
}
