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

// Patch returns the JSON Patch that makes the edit and writes the record in one step, or nil where the input's pod has all of
// it already. A nil record leaves the one on the pod. A record that differs only in its stamp is not worth a write of its
// own. Handlers that only the record on the pod names, and that the edit leaves set, stay in it.
//
// The patch tests the pod's UID, state and Kruise's timestamp, and that it is not being deleted by now, so it does
// nothing to a pod that moved on or to another pod of that name: the API server refuses it whole. A patch that sets a
// handler also tests that the pod has stayed ready at its address, since it may land after its sender gave it up.
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

// ChangedBeside reports whether the pod, as it came of an edit, has labels or annotations that are neither its former ones nor the
// edit's: another writer has changed them in between. What kubectl applied last is left out: the cache has it of no pod.
func (in Input) ChangedBeside(edit Edit, after *corev1.Pod) bool {
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

// remembering is the record with the handlers that no hook names any more and that are still to be released after the edit, as
// while a pod drains: nothing else would tell that they are Rollcall's.
func (in Input) remembering(record *Record, edit Edit) *Record {
	if record == nil || slices.Equal(record.Handlers, in.Record.Handlers) {
		return record // nearly always, and what follows costs allocations
	}
	left := filter(in.forgotten(), func(h Handler) bool { return h.SetOn(in.Pod) && !slices.Contains(edit.Clear, h) })
	remembers := *record
	remembers.Handlers = union(record.Handlers, left)
	return &remembers
}

// preconditions refuse the patch unless the pod is still where it was decided on.
func preconditions(pod *corev1.Pod, edit Edit) []Operation {
	tests := []Operation{
		{Op: "test", Path: "/metadata/uid", Value: pod.UID},
		valueTest("labels", pod.Labels, appspub.LifecycleStateKey),
		valueTest("annotations", pod.Annotations, appspub.LifecycleTimestampKey),
	}
	if pod.DeletionTimestamp == nil {
		// A delete moves neither the state nor Kruise's timestamp.
		tests = append(tests, Operation{Op: "test", Path: "/metadata/deletionTimestamp"})
	}
	if edit.AsRecorded {
		tests = append(tests, valueTest("annotations", pod.Annotations, AnnotationRecord))
	}
	if len(edit.Set) > 0 {
		tests = append(tests, readyTests(pod)...)
	}
	return tests
}

// readyTests refuse the patch where a condition by which the pod is ready has changed, or its address. The resource version would
// say that too, and change with every status that kubelet writes.
func readyTests(pod *corev1.Pod) []Operation {
	address := Operation{Op: "test", Path: "/status/podIP"}
	if pod.Status.PodIP != "" {
		address.Value = pod.Status.PodIP
	}
	tests := []Operation{address}
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

// valueTest tests a key's value, or that it is missing, which null means. No path leads into a map that is not there.
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

func labelOperations(pod *corev1.Pod, hooks Hooks, edit Edit) []Operation {
	var operations []Operation
	for _, h := range edit.Set {
		if h.Label != "" {
			operations = append(operations, Operation{Op: "add", Path: pointer("labels", h.Label), Value: h.Value})
		}
	}
	for _, h := range edit.Clear {
		// A forgotten handler may be a newly-created mark too: the mark's removal below is enough, a second one would fail.
		if h.Label != "" && !slices.Contains(edit.ClearMarks, h.Label) {
			operations = append(operations, clearLabel(hooks, h))
		}
	}
	return append(operations, removals("labels", pod.Labels, edit.ClearMarks)...)
}

// removals of the keys that are there.
func removals(field string, values map[string]string, keys []string) []Operation {
	var operations []Operation
	for _, key := range keys {
		if _, found := values[key]; found {
			operations = append(operations, Operation{Op: "remove", Path: pointer(field, key)})
		}
	}
	return operations
}

// clearLabel puts the template's value back where it means "not set", so that the pod looks as its template says.
func clearLabel(hooks Hooks, h Handler) Operation {
	if value, found := hooks.templateLabels[h.Label]; found && value != h.Value {
		return Operation{Op: "add", Path: pointer("labels", h.Label), Value: value}
	}
	return Operation{Op: "remove", Path: pointer("labels", h.Label)}
}

// finalizerOperations removes by index under a test of the value, and adds under a test of the whole list: without
// them a change that another owner makes to the list in between would be undone.
func finalizerOperations(pod *corev1.Pod, edit Edit) []Operation {
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

// skipOperations removes the annotation that the edit rests on, and no other: the person may have changed their mind.
func skipOperations(pod *corev1.Pod, edit Edit) []Operation {
	value, found := pod.Annotations[AnnotationSkip]
	if !edit.ClearSkip || !found {
		return nil
	}
	path := pointer("annotations", AnnotationSkip)
	return []Operation{{Op: "test", Path: path, Value: value}, {Op: "remove", Path: path}}
}

func annotationOperations(pod *corev1.Pod, key, value string) []Operation {
	if len(pod.Annotations) == 0 {
		return []Operation{{Op: "add", Path: "/metadata/annotations", Value: map[string]string{key: value}}}
	}
	return []Operation{{Op: "add", Path: pointer("annotations", key), Value: value}}
}

// pointer is the JSON Pointer (RFC 6901) of a key in a map of the metadata.
func pointer(field, key string) string {
	escaped := strings.ReplaceAll(strings.ReplaceAll(key, "~", "~0"), "/", "~1")
	return "/metadata/" + field + "/" + escaped
}
