package enroll_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/endpointslice"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const configuration = "cluster: a\nregistry: {driver: memory}\nhooks: {owned: [example.com/*]}\n"

// byHand are hooks that configuration's hooks.owned claims.
func byHand() *appspub.Lifecycle {
	return &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{LabelsHandler: map[string]string{"example.com/out": "true"}}}
}

func anothers() *appspub.Lifecycle {
	return &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"somebody.example/out"}}}
}

// TestReconcile: what is applied, and what is said. What the API server makes of it is for the scenarios to show.
func TestReconcile(t *testing.T) {
	t.Parallel()
	on, off := map[string]string{enroll.Label: "true"}, map[string]string{enroll.Label: "false"}
	const enrolled, byPerson = "rollcall-enroll", string(enroll.PluginOwner)
	cut := lifecycle.Enrolled()
	cut.PreDelete = nil
	type row struct {
		reason    string
		namespace map[string]string
		set       map[string]string
		owner     string
		parent    string // the kind of the CloneSet's controller
		hooks     *appspub.Lifecycle
		portless  bool
		services  bool // the registry is the cluster's Services
		gated     bool
		policy    string
		refused   *clusterstate.Refusal
		want      applied
		event     string
		again     time.Duration
	}
	expect.Each(t, map[string]row{
		"asked for":     {reason: "the namespace asks for it", namespace: on, want: hooks},
		"not asked for": {reason: "no label is no consent", want: nothing},
		"another value": {reason: "only true asks for it", namespace: off, want: nothing},
		"left out":      {reason: "the CloneSet's own label wins", namespace: on, set: off, want: nothing},
		"hooks by hand": {reason: "a person has chosen the handlers", namespace: on, hooks: byHand(), want: nothing},
		"another's hooks": {
			reason: "their owner counts on being alone", namespace: on, hooks: anothers(), want: nothing,
			event: "finalizer somebody.example/out", again: reason.EventRepeat,
		},
		"can't register": {
			reason: "its pods would wait in PreparingNormal", namespace: on, portless: true, want: nothing, event: "port", again: reason.EventRepeat,
		},
		"name not allowed": {
			reason: "its pods would wait in PreparingNormal", namespace: on, policy: "{namespaces: [shop], names: [web]}", want: nothing,
			event: `service.allowed in the configuration does not give service "web" to namespace prod`, again: reason.EventRepeat,
		},
		"name allowed by a label": {
			reason: "the namespace's labels count", namespace: on, want: hooks,
			policy: "{namespaceSelector: {matchLabels: {" + enroll.Label + ": 'true'}}, names: [web]}",
		},
		"behind Services": {reason: "they follow the gate", namespace: on, services: true, gated: true, want: hooks},
		"behind Services, without the gate": {
			reason: "Rollcall could not take its pods out", namespace: on, services: true, want: nothing,
			event: "lacks the readiness gate rollcall.dev/InRotation", again: reason.EventRepeat,
		},
		"name of another namespace": {
			reason: "its pods would wait until the name is free", namespace: on, want: nothing, event: "belongs to shop", again: time.Minute,
			refused: &clusterstate.Refusal{Reason: reason.ServiceNotAllowed, Message: "belongs to shop"},
		},
		"name that comes free": {
			reason: "the claim says when", namespace: on, want: nothing, event: "belongs to shop", again: time.Second,
			refused: &clusterstate.Refusal{Reason: reason.ServiceNotAllowed, Message: "belongs to shop", After: time.Second},
		},
		"namespace not seen": {
			reason: "no person can do anything about it", namespace: on, want: nothing, again: time.Second,
			refused: &clusterstate.Refusal{Reason: reason.ManagerNotReady, Calm: true, Message: "not seen yet", After: time.Second},
		},
		"of a UnitedDeployment": {
			reason: "it replaces the spec, and the rollout that this begins would have no hooks", namespace: on, parent: "UnitedDeployment",
			want: nothing, again: reason.EventRepeat,
			event: "put the hooks into the owner's template, in spec.template.cloneSetTemplate.spec.lifecycle",
		},
		"of another controller": {
			reason: "it may do the same", namespace: on, parent: "Application", want: nothing, again: reason.EventRepeat,
			event: "Application shop is its controller, and may replace spec.lifecycle with every write: put the hooks into the owner's template",
		},
		"of another controller, that keeps them": {
			reason: "a person says so", namespace: on, set: on, parent: "Application", want: hooks,
		},
		"of Karmada": {
			reason: "it replaces the object", namespace: on, set: map[string]string{clusterstate.KarmadaLabel: "true"}, want: nothing,
			again: reason.EventRepeat, event: "label karmada.io/managed shows that Karmada replaces spec.lifecycle with every write",
		},
		"of Karmada, with a retention rule": {
			reason: "a person says so", namespace: on, set: map[string]string{clusterstate.KarmadaLabel: "true", enroll.Label: "true"}, want: hooks,
		},
		"of Karmada, and enrolled before": {
			reason: "to give the hooks back would be a fight", namespace: on, set: map[string]string{clusterstate.KarmadaLabel: "true"},
			owner: enrolled, hooks: cut, want: nothing, again: reason.EventRepeat, event: "Karmada replaces spec.lifecycle",
		},
		"of a UnitedDeployment, with its hooks": {
			reason: "they are in its template", namespace: on, parent: "UnitedDeployment", hooks: lifecycle.Enrolled(), want: nothing,
		},
		"enrolled": {reason: "it has all", namespace: on, owner: enrolled, hooks: lifecycle.Enrolled(), want: nothing},
		"a hook gone": {
			reason: "a hand took it away, and the namespace still asks", namespace: on, owner: enrolled, hooks: cut, want: hooks,
		},
		"a hook gone, and the name refused": {
			reason: "the pods that it has are in the registry", namespace: on, owner: enrolled, hooks: cut, want: hooks,
			refused: &clusterstate.Refusal{Reason: reason.ServiceNotAllowed, Message: "belongs to shop"},
			policy:  "{namespaces: [shop], names: [web]}",
		},
		"a hook gone, and another's there": {
			reason: "its owner counts on being alone", namespace: on, owner: enrolled, hooks: anothers(), want: nothing,
			event: "finalizer somebody.example/out", again: reason.EventRepeat,
		},
		"no longer asked for": {
			reason: "the namespace's label is gone", owner: enrolled, hooks: lifecycle.Enrolled(), want: withdrawal,
		},
		"left out later": {
			reason: "the CloneSet's own label wins at any time", namespace: on, set: off, owner: enrolled,
			hooks: lifecycle.Enrolled(), want: withdrawal,
		},
		"enrolled by a person": {
			reason: "only who gave the hooks takes them back", owner: byPerson, hooks: lifecycle.Enrolled(), want: nothing,
		},
		"enrolled by a person, and left out": {
			reason: "the label leaves it out of what the namespace asks for", namespace: on, set: off, owner: byPerson,
			hooks: lifecycle.Enrolled(), want: nothing,
		},
		"hooks by hand, like those": {reason: "the namespace did not enroll it", hooks: lifecycle.Enrolled(), want: nothing},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.namespace, c.policy)
		w.refused = c.refused
		set := cloneSet(c.set, c.hooks)
		w.owner = c.owner
		if c.services {
			w.configure(strings.Replace(configuration, "memory", endpointslice.Name, 1) + "podCondition: true\n")
		}
		if c.gated {
			set.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: lifecycle.ConditionInRotation}}
		}
		if c.parent != "" {
			set.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "example.com/v1", Kind: c.parent, Name: "shop", UID: "1", Controller: new(true),
			}}
		}
		if c.portless {
			set.Spec.Template.Spec.Containers[0].Ports = nil
		}
		expect.NoError(t, w.client.Create(t.Context(), set))
		result, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		expect.NoError(t, err)
		if w.applied != c.want || result.RequeueAfter != c.again {
			t.Errorf("%s: applied %s, and looks again in %s, want %s and %s", c.reason, w.applied, result.RequeueAfter, c.want, c.again)
		}
		got := w.event()
		if !strings.Contains(got, c.event) || strings.HasPrefix(got, "Warning NotEnrolled ") != (c.event != "") {
			t.Errorf("%s: event %q, want %q", c.reason, got, c.event)
		}
	})
}

// TestRefusedByTheAPIServer: a person sees why, when hooks are given and when they are taken back, and it is tried again.
func TestRefusedByTheAPIServer(t *testing.T) {
	t.Parallel()
	of := schema.GroupResource{Group: "apps.kruise.io", Resource: "clonesets"}
	cut := lifecycle.Enrolled()
	cut.PreDelete = nil
	type row struct {
		reason    string
		namespace map[string]string
		owner     string
		hooks     *appspub.Lifecycle
		err       error
		event     string
	}
	on, enrolled := map[string]string{enroll.Label: "true"}, "rollcall-enroll"
	conflict := apierrors.NewConflict(of, "web", errors.New(`conflict with "kubectl-edit": .spec.lifecycle.preDelete`))
	expect.Each(t, map[string]row{
		"a conflict": {"somebody has given a handler another value", on, "", nil, conflict, `add the hooks: enrolling CloneSet prod/web: `},
		"a conflict of an enrolled one": {
			"a hand has changed what Rollcall wrote", on, enrolled, cut, conflict, `conflict with "kubectl-edit": .spec.lifecycle.preDelete`,
		},
		"a policy": {
			"only who wrote it can say why", on, "", nil, apierrors.NewInvalid(schema.GroupKind{Group: of.Group, Kind: "CloneSet"}, "web", field.ErrorList{field.Forbidden(nil, "no hooks")}), "no hooks",
		},
		"a webhook":  {"it denies with 403", on, "", nil, apierrors.NewForbidden(of, "web", errors.New("denied by web.example")), "denied by web.example"},
		"withdrawal": {"the hooks stay", nil, enrolled, lifecycle.Enrolled(), apierrors.NewForbidden(of, "web", errors.New("denied")), "remove the hooks: "},
		"a timeout":  {"it may pass by itself", on, "", nil, apierrors.NewTimeoutError("slow", 1), ""},
		"no answer":  {"it may pass by itself", on, "", nil, errors.New("connection refused"), ""},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.namespace, "")
		w.owner, w.err = c.owner, c.err
		set := cloneSet(nil, c.hooks)
		expect.NoError(t, w.client.Create(t.Context(), set))
		_, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, which is not tried again like %v", c.reason, err, c.err)
		}
		if got := w.event(); !strings.Contains(got, c.event) || strings.HasPrefix(got, "Warning NotEnrolled ") != (c.event != "") {
			t.Errorf("%s: event %q, want %q", c.reason, got, c.event)
		}
	})
}

// TestHooksThatAreTakenAwayAgainAndAgain: whoever writes the CloneSet as a whole may do so after each write, and neither of the two would
// rest.
func TestHooksThatAreTakenAwayAgainAndAgain(t *testing.T) {
	t.Parallel()
	cut := lifecycle.Enrolled()
	cut.PreDelete = nil
	w := newWorld(t, map[string]string{enroll.Label: "true"}, "")
	w.owner = "rollcall-enroll"
	set := cloneSet(nil, cut)
	expect.NoError(t, w.client.Create(t.Context(), set))
	const looks = 100
	given, again := 0, time.Duration(0)
	for range looks {
		w.applied = nothing
		result, err := w.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(set)})
		expect.NoError(t, err)
		if again = result.RequeueAfter; w.applied == hooks {
			given++
		}
	}
	if given < 2 || given > looks/5 || again <= 0 || again > time.Minute {
		t.Errorf("given %d times in %d looks, and looks again in %s", given, looks, again)
	}
}

// applied is what was applied to the CloneSet.
type applied string

const (
	nothing    applied = "nothing"
	hooks      applied = "the hooks"
	withdrawal applied = "no field"
)

// world is a cluster with one namespace and one CloneSet.
type world struct {
	*testing.T

	client client.WithWatch
	// owner has applied fields of the CloneSet.
	owner   string
	applied applied
	// err is what the API server answers.
	err        error
	refused    *clusterstate.Refusal
	recorder   *events.FakeRecorder
	reconciler *enroll.Reconciler
}

func newWorld(t *testing.T, labels map[string]string, policy string) *world {
	t.Helper()
	w := &world{T: t, applied: nothing, recorder: events.NewFakeRecorder(10)}
	w.client = fake.NewClientBuilder().WithScheme(kube.Scheme(clientscheme.AddToScheme)).
		WithObjects(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: labels}}).
		WithInterceptorFuncs(interceptor.Funcs{Apply: w.apply, Get: w.get}).Build()
	text := configuration
	if policy != "" {
		text += "service: {allowed: [" + policy + "]}"
	}
	w.reconciler = enroll.New(clusterstate.CacheThrough(w.client), w.recorder, func(context.Context, *clusterstate.Workload) (*clusterstate.Refusal, error) {
		return w.refused, nil
	}, nil)
	w.configure(text)
	return w
}

func (w *world) configure(text string) {
	w.Helper()
	c, err := config.Parse([]byte(text), config.Limits{Drivers: []string{"memory", endpointslice.Name}})
	expect.NoError(w.T, err)
	w.reconciler.Apply(c)
}

func cloneSet(labels map[string]string, hooks *appspub.Lifecycle) *kruisev1alpha1.CloneSet {
	app := map[string]string{"app": "web"}
	return &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web", Labels: labels},
		Spec: kruisev1alpha1.CloneSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: app}, Lifecycle: hooks,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: app},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
			},
		},
	}
}

// get gives CloneSets whose hooks the owner has applied.
func (w *world) get(ctx context.Context, from client.WithWatch, key client.ObjectKey, to client.Object, opts ...client.GetOption) error {
	if err := from.Get(ctx, key, to, opts...); err != nil {
		return err
	}
	if set, is := to.(*kruisev1alpha1.CloneSet); is {
		set.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "rollcall-enroll", Operation: metav1.ManagedFieldsOperationUpdate},
			{Manager: w.owner, Operation: metav1.ManagedFieldsOperationApply},
		}
	}
	return nil
}

func (w *world) apply(
	_ context.Context, _ client.WithWatch, object runtime.ApplyConfiguration, _ ...client.ApplyOption,
) error {
	text, err := json.Marshal(object)
	if w.applied = withdrawal; strings.Contains(string(text), lifecycle.LabelPreDelete) {
		w.applied = hooks
	}
	return cmp.Or(w.err, err)
}

// event returns what was said, or nothing.
func (w *world) event() string {
	select {
	case e := <-w.recorder.Events:
		return e
	default:
		return ""
	}
}
