package lint_test

import (
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestNamesThatAreNotAllowed holds a CloneSet that registers web to service.allowed.
func TestNamesThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	const byName, byLabel = "{namespaces: [prod], names: [web]}", "{namespaceSelector: {matchLabels: {team: web}}, names: [web]}"
	type row struct {
		reason, policy, namespace string
		labels                    labels.Set
		found                     bool
	}
	expect.Each(t, map[string]row{
		"allowed":             {reason: "the policy names the namespace", policy: byName, namespace: "prod"},
		"not allowed":         {reason: "no entry gives it the name", policy: byName, namespace: "shop", found: true},
		"no namespace":        {reason: "a manifest may be applied to any", policy: byName},
		"allowed by label":    {reason: "the label matches", policy: byLabel, namespace: "prod", labels: labels.Set{"team": "web"}},
		"another label":       {reason: "the label is another team's", policy: byLabel, namespace: "prod", labels: labels.Set{"team": "shop"}, found: true},
		"labels not known":    {reason: "they may match", policy: byLabel, namespace: "prod"},
		"no label helps":      {reason: "no selector gives it the name", policy: byName + ", {namespaceSelector: {matchLabels: {team: web}}, names: [api]}", namespace: "shop", found: true},
		"there is no policy":  {reason: "then every name is free", namespace: "shop"},
		"allowed by a second": {reason: "one entry is enough", policy: byLabel + ", " + byName, namespace: "prod", labels: labels.Set{"team": "shop"}},
	}, func(t *testing.T, c row) {
		text := "cluster: a\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"
		if c.policy != "" {
			text += "service: {allowed: [" + c.policy + "]}"
		}
		parsed, err := config.Parse([]byte(text), config.Limits{Drivers: []string{"memory"}})
		expect.NoError(t, err)
		got := strings.Join(judge(t, web(c.namespace), parsed, c.labels), "\n")
		if found := strings.Contains(got, "service.allowed in the configuration does not give"); found != c.found || !found && got != "" {
			t.Errorf("%s: got findings %q, want one of the policy: %t", c.reason, got, c.found)
		}
	})
}

// TestNoDefaultForTheNamespace: such pods wait unless they choose a registry.
func TestNoDefaultForTheNamespace(t *testing.T) {
	t.Parallel()
	parsed, err := config.Parse([]byte("cluster: a\nregistries: [{name: retail, driver: memory, default: "+
		"{namespaceSelector: {matchLabels: {unit: retail}}}}]\nhooks: {owned: [example.com/*]}\n"), config.Limits{Drivers: []string{"memory"}})
	expect.NoError(t, err)
	for name, tc := range map[string]struct {
		reason string
		labels labels.Set
		found  bool
	}{
		"chosen":           {"it is in retail", labels.Set{"unit": "retail"}, false},
		"not chosen":       {"it is in none", labels.Set{}, true},
		"labels not known": {"it may be in retail", nil, false},
	} {
		got := strings.Join(judge(t, web("prod"), parsed, tc.labels), "\n")
		if found := strings.Contains(got, "no registry is the default for the namespace"); found != tc.found || !found && got != "" {
			t.Errorf("%s: got findings %q, want one: %t: %s", name, got, tc.found, tc.reason)
		}
	}
}

// TestPodsWithoutAPlace: such pods wait, and none is registered.
func TestPodsWithoutAPlace(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, options, registries string
		labels                      labels.Set
		found                       string
	}
	expect.Each(t, map[string]row{
		"no places":                      {reason: "every pod is in the same", options: "{namespace: public}"},
		"by namespace":                   {reason: "each has one", options: `{namespace: "{namespace}"}`},
		"by a label":                     {reason: "the template has it", options: `{group: "g-{label:app}"}`},
		"by another label":               {reason: "the template lacks it", options: `{group: "g-{label:team}"}`, found: "the pod has no label team"},
		"by a label of the namespace":    {reason: "it has it", options: `{namespace: "{nsLabel:tier}"}`, labels: labels.Set{"tier": "gold"}},
		"the namespace lacks it":         {reason: "it is known to", options: `{namespace: "{nsLabel:tier}"}`, labels: labels.Set{}, found: "namespace prod has no label tier"},
		"labels not known":               {reason: "it may have it", options: `{namespace: "{nsLabel:tier}"}`},
		"a registry of other namespaces": {reason: "the pods may be in none such", options: `{group: "{label:team}"}, default: {namespaces: [shop]}`},
		"a registry that it chooses":     {reason: "its pods will be there", options: `{group: "{label:team}"}, default: {namespaces: [shop]}`, registries: "default", found: "the pod has no label team"},
	}, func(t *testing.T, c row) {
		parsed, err := config.Parse([]byte("cluster: a\nregistries: [{name: default, driver: memory, options: "+c.options+
			"}]\nhooks: {owned: [example.com/*]}\n"), config.Limits{Drivers: []string{"memory"}})
		expect.NoError(t, err)
		set := web("prod")
		if c.registries != "" {
			set.Spec.Template.Annotations = map[string]string{service.AnnotationRegistries: c.registries}
		}
		got := strings.Join(judge(t, set, parsed, c.labels), "\n")
		if c.found == "" && got != "" || !strings.Contains(got, c.found) {
			t.Errorf("got findings %q, want %q: %s", got, c.found, c.reason)
		}
	})
}

// TestHandlersInTheTemplate holds the template to the hooks that wait for what it may bring along.
func TestHandlersInTheTemplate(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		edit   func(*corev1.PodTemplateSpec)
		want   string
	}
	expect.Each(t, map[string]row{
		"inPlaceUpdate's label": {
			reason: "an update that adds it asserts the hook",
			edit:   func(t *corev1.PodTemplateSpec) { t.Labels[lifecycle.LabelInPlaceUpdate] = "true" },
			want:   "the template sets label rollcall.dev/in-place-update=true, a handler of inPlaceUpdate",
		},
		"inPlaceUpdate's finalizer": {
			reason: "the same by a finalizer",
			edit:   func(t *corev1.PodTemplateSpec) { t.Finalizers = []string{"example.com/f"} },
			want:   "the template sets finalizer example.com/f, a handler of inPlaceUpdate",
		},
		"another value": {
			reason: "it asserts nothing",
			edit:   func(t *corev1.PodTemplateSpec) { t.Labels[lifecycle.LabelInPlaceUpdate] = "false" },
		},
		"preDelete's label": {
			reason: "it only arms the pod",
			edit:   func(t *corev1.PodTemplateSpec) { t.Labels[lifecycle.LabelPreDelete] = "true" },
		},
		"preNormal's label": {
			reason: "a new pod waits for nobody",
			edit:   func(t *corev1.PodTemplateSpec) { t.Labels[lifecycle.LabelPreNormal] = "true" },
			want:   "the template sets label rollcall.dev/pre-normal=true, so preNormal waits for nothing",
		},
	}, func(t *testing.T, c row) {
		set := web("prod")
		set.Spec.Lifecycle.InPlaceUpdate.FinalizersHandler = []string{"example.com/f"}
		c.edit(&set.Spec.Template)
		parsed, err := config.Parse([]byte("cluster: a\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"),
			config.Limits{Drivers: []string{"memory"}})
		expect.NoError(t, err)
		got := strings.Join(judge(t, set, parsed, nil), "\n")
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
		}
	})
}

func TestSharesOfTraffic(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, ofSet, ofTemplate, want string
		edit                            func(*appspub.Lifecycle)
	}
	expect.Each(t, map[string]row{
		"without preNormal": {
			reason: "new pods without a share count as available", ofSet: "stable=100,canary=0", want: "needs hooks preNormal and inPlaceUpdate",
			edit: func(l *appspub.Lifecycle) { l.PreNormal = nil },
		},
		"without inPlaceUpdate": {
			reason: "updated pods without a share do", ofSet: "stable=100,canary=0", want: "needs hooks preNormal and inPlaceUpdate",
			edit: func(l *appspub.Lifecycle) { l.InPlaceUpdate = nil },
		},
		"as it should be": {reason: "before the first update there is nothing to share out", ofSet: "stable=100,canary=0"},
		"a typo":          {reason: "pods would stay where they are", ofSet: "stable=100,canray=0", want: "set both shares in whole percent"},
		"left over":       {reason: "the next update would have one pod", ofSet: "stable=0,canary=100", want: "remove it, or set stable=100,canary=0"},
		"in the template": {reason: "each change would be an update", ofTemplate: "stable=100,canary=0", want: "move it from spec.template.metadata to metadata"},
	}, func(t *testing.T, c row) {
		set := web("prod")
		if c.edit != nil {
			c.edit(set.Spec.Lifecycle)
		}
		for text, of := range map[string]*metav1.ObjectMeta{c.ofSet: &set.ObjectMeta, c.ofTemplate: &set.Spec.Template.ObjectMeta} {
			if text != "" {
				metav1.SetMetaDataAnnotation(of, lifecycle.AnnotationTraffic, text)
			}
		}
		parsed, err := config.Parse([]byte("cluster: a\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"),
			config.Limits{Drivers: []string{"memory"}})
		expect.NoError(t, err)
		if got := strings.Join(judge(t, set, parsed, nil), "\n"); !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: got %q, want %q", c.reason, got, c.want)
		}
	})
}

// TestPodsThatNoServiceWouldFollow holds the template to the gate by which Services follow Rollcall.
func TestPodsThatNoServiceWouldFollow(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, registries string
		gate               corev1.PodConditionType
		found              bool
	}
	expect.Each(t, map[string]row{
		"none":           {reason: "Rollcall could not take the pods out", found: true},
		"another's gate": {reason: "Rollcall does not write it", gate: "example.com/ready", found: true},
		"the gate":       {reason: "Services follow it", gate: lifecycle.ConditionInRotation},
		"by annotation":  {reason: "one of its registries needs it", registries: "other,services", found: true},
		"elsewhere":      {reason: "no registry of its pods needs it", registries: "other"},
	}, func(t *testing.T, c row) {
		set := web("prod")
		if c.gate != "" {
			set.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: c.gate}}
		}
		if c.registries != "" {
			set.Spec.Template.Annotations = map[string]string{service.AnnotationRegistries: c.registries}
		}
		parsed, err := config.Parse([]byte("cluster: a\nregistries: [{name: services, driver: "+endpointslice.Name+", default: true}, "+
			"{name: other, driver: memory}]\npodCondition: true\n"), config.Limits{Drivers: []string{"memory", endpointslice.Name}})
		expect.NoError(t, err)
		got := strings.Join(judge(t, set, parsed, nil), "\n")
		const want = "the template lacks the readiness gate rollcall.dev/InRotation, so Rollcall could not take its pods out of registry services"
		if strings.HasPrefix(got, want) != c.found || !c.found && got != "" {
			t.Errorf("%s: got %q, want one of the gate: %t", c.reason, got, c.found)
		}
	})
}

// TestNotes holds what may be misspelt, and may be another controller's, to what is known not to work.
func TestNotes(t *testing.T) {
	t.Parallel()
	hook := func(keys ...string) *appspub.LifecycleHook {
		h := &appspub.LifecycleHook{LabelsHandler: map[string]string{}}
		for _, key := range keys {
			h.LabelsHandler[key] = "true"
		}
		return h
	}
	const update = "spec.lifecycle.inPlaceUpdate has label example.org/update=true, which Rollcall does not own (rollcall.dev/*, example.com/*)"
	const guard = "rollcall.dev/guard is Rollcall's guard and can't be a handler"
	type row struct {
		reason        string
		update        *appspub.LifecycleHook
		deletes       string
		note, finding string
		gates         []corev1.PodReadinessGate
	}
	expect.Each(t, map[string]row{
		"a cloud's balancer": {
			reason: "a drain may allow for it", update: hook("example.com/update"), deletes: "example.com/delete",
			note:  "the template has readiness gate target-health.elbv2.k8s.aws/web, by which a cloud load balancer registers the pod.",
			gates: []corev1.PodReadinessGate{{ConditionType: "target-health.elbv2.k8s.aws/web"}, {ConditionType: lifecycle.ConditionInRotation}},
		},
		"all owned":              {reason: "nothing is odd", update: hook("example.com/update"), deletes: "example.com/delete"},
		"one hook is not":        {reason: "it may be misspelt", update: hook("example.org/update"), deletes: "example.com/delete", note: update},
		"one handler is not":     {reason: "the same", update: hook("example.com/update", "example.org/update"), deletes: "example.com/delete", note: update},
		"in Rollcall's domain":   {reason: "all of it is Rollcall's", update: hook("rollcall.dev/update"), deletes: "example.com/delete"},
		"the guard's key":        {reason: "Rollcall sets no handler of that key", update: hook("rollcall.dev/guard"), deletes: "example.com/delete", finding: guard},
		"none is, which is said": {reason: "one sentence is enough", update: hook("example.org/update"), deletes: "example.org/delete", finding: "no hook has a handler"},
	}, func(t *testing.T, c row) {
		set := web("prod")
		set.Spec.Lifecycle = &appspub.Lifecycle{InPlaceUpdate: c.update, PreDelete: hook(c.deletes)}
		set.Spec.Template.Spec.ReadinessGates = c.gates
		parsed, err := config.Parse([]byte("cluster: a\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"),
			config.Limits{Drivers: []string{"memory"}})
		expect.NoError(t, err)
		same := func(got []string, want string) bool {
			return len(got) == 0 && want == "" || len(got) == 1 && want != "" && strings.HasPrefix(got[0], want)
		}
		notes, findings := lint.Notes(clusterstate.AsWorkload(set), parsed), judge(t, set, parsed, nil)
		if !same(notes, c.note) || !same(findings, c.finding) {
			t.Errorf("%s: got notes %q and findings %q, want %q and %q", c.reason, notes, findings, c.note, c.finding)
		}
	})
}

// judge returns the findings in a workload as a person has it. The manager lints what its cache keeps, which must be judged alike.
func judge(t *testing.T, set client.Object, c *config.Config, of labels.Set) []string {
	t.Helper()
	kept, err := clusterstate.StripWorkload(set.DeepCopyObject())
	expect.NoError(t, err)
	whole, cached := lint.Workload(clusterstate.AsWorkload(set), c, of), lint.Workload(clusterstate.AsWorkload(kept.(client.Object)), c, of)
	expect.Equal(t, whole, cached, "the findings in the workload, and in what the manager's cache keeps of it")
	return whole
}

func web(namespace string) *kruisev1alpha1.CloneSet {
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	set.Spec.Lifecycle = lifecycle.Enrolled()
	set.Spec.Template.Labels = map[string]string{"app": "web"}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
	return set
}
