package lifecycle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationSkip is written by a person who lets a pod go on that is stuck. It names the hook, or several.
const AnnotationSkip = "rollcall.dev/skip"

// Skip is what the pod's [AnnotationSkip] asks for.
type Skip struct {
	// Hooks are those to release without the registry and without the drain, once.
	Hooks []Hook
	// Refused says why it is not done and what to write; empty where it is.
	Refused string
	// FromTemplate reports that the workload's template has it. It must not stay on the pod then: once the template lost it,
	// nothing would tell it from what a person wrote.
	FromTemplate bool
}

// SkipOf reads the pod's annotation. A nil workload has no template.
func SkipOf(pod *corev1.Pod, w *Workload) Skip {
	text, found := pod.Annotations[AnnotationSkip]
	if !found {
		return Skip{}
	}
	if w != nil {
		if _, templated := w.TemplateAnnotations[AnnotationSkip]; templated {
			return Skip{FromTemplate: true, Refused: fmt.Sprintf("annotation %s is in the workload's template, where it would "+
				"release the hooks of every pod: remove it from spec.template, and write it on the one pod", AnnotationSkip)}
		}
	}
	var hooks []Hook
	for name := range strings.SplitSeq(text, ",") {
		hook := Hook(strings.TrimSpace(name))
		if hook != PreDelete && hook != InPlaceUpdate {
			return Skip{Refused: fmt.Sprintf("annotation %s: %q: write %s, %s or both with a comma between; %s can't be skipped, "+
				"because no pod joins without the registry's acknowledgement", AnnotationSkip, text, PreDelete, InPlaceUpdate, PreNormal)}
		}
		hooks = append(hooks, hook)
	}
	return Skip{Hooks: hooks}
}

// RefusedIn says why it is not done for a pod with this decision; empty where it is, or where nothing was asked for.
func (s Skip) RefusedIn(d Decision) string {
	updated := d.Row == RowUpdated || d.Row == RowUpdatedNotReady
	if !updated || !slices.Contains(s.Hooks, d.Waiting) {
		return s.Refused
	}
	return fmt.Sprintf("annotation %s: hook %s waits for the pod to be in service, and that can't be skipped: take the annotation off",
		AnnotationSkip, d.Waiting)
}

// Skip is what is released where a person skips the hook: [Decision.Unacknowledged], and from a pod that ends the guard too.
func (d Decision) Skip() Edit {
	edit := d.Unacknowledged()
	if d.Row == RowGone && d.Waiting != "" {
		edit.Clear = d.Then.Clear
	}
	return edit
}
