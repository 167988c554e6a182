package lifecycle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// Operation is one operation of a JSON Patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch returns a JSON Patch of edit and record, or nil if the pod has both. A nil record leaves the pod's; a new stamp alone is not
// written. The API server refuses the whole patch if one of these has changed:
//
//	always      UID, state, OpenKruise's timestamp, deletion
//	Set         readiness, address: the patch can land late
//	AsRecorded  the record
//	Clear       the skip annotation
//	finalizers  the one to remove, or the list to add to
func (in Input) Patch(edit Edit, record *Record) ([]byte, error) {
	pod := in.Pod
	changes := slices.Concat(
		labelOperations(pod, in.Hooks, edit),
		finalizerOperations(pod, edit),
		removals("annotations", pod.Annotations, edit.ClearMarks),
		skipOperations(pod, edit),
	)
	record = in.remembering(record, edit)
	if record != nil && (len(changes) > 0 || !record.sameBut(in.Record) || !in.Record.Exists()) {
		text, err := json.Marshal(record)
		if err != nil {
			return nil, fmt.Errorf("encoding the record: %w", err)
		}
		if len(text) > MaxRecord {
			return nil, fmt.Errorf("the annotation %s would have %d bytes, more than %d: the pod has too many services in too many registries",
				AnnotationRecord, len(text), MaxRecord)
		}
		changes = append(changes, annotationOperations(pod, AnnotationRecord, string(text))...)
	}
	if len(changes) == 0 {
		return nil, nil
	}
	patch, err := json.Marshal(append(preconditions(pod, edit), changes...))
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return patch, nil
}

// ChangedBeside reports whether another writer changed labels or annotations. The cache drops kubectl's last-applied-configuration.
func (in Input) ChangedBeside(edit Edit, after *Pod) bool {
	if after == in.Pod {
		return false // nothing was written
	}
	edited := func(key, _ string) bool {
		return key == corev1.LastAppliedConfigAnnotation || slices.Contains(edit.ClearMarks, key) || edit.ClearSkip && key == AnnotationSkip ||
			slices.ContainsFunc(slices.Concat(edit.Set, edit.Clear), func(h Handler) bool { return h.Label == key })
	}
	others := func(values map[string]string) map[string]string {
		values = maps.Clone(values)
		maps.DeleteFunc(values, edited)
		return values
	}
	return !maps.Equal(others(in.Pod.Labels), others(after.Labels)) || !maps.Equal(others(in.Pod.Annotations), others(after.Annotations))
}

// remembering keeps forgotten handlers in the record until they are released: nothing else shows that they are Rollcall's.
func (in Input) remembering(record *Record, edit Edit) *Record {
	if record == nil || slices.Equal(record.Handlers, in.Record.Handlers) {
		return record // the usual case, without an allocation
	}
	left := filter(in.forgotten(), func(h Handler) bool { return h.SetOn(in.Pod) && !slices.Contains(edit.Clear, h) })
	remembers := *record
	remembers.Handlers = union(record.Handlers, left)
	return &remembers
}

func preconditions(pod *Pod, edit Edit) []Operation {
	tests := []Operation{
		{Op: "test", Path: "/metadata/uid", Value: pod.UID},
		valueTest("labels", pod.Labels, appspub.LifecycleStateKey),
		valueTest("annotations", pod.Annotations, appspub.LifecycleTimestampKey),
	}
	if pod.DeletionTimestamp == nil {
		// which changes neither state nor timestamp
		tests = append(tests, Operation{Op: "test", Path: "/metadata/deletionTimestamp"})
	}
	if len(edit.Clear) > 0 && !edit.ClearSkip && len(pod.Annotations) > 0 && !skipTooLong(pod) {
		// else a skip that a person has just written would be left, for a later hook
		tests = append(tests, skipTest(pod))
	}
	if edit.AsRecorded && len(pod.Annotations[AnnotationRecord]) <= MaxRecord { // a longer one is kept in part, and nothing rests on it
		tests = append(tests, valueTest("annotations", pod.Annotations, AnnotationRecord))
	}
	if len(edit.Set) > 0 {
		tests = append(tests, readyTests(pod)...)
	}
	return tests
}

// readyTests omits the resource version: every status of kubelet changes it.
func readyTests(pod *Pod) []Operation {
	address := Operation{Op: "test", Path: "/status/podIP"}
	switch {
	case len(pod.Status.PodIPs) > 1:
		address.Path, address.Value = "/status/podIPs", pod.Status.PodIPs
	case pod.Status.PodIP != "":
		address.Value = pod.Status.PodIP
	}
	tests := []Operation{address}
	// One that is too long is kept in part, and tells no address.
	if _, found, err := Written(pod.Annotations, AnnotationNetworks); found && err == nil {
		tests = append(tests, valueTest("annotations", pod.Annotations, AnnotationNetworks))
	}
	rests := readyBy(pod)
	for i, c := range pod.Status.Conditions {
		if !slices.Contains(rests, c.Type) {
			continue
		}
		path := fmt.Sprintf("/status/conditions/%d", i)
		tests = append(tests,
			Operation{Op: "test", Path: path + "/type", Value: c.Type},
			Operation{Op: "test", Path: path + "/status", Value: c.Status},
			Operation{Op: "test", Path: path + "/lastTransitionTime", Value: c.LastTransitionTime},
		)
	}
	return tests
}

// valueTest tests a value, or with null that there is none. No path leads into a missing map.
func valueTest(field string, values map[string]string, key string) Operation {
	if len(values) == 0 {
		return Operation{Op: "test", Path: "/metadata/" + field}
	}
	test := Operation{Op: "test", Path: pointer(field, key)}
	if value, found := values[key]; found {
		test.Value = value
	}
	return test
}

func labelOperations(pod *Pod, hooks Hooks, edit Edit) []Operation {
	var operations []Operation
	for _, h := range edit.Set {
		if h.Label != "" {
			operations = append(operations, Operation{Op: "add", Path: pointer("labels", h.Label), Value: h.Value})
		}
	}
	for _, h := range edit.Clear {
		// A mark is removed below; removing it twice would fail.
		if h.Label != "" && !slices.Contains(edit.ClearMarks, h.Label) {
			operations = append(operations, clearLabel(hooks, h))
		}
	}
	return append(operations, removals("labels", pod.Labels, edit.ClearMarks)...)
}

func removals(field string, values map[string]string, keys []string) []Operation {
	var operations []Operation
	for _, key := range keys {
		if _, found := values[key]; found {
			operations = append(operations, Operation{Op: "remove", Path: pointer(field, key)})
		}
	}
	return operations
}

// clearLabel restores a template's value that means "not set", such as "false".
func clearLabel(hooks Hooks, h Handler) Operation {
	if value, found := hooks.templateLabels[h.Label]; found && value != h.Value {
		return Operation{Op: "add", Path: pointer("labels", h.Label), Value: value}
	}
	return Operation{Op: "remove", Path: pointer("labels", h.Label)}
}

func finalizerOperations(pod *Pod, edit Edit) []Operation {
	var operations []Operation
	adding := filter(edit.Set, func(h Handler) bool { return h.Finalizer != "" })
	if test := (Operation{Op: "test", Path: "/metadata/finalizers"}); len(adding) > 0 {
		if len(pod.Finalizers) > 0 {
			test.Value = pod.Finalizers
		}
		operations = append(operations, test)
	}
	for i, f := range slices.Backward(pod.Finalizers) {
		if slices.Contains(edit.Clear, Handler{Finalizer: f}) {
			path := fmt.Sprintf("/metadata/finalizers/%d", i)
			operations = append(operations, Operation{Op: "test", Path: path, Value: f}, Operation{Op: "remove", Path: path})
		}
	}
	if len(adding) > 0 && len(pod.Finalizers) == 0 {
		operations = append(operations, Operation{Op: "add", Path: "/metadata/finalizers", Value: []string{}})
	}
	for _, h := range adding {
		operations = append(operations, Operation{Op: "add", Path: "/metadata/finalizers/-", Value: h.Finalizer})
	}
	return operations
}

func skipOperations(pod *Pod, edit Edit) []Operation {
	if _, found := pod.Annotations[AnnotationSkip]; !edit.ClearSkip || !found {
		return nil
	}
	if skipTooLong(pod) {
		return []Operation{{Op: "remove", Path: skipPath}}
	}
	return []Operation{skipTest(pod), {Op: "remove", Path: skipPath}}
}

// skipPath is the pointer to [AnnotationSkip], which each release tests.
const skipPath = "/metadata/annotations/rollcall.dev~1skip"

// skipTooLong: it is kept in part, and so can't be tested.
func skipTooLong(pod *Pod) bool { return len(pod.Annotations[AnnotationSkip]) > MaxWord }

// skipTest tests that the annotation is as it was read, or that there is still none.
func skipTest(pod *Pod) Operation {
	test := Operation{Op: "test", Path: skipPath}
	if value, found := pod.Annotations[AnnotationSkip]; found {
		test.Value = value
	}
	return test
}

func annotationOperations(pod *Pod, key, value string) []Operation {
	if len(pod.Annotations) == 0 {
		return []Operation{{Op: "add", Path: "/metadata/annotations", Value: map[string]string{key: value}}}
	}
	return []Operation{{Op: "add", Path: pointer("annotations", key), Value: value}}
}

// pointer("labels", "a/b") is /metadata/labels/a~1b (RFC 6901).
func pointer(field, key string) string {
	escaped := strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
	return "/metadata/" + field + "/" + escaped
}
