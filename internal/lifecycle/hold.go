package lifecycle

import (
	"fmt"
	"strings"
	"time"
)

// AnnotationHold is how a person holds one pod out of rotation: until an RFC 3339 time, and why: "2026-11-27T12:00:00Z heap dump".
const AnnotationHold = "rollcall.dev/hold"

// Hold is a parsed [AnnotationHold].
type Hold struct {
	// Until is zero if nothing is held.
	Until time.Time
	Why   string
	// Refused is why the annotation is not followed, with the remedy.
	Refused string
}

// HoldOf reads the annotation. The workload may be nil.
func HoldOf(pod *Pod, w *Workload) Hold {
	text, found, err := Written(pod.Annotations, AnnotationHold)
	if !found {
		return Hold{}
	}
	if w != nil && w.TemplateAnnotations[AnnotationHold] != "" {
		return Hold{Refused: fmt.Sprintf("annotation %s is in the workload's template, where it would hold all pods out: remove it from "+
			"spec.template, and write it on the one pod", AnnotationHold)}
	}
	if err != nil {
		return Hold{Refused: err.Error()}
	}
	at, why, _ := strings.Cut(strings.TrimSpace(text), " ")
	until, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return Hold{Refused: fmt.Sprintf("annotation %s is %.60q, and begins with no time: set it to the hold's end and why, such as "+
			`"2026-11-27T12:00:00Z heap dump", or remove it`, AnnotationHold, text)}
	}
	return Hold{Until: until, Why: strings.TrimSpace(why)}
}

// String is the annotation.
func (h Hold) String() string {
	return strings.TrimSpace(h.Until.UTC().Format(time.RFC3339) + " " + h.Why)
}

// Left is how long the pod is held from now on, zero if it is not.
func (h Hold) Left(now time.Time) time.Duration { return max(h.Until.Sub(now), 0) }

// HoldOut returns the input of a pod that a person holds out of rotation: it is out like one that ends, and counts for no panic threshold.
func (in Input) HoldOut(h Hold) Input {
	why := ""
	if h.Why != "" {
		why = " (" + h.Why + ")"
	}
	in.HeldOut = true
	in.Ending = fmt.Sprintf("the pod is held out of rotation until %s%s: kubectl rollcall hold %s -n %s --undo puts it back",
		h.Until.UTC().Format(time.RFC3339), why, in.Pod.Name, in.Pod.Namespace)
	return in
}
