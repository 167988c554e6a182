package lifecycle

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestUnknownName(t *testing.T) {
	t.Parallel()
	const drain = "rollcall.dev/drain"
	all := func(keys ...string) map[string]string {
		values := map[string]string{}
		for _, key := range keys {
			values[key] = "true"
		}
		return values
	}
	type row struct {
		reason              string
		annotations, labels map[string]string
		want                string
	}
	expect.Each(t, map[string]row{
		"all that there are": {"they are known", all(drain, AnnotationSkip, AnnotationRecord, AnnotationEndsAt, "rollcall.dev/new"),
			all(LabelPreNormal, LabelInPlaceUpdate, LabelPreDelete), ""},
		"another's":              {"others may write what they like", all("example.com/drian"), all("drian"), ""},
		"misspelt":               {"the nearest is what was meant", all("rollcall.dev/drian"), nil, "annotation rollcall.dev/drian, which Rollcall does not know: did you mean rollcall.dev/drain?"},
		"of another kind":        {"nothing is near, so all are listed", all("rollcall.dev/x"), nil, "annotation rollcall.dev/x, which Rollcall does not know: known are rollcall.dev/drain"},
		"a CloneSet's":           {"it shares nothing out", all(AnnotationTraffic), nil, "annotation rollcall.dev/traffic, which Rollcall reads on the CloneSet only: move it from spec.template.metadata to metadata"},
		"a misspelt handler":     {"OpenKruise would wait for another label", nil, all("rollcall.dev/predelete"), "label rollcall.dev/predelete, which Rollcall does not know: did you mean rollcall.dev/pre-delete?"},
		"a label of that name":   {"nothing reads it there", nil, all(drain), "label rollcall.dev/drain, which Rollcall reads as an annotation only"},
		"a handler of one's own": {"the workload has it", nil, all("rollcall.dev/pre-deletes"), ""},
	}, func(t *testing.T, tc row) {
		in := Input{
			Pod:       &Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations, Labels: tc.labels}},
			Ownership: Ownership{NewlyCreated: []string{"rollcall.dev/new"}},
			Hooks:     Hooks{PreDelete: []Handler{{Label: "rollcall.dev/pre-deletes", Value: "true"}}},
		}
		expect.Equal(t, tc.want, in.UnknownName([]string{drain}), "%s", tc.reason)
	})
}
