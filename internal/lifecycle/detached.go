package lifecycle

import (
	"fmt"
	"maps"
	"strings"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// AnnotationKeepDetached keeps a pod in rotation that was detached from its CloneSet, if its value is "true".
const AnnotationKeepDetached = "rollcall.dev/keep-detached"

// MayBeDetached reports whether the pod lives without a controller, and nobody keeps it in rotation all the same.
func MayBeDetached(pod *Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil && pod.Annotations[AnnotationKeepDetached] != "true" && !Ends(pod)
}

// MadeBy returns the name of the CloneSet that made the pod, if one did: a pod's name is the CloneSet's and the instance's.
// https://github.com/openkruise/kruise/blob/v1.9.1/pkg/controller/cloneset/core/cloneset_core.go#L101
func MadeBy(pod *Pod) string {
	instance := pod.Labels[kruisev1alpha1.CloneSetInstanceID]
	name, found := strings.CutSuffix(pod.Name, "-"+instance)
	if instance == "" || !found {
		return ""
	}
	return name
}

// Selected reports whether the selector matches the pod's labels. What is not known counts as a match.
func Selected(pod *Pod, by *metav1.LabelSelector) bool {
	selector, err := metav1.LabelSelectorAsSelector(by)
	return by == nil || err != nil || pod.TooMany != "" || selector.Matches(labels.Set(pod.Labels))
}

// Selection is that a CloneSet selects a pod which it does not own, as the API server has shown. OpenKruise adopts no such pod.
type Selection struct {
	labels     map[string]string
	set        types.UID
	generation int64
	since      time.Time
}

// SelectionOf is what was read of both, now. It lasts since the last one, if that is not nil.
func SelectionOf(pod *Pod, set *kruisev1alpha1.CloneSet, last *Selection, now time.Time) *Selection {
	if last != nil {
		now = last.since
	}
	return &Selection{labels: maps.Clone(pod.Labels), set: set.UID, generation: set.Generation, since: now}
}

// Holds reports whether nothing has changed that could end it. It accepts nil.
func (s *Selection) Holds(pod *Pod, set *kruisev1alpha1.CloneSet) bool {
	return s != nil && s.set == set.UID && s.generation == set.Generation && maps.Equal(s.labels, pod.Labels)
}

// Lasts returns for how long it has been known. It accepts nil.
func (s *Selection) Lasts(now time.Time) time.Duration {
	if s == nil {
		return 0
	}
	return now.Sub(s.since)
}

// Detach returns the input of a pod which a person has taken from its CloneSet: it ends as part of the service.
func (in Input) Detach() Input {
	from := "its CloneSet"
	if name := MadeBy(in.Pod); name != "" {
		from = "CloneSet " + name
	}
	in.Detached = true
	in.Ending = fmt.Sprintf("the pod is out of rotation: its labels were changed, and OpenKruise has detached it from %s: delete "+
		`the pod, or set annotation %s: "true" to put it back`, from, AnnotationKeepDetached)
	return in
}
