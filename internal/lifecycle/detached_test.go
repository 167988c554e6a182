package lifecycle

import (
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestMadeBy(t *testing.T) {
	t.Parallel()
	type row struct{ reason, pod, instance, want string }
	expect.Each(t, map[string]row{
		"of a CloneSet":           {"OpenKruise joins both", "web-x7k2p", "x7k2p", "web"},
		"with dashes":             {"the instance comes last", "web-canary-x7k2p", "x7k2p", "web-canary"},
		"of another name":         {"it is a copy of a pod's manifest", "debug", "x7k2p", ""},
		"only its end is alike":   {"the dash is part of it", "webx7k2p", "x7k2p", ""},
		"without an instance":     {"a StatefulSet's has none", "web-0", "", ""},
		"a name that ends in -":   {"nothing is cut off without an instance", "web-", "", ""},
		"nothing but the label's": {"no CloneSet has an empty name", "-x7k2p", "x7k2p", ""},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		pod.Name = tc.pod
		pod.Labels[kruisev1alpha1.CloneSetInstanceID] = tc.instance
		expect.Equal(t, tc.want, MadeBy(pod), "%s", tc.reason)
	})
}

func TestSelected(t *testing.T) {
	t.Parallel()
	type row struct {
		reason   string
		selector *metav1.LabelSelector
		tooMany  string
		want     bool
	}
	expression := func(operator metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: operator, Values: values}}}
	}
	other := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	expect.Each(t, map[string]row{
		"labels":                     {"they are those", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, "", true},
		"other labels":               {"a person has changed them", other, "", false},
		"an expression":              {"its values count", expression(metav1.LabelSelectorOpIn, "web"), "", true},
		"an expression, of others":   {"the same", expression(metav1.LabelSelectorOpIn, "other"), "", false},
		"an expression, not of it":   {"the same", expression(metav1.LabelSelectorOpNotIn, "web"), "", false},
		"more labels than are read":  {"the one may be among the others", other, "metadata.labels has 101 entries", true},
		"a selector that is invalid": {"nobody was detached by it", expression("Like"), "", true},
		"none":                       {"it was not read", nil, "", true},
	}, func(t *testing.T, tc row) {
		pod := podIn(appspub.LifecycleStateNormal)
		pod.Labels["app"], pod.TooMany = "web", tc.tooMany
		expect.Equal(t, tc.want, Selected(pod, tc.selector), "%s", tc.reason)
	})
}
