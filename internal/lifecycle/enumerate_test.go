package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// minRows is well below what the enumeration yields: a dimension that is lost by mistake shows.
const minRows = 120_000

// shape is a workload as far as the decision sees it.
type shape struct {
	name     string
	workload *Workload
	// marks lets the newly-created marks vary too.
	marks bool
	// handlers are all that the workload names, whoever owns them.
	handlers []Handler
}

func shapes() []shape {
	preNormal, inPlace, preDelete := label("example.com/normal", "go"), label("example.com/update", "blocked"),
		label("example.com/delete", "true")
	fNormal, fUpdate, fDelete := finalizer("example.com/f-normal"), finalizer("example.com/f-update"),
		finalizer("exact.io/registered")
	all := label("example.com/all", "held")
	workload := func(preNormal, inPlaceUpdate, preDelete *appspub.LifecycleHook) *Workload {
		return &Workload{
			Lifecycle: &appspub.Lifecycle{PreNormal: preNormal, InPlaceUpdate: inPlaceUpdate, PreDelete: preDelete},
			Selector:  selector("app"),
		}
	}
	withTemplate := func(w *Workload, labels map[string]string) *Workload {
		w.TemplateLabels = labels
		return w
	}
	withSelector := func(w *Workload, keys ...string) *Workload {
		w.Selector = selector(keys...)
		return w
	}
	return []shape{
		{name: "no workload", marks: true},
		{name: "no lifecycle", workload: &Workload{Selector: selector("app")}},
		{name: "no hooks", workload: workload(nil, nil, nil)},
		{name: "labels", workload: workload(hookOf(preNormal), hookOf(inPlace), hookOf(preDelete)), marks: true},
		{name: "finalizers", workload: workload(hookOf(fNormal), hookOf(fUpdate), hookOf(fDelete))},
		{name: "mixed", workload: workload(hookOf(preNormal), hookOf(inPlace, fUpdate), hookOf(fDelete))},
		{name: "one finalizer for preDelete and inPlaceUpdate", workload: workload(hookOf(preNormal), hookOf(fDelete), hookOf(fDelete))},
		{name: "one label for preDelete and inPlaceUpdate", workload: workload(nil, hookOf(all), hookOf(all, preDelete))},
		{name: "one label for all three", workload: workload(hookOf(all), hookOf(all), hookOf(all)), marks: true},
		{name: "one finalizer for preNormal and preDelete", workload: workload(hookOf(fDelete), hookOf(inPlace), hookOf(fDelete))},
		{name: "one label for preNormal and inPlaceUpdate", workload: workload(hookOf(all, preNormal), hookOf(all, inPlace), nil)},
		{name: "preNormal alone", workload: workload(hookOf(preNormal, fNormal), nil, nil)},
		{name: "inPlaceUpdate alone", workload: workload(nil, hookOf(inPlace, fUpdate), nil)},
		{name: "preDelete alone", workload: workload(nil, nil, hookOf(preDelete, fDelete))},
		{name: "two owners of each hook", workload: workload(
			hookOf(preNormal, label("other.io/normal", "true")), nil, hookOf(fDelete, finalizer("other.io/delete")))},
		{name: "two owners of one hook in each style", workload: workload(
			nil, hookOf(inPlace, fUpdate, label("other.io/update", "true"), finalizer("other.io/update")), nil)},
		{name: "all foreign", workload: workload(
			hookOf(label("other.io/normal", "true")), hookOf(finalizer("other.io/update")), hookOf(finalizer("other.io/delete")))},
		{name: "template carries another value", workload: withTemplate(
			workload(hookOf(preNormal), hookOf(inPlace), hookOf(preDelete)),
			map[string]string{preNormal.Label: "stop", inPlace.Label: "free", preDelete.Label: "true"})},
		{name: "refused: in the selector", workload: withSelector(
			workload(hookOf(preNormal), hookOf(inPlace, fUpdate), hookOf(preDelete)), preDelete.Label, inPlace.Label)},
		{name: "refused: two values", workload: workload(
			hookOf(preNormal), hookOf(label(all.Label, "a"), fUpdate), hookOf(label(all.Label, "b")))},
		{name: "refused: a mark as preDelete", workload: workload(
			hookOf(preNormal), hookOf(inPlace), hookOf(label(markKeyOwned, "true"))), marks: true},
		{name: "refused: a mark as preNormal", workload: workload(
			hookOf(label(markKeyOwned, "true"), fNormal), nil, nil), marks: true},
		{name: "refused: no value", workload: workload(
			nil, hookOf(label(all.Label, "")), hookOf(label("example.com/empty", ""), fDelete))},
		{name: "a mark as another owner's handler", workload: workload(
			hookOf(preNormal), hookOf(inPlace), hookOf(label(markKey, "true"))), marks: true},
		{name: "a mark in the selector", workload: withSelector(
			workload(hookOf(preNormal), nil, nil), markKey), marks: true},
		{name: "a forgotten key in the selector", workload: withSelector(
			workload(nil, nil, hookOf(preDelete)), forgottenLabel.Label)},
	}
}

var (
	forgottenLabel     = label("example.com/old", "on")
	forgottenFinalizer = finalizer("example.com/f-old")
	disownedFinalizer  = finalizer("other.io/f-old") // recorded when the configuration still claimed it
)

func (s shape) hasFinalizers() bool {
	return slices.ContainsFunc(s.handlers, func(h Handler) bool { return h.Finalizer != "" })
}

// namedBy returns every handler that the workload names, whoever owns it.
func namedBy(w *Workload) []Handler {
	if w == nil || w.Lifecycle == nil {
		return nil
	}
	var all []Handler
	for _, n := range HandlersOf(w.Lifecycle) {
		all = append(all, n.Handler)
	}
	return union(all)
}

// The other dimensions. Each writes its value onto the pod.
type variant struct {
	name  string
	write func(pod *Pod)
}

func states() []variant {
	known := []appspub.LifecycleStateType{
		appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingUpdate,
		appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingDelete,
		"Hibernating", "",
	}
	variants := []variant{{name: "none", write: func(pod *Pod) { delete(pod.Annotations, appspub.LifecycleTimestampKey) }}}
	for _, s := range known {
		variants = append(variants, variant{name: fmt.Sprintf("%q", s), write: func(pod *Pod) {
			pod.Labels[appspub.LifecycleStateKey] = string(s)
		}})
	}
	return variants
}

func endings() []variant {
	return []variant{
		{name: "alive", write: func(*Pod) {}},
		{name: "deleting", write: func(pod *Pod) { pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1_700_000_000, 0)} }},
		{name: "succeeded", write: func(pod *Pod) { pod.Status.Phase = corev1.PodSucceeded }},
		{name: "failed", write: func(pod *Pod) { pod.Status.Phase = corev1.PodFailed }},
	}
}

func records() []variant {
	recorded := func(want Want, stamp Stamp, handlers ...Handler) func(*Pod) {
		text, err := json.Marshal(Record{Stamp: stamp, Want: want, Instances: testInstances(), Handlers: handlers})
		if err != nil {
			panic(err)
		}
		return func(pod *Pod) { pod.Annotations[AnnotationRecord] = string(text) }
	}
	fresh, stale := Stamp{UID: testUID, Timestamp: testTime}, Stamp{UID: testUID, Timestamp: "2026-01-01T00:00:00Z"}
	forgotten := []Handler{forgottenLabel, forgottenFinalizer, disownedFinalizer}
	recordForgotten := recorded(InService, fresh, forgotten...)
	recordForgottenMark := func(pod *Pod) {
		recorded(InService, fresh, label(markKeyOwned, "true"))(pod)
		setHandler(pod, label(markKeyOwned, "true"))
	}
	return []variant{
		{name: "none", write: func(*Pod) {}},
		{name: "in service", write: recorded(InService, fresh)},
		{name: "out of service", write: recorded(OutOfService, fresh)},
		{name: "absent", write: recorded(Absent, fresh)},
		{name: "stale in service", write: recorded(InService, stale)},
		{name: "another pod's", write: recorded(InService, Stamp{UID: "other", Timestamp: testTime}, forgotten...)},
		{name: "garbage", write: func(pod *Pod) { pod.Annotations[AnnotationRecord] = `{"want":"Absent","stamp":` }},
		{name: "forgets handlers", write: func(pod *Pod) {
			recordForgotten(pod)
			for _, h := range forgotten {
				setHandler(pod, h)
			}
		}},
		{name: "forgets handlers that are gone", write: recorded(OutOfService, stale, forgotten...)},
		{name: "forgets a handler that is a mark", write: recordForgottenMark},
	}
}

func markVariants(s shape) []variant {
	none := []variant{{name: "none", write: func(*Pod) {}}}
	if !s.marks {
		return none
	}
	return append(none,
		variant{name: "label", write: func(pod *Pod) { pod.Labels[markKeyOwned] = "true" }},
		variant{name: "annotation", write: func(pod *Pod) { pod.Annotations[markKey] = "true" }},
		variant{name: "all and done ones", write: func(pod *Pod) {
			pod.Labels[markKeyOwned], pod.Annotations[markKeyOwned] = "false", "true"
			pod.Labels[markKey], pod.Annotations[markKey] = "true", "false"
		}},
	)
}

func testInstances() []Key {
	return []Key{{Registry: "default", Service: "web", Address: "10.0.0.1", Port: 8080}}
}

// row is one point of the input space.
type row struct {
	shape                       shape
	state, ending, record, mark variant
	ready, crowded              bool
	keepUnready                 bool
	guard                       Guard
	guarded                     bool
	set                         int // bit i: the shape's handler i is on the pod
}

func (r row) String() string {
	var set []string
	for i, h := range r.shape.handlers {
		if r.set&(1<<i) != 0 {
			set = append(set, h.String())
		}
	}
	return fmt.Sprintf(
		"hooks %q, state %s, ready %t (kept %t), guard %q on %t, %s, record %s, marks %s, set [%s], other finalizers %t",
		r.shape.name, r.state.name, r.ready, r.keepUnready, r.guard, r.guarded, r.ending.name, r.record.name, r.mark.name,
		strings.Join(set, ", "), r.crowded)
}

func (r row) pod() *Pod {
	pod := &Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "web-1", UID: testUID,
		Labels:      map[string]string{},
		Annotations: map[string]string{appspub.LifecycleTimestampKey: testTime},
	}}
	if r.crowded {
		pod.Finalizers = []string{"other.io/first"}
	}
	if r.shape.workload != nil {
		for key, value := range r.shape.workload.TemplateLabels {
			pod.Labels[key] = value
			for _, h := range r.shape.handlers {
				if h.Label == key && h.Value == value {
					delete(pod.Labels, key)
				}
			}
		}
	}
	r.state.write(pod)
	r.record.write(pod)
	r.mark.write(pod)
	for i, h := range r.shape.handlers {
		if r.set&(1<<i) != 0 {
			setHandler(pod, h)
		}
	}
	if r.guarded {
		pod.Finalizers = append(pod.Finalizers, GuardFinalizer)
	}
	r.ending.write(pod)
	if r.crowded {
		pod.Finalizers = append(pod.Finalizers, "other.io/last")
	}
	if r.ready {
		pod.Status.Conditions = []PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return dropEmpty(pod)
}

// dropEmpty is what a trip through the API server does to empty maps.
func dropEmpty(pod *Pod) *Pod {
	if len(pod.Labels) == 0 {
		pod.Labels = nil
	}
	if len(pod.Annotations) == 0 {
		pod.Annotations = nil
	}
	return pod
}

// rowsOf calls each for every row of the shape, and returns how many there are.
func rowsOf(s shape, each func(row)) int {
	endings, records, marks := endings(), records(), markVariants(s)
	total := 0
	for _, state := range states() {
		for _, ending := range endings {
			for _, record := range records {
				for _, mark := range marks {
					for bits := range 4 << len(s.handlers) {
						r := row{shape: s, state: state, ending: ending, record: record, mark: mark,
							ready: bits&1 != 0, crowded: bits&2 != 0, set: bits >> 2}
						if !r.isNew() {
							continue
						}
						for _, r := range append(policies(r), guardRows(r)...) {
							total++
							each(r)
						}
					}
				}
			}
		}
	}
	return total
}

// isNew reports whether the row can show what no other does. Marks and other owners' finalizers do not meet each other, and of
// the records only those that name some. Records that are read as none, or as one of these, meet only a pod with no handler set.
func (r row) isNew() bool {
	marked, record := r.mark.name != "none", r.record.name
	switch {
	case marked && r.crowded, r.crowded && r.set != 0 && !r.shape.hasFinalizers():
		return false
	case record == "none":
		return true
	case record == "forgets handlers":
		return !marked
	case record == "forgets a handler that is a mark":
		return !r.crowded
	case record == "in service", record == "out of service", record == "absent", record == "stale in service":
		return !marked && !r.crowded
	default:
		return !marked && !r.crowded && r.set == 0
	}
}

// policies are the row under every policy for pods that are not ready. Where none can have a part in it, checkPolicies
// says that none has.
func policies(r row) []row {
	if r.state.name != `"Normal"` || r.ready || r.ending.name != "alive" {
		return []row{r}
	}
	keep := r
	keep.keepUnready = true
	return []row{r, keep}
}

// guardRows are the row with and without a guard, whatever becomes of it, where that can make a difference.
func guardRows(r row) []row {
	if r.mark.name != "none" || r.crowded || r.record.name != "none" && r.record.name != "forgets handlers" {
		return nil
	}
	var rows []row
	for _, r.guard = range []Guard{GuardLeave, GuardPut, GuardFree} {
		for _, r.guarded = range []bool{false, true} {
			if r.guarded || r.guard != GuardLeave {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// TestEveryInput checks the invariants of the design on the whole input space.
//
//nolint:tparallel // the group is over when its subtests are, and they are parallel
func TestEveryInput(t *testing.T) {
	t.Parallel()
	var rows, outcomes atomic.Int64
	t.Run("hooks", func(t *testing.T) {
		for _, s := range shapes() {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.handlers = namedBy(s.workload)
				c := &checker{t: t, hooks: HooksOf(s.workload, testOwnership()),
					guarded: map[string]bool{}, outcomes: map[outcome]bool{}, records: map[string]Record{}}
				seen := 0
				rows.Add(int64(rowsOf(s, func(r row) {
					if seen++; seen%everyRow == 0 {
						c.check(r)
					}
				})))
				outcomes.Add(int64(len(c.outcomes)))
			})
		}
	})
	t.Logf("%d rows, %d outcomes applied", rows.Load(), outcomes.Load())
	if rows.Load() < minRows {
		t.Errorf("only %d rows were enumerated, want at least %d", rows.Load(), minRows)
	}
}
