package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/enroll"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/account"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// write is one that somebody makes with the account of a manager.
type write struct {
	reason string
	do     func(context.Context, *writes) error
	// refused is a part of what the API server answers; empty if it takes the write.
	refused string
}

// TestWritePolicy: the API server takes what Rollcall writes from its account, and nothing else that its roles allow. All managers of the
// scenarios write under the same policy.
func TestWritePolicy(t *testing.T) {
	t.Parallel()
	needsNewer(t, "ValidatingAdmissionPolicy")
	w := newWrites(t, "write-policy")
	const image, others = `{"spec":{"containers":[{"name":"web","image":"evil"}]}}`, " is not Rollcall's to change"
	for _, not := range []string{image, `{"metadata":{"labels":{"app":"other"}}}`} { // one of each policy
		expect.Soon(t, "the policies to be in force", func() error {
			if w.pod(not)(t.Context(), w) == nil {
				return errors.New("the API server takes " + not)
			}
			return nil
		})
	}
	expect.Each(t, map[string]write{
		"a handler":               {"the hooks are Rollcall's", w.pod(`{"metadata":{"labels":{"rollcall.dev/pre-delete":"true"}}}`), ""},
		"a handler with own keys": {"hooks.owned has its domain", w.pod(`{"metadata":{"labels":{"example.com/gate":"true"}}}`), ""},
		"a handler is cleared":    {"the hook is released", w.pod(`{"metadata":{"labels":{"example.com/set":null}}}`), ""},
		"a handler's finalizer":   {"the same by a finalizer", w.json(`[{"op":"add","path":"/metadata/finalizers/-","value":"example.com/f"}]`), ""},
		"a finalizer is cleared":  {"OpenKruise may delete the pod", w.json(`[{"op":"remove","path":"/metadata/finalizers/0"}]`), ""},
		"the guard":               {"it is Rollcall's", w.json(`[{"op":"add","path":"/metadata/finalizers/-","value":"rollcall.dev/guard"}]`), ""},
		"the record":              {"it is Rollcall's", w.pod(`{"metadata":{"annotations":{"rollcall.dev/registration":"{}"}}}`), ""},
		"an end":                  {"an eviction announces it", w.pod(`{"metadata":{"annotations":{"rollcall.dev/ends-at":"2026-01-01T00:00:00Z"}}}`), ""},
		"a skip is used up":       {"a person's annotation was followed", w.pod(`{"metadata":{"annotations":{"rollcall.dev/skip":null}}}`), ""},
		"a new pod's mark": {
			"hooks.newlyCreated has its key", w.pod(`{"metadata":{"labels":{"example.io/initialing":null},"annotations":{"example.com/newly-create":null}}}`), "",
		},
		"one patch of all": {
			"so Rollcall writes",
			w.pod(`{"metadata":{"labels":{"example.com/gate":"true","example.com/set":null},"annotations":{"rollcall.dev/registration":"{}"}}}`), "",
		},
		"a hooked deletion": {"the component evictions is installed", w.pod(`{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"},
			"annotations":{"descheduler.alpha.kubernetes.io/request-evict-only":"true","descheduler.alpha.kubernetes.io/eviction-in-progress":"true"}}}`), ""},
		"a hooked deletion is called off": {
			"only people do", w.pod(`{"metadata":{"labels":{"apps.kruise.io/specified-delete":"no"}}}`), "label apps.kruise.io/specified-delete" + others,
		},
		"the condition": {"podCondition writes it", w.status(`{"status":{"conditions":[{"type":"rollcall.dev/InRotation","status":"True"}]}}`), ""},
		"enrollment":    {"the hooks are Rollcall's", w.enrolls(lifecycle.LabelPreDelete), ""},
		"an Event":      {"Rollcall reports", w.event("rollcall"), ""},
		"the Lease":     {"a manager leads", w.lease("rollcall"), ""},

		"another image": {"it would run with the pod's rights", w.pod(image), "spec.containers" + others + " in pods"},
		"a deadline":    {"it would end the pod", w.pod(`{"spec":{"activeDeadlineSeconds":1}}`), "spec.activeDeadlineSeconds" + others},
		"an image with a handler": {
			"what is allowed does not cover what is not",
			w.pod(`{"metadata":{"labels":{"example.com/gate":"true"}},` + strings.TrimPrefix(image, "{")), "spec.containers" + others,
		},
		"a Service's label": {"traffic would follow it", w.pod(`{"metadata":{"labels":{"app":"other"}}}`), "label app" + others},
		"the state":         {"OpenKruise writes it", w.pod(`{"metadata":{"labels":{"lifecycle.apps.kruise.io/state":"Normal"}}}`), "label lifecycle.apps.kruise.io/state" + others},
		"a domain that begins like one": {
			"it is another's", w.pod(`{"metadata":{"labels":{"example.com.evil/gate":"true"}}}`), "label example.com.evil/gate" + others,
		},
		"the descheduler's annotation alone": {
			"the pod would count as one that is evicted", w.pod(`{"metadata":{"annotations":{"descheduler.alpha.kubernetes.io/eviction-in-progress":"true"}}}`),
			"annotation descheduler.alpha.kubernetes.io/eviction-in-progress" + others,
		},
		"another's annotation": {"it would configure others", w.pod(`{"metadata":{"annotations":{"example.com/gate":"true"}}}`), "annotation example.com/gate" + others},
		"OpenKruise's annotation": {
			"OpenKruise writes it", w.pod(`{"metadata":{"annotations":{"lifecycle.apps.kruise.io/timestamp":"x"}}}`), "annotation lifecycle.apps.kruise.io/timestamp" + others,
		},
		"another's finalizer":         {"it would hold the pod", w.json(`[{"op":"add","path":"/metadata/finalizers/-","value":"somebody.example/g"}]`), "finalizer somebody.example/g" + others},
		"another's finalizer removed": {"its owner counts on it", w.json(`[{"op":"remove","path":"/metadata/finalizers/1"}]`), "finalizer somebody.example/f" + others},
		"an owner":                    {"its pods would be another's", w.pod(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"a"}]}}`), "metadata.ownerReferences" + others},
		"another condition": {
			"kubelet writes it", w.status(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`), "Rollcall writes only the condition",
		},
		"the phase":                 {"kubelet writes it", w.status(`{"status":{"phase":"Succeeded"}}`), "status.phase" + others},
		"the address":               {"clients would be sent there", w.status(`{"status":{"podIP":"192.0.2.1","podIPs":[{"ip":"192.0.2.1"}]}}`), "status.podIP"},
		"a label with the status":   {"it is a way around", w.status(`{"metadata":{"labels":{"example.com/gate":"true"}}}`), "metadata.labels" + others + " in pods/status"},
		"a CloneSet's image":        {"it would run everywhere", w.set(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"evil"}]}}}}`), "spec.template" + others + " in clonesets"},
		"a CloneSet's replicas":     {"people and autoscalers set them", w.set(`{"spec":{"replicas":1}}`), "spec.replicas" + others},
		"a CloneSet's label":        {"a label leaves it out", w.set(`{"metadata":{"labels":{"rollcall.dev/enroll":"false"}}}`), "metadata.labels" + others + " in clonesets"},
		"another's handler":         {"OpenKruise would wait for it", w.enrolls("somebody.example/gate"), "enrollment adds and removes only"},
		"another's handler removed": {"its owner counts on it", w.set(`{"spec":{"lifecycle":{"preDelete":null}}}`), "enrollment adds and removes only"},
		"pods that turn unready":    {"they would leave their Services", w.set(`{"spec":{"lifecycle":{"preDelete":{"markPodNotReady":true}}}}`), "enrollment adds and removes only"},
		"another's Event":           {"it would blame others", w.event("kubelet"), "Rollcall writes only Events of its own"},
		"another Lease":             {"other controllers lead by theirs", w.lease("other"), "Rollcall creates only the Lease rollcall"},
	}, func(t *testing.T, c write) {
		expectWrite(t, w, c)
	})
}

// TestWritePolicyOfAnotherAccount: the policy of a manager elsewhere knows its keys and its rights alone.
func TestWritePolicyOfAnotherAccount(t *testing.T) {
	t.Parallel()
	needsNewer(t, "ValidatingAdmissionPolicy")
	const name = "write-policy-own"
	own, err := account.Install(t.Context(), env.cluster.Config(), in(name))
	expect.NoError(t, err)
	w := newWrites(t, name+"-pods")
	w.as, err = cluster.NewClient(own)
	expect.NoError(t, err)
	gate, specified := w.pod(`{"metadata":{"labels":{"example.com/gate":"true"}}}`), w.pod(`{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
	expectWrite(t, w, write{"the policy is for another account", gate, ""})

	objects, err := account.WritePolicy(t.Context(), []string{"example.org/a", "example.org/b/*"}, nil)
	expect.NoError(t, err)
	for _, object := range objects {
		text, err := object.MarshalJSON()
		expect.NoError(t, err)
		moved := strings.NewReplacer("rollcall-system:rollcall", name+":rollcall", `"rollcall-system"`, `"`+name+`"`,
			`"rollcall-write-policy`, `"`+name).Replace(string(text))
		expect.NoError(t, object.UnmarshalJSON([]byte(moved)))
		expect.NoError(t, env.client.Create(t.Context(), object))
	}
	const others = " is not Rollcall's to change"
	expect.Soon(t, "the policy to be in force", func() error {
		if gate(t.Context(), w) == nil {
			return errors.New("a write was taken")
		}
		return nil
	})
	for _, c := range []write{
		{"another account's key", gate, "label example.com/gate" + others},
		{"a key of its own", w.pod(`{"metadata":{"labels":{"example.org/a":"true"}}}`), ""},
		{"a longer one", w.pod(`{"metadata":{"labels":{"example.org/ab":"true"}}}`), "label example.org/ab" + others},
		{"it has no component evictions", specified, "specified-delete: Rollcall sets it only with the component evictions"},
		{"Rollcall's own keys need no entry", w.pod(`{"metadata":{"labels":{"rollcall.dev/pre-delete":"true"}}}`), ""},
		{"it has no marks", w.pod(`{"metadata":{"labels":{"example.io/initialing":null}}}`), "label example.io/initialing" + others},
	} {
		expectWrite(t, w, c)
	}
	t.Log("What needs no key holds without the ConfigMap, which does not stop anyone.")
	expect.NoError(t, env.client.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}))
	expect.Soon(t, "the ConfigMap to be forgotten", func() error { return gate(t.Context(), w) })
	expectWrite(t, w, write{"another image", w.pod(`{"spec":{"containers":[{"name":"web","image":"evil"}]}}`), "spec.containers" + others})
}

func expectWrite(t *testing.T, w *writes, c write) {
	t.Helper()
	err := c.do(t.Context(), w)
	switch {
	case c.refused == "":
		if err != nil {
			t.Errorf("%s: the API server answers %v", c.reason, err)
		}
	case err == nil || !strings.Contains(err.Error(), c.refused) || !strings.Contains(err.Error(), "denied request"):
		t.Errorf("%s: the API server answers %v, want it refused with %q", c.reason, err, c.refused)
	}
}

// writes is a pod that nothing runs, and a CloneSet without pods, for writes of an account.
type writes struct {
	as     client.Client
	theirs *corev1.Pod
	of     *kruisev1alpha1.CloneSet
}

func newWrites(t *testing.T, namespace string) *writes {
	t.Helper()
	for _, component := range []string{"enroll", "pod-condition"} {
		install(t, component, namespace)
	}
	allowEvictions(t, namespace)
	expect.NoError(t, env.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	w := &writes{theirs: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "web", Finalizers: []string{"example.com/g", "somebody.example/f"},
			Labels:      map[string]string{"app": "web", "example.com/set": "true", "example.io/initialing": "true"},
			Annotations: map[string]string{"rollcall.dev/skip": "preDelete", "example.com/newly-create": "true"},
		},
		Spec: corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}}
	w.of = labels.load(t)
	w.of.Namespace, w.of.Spec.Replicas = namespace, new(int32(0))
	expect.NoError(t, env.client.Create(t.Context(), w.of))
	expect.NoError(t, env.client.Create(t.Context(), w.theirs))
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = env.client.Patch(ctx, w.theirs, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = env.client.Delete(ctx, w.theirs, client.GracePeriodSeconds(0))
	})
	var err error
	w.as, err = cluster.NewClient(env.account)
	expect.NoError(t, err)
	return w
}

// allowEvictions gives the account that ships a right of the component evictions, which a scenario of its own installs.
func allowEvictions(t *testing.T, name string) {
	t.Helper()
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"policy"}, Resources: []string{"poddisruptionbudgets"}, Verbs: []string{"list"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: account.Namespace, Name: "rollcall"}},
		},
	} {
		expect.NoError(t, env.client.Create(t.Context(), object))
	}
}

func (w *writes) pod(patch string) func(context.Context, *writes) error {
	return w.patch(types.StrategicMergePatchType, patch)
}

func (w *writes) json(patch string) func(context.Context, *writes) error {
	return w.patch(types.JSONPatchType, patch)
}

func (*writes) patch(kind types.PatchType, patch string) func(context.Context, *writes) error {
	return func(ctx context.Context, w *writes) error {
		return w.as.Patch(ctx, w.theirs.DeepCopy(), client.RawPatch(kind, []byte(patch)), client.DryRunAll)
	}
}

func (*writes) status(patch string) func(context.Context, *writes) error {
	return func(ctx context.Context, w *writes) error {
		return w.as.Status().Patch(ctx, w.theirs.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.DryRunAll)
	}
}

func (*writes) set(patch string) func(context.Context, *writes) error {
	return func(ctx context.Context, w *writes) error {
		return w.as.Patch(ctx, w.of.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
}

// enrolls applies the hooks as enrollment does, with this handler among them.
func (*writes) enrolls(handler string) func(context.Context, *writes) error {
	return func(ctx context.Context, w *writes) error {
		if handler == lifecycle.LabelPreDelete {
			return enroll.Enroll(ctx, client.NewDryRunClient(w.as), w.of, clusterstate.EnrollOwner)
		}
		patch := fmt.Sprintf(`{"spec":{"lifecycle":{"preDelete":{"labelsHandler":{%q:"true"}}}}}`, handler)
		return w.set(patch)(ctx, w)
	}
}

func (*writes) event(reporter string) func(context.Context, *writes) error {
	return func(ctx context.Context, w *writes) error {
		return w.as.Create(ctx, &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.theirs.Namespace, GenerateName: "write-"}, EventTime: metav1.NowMicro(),
			ReportingController: reporter, ReportingInstance: "a", Action: "Write", Reason: "Written", Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: w.theirs.Namespace, Name: w.theirs.Name},
		}, client.DryRunAll)
	}
}

func (*writes) lease(name string) func(context.Context, *writes) error {
	return func(ctx context.Context, w *writes) error {
		err := w.as.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: account.Namespace, Name: name}}, client.DryRunAll)
		return client.IgnoreAlreadyExists(err)
	}
}

// TestWritePolicyCompiles: the API server finds nothing in the policies that it can't judge.
func TestWritePolicyCompiles(t *testing.T) {
	t.Parallel()
	needsNewer(t, "ValidatingAdmissionPolicy")
	for _, name := range []string{"rollcall-write-policy", "rollcall-write-policy-keys"} {
		expect.Soon(t, "the policy to be checked", func() error {
			policy := &admissionv1.ValidatingAdmissionPolicy{}
			if err := env.client.Get(t.Context(), client.ObjectKey{Name: name}, policy); err != nil {
				return err
			}
			checked := policy.Status.TypeChecking
			if checked == nil || policy.Status.ObservedGeneration != policy.Generation {
				return errors.New("it is not")
			}
			for _, warning := range checked.ExpressionWarnings {
				t.Errorf("%s: %s: %s", name, warning.FieldRef, warning.Warning)
			}
			return nil
		})
	}
}
