package lifecycle

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// FuzzRecordOf: tenants can write the annotation. Whatever it says, it is no record or one that holds together, is this pod's,
// and stays what it is when it is written again.
func FuzzRecordOf(f *testing.F) {
	const uid = "0a1b"
	for _, seed := range []string{
		"", "null", "{}", "[]", `{"stamp":{"uid":"0a1b"}}`, `{"want":"InService","stamp":{"uid":"0a1b"}}`,
		`{"want":"InService","stamp":{"uid":"0a1b"},"instances":[{"registry":"default","service":"web","address":"10.0.0.1","port":8080}]}`,
		`{"want":"Absent","stamp":{"uid":"0a1b"},"handlers":[{"label":"a","value":"b"},{"finalizer":"c"}],"outSince":"2026-01-01T00:00:00Z"}`,
		`{"want":"Absent","stamp":{"uid":"0a1b"},"handlers":[{}]}`, `{"version":2,"want":"InService","stamp":{"uid":"0a1b"}}`,
		`{"want":"Keep","stamp":{"uid":"0a1b"}}`, `{"want":"InService","stamp":{"uid":"another"}}`,
	} {
		f.Add(seed)
	}
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Labels: map[string]string{}, Annotations: map[string]string{}}}
	in := Key{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 8080}
	written := NewRecord(pod, Hooks{}, InService, []Key{in}, nil)
	if text, err := json.Marshal(written); err == nil {
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		fuzzed := pod.DeepCopy()
		fuzzed.Annotations[AnnotationRecord] = text
		r := RecordOf(fuzzed)
		if !r.Exists() {
			if diff := cmp.Diff(Record{}, r); diff != "" {
				t.Fatalf("no record, and yet (-want +got):\n%s", diff)
			}
			return
		}
		if r.Stamp.UID != types.UID(uid) || !slices.Contains([]Want{InService, OutOfService, Absent}, r.Want) {
			t.Fatalf("took %q for this pod's record: %+v", text, r)
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%+v can't be written: %v", r, err)
		}
		fuzzed.Annotations[AnnotationRecord] = string(again)
		// An empty list is written as none at all, and nothing tells the two apart.
		if diff := cmp.Diff(r, RecordOf(fuzzed), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("read again, it is another (-want +got):\n%s", diff)
		}
		expectDecidable(t, fuzzed, r)
	})
}

// expectDecidable goes through all states with the record: what it names may be released only where it is ours.
func expectDecidable(t *testing.T, pod *Pod, r Record) {
	t.Helper()
	ownership := Ownership{Owned: []string{"example.com/*"}}
	for _, state := range []appspub.LifecycleStateType{
		"", appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingUpdate,
		appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingDelete,
	} {
		pod.Labels[appspub.LifecycleStateKey] = string(state)
		d := Decide(Input{Pod: pod, Record: r, Ownership: ownership})
		for _, h := range slices.Concat(d.Arm.Clear, d.Then.Clear, d.Arm.Set, d.Then.Set) {
			if !ownership.Owns(h.Key()) {
				t.Errorf("in %q the record has %+v touched, which is not owned", state, h)
			}
		}
	}
}

// FuzzSkipOf: whatever stands in the annotation, only a release is ever skipped, and what is refused says why.
func FuzzSkipOf(f *testing.F) {
	for _, text := range []string{"", "preDelete", "inPlaceUpdate, preDelete", "preNormal", "preDelete,", "PreDelete", ",,", "\x00"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pod := &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationSkip: text}}}
		skip := SkipOf(pod, nil)
		if (len(skip.Hooks) == 0) != (skip.Refused != "") {
			t.Errorf("%q: releases %q and refuses with %q: want one of the two", text, skip.Hooks, skip.Refused)
		}
		for _, hook := range skip.Hooks {
			if hook != PreDelete && hook != InPlaceUpdate {
				t.Errorf("%q: releases %q", text, hook)
			}
		}
	})
}
