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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/lint"
)

// Obstacle returns why a CloneSet of a namespace with these labels can't be enrolled and what to do about it, or nothing.
func Obstacle(set *kruisev1alpha1.CloneSet, c *config.Config, of labels.Set) string {
	if why := others(set, c); why != "" {
		return why
	}
	with := set.DeepCopy()
	with.Spec.Lifecycle = lifecycle.Enrolled()
	return strings.Join(lint.Workload(clusterstate.AsWorkload(with), c, of), "; ")
}

// others says which hooks the CloneSet has that are not Rollcall's: their owner may count on being alone.
func others(set *kruisev1alpha1.CloneSet, c *config.Config) string {
	for _, n := range lifecycle.HandlersOf(set.Spec.Lifecycle) {
		if !c.Hooks.Owns(n.Key()) {
			return fmt.Sprintf("spec.lifecycle.%s has %s, which is not Rollcall's: add Rollcall's hooks next to it by hand", n.Hook, n)
		}
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

// Owned reports whether the CloneSet has fields that the owner wrote by [Enroll]: the API server forgets an owner whose fields are gone.
func Owned(set *kruisev1alpha1.CloneSet, owner client.FieldOwner) bool {
	return slices.ContainsFunc(set.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == string(owner) && f.Operation == metav1.ManagedFieldsOperationApply
	})
}

// identity names one CloneSet by its UID too, so that an apply does not make one that is gone.
func identity(set *kruisev1alpha1.CloneSet) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kruisev1alpha1.SchemeGroupVersion.WithKind("CloneSet"))
	object.SetNamespace(set.Namespace)
	object.SetName(set.Name)
	object.SetUID(set.UID)
	return object
}
