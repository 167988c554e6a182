// Package uninstall finds what in a cluster waits for Rollcall, and removes it, so that nothing waits once Rollcall is gone. [Strip] is
// pure, and a [Cluster] reads and writes. The plugin uses it for a person, and the manager in the chart's pre-delete hook.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// pause is between two checks of a cluster that is not clean yet.
const pause = 2 * time.Second

// Finding is an object that depends on Rollcall, such as "CloneSet shop/web", and by what.
type Finding struct {
	Object string
	What   []string
}

func (f Finding) String() string { return f.Object + ": " + strings.Join(f.What, ", ") }

// Strip removes from a workload all hooks that are Rollcall's, and from its template what would hold up new pods: finalizers, marks and
// the readiness gate. It returns what it removed.
func Strip(object client.Object, o lifecycle.Ownership) (removed []string) {
	hooks, template := parts(object)
	if template == nil {
		return nil
	}
	return append(stripHooks(hooks, o), stripTemplate(template, o)...)
}

func parts(object client.Object) (**appspub.Lifecycle, *corev1.PodTemplateSpec) {
	switch o := object.(type) {
	case *kruisev1alpha1.CloneSet:
		return &o.Spec.Lifecycle, &o.Spec.Template
	case *kruisev1beta1.StatefulSet:
		return &o.Spec.Lifecycle, &o.Spec.Template
	case *kruisev1alpha1.DaemonSet:
		return &o.Spec.Lifecycle, &o.Spec.Template
	}
	return nil, nil
}

func stripHooks(of **appspub.Lifecycle, o lifecycle.Ownership) (removed []string) {
	l := *of
	for _, n := range lifecycle.HandlersOf(l) {
		if !ours(o, n.Key()) {
			continue
		}
		removed = append(removed, fmt.Sprintf("%s waits for %s", n.Hook, n.Handler))
		hook := map[lifecycle.Hook]**appspub.LifecycleHook{
			lifecycle.PreNormal: &l.PreNormal, lifecycle.InPlaceUpdate: &l.InPlaceUpdate, lifecycle.PreDelete: &l.PreDelete,
		}[n.Hook]
		delete((*hook).LabelsHandler, n.Label)
		(*hook).FinalizersHandler = slices.DeleteFunc((*hook).FinalizersHandler, func(f string) bool { return f == n.Finalizer })
		if len((*hook).LabelsHandler)+len((*hook).FinalizersHandler) == 0 {
			*hook = nil
		}
	}
	if len(removed) > 0 && len(lifecycle.HandlersOf(l)) == 0 {
		*of = nil
	}
	return removed
}

func stripTemplate(t *corev1.PodTemplateSpec, o lifecycle.Ownership) (removed []string) {
	t.Finalizers = slices.DeleteFunc(t.Finalizers, func(f string) bool {
		if ours(o, f) {
			removed = append(removed, "template has finalizer "+f)
		}
		return ours(o, f)
	})
	for _, mark := range o.NewlyCreated {
		for _, in := range []map[string]string{t.Labels, t.Annotations} {
			if _, has := in[mark]; has {
				delete(in, mark)
				removed = append(removed, "template has mark "+mark)
			}
		}
	}
	t.Spec.ReadinessGates = slices.DeleteFunc(t.Spec.ReadinessGates, func(g corev1.PodReadinessGate) bool {
		if g.ConditionType == lifecycle.ConditionInRotation {
			removed = append(removed, "template has readiness gate "+string(g.ConditionType))
		}
		return g.ConditionType == lifecycle.ConditionInRotation
	})
	return removed
}

func ours(o lifecycle.Ownership, key string) bool {
	return o.Owns(key) || key == lifecycle.GuardFinalizer
}

// Cluster is what an installation has left in the namespaces that it watches.
type Cluster struct {
	Client client.Client
	Config *config.Config
	Owner  client.FieldOwner
	// KeepWebhook leaves the configuration of the eviction webhook to Helm.
	KeepWebhook bool
	// Unled is set if no manager runs: pods at hooks are not waited for, as nobody releases these.
	Unled bool

	// written are the objects that were changed: what comes back there has another writer.
	written map[types.UID]bool
}

// Left is what depends on Rollcall.
type Left struct {
	// Moving are pods of workloads with hooks that OpenKruise creates, updates or deletes: without the hooks they would not wait.
	Moving []Finding
	// Held are pods with finalizers that the manager removes once their workloads have no hooks.
	Held   []Finding
	held   []metav1.PartialObjectMetadata
	writes []write
}

// write removes what an object has.
type write struct {
	Finding
	uid types.UID
	do  func(context.Context) error
}

// Waiting counts the pods that need a manager.
func (l *Left) Waiting() int {
	pods := map[string]bool{}
	for _, f := range slices.Concat(l.Moving, l.Held) {
		pods[f.Object] = true
	}
	return len(pods)
}

// Findings are all of them, in the order in which they go.
func (l *Left) Findings() []Finding {
	all := slices.Clone(l.Moving)
	for _, w := range l.writes {
		all = append(all, w.Finding)
	}
	return append(all, l.Held...)
}

// Survey changes nothing.
func (c *Cluster) Survey(ctx context.Context) (*Left, error) {
	left := &Left{}
	err := c.namespaces(ctx, left)
	hooked := map[types.UID]bool{}
	if err == nil {
		err = c.workloads(ctx, left, hooked)
	}
	if err == nil {
		err = c.each(ctx, func(in client.InNamespace) error { return c.podsIn(ctx, in, left, hooked) })
	}
	if err == nil && c.Config.Evictions.Enabled && !c.KeepWebhook {
		err = c.webhook(ctx, left)
	}
	return left, err
}

// Clean removes what it can until nothing is left, each once, and returns what is left when ctx ends, or an error if that is not known.
// While pods move and a manager runs, it only waits: they need the hooks.
func (c *Cluster) Clean(ctx context.Context, removed func(Finding)) (findings []Finding, err error) {
	begun := c.Unled
	for {
		left, err := c.Survey(ctx)
		if ctx.Err() != nil {
			return findings, unread(ctx, findings)
		}
		if begun = begun || err == nil && len(left.Moving) == 0; begun && err == nil {
			err = c.remove(ctx, left, removed)
		}
		if err != nil {
			return findings, err
		}
		if findings = left.Findings(); len(findings) == 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return findings, nil
		case <-time.After(pause):
		}
	}
}

// unread is an error if nothing was found since nothing was read before the time has passed.
func unread(ctx context.Context, findings []Finding) error {
	if findings != nil {
		return nil
	}
	return fmt.Errorf("what depends on Rollcall was not read in time: %w", ctx.Err())
}

// remove writes again what was in another's way.
func (c *Cluster) remove(ctx context.Context, left *Left, removed func(Finding)) error {
	var failed []error
	for _, w := range left.writes {
		if c.written[w.uid] {
			continue
		}
		switch err := w.do(ctx); {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		case err != nil:
			failed = append(failed, fmt.Errorf("changing %s: %w", w.Object, err))
		default:
			if c.written == nil {
				c.written = map[types.UID]bool{}
			}
			c.written[w.uid] = true
			removed(w.Finding)
		}
	}
	return errors.Join(failed...)
}

// FreePods removes the finalizers from the pods. The manager would put them back, so none may run.
func (c *Cluster) FreePods(ctx context.Context, left *Left, removed func(Finding)) error {
	var failed []error
	for i := range left.held {
		pod := &left.held[i]
		was := pod.DeepCopy()
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return ours(c.Config.Hooks, f) })
		if err := c.patch(ctx, was, pod); err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, fmt.Errorf("removing the finalizers of %s: %w", left.Held[i].Object, err))
			continue
		}
		removed(left.Held[i])
	}
	return errors.Join(failed...)
}

func (c *Cluster) patch(ctx context.Context, was, now client.Object) error {
	return c.Client.Patch(ctx, now, client.MergeFromWithOptions(was, client.MergeFromWithOptimisticLock{}), c.Owner)
}

// found notes what is to be removed from an object.
func (c *Cluster) found(left *Left, kind string, was, now client.Object, what []string) {
	if c.written[was.GetUID()] {
		what = append(what, "which came back: remove it from the manifest")
	}
	object := kind + " " + path.Join(was.GetNamespace(), was.GetName())
	left.writes = append(left.writes, write{Finding{object, what}, was.GetUID(), func(ctx context.Context) error {
		return c.patch(ctx, was, now)
	}})
}

func (c *Cluster) namespaces(ctx context.Context, left *Left) error {
	if !c.Config.Enroll {
		return nil
	}
	all, err := c.enrolled(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		was := &all[i]
		was.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
		now := was.DeepCopy()
		delete(now.Labels, clusterstate.EnrollLabel)
		c.found(left, "Namespace", was, now, []string{"label " + clusterstate.EnrollLabel})
	}
	return nil
}

// enrolled are the namespaces whose CloneSets get hooks. Those of the configuration are read by their names, for which Roles suffice.
func (c *Cluster) enrolled(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if len(c.Config.Namespaces.Names) == 0 {
		if err := c.Client.List(ctx, &list, client.MatchingLabels{clusterstate.EnrollLabel: "true"}); err != nil {
			return nil, fmt.Errorf("listing namespaces: %w", err)
		}
	}
	list.Items = slices.DeleteFunc(list.Items, func(n metav1.PartialObjectMetadata) bool { return !c.Config.Watches(n.Name, n.Labels) })
	for _, name := range c.Config.Namespaces.Names {
		namespace := clusterstate.NamespaceMetadata()
		err := c.Client.Get(ctx, client.ObjectKey{Name: name}, namespace)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading namespace %s: %w", name, err)
		}
		if err == nil && namespace.Labels[clusterstate.EnrollLabel] == "true" {
			list.Items = append(list.Items, *namespace)
		}
	}
	return list.Items, nil
}

// each calls do for the whole cluster, or for each namespace of the configuration.
func (c *Cluster) each(ctx context.Context, do func(in client.InNamespace) error) error {
	if c.Config.Namespaces.All() {
		return do("")
	}
	names, err := c.names(ctx)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := do(client.InNamespace(name)); err != nil {
			return err
		}
	}
	return nil
}

// names are those of the configuration, or those that its selector matches now.
func (c *Cluster) names(ctx context.Context) ([]string, error) {
	chosen := c.Config.Namespaces
	if chosen.Selector == nil {
		return chosen.Names, nil
	}
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := c.Client.List(ctx, &list, client.MatchingLabelsSelector{Selector: chosen.Selector}); err != nil {
		return nil, fmt.Errorf("listing the namespaces that %s matches: %w", chosen, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}

// workloads also returns the UIDs of those that have hooks.
func (c *Cluster) workloads(ctx context.Context, left *Left, hooked map[types.UID]bool) error {
	err := c.each(ctx, func(in client.InNamespace) error { return c.workloadsIn(ctx, in, left, hooked) })
	if meta.IsNoMatchError(err) {
		return nil // OpenKruise is gone, and nothing waits at a hook
	}
	return err
}

func (c *Cluster) workloadsIn(ctx context.Context, in client.InNamespace, left *Left, hooked map[types.UID]bool) error {
	return clusterstate.EachWorkload(ctx, c.Client, func(w *clusterstate.Workload) {
		if lifecycle.HooksOf(w.ForDecision(), c.Config.Hooks).Any() {
			hooked[w.GetUID()] = true
		}
		now, _ := w.Object.DeepCopyObject().(client.Object)
		if removed := Strip(now, c.Config.Hooks); len(removed) > 0 {
			c.found(left, w.Kind, w.Object, now, removed)
		}
	}, in)
}

// moves reports a state in which a pod waits at a hook, or will.
func moves(state appspub.LifecycleStateType) bool {
	switch state {
	case appspub.LifecycleStatePreparingNormal, appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating,
		appspub.LifecycleStateUpdated, appspub.LifecycleStatePreparingDelete:
		return true
	default:
		return false
	}
}

func (c *Cluster) podsIn(ctx context.Context, in client.InNamespace, left *Left, hooked map[types.UID]bool) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := c.Client.List(ctx, &list, in); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		object, owner := "Pod "+path.Join(pod.Namespace, pod.Name), metav1.GetControllerOfNoCopy(pod)
		state := appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey])
		if owner != nil && hooked[owner.UID] && moves(state) {
			left.Moving = append(left.Moving, Finding{object, []string{"is " + string(state)}})
		}
		var held []string
		for _, f := range pod.Finalizers {
			if ours(c.Config.Hooks, f) {
				held = append(held, "finalizer "+f)
			}
		}
		if len(held) > 0 {
			pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
			left.held = append(left.held, *pod)
			left.Held = append(left.Held, Finding{object, held})
		}
	}
	return nil
}

func (c *Cluster) webhook(ctx context.Context, left *Left) error {
	kind := schema.GroupVersionKind{Group: admissionv1.GroupName, Version: "v1", Kind: "MutatingWebhookConfiguration"}
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(kind)
	err := c.Client.Get(ctx, client.ObjectKey{Name: c.Config.Evictions.Name}, object)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", kind.Kind, c.Config.Evictions.Name, err)
	}
	what := Finding{kind.Kind + " " + object.Name, []string{"evictions wait for it"}}
	left.writes = append(left.writes, write{what, object.UID, func(ctx context.Context) error {
		return c.Client.Delete(ctx, object)
	}})
	return nil
}
