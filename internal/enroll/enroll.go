// Package enroll gives CloneSets the hooks by which Rollcall works, and takes them back: neither is part of the pods' template,
// so no pod restarts. It writes by server-side apply and owns what it wrote, so that taking back leaves the CloneSet as it was.
// [Enroll] and [Withdraw] do so once; the [Reconciler] does it for whole namespaces.
package enroll

import (
	"context"
	"fmt"
	"slices"
	"strings"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
)

// PluginOwner is the field manager of what a person enrolls with the plugin. It must not begin with kubectl: Flux takes over what such
// managers wrote, and removes it (kustomize-controller's apply in internal/controller/kustomization_controller.go).
const PluginOwner client.FieldOwner = "rollcall-plugin"

// FormerPluginOwner is what [PluginOwner] was once.
const FormerPluginOwner client.FieldOwner = "kubectl-rollcall"

// Obstacle is all [Obstacles] in one text.
func Obstacle(set *kruisev1alpha1.CloneSet, c *config.Config, of labels.Set) string {
	return strings.Join(Obstacles(set, c, of), "; ")
}

// Obstacles are why a CloneSet of a namespace with these labels can't be enrolled, each with what to do about it.
func Obstacles(set *kruisev1alpha1.CloneSet, c *config.Config, of labels.Set) []string {
	if why := others(set, c); why != "" {
		return []string{why}
	}
	return lint.Workload(clusterstate.AsWorkload(With(set)), c, of)
}

// With is the CloneSet as it will be once it is enrolled.
func With(set *kruisev1alpha1.CloneSet) *kruisev1alpha1.CloneSet {
	with := set.DeepCopy()
	with.Spec.Lifecycle = lifecycle.Enrolled()
	return with
}

// Asked reports whether the [Reconciler] is to enroll CloneSets with these labels in namespaces with those.
func Asked(set, namespace labels.Set) bool {
	return namespace[Label] == "true" && set[Label] != "false"
}

// others reports which hooks the CloneSet has that are not Rollcall's, since their owner may count on being alone, or who else writes it.
func others(set *kruisev1alpha1.CloneSet, c *config.Config) string {
	for _, n := range lifecycle.HandlersOf(set.Spec.Lifecycle) {
		if !c.Hooks.Owns(n.Key()) {
			return fmt.Sprintf("spec.lifecycle.%s has %s, which is not Rollcall's: add Rollcall's hooks next to it by hand", n.Hook, n)
		}
	}
	return replaced(set)
}

// replaced reports who writes the CloneSet as a whole, and so takes the hooks away in the write that starts a rollout, unless a person has
// labelled the CloneSet in spite of that. A UnitedDeployment writes the spec (OpenKruise 1.9.1, pkg/controller/uniteddeployment/adapter,
// ApplySubsetTemplate), and Karmada the object, except for what a retention rule keeps.
func replaced(set *kruisev1alpha1.CloneSet) string {
	const unless = "; if that keeps spec.lifecycle as it is, label the CloneSet " + Label + "=true"
	if set.Labels[Label] == "true" {
		return ""
	}
	owner := metav1.GetControllerOfNoCopy(set)
	switch {
	case owner != nil && owner.Kind == "UnitedDeployment":
		return fmt.Sprintf("UnitedDeployment %s replaces spec.lifecycle with every write: put the hooks into the owner's template, in "+
			"spec.template.cloneSetTemplate.spec.lifecycle", owner.Name)
	case owner != nil:
		return fmt.Sprintf("%s %s is its controller, and may replace spec.lifecycle with every write: put the hooks into the owner's template%s",
			owner.Kind, owner.Name, unless)
	case set.Labels[clusterstate.KarmadaLabel] != "":
		return fmt.Sprintf("label %s shows that Karmada replaces spec.lifecycle with every write: put the hooks into the CloneSet in Karmada, "+
			"or add a retention rule%s", clusterstate.KarmadaLabel, unless)
	}
	return ""
}

// Managed reports whether the CloneSet has hooks of Rollcall's already, enrolled or written by hand.
func Managed(set *kruisev1alpha1.CloneSet, c *config.Config) bool {
	return lifecycle.HooksOf(&lifecycle.Workload{Lifecycle: set.Spec.Lifecycle}, c.Hooks).Any()
}

// Enroll gives a CloneSet the hooks, as the field manager owner. It fails with a conflict where the CloneSet is gone, or another
// manager has given one of the handlers another value.
func Enroll(ctx context.Context, to client.Writer, set *kruisev1alpha1.CloneSet, owner client.FieldOwner) error {
	hooks, err := runtime.DefaultUnstructuredConverter.ToUnstructured(lifecycle.Enrolled())
	if err != nil {
		return fmt.Errorf("encoding the hooks: %w", err)
	}
	object := identity(set)
	object.Object["spec"] = map[string]any{"lifecycle": hooks}
	if err := to.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), owner); err != nil {
		return fmt.Errorf("enrolling CloneSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}

// Withdraw takes back what [Enroll] gave as the same owner. What others wrote stays.
func Withdraw(ctx context.Context, to client.Writer, set *kruisev1alpha1.CloneSet, owner client.FieldOwner) error {
	object := identity(set)
	if err := to.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), owner); err != nil {
		return fmt.Errorf("withdrawing CloneSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	return nil
}

// TakeOver makes the new owner that of what [Enroll] gave as the former one. The hooks are there all the time.
func TakeOver(ctx context.Context, to client.Writer, set *kruisev1alpha1.CloneSet, former, owner client.FieldOwner) error {
	if err := Enroll(ctx, to, set, owner); err != nil {
		return err
	}
	return Withdraw(ctx, to, set, former)
}

// LabelNamespace labels a namespace, so that the [Reconciler] enrolls its CloneSets. It fails with a conflict where another manager has
// given the label another value.
func LabelNamespace(ctx context.Context, to client.Writer, namespace *corev1.Namespace, owner client.FieldOwner) error {
	object := identityOf(namespace, corev1.SchemeGroupVersion.WithKind("Namespace"))
	object.SetLabels(map[string]string{Label: "true"})
	if err := to.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), owner); err != nil {
		return fmt.Errorf("labelling namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// UnlabelNamespace takes back what [LabelNamespace] gave as the same owner.
func UnlabelNamespace(ctx context.Context, to client.Writer, namespace *corev1.Namespace, owner client.FieldOwner) error {
	object := identityOf(namespace, corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := to.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), owner); err != nil {
		return fmt.Errorf("removing the label of namespace %s: %w", namespace.Name, err)
	}
	return nil
}

// Owned reports whether the object has fields that the owner applied: the API server forgets an owner whose fields are gone.
func Owned(object client.Object, owner client.FieldOwner) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == string(owner) && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

func identity(set *kruisev1alpha1.CloneSet) *unstructured.Unstructured {
	return identityOf(set, kruisev1alpha1.SchemeGroupVersion.WithKind("CloneSet"))
}

// identityOf has the object's UID too, so that an apply does not make one that is gone.
func identityOf(of client.Object, kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(of.GetNamespace())
	object.SetName(of.GetName())
	object.SetUID(of.GetUID())
	return object
}
