package lifecycle

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestOwns(t *testing.T) {
	t.Parallel()
	o := Ownership{Owned: []string{"example.com/*", "exact.io/registered", "bare"}}
	cases := map[string]struct {
		reason string
		want   bool
	}{
		"example.com/anything":     {"the prefix is claimed whole", true},
		"example.com/a/b":          {"what follows the prefix is free", true},
		"example.com/":             {"a prefix alone is no key", false},
		"example.com":              {"the slash belongs to the prefix", false},
		"sub.example.com/anything": {"another domain", false},
		"example.community/x":      {"another domain", false},
		"exact.io/registered":      {"an exact key", true},
		"exact.io/registered2":     {"an exact key is no prefix", false},
		"exact.io/":                {"an exact key is no prefix", false},
		"bare":                     {"a key without a domain", true},
		"":                         {"no key has no owner", false},
		"rollcall.dev/anything":    {"Rollcall's own domain needs no claim", true},
		"rollcall.dev/":            {"a domain alone is not a key", false},
		"rollcall.dev/guard":       {"the guard is not a handler", false},
	}
	for key, tc := range cases {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			expect.Equal(t, tc.want, o.Owns(key), "Owns(%q): %s", key, tc.reason)
		})
	}
	if (Ownership{}).Owns("example.com/x") {
		t.Error("nothing is claimed, and a key is ours")
	}
	if !(Ownership{}).Owns("rollcall.dev/pre-delete") {
		t.Error("nothing is claimed, and Rollcall's own key is not ours")
	}
}

// hooksCase is what HooksOf makes of a workload.
type hooksCase struct {
	reason   string
	workload *Workload
	want     Hooks
	// refused maps the handlers that are refused to words that the objection must hold.
	refused map[Refusal][]string
}

func hooksCases() map[string]hooksCase {
	a, b, f := label("example.com/a", "yes"), label("example.com/b", "true"), finalizer("example.com/f")
	foreign, foreignF := label("other.io/a", "true"), finalizer("other.io/f")
	mark := label(markKeyOwned, "true")
	of := func(preNormal, inPlaceUpdate, preDelete *appspub.LifecycleHook, selectorKeys ...string) *Workload {
		return &Workload{
			Lifecycle: &appspub.Lifecycle{PreNormal: preNormal, InPlaceUpdate: inPlaceUpdate, PreDelete: preDelete},
			Selector:  selector(selectorKeys...),
		}
	}
	expression := of(nil, nil, hookOf(a, f))
	expression.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: a.Label, Operator: metav1.LabelSelectorOpExists}}}
	noSelector := of(hookOf(a), nil, nil)
	noSelector.Selector = nil
	marks := of(nil, hookOf(a), nil)
	many, refusedMany := hookOf(), map[Refusal][]string{}
	for i := range MaxHandlers + 1 {
		h := finalizer("example.com/f" + strconv.Itoa(i))
		many.FinalizersHandler = append(many.FinalizersHandler, h.Finalizer)
		refusedMany[Refusal{Hook: PreDelete, Handler: h}] = []string{"more than 50 handlers", "at most 50"}
	}
	marks.Lifecycle.InPlaceUpdate.MarkPodNotReady = true
	return map[string]hooksCase{
		"no workload":  {reason: "an orphan has no hooks"},
		"no lifecycle": {reason: "most workloads have none", workload: &Workload{}},
		"no handlers":  {reason: "an empty hook has no owner", workload: of(hookOf(), hookOf(), hookOf())},
		"all styles": {
			reason:   "labels and finalizers, sorted",
			workload: of(hookOf(b, a), hookOf(f), hookOf(f, b)),
			want:     Hooks{PreNormal: []Handler{a, b}, InPlaceUpdate: []Handler{f}, PreDelete: []Handler{f, b}},
		},
		"no selector":     {reason: "a selector may be missing", workload: noSelector, want: Hooks{PreNormal: []Handler{a}}},
		"markPodNotReady": {reason: "trap 8 wants an Event", workload: marks, want: Hooks{InPlaceUpdate: []Handler{a}, MarksNotReady: true}},
		"some are ours": {
			reason:   "other owners' handlers are never touched",
			workload: of(nil, hookOf(a, foreign), hookOf(f, foreignF)),
			want:     Hooks{InPlaceUpdate: []Handler{a}, PreDelete: []Handler{f}},
		},
		"none is ours": {
			reason:   "that is likely a mistake in `owned`, and is reported",
			workload: of(nil, hookOf(foreign), hookOf(foreignF)),
			want:     Hooks{Foreign: true},
		},
		"in the selector": {
			reason:   "flipping it would take the pod from its workload",
			workload: of(hookOf(a), nil, hookOf(b, f), b.Label),
			want:     Hooks{PreNormal: []Handler{a}, PreDelete: []Handler{f}},
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: b}: {b.Label, "spec.selector", "spec.lifecycle.preDelete.labelsHandler"}},
		},
		"in an expression of the selector": {
			reason:   "expressions select too",
			workload: expression,
			want:     Hooks{PreDelete: []Handler{f}},
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: a}: {a.Label, "spec.selector"}},
		},
		"two values": {
			reason:   "one key can't have both, and each hook is reported",
			workload: of(nil, hookOf(label("example.com/a", "1"), f), hookOf(label("example.com/a", "2"))),
			want:     Hooks{InPlaceUpdate: []Handler{f}},
			refused: map[Refusal][]string{
				{Hook: InPlaceUpdate, Handler: label("example.com/a", "1")}: {"inPlaceUpdate", "preDelete", `"1"`, `"2"`},
				{Hook: PreDelete, Handler: label("example.com/a", "2")}:     {"inPlaceUpdate", "preDelete", `"1"`, `"2"`},
			},
		},
		"one value": {
			reason:   "one key may serve several hooks",
			workload: of(hookOf(a), hookOf(a), hookOf(a)),
			want:     Hooks{PreNormal: []Handler{a}, InPlaceUpdate: []Handler{a}, PreDelete: []Handler{a}},
		},
		"a newly-created mark": {
			reason:   "it would be cleared as a mark, and so released",
			workload: of(nil, nil, hookOf(mark, f)),
			want:     Hooks{PreDelete: []Handler{f}},
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: mark}: {markKeyOwned, "hooks.newlyCreated"}},
		},
		"no value": {
			reason:   "Kruise reads a missing label as the empty value, so it could never be cleared",
			workload: of(nil, nil, hookOf(label("example.com/a", ""), f)),
			want:     Hooks{PreDelete: []Handler{f}},
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: label("example.com/a", "")}: {"example.com/a", "no value"}},
		},
		"the guard": {
			reason:   "it goes with the registry's word, and no hook's",
			workload: of(nil, nil, hookOf(finalizer(GuardFinalizer), f)),
			want:     Hooks{PreDelete: []Handler{f}},
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: guardHandler()}: {GuardFinalizer, "guard"}},
		},
		"a label with the guard's key": {
			reason:   "it is as wrong, and Rollcall never sets it",
			workload: of(nil, nil, hookOf(label(GuardFinalizer, "true"))),
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: label(GuardFinalizer, "true")}: {GuardFinalizer, "guard"}},
		},
		"Rollcall's own keys": {
			reason:   "nobody has to claim them",
			workload: of(hookOf(label("rollcall.dev/pre-normal", "true")), nil, hookOf(finalizer("rollcall.dev/mine"))),
			want: Hooks{
				PreNormal: []Handler{label("rollcall.dev/pre-normal", "true")}, PreDelete: []Handler{finalizer("rollcall.dev/mine")},
			},
		},
		"more than anyone needs": {
			reason:   "each is held against all others, for each pod",
			workload: of(nil, nil, many),
			refused:  refusedMany,
		},
		"all are refused": {
			reason:   "they are ours all the same, so it is not foreign",
			workload: of(nil, nil, hookOf(b), b.Label),
			refused:  map[Refusal][]string{{Hook: PreDelete, Handler: b}: {"spec.selector"}},
		},
	}
}

func TestHooksOf(t *testing.T) {
	t.Parallel()
	for name, tc := range hooksCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := HooksOf(tc.workload, testOwnership())
			ignore := cmpopts.IgnoreFields(Hooks{}, "Refused", "templateLabels", "templateFinalizers", "named", "selector")
			if diff := cmp.Diff(tc.want, got, ignore); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			for _, r := range got.Refused {
				words, expected := tc.refused[Refusal{Hook: r.Hook, Handler: r.Handler}]
				if !expected {
					t.Errorf("%s: refuses %s of %s: %s", tc.reason, r.Handler, r.Hook, r.Why)
				}
				for _, word := range words {
					if !strings.Contains(r.Why, word) {
						t.Errorf("%s: the objection does not say %q: %s", tc.reason, word, r.Why)
					}
				}
			}
			if len(got.Refused) != len(tc.refused) {
				t.Errorf("%s: %d handlers are refused, want %d", tc.reason, len(got.Refused), len(tc.refused))
			}
			accepted := len(tc.want.PreNormal) + len(tc.want.InPlaceUpdate) + len(tc.want.PreDelete)
			if want := accepted+len(tc.refused) > 0; got.Any() != want {
				t.Errorf("%s: Any is %t, want %t", tc.reason, got.Any(), want)
			}
		})
	}
}

func TestManaged(t *testing.T) {
	t.Parallel()
	ours := HooksOf(&Workload{Lifecycle: &appspub.Lifecycle{PreDelete: hookOf(finalizer("exact.io/registered"))}}, testOwnership())
	refused := HooksOf(&Workload{Lifecycle: &appspub.Lifecycle{PreDelete: hookOf(label("example.com/a", "1"))},
		Selector: selector("example.com/a")}, testOwnership())
	foreign := HooksOf(&Workload{Lifecycle: &appspub.Lifecycle{PreDelete: hookOf(finalizer("other.io/f"))}}, testOwnership())
	type row struct {
		reason string
		hooks  Hooks
		change func(*Pod)
		want   bool
	}
	expect.Each(t, map[string]row{
		"nothing owned":        {reason: "it is left alone"},
		"foreign hooks":        {reason: "others drive them", hooks: foreign, change: func(p *Pod) { p.Finalizers = []string{"other.io/f"} }},
		"an owned hook":        {reason: "the workload names one", hooks: ours, want: true},
		"a refused owned hook": {reason: "it is ours, and waits", hooks: refused, want: true},
		"a mark as label":      {reason: "a template set it", change: func(p *Pod) { p.Labels[markKey] = "true" }, want: true},
		"a mark as annotation": {reason: "a template set it", change: func(p *Pod) { annotate(p, markKey, "true") }, want: true},
		"a mark that is done":  {reason: "another value means done", change: func(p *Pod) { p.Labels[markKey] = "false" }},
		"an owned finalizer":   {reason: "no other owner frees it", change: func(p *Pod) { p.Finalizers = []string{"example.com/old"} }, want: true},
		"a record": {
			reason: "it has been registered",
			change: func(p *Pod) {
				annotate(p, AnnotationRecord, `{"stamp":{"uid":"4f5c","timestamp":""},"want":"InService"}`)
			},
			want: true,
		},
		"garbage for a record": {reason: "it is none", change: func(p *Pod) { annotate(p, AnnotationRecord, "{") }},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		if tc.change != nil {
			tc.change(pod)
		}
		in := Input{Pod: pod, Hooks: tc.hooks, Record: RecordOf(pod), Ownership: testOwnership()}
		expect.Equal(t, tc.want, in.Managed(), "managed: %s", tc.reason)
	})
}

// TestFinalizerThatIsThereTwice is what TestEveryInput has no pod with.
func TestFinalizerThatIsThereTwice(t *testing.T) {
	t.Parallel()
	pod := podIn(appspub.LifecycleStateNormal)
	pod.Finalizers = []string{"example.com/f", "other.io/a", "example.com/f"}
	patch, err := patchOf(pod, Hooks{}, Edit{Clear: []Handler{finalizer("example.com/f")}}, nil)
	expect.NoError(t, err)
	done, err := applyPatch(t, pod, patch)
	if err != nil {
		t.Fatalf("%v\n%s", err, patch)
	}
	expect.Equal(t, []string{"other.io/a"}, done.Finalizers, "finalizers")
}
