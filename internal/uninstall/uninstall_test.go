package uninstall

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

func labelled(keys ...string) *appspub.LifecycleHook {
	hook := &appspub.LifecycleHook{LabelsHandler: map[string]string{}}
	for _, key := range keys {
		hook.LabelsHandler[key] = "true"
	}
	return hook
}

func TestStrip(t *testing.T) {
	t.Parallel()
	gates := func(types ...corev1.PodConditionType) (gates []corev1.PodReadinessGate) {
		for _, one := range types {
			gates = append(gates, corev1.PodReadinessGate{ConditionType: one})
		}
		return gates
	}
	type row struct {
		reason         string
		lifecycle      *appspub.Lifecycle
		template       corev1.PodTemplateSpec
		want           *appspub.Lifecycle
		wantTemplate   corev1.PodTemplateSpec
		removedInOrder []string
	}
	expect.Each(t, map[string]row{
		"enrolled": {
			reason: "OpenKruise's default is no hooks", lifecycle: lifecycle.Enrolled(),
			removedInOrder: []string{
				"preNormal waits for label rollcall.dev/pre-normal=true", "inPlaceUpdate waits for label rollcall.dev/in-place-update=true",
				"preDelete waits for label rollcall.dev/pre-delete=true",
			},
		},
		"another controller's handlers": {
			reason:         "they are not ours to remove",
			lifecycle:      &appspub.Lifecycle{PreDelete: labelled("example.com/gate", "other.io/gate"), InPlaceUpdate: labelled("other.io/gate")},
			want:           &appspub.Lifecycle{PreDelete: labelled("other.io/gate"), InPlaceUpdate: labelled("other.io/gate")},
			removedInOrder: []string{"preDelete waits for label example.com/gate=true"},
		},
		"finalizers as handlers": {
			reason:         "the guard is refused as a handler, and holds pods all the same",
			lifecycle:      &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"rollcall.dev/guard", "example.com/out"}}},
			removedInOrder: []string{"preDelete waits for finalizer example.com/out", "preDelete waits for finalizer rollcall.dev/guard"},
		},
		"a template that holds new pods": {
			reason: "no manager would release them",
			template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:     map[string]string{"app": "web", "example.io/new": "true"},
					Finalizers: []string{"example.com/out", "other.io/f"},
				},
				Spec: corev1.PodSpec{ReadinessGates: gates("rollcall.dev/InRotation", "other.io/Gate")},
			},
			wantTemplate: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Finalizers: []string{"other.io/f"}},
				Spec:       corev1.PodSpec{ReadinessGates: gates("other.io/Gate")},
			},
			removedInOrder: []string{
				"template has finalizer example.com/out", "template has mark example.io/new", "template has readiness gate rollcall.dev/InRotation",
			},
		},
		"nothing of Rollcall's": {
			reason: "a workload of somebody else", lifecycle: &appspub.Lifecycle{PreDelete: labelled("other.io/gate")},
			want: &appspub.Lifecycle{PreDelete: labelled("other.io/gate")},
		},
	}, func(t *testing.T, c row) {
		owned := lifecycle.Ownership{Owned: []string{"example.com/*"}, NewlyCreated: []string{"example.io/new"}}
		for kind, object := range map[string]client.Object{
			"CloneSet": &kruisev1alpha1.CloneSet{}, "StatefulSet": &kruisev1beta1.StatefulSet{}, "DaemonSet": &kruisev1alpha1.DaemonSet{},
		} {
			hooks, template := parts(object)
			*hooks, *template = c.lifecycle.DeepCopy(), *c.template.DeepCopy()
			removed := Strip(object, owned)
			expect.Equal(t, c.want, *hooks, "%s: spec.lifecycle of a %s", c.reason, kind)
			if diff := cmp.Diff(c.wantTemplate, *template); diff != "" && len(c.removedInOrder) > 0 {
				t.Errorf("%s: the template of a %s (-want +got):\n%s", c.reason, kind, diff)
			}
			if !slices.Equal(removed, c.removedInOrder) {
				t.Errorf("%s: removed %q, want %q", c.reason, removed, c.removedInOrder)
			}
			if again := Strip(object, owned); len(again) > 0 {
				t.Errorf("%s: a second time it removes %q", c.reason, again)
			}
		}
	})
}

// world is a cluster with an enrolled CloneSet, a pod of it, and the webhook.
type world struct {
	*Cluster

	api client.WithWatch
	// patch is called for each patch, before it is made.
	patch func(client.Object) error
}

func newWorld(t *testing.T, configuration string, objects ...client.Object) *world {
	t.Helper()
	parsed, err := config.Parse([]byte("cluster: test\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"+
		"enroll: true\nevictions: {enabled: true}\n"+configuration), config.Limits{})
	expect.NoError(t, err)
	w := &world{}
	w.api = fake.NewClientBuilder().WithScheme(kube.Scheme(clientscheme.AddToScheme)).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if w.patch != nil {
				if err := w.patch(o); err != nil {
					return err
				}
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	w.Cluster = &Cluster{Client: w.api, Config: parsed, Owner: "test"}
	return w
}

func set(edits ...func(*kruisev1alpha1.CloneSet)) *kruisev1alpha1.CloneSet {
	s := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "set"}}
	s.Spec.Lifecycle = lifecycle.Enrolled()
	for _, edit := range edits {
		edit(s)
	}
	return s
}

func pod(state appspub.LifecycleStateType, finalizers ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "pod", Finalizers: finalizers,
		Labels:          map[string]string{appspub.LifecycleStateKey: string(state)},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps.kruise.io/v1alpha1", Kind: "CloneSet", Name: "web", UID: "set", Controller: new(true)}},
	}}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "ns", Labels: map[string]string{clusterstate.EnrollLabel: "true"}}}
}

func webhook() *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "rollcall-evictions", UID: "webhook"}}
}

func TestSurvey(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, configuration string
		objects               []client.Object
		want                  []string
	}
	expect.Each(t, map[string]row{
		"an installation in use": {
			reason:  "in the order in which it goes",
			objects: []client.Object{set(), pod(appspub.LifecycleStatePreparingDelete, "other.io/f", lifecycle.GuardFinalizer), namespace("shop"), webhook()},
			want: []string{
				"Pod shop/web-1: is PreparingDelete", "Namespace shop: label rollcall.dev/enroll", "CloneSet shop/web: preNormal waits for",
				"MutatingWebhookConfiguration rollcall-evictions", "Pod shop/web-1: finalizer rollcall.dev/guard",
			},
		},
		"another installation's namespace": {
			reason: "its managers stay", configuration: "namespaces: [pay]",
			objects: []client.Object{set(), pod(appspub.LifecycleStatePreparingDelete, lifecycle.GuardFinalizer), namespace("shop")},
		},
		"another installation's namespace, by label": {
			reason: "its managers stay", configuration: "namespaces: {matchLabels: {team: pay}}",
			objects: []client.Object{set(), pod(appspub.LifecycleStatePreparingDelete, lifecycle.GuardFinalizer), namespace("shop")},
		},
		"its own namespace, by label": {
			reason: "the selector matches it", configuration: "namespaces: {matchLabels: {rollcall.dev/enroll: 'true'}}",
			objects: []client.Object{set(), namespace("shop")},
			want:    []string{"Namespace shop: label rollcall.dev/enroll", "CloneSet shop/web: preNormal waits for"},
		},
		"a pod that moves, of a workload without hooks": {
			reason:  "it waits for nobody",
			objects: []client.Object{set(func(s *kruisev1alpha1.CloneSet) { s.Spec.Lifecycle = nil }), pod(appspub.LifecycleStateUpdating)},
		},
	}, func(t *testing.T, c row) {
		left, err := newWorld(t, c.configuration, c.objects...).Survey(t.Context())
		expect.NoError(t, err)
		findings := left.Findings()
		for i, f := range findings {
			if i >= len(c.want) || !strings.HasPrefix(f.String(), c.want[i]) {
				t.Errorf("%s: finding %d is %q, want %q", c.reason, i, f, c.want)
			}
		}
		if len(findings) != len(c.want) {
			t.Errorf("%s: %d findings, want %d", c.reason, len(findings), len(c.want))
		}
	})
}

func TestClean(t *testing.T) {
	t.Parallel()
	clean := func(t *testing.T, w *world) (removed []string, left []Finding, err error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left, err = w.Clean(ctx, func(f Finding) { removed = append(removed, f.Object) })
		return removed, left, err
	}
	bubble.Scenes(t, map[string]func(t *testing.T){
		"until the manager has released the pods": func(t *testing.T) {
			w := newWorld(t, "", set(), pod(appspub.LifecycleStateNormal, lifecycle.GuardFinalizer), namespace("shop"), webhook())
			go func() {
				time.Sleep(10 * time.Second) // in the bubble: the manager
				released := pod(appspub.LifecycleStateNormal)
				_ = w.api.Patch(t.Context(), released, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
			}()
			removed, left, err := clean(t, w)
			expect.NoError(t, err)
			want := []string{"Namespace shop", "CloneSet shop/web", "MutatingWebhookConfiguration rollcall-evictions"}
			if len(left) > 0 || !slices.Equal(removed, want) {
				t.Errorf("left %v after %v, want nothing after %v", left, removed, want)
			}
		},
		"nothing while a pod is at a hook": func(t *testing.T) {
			w := newWorld(t, "", set(), pod(appspub.LifecycleStatePreparingUpdate))
			removed, left, err := clean(t, w)
			expect.NoError(t, err)
			if len(removed) > 0 || len(left) != 2 {
				t.Errorf("removed %v, left %v: OpenKruise would restart the pod while clients are given it", removed, left)
			}
		},
		"although a pod is at a hook, if no manager runs": func(t *testing.T) {
			w := newWorld(t, "", set(), pod(appspub.LifecycleStatePreparingNormal))
			w.Unled = true
			removed, left, err := clean(t, w)
			expect.NoError(t, err)
			if len(left) > 0 || !slices.Equal(removed, []string{"CloneSet shop/web"}) {
				t.Errorf("removed %v, left %v: nobody releases the hook", removed, left)
			}
		},
		"once, if another writer brings the hooks back": func(t *testing.T) {
			w := newWorld(t, "", set())
			writes := 0
			w.patch = func(client.Object) error {
				writes++
				return nil
			}
			go func() {
				time.Sleep(time.Second) // in the bubble: GitOps
				again := set()
				_ = w.api.Get(t.Context(), client.ObjectKeyFromObject(again), again)
				again.Spec.Lifecycle = lifecycle.Enrolled()
				_ = w.api.Update(t.Context(), again)
			}()
			_, left, err := clean(t, w)
			expect.NoError(t, err)
			if writes != 1 || len(left) != 1 || !strings.Contains(left[0].String(), "came back: remove it from the manifest") {
				t.Errorf("%d writes, left %v, want one write and what to do", writes, left)
			}
		},
		"again after a conflict": func(t *testing.T) {
			w := newWorld(t, "", set())
			tries := 0
			w.patch = func(o client.Object) error {
				if tries++; tries == 1 {
					return apierrors.NewConflict(schema.GroupResource{Resource: "clonesets"}, o.GetName(), errors.New("changed"))
				}
				return nil
			}
			removed, left, err := clean(t, w)
			expect.NoError(t, err)
			if len(left) > 0 || !slices.Equal(removed, []string{"CloneSet shop/web"}) {
				t.Errorf("left %v, removed %v", left, removed)
			}
		},
		"not known, if the time has passed before the cluster was read": func(t *testing.T) {
			w := newWorld(t, "", set())
			ctx, cancel := context.WithTimeout(t.Context(), 0)
			defer cancel()
			left, err := w.Clean(ctx, func(Finding) {})
			expect.Error(t, "nothing left would be a lie: the managers would be removed while pods wait for them", err, "was not read in time")
			if len(left) > 0 {
				t.Errorf("left %v", left)
			}
		},
		"as far as the API server allows": func(t *testing.T) {
			w := newWorld(t, "", set(), namespace("shop"))
			w.patch = func(o client.Object) error {
				if o.GetName() == "shop" {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, "shop", errors.New("no right"))
				}
				return nil
			}
			removed, _, err := clean(t, w)
			expect.Error(t, "a person has to give the right", err, "changing Namespace shop")
			if !slices.Equal(removed, []string{"CloneSet shop/web"}) {
				t.Errorf("removed %v, want the hooks all the same", removed)
			}
		},
	})
}

func TestFreePods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "", pod(appspub.LifecycleStateNormal, "other.io/f", lifecycle.GuardFinalizer, "example.com/out"))
	left, err := w.Survey(t.Context())
	expect.NoError(t, err)
	expect.NoError(t, w.FreePods(t.Context(), left, func(Finding) {}))
	free := &corev1.Pod{}
	expect.NoError(t, w.api.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web-1"}, free))
	if !slices.Equal(free.Finalizers, []string{"other.io/f"}) {
		t.Errorf("the pod has finalizers %v, want only the other controller's", free.Finalizers)
	}
}
