package clusterstate

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestRecords: what is decoded once is what RecordOf decodes each time, however many annotations there have been.
func TestRecords(t *testing.T) {
	t.Parallel()
	var all Records
	written := func(n int, change func(*lifecycle.Pod, *lifecycle.Record)) *lifecycle.Pod {
		pod := &lifecycle.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-of-web-1"}}
		entries := []lifecycle.Key{{Registry: "default", Service: "web", Address: "10.0.0.1", Port: n + 1}}
		record := lifecycle.NewRecord(pod, lifecycle.Hooks{}, lifecycle.InService, entries, nil)
		change(pod, &record)
		text, err := json.Marshal(record)
		expect.NoError(t, err)
		pod.Annotations = map[string]string{lifecycle.AnnotationRecord: string(text)}
		return pod
	}
	as := func(*lifecycle.Pod, *lifecycle.Record) {}
	pods := map[string]*lifecycle.Pod{
		"of another pod":     written(1, func(pod *lifecycle.Pod, _ *lifecycle.Record) { pod.UID = "uid-of-web-2" }),
		"of a later version": written(1, func(_ *lifecycle.Pod, r *lifecycle.Record) { r.Version = 1000 }),
		"that is garbage":    written(1, func(_ *lifecycle.Pod, r *lifecycle.Record) { r.Want = "Somewhere" }),
		"with many entries": written(1, func(_ *lifecycle.Pod, r *lifecycle.Record) {
			r.Instances = slices.Repeat(r.Instances, longestShared/50)
		}),
		"that is none": {ObjectMeta: metav1.ObjectMeta{UID: "uid-of-web-1"}},
	}
	for n := range recordsAtMost + 2 {
		pods[strconv.Itoa(n)] = written(n, as)
	}
	for range 2 {
		for name, pod := range pods {
			if diff := cmp.Diff(lifecycle.RecordOf(pod), all.Of(pod)); diff != "" {
				t.Fatalf("a record %s (-RecordOf +Records):\n%s", name, diff)
			}
		}
	}
	if n := len(all.read); n > recordsAtMost {
		t.Errorf("%d records are kept, and %d bound the memory", n, recordsAtMost)
	}
	if one, other := all.Of(pods["0"]), all.Of(pods["0"]); &one.Instances[0] != &other.Instances[0] {
		t.Error("a record that was decoded is decoded again")
	}
}
