// Package neighbours runs the libraries of programs that work on the same objects: Flux' on the objects that it applies, and the
// descheduler's on evictions. It is a module of its own, since they are needed for nothing else.
package neighbours

import (
	"bytes"
	"slices"
	"testing"

	"github.com/fluxcd/pkg/ssa"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// flux is what kustomize-controller is to the objects of a Kustomization.
const flux = "kustomize-controller"

// TestFluxKeepsTheHooks: what was written by a manager that Flux takes for kubectl is pruned at the next interval.
func TestFluxKeepsTheHooks(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		write  func(*testing.T, client.Client, *kruisev1alpha1.CloneSet)
		stay   bool
	}
	by := func(owner client.FieldOwner) func(*testing.T, client.Client, *kruisev1alpha1.CloneSet) {
		return func(t *testing.T, c client.Client, set *kruisev1alpha1.CloneSet) {
			t.Helper()
			expect.NoError(t, enroll.Enroll(t.Context(), c, set, owner))
		}
	}
	expect.Each(t, map[string]row{
		"by the plugin":            {reason: "its name does not begin with kubectl", write: by(enroll.PluginOwner), stay: true},
		"by the namespace's label": {reason: "the manager has a name of its own", write: by(clusterstate.EnrollOwner), stay: true},
		"by an old plugin":         {reason: "this is what the plugin's new name is for", write: by(enroll.FormerPluginOwner)},
		"by an old plugin, and taken over": {
			reason: "kubectl rollcall enroll was run again", stay: true,
			write: func(t *testing.T, c client.Client, set *kruisev1alpha1.CloneSet) {
				t.Helper()
				by(enroll.FormerPluginOwner)(t, c, set)
				expect.NoError(t, enroll.TakeOver(t.Context(), c, set, enroll.FormerPluginOwner, enroll.PluginOwner))
				read(t, c, set)
				if ownsHooks(set, enroll.FormerPluginOwner) || !ownsHooks(set, enroll.PluginOwner) {
					t.Errorf("the hooks belong to %v, want %s alone", set.ManagedFields, enroll.PluginOwner)
				}
			},
		},
	}, func(t *testing.T, c row) {
		cluster := newCluster(t)
		manifest := map[string]any{"spec": map[string]any{"replicas": int64(2)}}
		set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}
		reconcile(t, cluster, set, manifest)
		c.write(t, cluster, set)
		reconcile(t, cluster, set, manifest)
		if got := lifecycle.IsEnrolled(set.Spec.Lifecycle); got != c.stay {
			t.Errorf("%s: the hooks stayed: %t, want %t; spec.lifecycle is %v", c.reason, got, c.stay, set.Spec.Lifecycle)
		}
		if *set.Spec.Replicas != 2 {
			t.Errorf("Flux' own fields have changed: %v", set.Spec)
		}
	})
}

// TestFluxKeepsTheLabelOfANamespace that the plugin wrote, and removes that of kubectl label.
func TestFluxKeepsTheLabelOfANamespace(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		write  func(*testing.T, client.Client, *corev1.Namespace)
		stays  bool
	}
	plugin := func(t *testing.T, c client.Client, namespace *corev1.Namespace) {
		t.Helper()
		expect.NoError(t, enroll.LabelNamespace(t.Context(), c, namespace, enroll.PluginOwner))
	}
	kubectl := func(t *testing.T, c client.Client, namespace *corev1.Namespace) {
		t.Helper()
		labelled := namespace.DeepCopy()
		metav1.SetMetaDataLabel(&labelled.ObjectMeta, enroll.Label, "true")
		expect.NoError(t, c.Patch(t.Context(), labelled, client.MergeFrom(namespace), client.FieldOwner("kubectl-label")))
	}
	expect.Each(t, map[string]row{
		"by the plugin":    {"its name does not begin with kubectl", plugin, true},
		"by kubectl label": {"Flux takes it for an edit by hand", kubectl, false},
		"by both": {"the plugin's stays", func(t *testing.T, c client.Client, namespace *corev1.Namespace) {
			t.Helper()
			kubectl(t, c, namespace)
			plugin(t, c, namespace)
		}, true},
		"by the plugin, and taken back": {"nobody wants it", func(t *testing.T, c client.Client, namespace *corev1.Namespace) {
			t.Helper()
			plugin(t, c, namespace)
			expect.NoError(t, enroll.UnlabelNamespace(t.Context(), c, namespace, enroll.PluginOwner))
		}, false},
	}, func(t *testing.T, c row) {
		cluster := newCluster(t)
		manifest := map[string]any{"metadata": map[string]any{"labels": map[string]any{"team": "web"}}}
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod"}}
		reconcile(t, cluster, namespace, manifest)
		c.write(t, cluster, namespace)
		reconcile(t, cluster, namespace, manifest)
		if _, stayed := namespace.Labels[enroll.Label]; stayed != c.stays || namespace.Labels["team"] != "web" {
			t.Errorf("%s: the labels are %v, want %s: %t", c.reason, namespace.Labels, enroll.Label, c.stays)
		}
	})
}

// ownsHooks goes by the fields: the fake API server gives each owner those that a CloneSet always has, and so never forgets one.
func ownsHooks(set *kruisev1alpha1.CloneSet, owner client.FieldOwner) bool {
	return slices.ContainsFunc(set.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == string(owner) && bytes.Contains(f.FieldsV1.Raw, []byte(`"f:lifecycle"`))
	})
}

func newCluster(t *testing.T) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithReturnManagedFields().Build()
}

// reconcile applies the manifest as kustomize-controller does (internal/controller/kustomization_controller.go, apply, at 00ed4876), and
// reads the object.
func reconcile(t *testing.T, c client.Client, object client.Object, manifest map[string]any) {
	t.Helper()
	gvk, err := c.GroupVersionKindFor(object)
	expect.NoError(t, err)
	applied := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(manifest)}
	applied.SetGroupVersionKind(gvk)
	applied.SetNamespace(object.GetNamespace())
	applied.SetName(object.GetName())
	options := ssa.DefaultApplyOptions()
	options.Cleanup.FieldManagers = []ssa.FieldManager{
		{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
		{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
		{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
		{Name: flux, OperationType: metav1.ManagedFieldsOperationUpdate},
	}
	_, err = ssa.NewResourceManager(c, nil, ssa.Owner{Field: flux, Group: flux}).Apply(t.Context(), applied, options)
	expect.NoError(t, err)
	read(t, c, object)
}

func read(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	expect.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(object), object))
}
