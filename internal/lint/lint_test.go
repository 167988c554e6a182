package lint_test

import (
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestNamesThatAreNotAllowed holds a CloneSet that registers web to service.allowed.
func TestNamesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	const byName, byLabel = "{namespaces: [prod], names: [web]}", "{namespaceSelector: {matchLabels: {team: web}}, names: [web]}"
	for name, c := range map[string]struct {
		reason, policy, namespace string
		labels                    labels.Set
		found                     bool
	}{
		"allowed":             {reason: "the policy names the namespace", policy: byName, namespace: "prod"},
		"not allowed":         {reason: "no entry gives it the name", policy: byName, namespace: "shop", found: true},
		"no namespace":        {reason: "a manifest may be applied to any", policy: byName},
		"allowed by label":    {reason: "the label matches", policy: byLabel, namespace: "prod", labels: labels.Set{"team": "web"}},
		"another label":       {reason: "the label is another team's", policy: byLabel, namespace: "prod", labels: labels.Set{"team": "shop"}, found: true},
		"labels not known":    {reason: "they may match", policy: byLabel, namespace: "prod"},
		"no label helps":      {reason: "no selector gives it the name", policy: byName + ", {namespaceSelector: {matchLabels: {team: web}}, names: [api]}", namespace: "shop", found: true},
		"there is no policy":  {reason: "then every name is free", namespace: "shop"},
		"allowed by a second": {reason: "one entry is enough", policy: byLabel + ", " + byName, namespace: "prod", labels: labels.Set{"team": "shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := "cluster: a\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"
			if c.policy != "" {
				text += "service: {allowed: [" + c.policy + "]}"
			}
			parsed, err := config.Parse([]byte(text), config.Limits{Drivers: []string{"memory"}})
			expect.NoError(t, err)
			got := strings.Join(lint.CloneSet(web(c.namespace), parsed, c.labels), "\n")
			if found := strings.Contains(got, "service.allowed in the configuration does not give"); found != c.found || !found && got != "" {
				t.Errorf("%s: got findings %q, want one of the policy: %t", c.reason, got, c.found)
			}
		})
	}
}

func web(namespace string) *kruisev1alpha1.CloneSet {
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	set.Spec.Lifecycle = lifecycle.Enrolled()
	set.Spec.Template.Labels = map[string]string{"app": "web"}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
	return set
}
