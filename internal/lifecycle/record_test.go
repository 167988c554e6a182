package lifecycle

import (
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func podIn(state appspub.LifecycleStateType) *Pod {
	return &Pod{ObjectMeta: metav1.ObjectMeta{
		UID:         testUID,
		Labels:      map[string]string{appspub.LifecycleStateKey: string(state)},
		Annotations: map[string]string{appspub.LifecycleTimestampKey: testTime},
	}}
}

func testHooks() Hooks {
	return HooksOf(&Workload{Lifecycle: &appspub.Lifecycle{
		PreNormal: hookOf(label("example.com/normal", "go")), PreDelete: hookOf(finalizer("exact.io/registered")),
	}}, testOwnership())
}

func TestRecordRoundTrip(t *testing.T) {
	t.Parallel()
	out := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	two := []Key{
		{Registry: "default", Service: "web", Address: "fd00::1", Port: 8080},
		{Registry: "default", Service: "admin", Address: "fd00::1", Port: 9090},
	}
	type row struct {
		reason    string
		want      Want
		instances []Key
		outSince  *time.Time
	}
	expect.Each(t, map[string]row{
		"in service":     {reason: "several instances", want: InService, instances: two},
		"out of service": {reason: "the drain's time must not lose its fraction", want: OutOfService, instances: two, outSince: &out},
		"absent":         {reason: "a pod without an IP has no instances", want: Absent},
		"very many":      {reason: "what is written must be read", want: InService, instances: slices.Repeat(two, 300)},
	}, func(t *testing.T, tc row) {
		pod, hooks := podIn(appspub.LifecycleStateNormal), testHooks()
		written := NewRecord(pod, hooks, tc.want, tc.instances, tc.outSince)
		patch, err := patchOf(pod, hooks, Edit{}, &written)
		if err != nil || patch == nil {
			t.Fatalf("%s: patch %s, error %v", tc.reason, patch, err)
		}
		done, err := applyPatch(t, pod, patch)
		if err != nil {
			t.Fatalf("%s: the patch does not apply: %v", tc.reason, err)
		}
		read := RecordOf(done)
		expect.Equal(t, written, read, "%s: read another record than was written", tc.reason)
		if !read.Exists() || !read.Fresh(done) {
			t.Errorf("%s: exists %t, fresh %t, want both", tc.reason, read.Exists(), read.Fresh(done))
		}
		again := NewRecord(done, hooks, tc.want, tc.instances, tc.outSince)
		if patch, err := patchOf(done, hooks, Edit{}, &again); err != nil || patch != nil {
			t.Errorf("%s: the same record is written again: %s %v", tc.reason, patch, err)
		}
	})
}

func TestNewRecordDoesNotDependOnOrder(t *testing.T) {
	t.Parallel()
	a, b := Key{"default", Rollcall, "web", "10.0.0.1", 80}, Key{"default", Rollcall, "web", "10.0.0.1", 81}
	c := Key{"default", Application, "admin", "10.0.0.2", 80}
	pod, given := podIn(appspub.LifecycleStateNormal), []Key{b, c, a}
	first := NewRecord(pod, testHooks(), InService, given, nil)
	second := NewRecord(pod, testHooks(), InService, []Key{a, b, c}, nil)
	expect.Equal(t, first, second, "the same facts in another order make another record, and so another write")
	expect.Equal(t, []Key{b, c, a}, given, "the caller's list was sorted")
}

func TestRecordThatIsNone(t *testing.T) {
	t.Parallel()
	const stamp = `"stamp":{"uid":"4f5c","timestamp":"2026-01-02T03:04:05Z"}`
	type row struct{ reason, text string }
	expect.Each(t, map[string]row{
		"empty":               {"nothing was written", ``},
		"not JSON":            {"garbage", `in service`},
		"cut off":             {"garbage", `{` + stamp + `,"want":"Abs`},
		"null":                {"it says nothing", `null`},
		"a list":              {"it is no object", `[]`},
		"another pod's":       {"the UID is another's", `{"stamp":{"uid":"other","timestamp":"x"},"want":"Absent"}`},
		"no stamp":            {"it does not say whose it is", `{"want":"Absent"}`},
		"no want":             {"it says nothing", `{` + stamp + `}`},
		"keep":                {"no registry acknowledges that", `{` + stamp + `,"want":"Keep"}`},
		"unknown want":        {"it says nothing we know", `{` + stamp + `,"want":"Drained"}`},
		"handler of no kind":  {"a handler is a label or a finalizer", `{` + stamp + `,"want":"Absent","handlers":[{}]}`},
		"handler of two":      {"a handler is one of them", `{` + stamp + `,"want":"Absent","handlers":[{"label":"a","finalizer":"b"}]}`},
		"instance of nothing": {"an instance has a service", `{` + stamp + `,"want":"Absent","instances":[{"address":"10.0.0.1","port":1}]}`},
		"instance nowhere":    {"an instance has an address", `{` + stamp + `,"want":"Absent","instances":[{"service":"a","port":1}]}`},
		"no port":             {"an instance has a port", `{` + stamp + `,"want":"Absent","instances":[{"service":"a","address":"b"}]}`},
		"too many unfound":    {"each is an instance, and costs a look", `{` + stamp + `,"want":"Absent","unfound":[{}]}`},
		"too many handlers": {"each is held against the workload's", `{` + stamp + `,"want":"Absent","handlers":[` + strings.Repeat(
			`{"label":"a","value":"b"},`, maxRecorded) + `{"label":"a","value":"b"}]}`},
		"wrong type": {"a time is a time", `{` + stamp + `,"want":"Absent","outSince":"yesterday"}`},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStatePreparingDelete)
		annotate(pod, AnnotationRecord, tc.text)
		r := RecordOf(pod)
		expect.Equal(t, Record{}, r, "%s: it was taken for a record", tc.reason)
		if r.Exists() || r.Fresh(pod) {
			t.Errorf("%s: it says something", tc.reason)
		}
	})
	if RecordOf(&Pod{}).Exists() {
		t.Error("a pod without annotations has a record")
	}
}

// TestRecordOfAnotherVersion: Rollcall is upgraded and rolled back while pods carry records.
func TestRecordOfAnotherVersion(t *testing.T) {
	t.Parallel()
	const rest = `"stamp":{"uid":"4f5c","timestamp":"2026-01-02T03:04:05Z","state":"PreparingDelete"},"want":"Absent",` +
		`"outSince":"2026-01-02T03:04:06Z","instances":[{"registry":"default","service":"web","address":"10.0.0.1","port":8080}],` +
		`"handlers":[{"finalizer":"exact.io/registered"}]`
	type row struct {
		reason       string
		text         string
		exists       bool
		acknowledged bool
	}
	expect.Each(t, map[string]row{
		"before versions": {
			reason: "an upgrade must not put every drain back to its beginning",
			text:   `{` + rest + `}`, exists: true, acknowledged: true,
		},
		"ours": {reason: "it is what we write", text: `{"version":1,` + rest + `}`, exists: true, acknowledged: true},
		"later": {
			reason: "what is to be undone is named, and what its words mean by then is not known",
			text:   `{"version":2,"partly":["web"],` + rest + `}`, exists: true,
		},
		"later, of another form": {
			reason: "what can't be read says nothing",
			text:   `{"version":2,"stamp":{"uid":"4f5c"},"want":"Absent","instances":{"web":["10.0.0.1:8080"]}}`,
		},
		"later, with another want": {
			reason: "nothing is known of what the instances are",
			text:   `{"version":2,"stamp":{"uid":"4f5c"},"want":"HalfIn"}`,
		},
		"below zero": {reason: "no version of Rollcall writes that", text: `{"version":-1,` + rest + `}`},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStatePreparingDelete)
		annotate(pod, AnnotationRecord, tc.text)
		r := RecordOf(pod)
		if r.Exists() != tc.exists || r.Fresh(pod) != tc.acknowledged || (r.OutSince != nil) != tc.acknowledged {
			t.Errorf("%s: it exists: %t, is fresh: %t, since %v", tc.reason, r.Exists(), r.Fresh(pod), r.OutSince)
		}
		if tc.exists && (len(r.Instances) != 1 || len(r.Handlers) != 1) {
			t.Errorf("%s: its instances are %v, its handlers %v", tc.reason, r.Instances, r.Handlers)
		}
		own := NewRecord(pod, Hooks{}, Absent, r.Instances, r.OutSince)
		own.Handlers = r.Handlers
		patch, err := patchOf(pod, Hooks{}, Edit{}, &own)
		if err != nil || (patch == nil) != tc.acknowledged {
			t.Errorf("%s: want our own written: %t, got %s, error %v", tc.reason, !tc.acknowledged, patch, err)
		}
	})
}

func TestRecordOfAPodThatWasNeverInService(t *testing.T) {
	t.Parallel()
	const rest = `"stamp":{"uid":"4f5c","timestamp":"2026-01-02T03:04:05Z","state":"Normal"},"instances":[` +
		`{"registry":"default","service":"web","address":"10.0.0.1","port":8080}]`
	type row struct {
		reason, text string
		want         bool
	}
	expect.Each(t, map[string]row{
		"none":                     {"nothing is known", ``, false},
		"in service":               {"it is now", `{"want":"InService",` + rest + `}`, true},
		"out of service":           {"records were always written of what was in", `{"want":"OutOfService",` + rest + `}`, true},
		"absent":                   {"the same", `{"want":"Absent",` + rest + `}`, true},
		"never in service":         {"it was only taken out", `{"want":"OutOfService","neverInService":true,` + rest + `}`, false},
		"never, and absent":        {"the same", `{"want":"Absent","neverInService":true,` + rest + `}`, false},
		"never, and in service":    {"a tenant has written it", `{"want":"InService","neverInService":true,` + rest + `}`, true},
		"never, by a later record": {"it says so as well", `{"version":9,"want":"OutOfService","neverInService":true,` + rest + `}`, false},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		annotate(pod, AnnotationRecord, tc.text)
		r := RecordOf(pod)
		expect.Equal(t, tc.want, r.WasInService(), "was in service: %s", tc.reason)
		known := r.Lacks(pod, Key{"default", Rollcall, "web", "10.0.0.1", 8080})
		if known == tc.want {
			t.Errorf("the record is to be written once it is in one of its registries: %t", known)
		}
		other := r
		other.NeverInService = !r.NeverInService
		if r.sameBut(other) {
			t.Error("a record that says otherwise is not written")
		}
	})
}

func TestRecordIsFresh(t *testing.T) {
	t.Parallel()
	stamped := func(text string) func(*Pod) {
		return func(p *Pod) { annotate(p, appspub.LifecycleTimestampKey, text) }
	}
	type row struct {
		reason string
		change func(*Pod)
		want   bool
	}
	expect.Each(t, map[string]row{
		"same stay": {"nothing moved", func(*Pod) {}, true},
		"deleted": {"a delete is no move of Kruise's",
			func(p *Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)} }, true},
		"another timestamp": {"PreparingDelete, cancelled, PreparingDelete again", stamped("2026-01-02T03:04:06Z"), false},
		"another state in the same second": {"the timestamp has whole seconds, and a scale-in may be cancelled within one",
			func(p *Pod) { setHandler(p, label(appspub.LifecycleStateKey, "PreparingNormal")) }, false},
		"another pod": {"the same name, another UID", func(p *Pod) { p.UID = "other" }, false},
		"no timestamp": {"it does not say when it moved",
			func(p *Pod) { delete(p.Annotations, appspub.LifecycleTimestampKey) }, false},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStatePreparingDelete)
		record := NewRecord(pod, testHooks(), Absent, testInstances(), nil)
		tc.change(pod)
		expect.Equal(t, tc.want, record.Fresh(pod), "fresh: %s", tc.reason)
	})
}
