package lifecycle

import (
	"fmt"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// AnnotationKeepDetached keeps a pod in rotation that was detached from its CloneSet, if its value is "true".
const AnnotationKeepDetached = "rollcall.dev/keep-detached"

// MayBeDetached reports whether the pod lives without a controller, and nobody keeps it in rotation all the same.
func MayBeDetached(pod *Pod) bool {
	return metav1.GetControllerOfNoCopy(pod) == nil && pod.Annotations[AnnotationKeepDetached] != "true" && !Ends(pod)
}

// MadeBy returns the name of the CloneSet that made the pod, if one did: OpenKruise names a pod after both its CloneSet and its instance.
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
