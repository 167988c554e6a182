package lifecycle

import (
	"encoding/json"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// benchInput is a pod that waits for its update, with a label for each hook and a record of one instance.
func benchInput(b testing.TB) (Input, Record) {
	b.Helper()
	workload := &Workload{
		Selector: selector("app"),
		Lifecycle: &appspub.Lifecycle{
			InPlaceUpdate: hookOf(label("example.com/in-place", "true")), PreDelete: hookOf(label("example.com/delete", "true")),
		},
	}
	pod := &Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: testUID,
			Labels: map[string]string{
				"app": "web", "example.com/in-place": "true", "example.com/delete": "true",
				appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingUpdate),
			},
			Annotations: map[string]string{appspub.LifecycleTimestampKey: testTime},
		},
		Status: PodStatus{
			PodIP: "10.0.0.1", Conditions: []PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
	hooks, since := HooksOf(workload, testOwnership()), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	instances := []Key{{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 8080}}
	text, err := json.Marshal(NewRecord(pod, hooks, InService, instances, nil))
	if err != nil {
		b.Fatal(err)
	}
	pod.Annotations[AnnotationRecord] = string(text)
	in := Input{Pod: pod, Hooks: hooks, Record: RecordOf(pod), Ownership: testOwnership()}
	if !in.Record.Exists() || Decide(in).Then.Empty() {
		b.Fatal("nothing is to be decided")
	}
	return in, NewRecord(pod, hooks, OutOfService, instances, &since)
}

// work is what is done for each pod of a rollout, by name.
func work(tb testing.TB) map[string]func() {
	tb.Helper()
	in, record := benchInput(tb)
	workload := &Workload{Lifecycle: &appspub.Lifecycle{
		InPlaceUpdate: hookOf(label("example.com/in-place", "true")), PreDelete: hookOf(label("example.com/delete", "true")),
	}}
	edit := Decide(in).Then
	return map[string]func(){
		"HooksOf":  func() { HooksOf(workload, testOwnership()) },
		"RecordOf": func() { RecordOf(in.Pod) },
		"Decide":   func() { Decide(in) },
		"Patch": func() {
			if _, err := in.Patch(edit, &record); err != nil {
				tb.Error(err)
			}
		},
	}
}

func BenchmarkPod(b *testing.B) {
	for name, do := range work(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
	}
}
