package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func numbered(prefix string, n int) map[string]string {
	all := map[string]string{}
	for i := range n {
		all[fmt.Sprintf("%s%05d", prefix, i)] = "true"
	}
	return all
}

func TestKeptAnnotations(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxWord+10)
	type row struct {
		reason    string
		all, want map[string]string
	}
	expect.Each(t, map[string]row{
		"what is read": {"nothing is dropped",
			map[string]string{AnnotationSkip: "preDelete", AnnotationServices: "web=80", appspub.LifecycleTimestampKey: "t", AnnotationRelatedPUB: "web"},
			map[string]string{AnnotationSkip: "preDelete", AnnotationServices: "web=80", appspub.LifecycleTimestampKey: "t", AnnotationRelatedPUB: "web"}},
		"what is not":   {"it takes memory", map[string]string{"example.com/a": "b", AnnotationSkip: "preDelete"}, map[string]string{AnnotationSkip: "preDelete"}},
		"none is":       {"a patch must not replace all of them", map[string]string{"example.com/b": "b", "example.com/a": "a"}, map[string]string{"example.com/a": ""}},
		"a mark":        {"hooks.newlyCreated may have it", map[string]string{"example.com/new": "true", "example.com/old": "false"}, map[string]string{"example.com/new": "true"}},
		"unknown":       {"the pod gets a Warning", map[string]string{"rollcall.dev/drian": "5s"}, map[string]string{"rollcall.dev/drian": "5s"}},
		"too long":      {"a byte more than the limit shows that it is", map[string]string{AnnotationSkip: long}, map[string]string{AnnotationSkip: long[:MaxWord+1]}},
		"long, unknown": {"the same", map[string]string{"rollcall.dev/drian": long}, map[string]string{"rollcall.dev/drian": long[:MaxWord+1]}},
	}, func(t *testing.T, tc row) {
		got := KeptAnnotations(tc.all)
		expect.Equal(t, tc.want, got, "%s", tc.reason)
		expect.Equal(t, tc.want, KeptAnnotations(got), "what was kept comes again: %s", tc.reason)
	})
	many := numbered("rollcall.dev/a", 1000)
	many[AnnotationSkip] = "preDelete"
	if got := KeptAnnotations(many); len(got) != MaxOthers+1 || got[AnnotationSkip] == "" || got["rollcall.dev/a00000"] == "" {
		t.Errorf("%d of 1001 annotations are kept: %v", len(got), slices.Sorted(maps.Keys(got)))
	}
}

func TestKeptLabelsHaveOursFirst(t *testing.T) {
	t.Parallel()
	all := numbered("a.example.com/l", 1000)
	all[appspub.LifecycleStateKey], all[LabelPreDelete] = "Normal", "true"
	got := KeptLabels(all)
	if len(got) != MaxLabels || got[appspub.LifecycleStateKey] != "Normal" || got[LabelPreDelete] != "true" {
		t.Errorf("got %d labels: %v", len(got), got)
	}
}

// TestTooManyHandlersAreLeftAlone: which of them are Rollcall's is not known for all, so nothing is released.
func TestTooManyHandlersAreLeftAlone(t *testing.T) {
	t.Parallel()
	w := &Workload{Lifecycle: &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{LabelsHandler: numbered("a.example.com/h", 1000)}}}
	w.Lifecycle.PreDelete.LabelsHandler[LabelPreDelete] = "true"
	w.Lifecycle = KeptLifecycle(w.Lifecycle)
	hooks := HooksOf(w, Ownership{})
	if n := handlers(w.Lifecycle); n != MaxHandlers+1 || !hooks.Any() || len(hooks.PreDelete) != 0 || len(hooks.Refused) != 1 {
		t.Fatalf("%d handlers are kept, and %d refused: %+v", n, len(hooks.Refused), hooks.Refused)
	}
	forgotten := Handler{Label: "rollcall.dev/z", Value: "true"}
	in := Input{
		Pod:    &Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{forgotten.Label: "true", appspub.LifecycleStateKey: "PreparingDelete"}}},
		Record: Record{Stamp: Stamp{UID: "1"}, Handlers: []Handler{forgotten}}, Hooks: hooks,
	}
	if then := Decide(in).Then; !then.Empty() {
		t.Errorf("%+v would be written: the handler may be one of those that were not read", then)
	}
}

func TestSelectorWithTooManyKeysSelectsByAll(t *testing.T) {
	t.Parallel()
	s := KeptSelector(&metav1.LabelSelector{MatchLabels: numbered("example.com/s", 1000), MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: slices.Repeat([]string{"x"}, 1000)},
	}})
	if len(s.MatchLabels) != MaxSelector+1 || s.MatchExpressions[0].Values != nil || !selects(s, LabelPreDelete) {
		t.Errorf("got %d keys", len(s.MatchLabels))
	}
}

// TestTooLongRecordIsNone: it was kept in part.
func TestTooLongRecordIsNone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		padding int
		exists  bool
	}{"short": {10, true}, "too long": {MaxRecord, false}} {
		pod := PodOf(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1", Annotations: map[string]string{
			AnnotationRecord: `{"stamp":{"uid":"1"},"want":"InService"` + strings.Repeat(" ", tc.padding) + "}",
		}}})
		expect.Equal(t, tc.exists, RecordOf(pod).Exists(), "%s", name)
	}
}

func TestPodWithTooMuchSaysWhat(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*corev1.Pod){
		"":                    func(*corev1.Pod) {},
		"metadata.labels":     func(p *corev1.Pod) { p.Labels = numbered("l", MaxLabels+1) },
		"metadata.finalizers": func(p *corev1.Pod) { p.Finalizers = slices.Repeat([]string{"a/b"}, MaxFinalizers+1) },
		"spec.containers has": func(p *corev1.Pod) { p.Spec.Containers = make([]corev1.Container, MaxContainers+1) },
		"spec.containers[].port": func(p *corev1.Pod) {
			p.Spec.Containers = []corev1.Container{{Ports: make([]corev1.ContainerPort, MaxPorts+1)}}
		},
		"spec.readinessGates": func(p *corev1.Pod) { p.Spec.ReadinessGates = make([]corev1.PodReadinessGate, MaxGates+1) },
	} {
		pod := &corev1.Pod{}
		change(pod)
		if got := PodOf(pod).TooMany; (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want it to begin with %q", got, want)
		}
	}
}
