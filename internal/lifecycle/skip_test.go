package lifecycle

import (
	"slices"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestSkipOf(t *testing.T) {
	t.Parallel()
	plain := &Workload{TemplateAnnotations: map[string]string{"other": "x"}}
	templated := &Workload{TemplateAnnotations: map[string]string{AnnotationSkip: "preDelete"}}
	type row struct {
		reason   string
		text     string
		workload *Workload
		want     []Hook
		refused  []string
	}
	expect.Each(t, map[string]row{
		"one":                 {"the hook by its API name", "preDelete", plain, []Hook{PreDelete}, nil},
		"both":                {"with a comma, and a space where one likes", "preDelete, inPlaceUpdate", plain, []Hook{PreDelete, InPlaceUpdate}, nil},
		"no workload":         {"it may be gone", "inPlaceUpdate", nil, []Hook{InPlaceUpdate}, nil},
		"preNormal":           {"I2 has no exception", "preNormal", plain, nil, []string{AnnotationSkip, "preDelete, inPlaceUpdate or both", "preNormal can't"}},
		"preNormal too":       {"nothing of it is done", "preDelete,preNormal", plain, nil, []string{"preNormal can't"}},
		"a word":              {"the words are listed", "true", plain, nil, []string{`"true"`, "preDelete, inPlaceUpdate or both"}},
		"nothing":             {"the words are listed", "", plain, nil, []string{`""`, "preDelete, inPlaceUpdate or both"}},
		"from the template":   {"it would switch the safety off for all", "preDelete", templated, nil, []string{"template", "on the one pod"}},
		"beside the template": {"nothing tells it from the template's", "inPlaceUpdate", templated, nil, []string{"template"}},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		annotate(pod, AnnotationSkip, tc.text)
		got := SkipOf(pod, tc.workload)
		if !slices.Equal(got.Hooks, tc.want) || (got.Refused == "") != (tc.refused == nil) {
			t.Errorf("got %+v, want %v: %s", got, tc.want, tc.reason)
		}
		for _, word := range tc.refused {
			if !strings.Contains(got.Refused, word) {
				t.Errorf("%q does not say %q: %s", got.Refused, word, tc.reason)
			}
		}
		expect.Equal(t, tc.workload == templated, got.FromTemplate, "from the template")
	})
	if got := SkipOf(podIn(appspub.LifecycleStateNormal), templated); got.Refused != "" || got.Hooks != nil || got.FromTemplate {
		t.Errorf("a pod without it: %+v", got)
	}
}

func TestSkipPath(t *testing.T) {
	t.Parallel()
	expect.Equal(t, pointer("annotations", AnnotationSkip), skipPath, "the path of the annotation")
}
