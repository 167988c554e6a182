package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The most that is kept, and read, of what a tenant can write. docs/security.md lists them, with what each can cost.
const (
	// MaxHandlers of a workload. Each is compared with all others.
	MaxHandlers = 50
	// MaxSelector is how many keys a workload's selector can have, of labels that are to be handlers.
	MaxSelector = 100
	// MaxLabels of a pod or a template.
	MaxLabels = 100
	// MaxFinalizers of a pod or a template.
	MaxFinalizers = 100
	// MaxContainers of a pod or a template.
	MaxContainers = 100
	// MaxPorts of all containers together.
	MaxPorts = 500
	// MaxGates of a pod or a template.
	MaxGates = 100
	// MaxOthers are annotations of which only the key is read, or the value "true".
	MaxOthers = 50

	// MaxRecord is the bytes of [AnnotationRecord].
	MaxRecord = 64 << 10
	// MaxText is the bytes of an annotation with a list: services, tags, pairs or networks.
	MaxText = 16 << 10
	// MaxWord is the bytes of any other annotation.
	MaxWord = 1 << 10
)

// Annotations of others that are read: of a service mesh, and of OpenKruise's PodUnavailableBudgets.
const (
	// AnnotationDefaultContainer is set by service meshes when they inject a container.
	// https://kubernetes.io/docs/reference/labels-annotations-taints/#kubectl-kubernetes-io-default-container
	AnnotationDefaultContainer = "kubectl.kubernetes.io/default-container"
	// AnnotationRelatedPUB is the PodUnavailableBudget that OpenKruise asks about the pod (its pkg/control/pubcontrol/pub_control_utils.go).
	AnnotationRelatedPUB = "kruise.io/related-pub"
)

// Annotations with lists. The rest of what people set on pods is short.
const (
	AnnotationServices = "rollcall.dev/services"
	AnnotationTags     = "rollcall.dev/tags"
	AnnotationMetadata = "rollcall.dev/metadata"
)

// LimitOf returns how many bytes of an annotation are read; 0 if nothing reads it.
func LimitOf(key string) int {
	switch key {
	case AnnotationRecord:
		return MaxRecord
	case AnnotationServices, AnnotationTags, AnnotationMetadata, AnnotationNetworks:
		return MaxText
	case appspub.LifecycleTimestampKey, AnnotationDefaultContainer, AnnotationRelatedPUB:
		return MaxWord
	}
	if strings.HasPrefix(key, Domain) {
		return MaxWord
	}
	return 0
}

// Written returns an annotation, or an error if it is longer than what is read of it.
func Written(annotations map[string]string, key string) (text string, found bool, err error) {
	text, found = annotations[key]
	if limit := LimitOf(key); len(text) > limit {
		return "", true, fmt.Errorf("annotation %s has more than %d bytes: use at most %d", key, limit, limit)
	}
	return text, found, nil
}

// KeptAnnotations are the annotations that are read, or the key of one if none is. One that is too long is cut to a byte more than the
// limit, so that it still shows as too long.
func KeptAnnotations(all map[string]string) map[string]string {
	others, whole := otherAnnotations(all)
	if whole && len(others) <= MaxOthers {
		return all
	}
	kept := map[string]string{} // a new one, since a map never shrinks
	for key, value := range all {
		if known(key) {
			kept[key] = cut(value, LimitOf(key))
		}
	}
	for _, key := range first(others, MaxOthers) {
		kept[key] = cut(all[key], MaxWord)
	}
	if len(kept) == 0 { // a JSON Patch adds to a map that the pod has, and makes one if it has none
		kept[slices.Min(slices.Collect(maps.Keys(all)))] = ""
	}
	return kept
}

// otherAnnotations are those of which only the key is read, or the value "true". Whole: all annotations are read, and none is too long.
func otherAnnotations(all map[string]string) (others []string, whole bool) {
	whole = true
	for key, value := range all {
		switch limit := LimitOf(key); {
		case known(key):
			whole = whole && len(value) <= limit
		case limit > 0 || value == isMarked:
			others = append(others, key)
			whole = whole && len(value) <= limit+len(isMarked)
		default:
			whole = false
		}
	}
	return others, whole
}

// isMarked is the value of a label or annotation by which a template marks new pods. The configuration tells which.
const isMarked = "true"

// known reports whether the annotation is read whatever its value.
func known(key string) bool {
	switch key {
	case AnnotationSkip, AnnotationEndsAt, AnnotationKeepDetached, AnnotationHold, AnnotationTraffic,
		Domain + "address", Domain + "drain", Domain + "warm-up", Domain + "registries":
		return true
	}
	return LimitOf(key) > 0 && !strings.HasPrefix(key, Domain) || LimitOf(key) > MaxWord
}

// cut copies, so that the rest does not stay in memory.
func cut(text string, limit int) string {
	if len(text) <= limit+1 {
		return text
	}
	return strings.Clone(text[:limit+1])
}

// KeptLabels are all, unless there are very many: then Rollcall's and OpenKruise's, and the first of the others.
func KeptLabels(all map[string]string) map[string]string {
	if len(all) <= MaxLabels {
		return all
	}
	kept := make(map[string]string, MaxLabels)
	for _, key := range first(slices.Collect(maps.Keys(all)), MaxLabels) {
		kept[key] = all[key]
	}
	return kept
}

// first returns n of the keys, Rollcall's and OpenKruise's first.
func first(keys []string, n int) []string {
	rank := func(key string) int {
		switch {
		case strings.Contains(key, "kruise.io/"):
			return 0
		case strings.HasPrefix(key, Domain):
			return 1
		default:
			return 2
		}
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	return keys[:min(len(keys), n)]
}

// KeptLifecycle are the hooks, with one handler more than are allowed if there are too many.
func KeptLifecycle(l *appspub.Lifecycle) *appspub.Lifecycle {
	if handlers(l) <= MaxHandlers+1 {
		return l
	}
	kept, left := l.DeepCopy(), MaxHandlers+1
	for _, hook := range []*appspub.LifecycleHook{kept.PreNormal, kept.InPlaceUpdate, kept.PreDelete} {
		if hook == nil {
			continue
		}
		all := hook.LabelsHandler
		hook.LabelsHandler = map[string]string{}
		for _, key := range first(slices.Collect(maps.Keys(all)), left) {
			hook.LabelsHandler[key] = all[key]
			left--
		}
		hook.FinalizersHandler = slices.Clone(first(hook.FinalizersHandler, left))
		left -= len(hook.FinalizersHandler)
	}
	return kept
}

func handlers(l *appspub.Lifecycle) (n int) {
	if l == nil {
		return 0
	}
	for _, hook := range []*appspub.LifecycleHook{l.PreNormal, l.InPlaceUpdate, l.PreDelete} {
		if hook != nil {
			n += len(hook.LabelsHandler) + len(hook.FinalizersHandler)
		}
	}
	return n
}

// KeptSelector is the selector's keys. If it has too many, they are cut, and it counts as one that selects by every label.
func KeptSelector(s *metav1.LabelSelector) *metav1.LabelSelector {
	if s == nil {
		return nil
	}
	kept := &metav1.LabelSelector{MatchLabels: s.MatchLabels}
	if len(s.MatchLabels) > MaxSelector+1 {
		kept.MatchLabels = map[string]string{}
		for _, key := range first(slices.Collect(maps.Keys(s.MatchLabels)), MaxSelector+1) {
			kept.MatchLabels[key] = s.MatchLabels[key]
		}
	}
	for _, e := range s.MatchExpressions[:min(len(s.MatchExpressions), MaxSelector+1)] {
		kept.MatchExpressions = append(kept.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.Key, Operator: e.Operator})
	}
	return kept
}

// KeptFinalizers are the first.
func KeptFinalizers(all []string) []string { return atMost(all, MaxFinalizers) }

// atMost is the list or a copy of its beginning, so that the rest does not stay in memory.
func atMost[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[:n])
}

// tooMany returns what the pod has more of than is read of it, with the remedy, if anything.
func tooMany(pod *corev1.Pod) string {
	containers, ports := 0, 0
	for c := range staying(&pod.Spec) {
		containers++
		ports += len(c.Ports)
	}
	for _, of := range []struct {
		field   string
		n, most int
	}{
		{"metadata.labels", len(pod.Labels), MaxLabels},
		{"metadata.finalizers", len(pod.Finalizers), MaxFinalizers},
		{"spec.containers", containers, MaxContainers},
		{"spec.containers[].ports", ports, MaxPorts},
		{"spec.readinessGates", len(pod.Spec.ReadinessGates), MaxGates},
	} {
		if of.n > of.most {
			return fmt.Sprintf("%s has %d entries: use at most %d", of.field, of.n, of.most)
		}
	}
	return ""
}
