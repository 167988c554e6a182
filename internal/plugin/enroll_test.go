package plugin

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// installed is a cluster with the configuration, and with namespace prod. It applies nothing, and says so of each try.
func installed(t *testing.T, configuration string, objects ...client.Object) (c *cluster, applied *int) {
	t.Helper()
	applied = new(0)
	objects = append(objects,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: map[string]string{"team": "web"}}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: configMapName}, Data: map[string]string{configKey: configuration},
		})
	apply := func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		*applied++
		return nil
	}
	return &cluster{
		Client: fake.NewClientBuilder().WithScheme(kube.Scheme(clientscheme.AddToScheme)).WithObjects(objects...).WithIndex(&eventsv1.Event{}, "reportingController", reporters).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
			WithInterceptorFuncs(interceptor.Funcs{Apply: apply, Patch: patched}).Build(),
		options: installedOptions(), namespace: "prod",
	}, applied
}

func TestEnroll(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration, want, warning string
		renewed                              time.Duration
		status                               int
		unknown                              bool
	}
	bubble.Each(t, map[string]row{
		"not watched": {
			reason: "no manager of this configuration serves the hooks", configuration: configText + "namespaces: [pay]",
			want: "namespace prod is not among the namespaces in the configuration", status: exitNotManaged,
		},
		"none leads": {
			reason: "new pods would wait in PreparingNormal", configuration: configText, renewed: time.Minute,
			want: "no manager holds the Lease system/rollcall", status: exitNoManager,
		},
		"none leads, and this clock is behind": {
			reason: "the Lease looks held", configuration: configText, renewed: -time.Minute, want: "no manager holds the Lease system/rollcall", status: exitNoManager,
		},
		"its Lease is not found": {
			reason: "a manager without leader election has none", configuration: configText, unknown: true,
			warning: "warning: can't tell whether a manager leads: namespace system has no Lease rollcall",
		},
		"no policy": {reason: "every name is free", configuration: configText},
		"not allowed": {
			reason: "its pods would wait in PreparingNormal", want: `does not give service "web" to namespace prod`,
			configuration: configText + "service: {allowed: [{namespaceSelector: {matchLabels: {team: shop}}, names: [web]}]}",
		},
		"allowed": {
			reason:        "the namespace's labels count",
			configuration: configText + "service: {allowed: [{namespaceSelector: {matchLabels: {team: web}}, names: [web]}]}",
		},
	}, func(t *testing.T, c row) {
		set := theCloneSet(t, cloneSetText)
		set.Spec.Lifecycle = nil
		cluster, applied := installed(t, c.configuration, leaseHeld(now.Add(-c.renewed)))
		streams, _, out, problems := genericiooptions.NewTestIOStreams()
		cluster.IOStreams = streams
		if c.unknown {
			expect.NoError(t, cluster.Delete(t.Context(), leaseHeld(now)))
		}
		if c.renewed == 0 {
			renewing(t, cluster)
		}
		err := cluster.give(t.Context(), []kruisev1alpha1.CloneSet{*set})
		expect.Error(t, c.reason, err, c.want)
		if got := statusOf(err); c.status > 0 && got != c.status {
			t.Errorf("%s: exit status %d, want %d: %v", c.reason, got, c.status, err)
		}
		if got := problems.String(); !strings.HasPrefix(got, c.warning) || c.warning == "" && got != "" {
			t.Errorf("%s: printed %q, want %q", c.reason, got, c.warning)
		}
		if enrolled := strings.Contains(out.String(), "enrolled"); enrolled != (c.want == "") || (*applied > 0) != enrolled {
			t.Errorf("%s: it says %q and applies %d times", c.reason, out, *applied)
		}
	})
}

// TestEnrollTakesOver what an older plugin wrote under a name that Flux prunes, and --undo removes both.
func TestEnrollTakesOver(t *testing.T) {
	t.Parallel()
	type row struct {
		reason  string
		owners  []client.FieldOwner
		undo    bool
		out     string
		applied int
	}
	bubble.Each(t, map[string]row{
		"an older plugin's": {
			reason: "one owner more, then one less", owners: []client.FieldOwner{enroll.FormerPluginOwner}, applied: 2,
			out: "web was enrolled: its hooks now belong to the field manager rollcall-plugin",
		},
		"this plugin's": {reason: "there is nothing to do", owners: []client.FieldOwner{enroll.PluginOwner}, out: "web unchanged: it already has"},
		"the manager's": {reason: "there is nothing to do", owners: []client.FieldOwner{clusterstate.EnrollOwner}, out: "web unchanged: it already has"},
		"undo an older plugin's": {
			reason: "it is the same command", owners: []client.FieldOwner{enroll.FormerPluginOwner}, undo: true, applied: 1, out: "web unenrolled",
		},
		"undo both": {
			reason: "the takeover was cut off", owners: []client.FieldOwner{enroll.FormerPluginOwner, enroll.PluginOwner}, undo: true, applied: 2,
			out: "web unenrolled",
		},
		"undo the manager's": {
			reason: "only who gave the hooks takes them back", owners: []client.FieldOwner{clusterstate.EnrollOwner}, undo: true,
			out: "web unchanged: this command added no hooks",
		},
	}, func(t *testing.T, c row) {
		set := kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
		set.Spec.Lifecycle = lifecycle.Enrolled()
		for _, owner := range c.owners {
			set.ManagedFields = append(set.ManagedFields, metav1.ManagedFieldsEntry{Manager: string(owner), Operation: metav1.ManagedFieldsOperationApply})
		}
		cluster, applied := installed(t, configText, leaseHeld(now))
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		cluster.IOStreams = streams
		renewing(t, cluster)
		do := cluster.give
		if c.undo {
			do = cluster.withdraw
		}
		expect.NoError(t, do(t.Context(), []kruisev1alpha1.CloneSet{set}))
		if !strings.Contains(out.String(), c.out) || *applied != c.applied {
			t.Errorf("%s: it says %q and applies %d times, want %q and %d", c.reason, out, *applied, c.out, c.applied)
		}
	})
}

// TestLabelNamespace: the label is written under the plugin's name, where it has an effect.
func TestLabelNamespace(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration, want, out string
		owner                            client.FieldOwner
		undo                             bool
		applied                          int
	}
	bubble.Each(t, map[string]row{
		"on": {
			reason: "Rollcall enrolls its CloneSets", configuration: configText + "enroll: true", applied: 1,
			out: "namespace/prod labelled: Rollcall enrolls its CloneSets",
		},
		"off": {
			reason: "the label would do nothing", configuration: configText,
			want: "enrollment by namespace is off: set enroll: true in ConfigMap system/rollcall-config",
		},
		"not watched": {
			reason: "the label would do nothing", configuration: configText + "enroll: true\nnamespaces: [pay]",
			want: "namespace prod is not among the namespaces in the configuration",
		},
		"undo": {
			reason: "it is this command's", configuration: configText, owner: enroll.PluginOwner, undo: true, applied: 1,
			out: "namespace/prod no longer labelled by this command",
		},
		"undo another's": {
			reason: "the label is in a manifest", configuration: configText, owner: "kustomize-controller", undo: true,
			out: "namespace/prod unchanged: this command did not label it",
		},
	}, func(t *testing.T, c row) {
		cluster, applied := installed(t, c.configuration)
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		cluster.IOStreams = streams
		inner, is := cluster.Client.(client.WithWatch)
		if !is {
			t.Fatal("the client watches nothing")
		}
		cluster.Client = interceptor.NewClient(inner, interceptor.Funcs{
			Get: func(ctx context.Context, from client.WithWatch, key client.ObjectKey, to client.Object, opts ...client.GetOption) error {
				err := from.Get(ctx, key, to, opts...)
				if _, is := to.(*corev1.Namespace); is && c.owner != "" {
					to.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: string(c.owner), Operation: metav1.ManagedFieldsOperationApply}})
				}
				return err
			},
		})
		expect.Error(t, c.reason, cluster.labelNamespace(t.Context(), c.undo), c.want)
		if !strings.Contains(out.String(), c.out) || *applied != c.applied {
			t.Errorf("%s: it says %q and applies %d times, want %q and %d", c.reason, out, *applied, c.out, c.applied)
		}
	})
}

func TestEnrollTellsWhichEntriesAreNotFound(t *testing.T) {
	t.Parallel()
	byApp := strings.Replace(configText, `8500"}`, `8500", registeredBy: App}`, 1)
	type row struct {
		reason, configuration, record, later string
		annotations                          map[string]string
		unready, warns                       bool
	}
	const found = `{"stamp":{"uid":"1"},"want":"InService","instances":[{"registry":"default","writer":"app","service":"web","address":"10.0.0.1","port":80}]`
	bubble.Each(t, map[string]row{
		"none is found":             {reason: "nobody is to meet it first at a scale-in", configuration: byApp, warns: true},
		"Rollcall registers":        {reason: "there is no entry to be found", configuration: configText},
		"the pod's application":     {reason: "the annotation wins", configuration: configText, annotations: map[string]string{"rollcall.dev/registries": "default=app"}, warns: true},
		"it is not ready":           {reason: "its application may have yet to start", configuration: byApp, unready: true},
		"found":                     {reason: "a manager has looked", configuration: byApp, record: found + "}"},
		"found soon":                {reason: "it takes a moment", configuration: byApp, later: found + "}"},
		"one of two is not found":   {reason: "the record tells", configuration: byApp, record: found + `,"unfound":[{"registry":"default","writer":"app","service":"b","address":"10.0.0.1","port":80}]}`, warns: true},
		"it is out, and was so ere": {reason: "that tells nothing", configuration: byApp, record: strings.Replace(found, "InService", "OutOfService", 1) + "}", warns: true},
	}, func(t *testing.T, c row) {
		set := theCloneSet(t, cloneSetText)
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web-1", UID: "1", Annotations: map[string]string{}, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, kruisev1alpha1.GroupVersion.WithKind("CloneSet")),
			}},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		}
		maps.Copy(pod.Annotations, c.annotations)
		if c.record != "" {
			pod.Annotations[lifecycle.AnnotationRecord] = c.record
		}
		if c.unready {
			pod.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		cluster, _ := installed(t, c.configuration, leaseHeld(now), pod)
		streams, _, _, problems := genericiooptions.NewTestIOStreams()
		cluster.IOStreams = streams
		renewing(t, cluster)
		if c.later != "" {
			time.AfterFunc(5*time.Second, func() {
				pod.Annotations[lifecycle.AnnotationRecord] = c.later
				expect.NoError(t, cluster.Update(t.Context(), pod))
			})
		}
		expect.NoError(t, cluster.give(t.Context(), []kruisev1alpha1.CloneSet{*set}))
		const warning = "warning: the applications in these pods register themselves, and Rollcall has not found their entries: web-1. "
		if got := problems.String(); strings.HasPrefix(got, warning) != c.warns || !c.warns && got != "" {
			t.Errorf("%s: printed %q, want a warning: %t", c.reason, got, c.warns)
		}
	})
}

// TestPreview shows, without a manager, what enrolling would do, and writes nothing. The page docs/dry-run.md shows the first of these.
func TestPreview(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration string
		of                    enrolling
		status                int
		want                  string
	}
	const reached = "cluster: a\nregistry: {driver: known, endpoint: 'http://known:1'}\n"
	captured := openCaptures(t, "preview")
	expect.Each(t, map[string]row{
		"a namespace":  {reason: "one is refused", configuration: reached, status: exitFailed, want: "1 CloneSet would be refused"},
		"a CloneSet":   {reason: "the others are not looked at", configuration: reached, of: enrolling{names: []string{"web"}}},
		"the cluster":  {reason: "each has its namespace", configuration: reached, of: enrolling{acrossAll: true}, status: exitFailed, want: "would be refused"},
		"by labels":    {reason: "a person chooses so", configuration: reached, of: enrolling{selector: "app=web"}},
		"by its label": {reason: "the manager would refuse one", configuration: reached + "enroll: true\n", of: enrolling{label: true}, status: exitFailed, want: "would be refused"},
		"no such one":  {reason: "a name was misspelt", configuration: reached, of: enrolling{names: []string{"wbe"}}, status: exitNotFound, want: "namespace prod has no CloneSet wbe"},
		"a driver of somebody's own": {
			reason: "what would be registered is known all the same", configuration: strings.ReplaceAll(reached, "driver: known", "driver: acme"),
			of: enrolling{names: []string{"web"}},
		},
	}, func(t *testing.T, c row) {
		var objects []client.Object
		for i, name := range []string{"api", "web", "worker"} {
			set := previewed(name)
			objects = append(objects, set, podOf(set, 2*i), podOf(set, 2*i+1))
		}
		cluster, applied := installed(t, c.configuration, objects...)
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		cluster.IOStreams, cluster.dry = streams, true
		cluster.ErrOut = out
		cluster.drivers = map[string]registry.Constructor{"known": func(context.Context, registry.Config) (registry.Registry, error) {
			return knownRegistry{}, nil
		}}
		err := cluster.enroll(t.Context(), c.of)
		expect.Error(t, c.reason, err, c.want)
		expect.Equal(t, c.status, statusOf(err), "exit status: %s", c.reason)
		if *applied > 0 {
			t.Errorf("%s: the preview writes", c.reason)
		}
		captured.expect(t, out.String(), c.reason)
	})
}

// TestDryRunsWriteNothing: each command that writes shows what it would do.
func TestDryRunsWriteNothing(t *testing.T) {
	t.Parallel()
	set := previewed("web")
	set.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: string(enroll.PluginOwner), Operation: metav1.ManagedFieldsOperationApply}}
	cluster, applied := installed(t, configText, leaseHeld(now))
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	cluster.IOStreams, cluster.dry = streams, true
	expect.NoError(t, cluster.withdraw(t.Context(), []kruisev1alpha1.CloneSet{*set}))
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", ManagedFields: set.ManagedFields}}
	did, err := cluster.unlabel(t.Context(), namespace)
	expect.NoError(t, err)
	if want := "cloneset.apps.kruise.io/web would be unenrolled (dry run)\n"; out.String() != want || *applied > 0 {
		t.Errorf("it says %q and applies %d times, want %q", out, *applied, want)
	}
	expect.Equal(t, "would no longer be labelled by this command (dry run)", did, "what --label-namespace --undo says")
}

// TestEnrollArguments refuses flags that exclude each other.
func TestEnrollArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason string
		of     enrolling
		dry    bool
		want   string
	}{
		"nothing":                   {"to enroll all by mistake would be a surprise", enrolling{}, false, "specify names of CloneSets"},
		"nothing, to look at":       {"to look at all does no harm", enrolling{}, true, ""},
		"nothing, to undo":          {"it would undo all", enrolling{undo: true}, true, "specify names of CloneSets"},
		"all namespaces":            {"only a person who looks wants that", enrolling{acrossAll: true, chosen: true}, false, "-A and --config are for --dry-run"},
		"all namespaces, to look":   {"a newcomer does not know which", enrolling{acrossAll: true, chosen: true}, true, ""},
		"a file":                    {"the manager has its own", enrolling{names: []string{"web"}, file: "config.yaml"}, false, "-A and --config are for --dry-run"},
		"names and a choice":        {"one of them is a mistake", enrolling{names: []string{"web"}, chosen: true}, true, "specify names of CloneSets"},
		"a namespace and its names": {"the label is for all", enrolling{names: []string{"web"}, label: true}, false, "specify no others"},
	} {
		expect.Error(t, name+": "+c.reason, c.of.check(c.dry), c.want)
	}
}

// previewed is a CloneSet without hooks; one that is called worker has no port.
func previewed(name string) *kruisev1alpha1.CloneSet {
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name, UID: types.UID(name), Labels: map[string]string{"app": name},
	}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	set.Spec.Template.Labels = map[string]string{"app": name}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}
	if name == "worker" {
		set.Spec.Template.Spec.Containers[0].Ports = nil
	}
	return set
}

func podOf(set *kruisev1alpha1.CloneSet, number int) *corev1.Pod {
	address := fmt.Sprintf("10.0.3.%d", 17+number)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, number), UID: types.UID(address),
			Labels: map[string]string{"app": set.Name, appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: kruisev1alpha1.GroupVersion.String(), Kind: "CloneSet", Name: set.Name, UID: set.UID, Controller: new(true),
			}},
		},
		Spec: set.Spec.Template.Spec,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// knownRegistry has an entry of somebody else for one pod.
type knownRegistry struct{ registry.Registry }

func (knownRegistry) Get(_ context.Context, in registry.Instance) (registry.State, error) {
	if in.Address == "10.0.3.20" {
		return registry.Foreign, nil
	}
	return registry.Absent, nil
}
