package evictions

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// world is a webhook on a cluster with the CloneSet web, whose pods have a preDelete hook.
type world struct {
	*Webhook

	t      *testing.T
	api    client.WithWatch
	clock  *clocktesting.FakePassiveClock
	events *events.FakeRecorder
	synced bool
	// other: another manager leads.
	other bool
	// patching makes the writes, if it is set.
	patching func(attempt func() error) error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{
		t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)),
		events: events.NewFakeRecorder(9), synced: true,
	}
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}
	hook := &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{LabelsHandler: map[string]string{hookKey: "true"}}}
	both := &appspub.Lifecycle{PreDelete: hook.PreDelete, InPlaceUpdate: &appspub.LifecycleHook{LabelsHandler: map[string]string{updateHookKey: "true"}}}
	objects = append(objects,
		&kruisev1alpha1.CloneSet{ObjectMeta: meta, Spec: kruisev1alpha1.CloneSetSpec{Lifecycle: both}},
		&kruisev1alpha1.DaemonSet{ObjectMeta: meta, Spec: kruisev1alpha1.DaemonSetSpec{Lifecycle: hook}},
		&kruisev1beta1.StatefulSet{ObjectMeta: meta, Spec: kruisev1beta1.StatefulSetSpec{Lifecycle: hook}},
	)
	w.api = fake.NewClientBuilder().WithScheme(kube.Scheme(clientscheme.AddToScheme, kruisepolicy.AddToScheme)).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			attempt := func() error { return c.Patch(ctx, o, p, opts...) }
			if w.patching == nil {
				return attempt()
			}
			return w.patching(attempt)
		},
	}).Build()
	cache := clusterstate.CacheThrough(interceptor.NewClient(w.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return c.List(ctx, list, append(opts, withState)...)
		},
	}))
	w.Webhook = New(Options{
		Cache: cache, Pods: clusterstate.PodsThrough(cache), Scope: scopeOf("shop"), Synced: func() bool { return w.synced }, API: w.api, Leader: w.api,
		Leads: func() bool { return !w.other }, Recorder: w.events,
		Limit: 10 * time.Minute, Clock: w.clock, Logger: testr.New(t),
	})
	w.Apply(lifecycle.Ownership{Owned: []string{"example.com/*"}}, 15*time.Second)
	return w
}

func (w *world) refuses(err error) { w.patching = func(func() error) error { return err } }

// withState lists the pods that the manager's cache has.
var withState = listed(func(o *client.ListOptions) {
	state, _ := labels.NewRequirement(appspub.LifecycleStateKey, selection.Exists, nil)
	if o.LabelSelector == nil {
		o.LabelSelector = labels.NewSelector()
	}
	o.LabelSelector = o.LabelSelector.DeepCopySelector().Add(*state)
})

type listed func(*client.ListOptions)

func (l listed) ApplyToList(o *client.ListOptions) { l(o) }

// owned makes a pod one of the CloneSet web.
func owned(pod *corev1.Pod) {
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: kruisev1alpha1.GroupVersion.String(), Kind: "CloneSet", Name: "web", UID: "web", Controller: new(true),
	}}
}

func (w *world) Evict(name string, edits ...func(*admission.Request, *policyv1.Eviction)) admission.Response {
	w.t.Helper()
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "shop", Name: name}}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	for _, edit := range edits {
		edit(&request, eviction)
	}
	text, err := json.Marshal(eviction)
	expect.NoError(w.t, err)
	request.Object.Raw = text
	return w.Handle(w.t.Context(), request)
}

func (w *world) ExpectHeld(response admission.Response, words string) {
	w.t.Helper()
	if response.Allowed || response.Result.Code != http.StatusTooManyRequests || !strings.Contains(response.Result.Message, words) {
		w.t.Errorf("got %+v, want 429 with %q", response.AdmissionResponse, words)
	}
	if d := response.Result.Details; d != nil && d.RetryAfterSeconds != 0 {
		w.t.Errorf("the answer names a time to wait, so clients retry by themselves, without a word")
	}
}

func (w *world) ExpectPassed(response admission.Response, warning string) {
	w.t.Helper()
	if !response.Allowed || !strings.Contains(strings.Join(response.Warnings, "\n"), warning) || warning == "" && len(response.Warnings) > 0 {
		w.t.Errorf("got %+v, want it let through with warning %q", response.AdmissionResponse, warning)
	}
}

func (w *world) Pod(name string) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{}
	expect.NoError(w.t, w.api.Get(w.t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, pod))
	return pod
}

// set is the CloneSet of the pods.
func (w *world) set(t *testing.T) *kruisev1alpha1.CloneSet {
	t.Helper()
	set := &kruisev1alpha1.CloneSet{}
	expect.NoError(t, w.api.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "web"}, set))
	return set
}

func (w *world) ExpectEvent(words string) {
	w.t.Helper()
	select {
	case got := <-w.events.Events:
		if !strings.Contains(got, words) {
			w.t.Errorf("got Event %q, want %q in it", got, words)
		}
	default:
		w.t.Errorf("there is no Event with %q", words)
	}
}

func (w *world) ExpectNoEvent() {
	w.t.Helper()
	select {
	case got := <-w.events.Events:
		w.t.Errorf("got Event %q, want none", got)
	default:
	}
}

func TestEvictionBecomesAHookedDeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned))
	w.ExpectHeld(w.Evict("web-1"), Evacuation+": pod web-1 is not evicted directly")
	pod := w.Pod("web-1")
	if pod.Labels[kruisev1alpha1.SpecifiedDeleteKey] != "true" || pod.Annotations[lifecycle.AnnotationEndsAt] != "not before 2026-11-22T12:10:00Z" {
		t.Errorf("labels %v and annotations %v, want the deletion and its limit", pod.Labels, pod.Annotations)
	}
	for _, key := range []string{annotationEvictOnly, annotationInProgress} {
		if pod.Annotations[key] == "" {
			t.Errorf("the pod lacks annotation %s, so the descheduler does not count it: %v", key, pod.Annotations)
		}
	}
	w.ExpectEvent("Normal EvictionHooked")

	w.clock.SetTime(w.clock.Now().Add(9 * time.Minute))
	w.ExpectHeld(w.Evict("web-1"), Evacuation+": eviction of pod web-1 is in progress: OpenKruise deletes it once it has left the registry "+
		"and drained; the eviction is not let through before 2026-11-22T12:10:00Z")
	if now := w.Pod("web-1"); now.ResourceVersion != pod.ResourceVersion {
		t.Error("the second eviction changed the pod")
	}
	w.ExpectNoEvent()

	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.ExpectHeld(w.Evict("web-1"), "leaves the rotation")
	if got, want := w.Pod("web-1").Annotations[lifecycle.AnnotationEndsAt], "2026-11-22T12:10:20Z"; got != want {
		t.Errorf("the pod ends at %q, want %q: it has to drain", got, want)
	}
	w.clock.SetTime(w.clock.Now().Add(19 * time.Second))
	w.ExpectHeld(w.Evict("web-1"), "not let through before 2026-11-22T12:10:20Z")
	w.ExpectNoEvent()

	w.clock.SetTime(w.clock.Now().Add(time.Second))
	w.ExpectPassed(w.Evict("web-1"), "its eviction has reached its limit")
	w.ExpectEvent("Warning ReleasedUnacknowledged")
}

func TestEvictionOnANodeThatShutsDown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, shuttingDown(), podThat(owned, func(p *corev1.Pod) { p.Spec.NodeName = "node-1" }))
	w.ExpectPassed(w.Evict("web-1"), "its node is shutting down")
	w.ExpectEvent("Warning ReleasedUnacknowledged")
}

// The budget refuses an eviction that is let through: no pod is taken out of rotation for nothing.
func TestEvictionsAtTheLimitStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	since := evictedUntil("not before 2026-11-22T11:10:00Z")
	w := newWorld(t, budgetOf(1), podThat(owned, specified, since), podThat(owned, called("web-2"), specified, since),
		podThat(owned, called("web-3")), podThat(owned, called("web-4")))
	w.ExpectHeld(w.Evict("web-1"), Evacuation+": OpenKruise has not replaced pod web-1")
	refused := w.Evict("web-2")
	w.ExpectHeld(refused, "disruption budget web")
	if strings.Contains(refused.Result.Message, Evacuation) {
		t.Errorf("the descheduler takes %q for an eviction under way", refused.Result.Message)
	}
	w.clock.SetTime(w.clock.Now().Add(20 * time.Second))
	w.ExpectPassed(w.Evict("web-1"), "its eviction has reached its limit")
	w.ExpectHeld(w.Evict("web-2"), "disruption budget web")
}

// A policy freezes the pods: they can't leave the rotation first, and a drain must end all the same.
func TestEvictionAtTheLimitThatCantBeAnnounced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned, specified, evictedUntil("not before 2026-11-22T11:10:00Z")))
	w.refuses(apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "web-1", errors.New("changed")))
	w.ExpectHeld(w.Evict("web-1"), "try again")
	w.refuses(errors.New("the webhook of the policy is away"))
	w.ExpectPassed(w.Evict("web-1"), "not gone 10m0s after its first eviction")
	w.ExpectEvent("Warning ReleasedUnacknowledged")
}

// budgetOf allows so many disruptions.
func budgetOf(allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 4, DesiredHealthy: 4 - allowed},
	}
}

func TestEvictionIsLetThroughUnchanged(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		pod    *corev1.Pod
		world  func(*world)
		edit   func(*admission.Request, *policyv1.Eviction)
	}
	expect.Each(t, map[string]row{
		"no CloneSet":      {reason: "no handler of Rollcall holds it", pod: podThat()},
		"another CloneSet": {reason: "one of the same name came since", pod: podThat(owned, func(p *corev1.Pod) { p.OwnerReferences[0].UID = "old" })},
		"a Deployment":     {reason: "OpenKruise knows no label on it", pod: podThat(owned, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "ReplicaSet" })},
		"a DaemonSet":      {reason: "OpenKruise deletes no pod of one on the label", pod: podThat(owned, func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" })},
		"not our hook": {
			reason: "hooks.owned does not claim it", pod: podThat(owned),
			world: func(w *world) { w.Apply(lifecycle.Ownership{Owned: []string{"example.org/*"}}, 0) },
		},
		"not our namespace": {
			reason: "another manager watches it", pod: podThat(owned), world: func(w *world) { w.Scope = scopeOf("other") },
		},
		"caches are not filled": {
			reason: "a manager that knows nothing must not hold up the cluster", pod: podThat(owned), world: func(w *world) { w.synced = false },
		},
		"a StatefulSet in order": {reason: "OpenKruise waits for its other pods first", pod: podThat(owned, func(p *corev1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind = kruisev1beta1.GroupVersion.String(), "StatefulSet"
		})},
		"meant for another pod": {
			reason: "the API server refuses it: the pod was deleted and made again", pod: podThat(owned),
			edit: func(_ *admission.Request, e *policyv1.Eviction) {
				e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("old"))}}
			},
		},
		"meant for an earlier version": {
			reason: "the API server refuses it: the pod has changed", pod: podThat(owned),
			edit: func(_ *admission.Request, e *policyv1.Eviction) {
				e.DeleteOptions = &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}}
			},
		},
		"another name in the body": {
			reason: "the API server refuses it: the name in the URL is another", pod: podThat(owned),
			edit: func(_ *admission.Request, e *policyv1.Eviction) { e.Name = "web-2" },
		},
		"no name in the body": {
			reason: "the API server refuses it", pod: podThat(owned),
			edit: func(_ *admission.Request, e *policyv1.Eviction) { e.Name = "" },
		},
	}, func(t *testing.T, c row) {
		w := newWorld(t, c.pod)
		if c.world != nil {
			c.world(w)
		}
		if c.edit == nil {
			c.edit = func(*admission.Request, *policyv1.Eviction) {}
		}
		w.ExpectPassed(w.Evict("web-1", c.edit), "")
		w.ExpectNoEvent()
		if leaves(lifecycle.PodOf(w.Pod(c.pod.Name))) {
			t.Errorf("the pod was labelled: %s", c.reason)
		}
	})
}

// Where OpenKruise deletes a pod of a CloneSet with volumeClaimTemplates, it deletes the pod's claims with their data.
func TestEvictionThatWouldLoseClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned, claims("data-web-x7k2p")))
	w.ExpectPassed(w.Evict("web-1"), "it would delete the pod's PersistentVolumeClaims too")
	if leaves(lifecycle.PodOf(w.Pod("web-1"))) {
		t.Error("the pod was labelled")
	}
}

// OpenKruise's webhook would answer 400, which kubectl drain takes for a failure.
func TestEvictionOfAPodThatIsGone(t *testing.T) {
	t.Parallel()
	response := newWorld(t).Evict("web-1")
	if err := (&apierrors.StatusError{ErrStatus: *response.Result}); response.Allowed || !apierrors.IsNotFound(err) {
		t.Errorf("got %+v, want 404", response.AdmissionResponse)
	}
}

func TestDryRunOfAnEvictionChangesNothing(t *testing.T) {
	t.Parallel()
	inRequest := func(r *admission.Request, _ *policyv1.Eviction) { r.DryRun = new(true) }
	inBody := func(_ *admission.Request, e *policyv1.Eviction) {
		e.DeleteOptions = &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	}
	expect.Each(t, map[string]func(*admission.Request, *policyv1.Eviction){"in the request": inRequest, "in the body": inBody}, func(t *testing.T, dry func(*admission.Request, *policyv1.Eviction)) {
		w := newWorld(t, podThat(owned), podThat(owned, called("web-2"), specified, evictedUntil("not before 2026-11-22T11:10:00Z")))
		w.ExpectHeld(w.Evict("web-1", dry), "is not evicted directly")
		w.ExpectHeld(w.Evict("web-2", dry), "leaves the rotation")
		w.ExpectNoEvent()
		if leaves(lifecycle.PodOf(w.Pod("web-1"))) || announced(lifecycle.PodOf(w.Pod("web-2")), w.clock.Now()) {
			t.Error("a pod was changed")
		}
	})
}

// A node is drained: all its pods are evicted at the same moment.
func TestEvictionsAtOnceStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	for name, budget := range map[string]client.Object{
		"disruption budget web": budgetOf(2),
		"PodUnavailableBudget web": &kruisepolicy.PodUnavailableBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
			Status:     kruisepolicy.PodUnavailableBudgetStatus{UnavailableAllowed: 2, CurrentAvailable: 4, DesiredAvailable: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := []string{"web-1", "web-2", "web-3", "web-4"}
			objects := []client.Object{budget}
			for _, name := range names {
				objects = append(objects, podThat(owned, called(name), budgeted("web")))
			}
			w := newWorld(t, objects...)
			responses := make([]admission.Response, len(names))
			var all sync.WaitGroup
			for i, name := range names {
				all.Go(func() { responses[i] = w.Evict(name) })
			}
			all.Wait()
			begun := 0
			for i, pod := range names {
				if leaves(lifecycle.PodOf(w.Pod(pod))) {
					begun++
					continue
				}
				w.ExpectHeld(responses[i], name)
				causes := responses[i].Result.Details.Causes
				if want := "The " + name + " needs 2 healthy pods and has 4 currently"; causes[0].Type != policyv1.DisruptionBudgetCause ||
					causes[0].Message != want {
					t.Errorf("causes %v, want that of a budget: %s", causes, want)
				}
			}
			if begun != 2 {
				t.Errorf("%d pods are on their way out, want the 2 that the budget allows", begun)
			}
		})
	}
}

func TestPodUnavailableBudgetThatCantBeRead(t *testing.T) {
	t.Parallel()
	budgets := schema.GroupResource{Group: kruisepolicy.GroupVersion.Group, Resource: "podunavailablebudgets"}
	type row struct {
		reason, budget string
		err            error
		begins         bool
	}
	expect.Each(t, map[string]row{
		"gone":      {"it was deleted, or OpenKruise's CRD was", "web", apierrors.NewNotFound(budgets, "web"), true},
		"forbidden": {"the role is of an earlier version", "web", apierrors.NewForbidden(budgets, "web", errors.New("no right")), true},
		"no name":   {"a tenant wrote what the API server would refuse", "../web", errors.New("invalid resource name"), true},
		"an outage": {"it may refuse the eviction, and a drain must end", "web", errors.New("connection refused"), false},
	}, func(t *testing.T, c row) {
		w := newWorld(t, podThat(owned, budgeted(c.budget)))
		w.API = interceptor.NewClient(w.api, interceptor.Funcs{
			Get: func(ctx context.Context, by client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, is := o.(*kruisepolicy.PodUnavailableBudget); is {
					return c.err
				}
				return by.Get(ctx, k, o, opts...)
			},
		})
		response := w.Evict("web-1")
		if begun := leaves(lifecycle.PodOf(w.Pod("web-1"))); begun != c.begins {
			t.Errorf("on its way out %v, want %v: %s", begun, c.begins, c.reason)
		}
		if c.begins {
			w.ExpectHeld(response, "is not evicted directly")
			return
		}
		w.ExpectHeld(response, "reading PodUnavailableBudget web: connection refused")
		w.clock.SetTime(w.clock.Now().Add(w.Limit))
		w.ExpectPassed(w.Evict("web-1"), "not gone 10m0s after its first eviction")
	})
}

// TestEvictionsOfOtherNamespacesDoNotWait: the API server is slow about the budgets of one namespace, and no other waits for it.
func TestEvictionsOfOtherNamespacesDoNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, podThat(owned), podThat(owned, func(p *corev1.Pod) { p.Namespace = "slow" }))
	expect.NoError(t, w.api.Create(t.Context(), &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "slow", Name: "web", UID: "web"}, Spec: w.set(t).Spec,
	}))
	asked, answer := make(chan struct{}), make(chan struct{})
	w.Scope = nil
	w.API = interceptor.NewClient(w.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if (&client.ListOptions{}).ApplyOptions(opts).Namespace == "slow" {
				close(asked)
				<-answer
			}
			return c.List(ctx, list, opts...)
		},
	})
	var slow sync.WaitGroup
	slow.Go(func() {
		w.Evict("web-1", func(r *admission.Request, e *policyv1.Eviction) { r.Namespace, e.Namespace = "slow", "slow" })
	})
	<-asked
	w.ExpectHeld(w.Evict("web-1"), "is not evicted directly")
	if !leaves(lifecycle.PodOf(w.Pod("web-1"))) {
		t.Error("the pod of the other namespace is not on its way out")
	}
	close(answer)
	slow.Wait()
	if len(w.turns) > 0 {
		t.Errorf("%d namespaces are remembered, want none: nothing is under way", len(w.turns))
	}
}

func TestEvictionWithTwoBudgetsIsTheAPIServersToRefuse(t *testing.T) {
	t.Parallel()
	another := budgetOf(0)
	another.Name = "another"
	w := newWorld(t, podThat(owned), budgetOf(0), another)
	w.ExpectPassed(w.Evict("web-1"), "")
}

func TestPatchThatFails(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	type row struct {
		reason string
		err    error
		passed bool
		ends   bool
	}
	expect.Each(t, map[string]row{
		"conflict":  {"the pod has changed since it was read", apierrors.NewConflict(pods, "web-1", errors.New("changed")), false, false},
		"an outage": {"it may pass, and a drain must end", errors.New("connection refused"), false, true},
		"forbidden": {"it will not pass, and a drain must end", apierrors.NewForbidden(pods, "web-1", errors.New("frozen")), true, true},
		"denied by another webhook": {
			"where that names no code, the API server answers 400 without a reason",
			&apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400, Message: "frozen"}}, true, true,
		},
	}, func(t *testing.T, c row) {
		w := newWorld(t, podThat(owned))
		w.refuses(c.err)
		if response := w.Evict("web-1"); c.passed {
			w.ExpectPassed(response, "frozen")
		} else {
			w.ExpectHeld(response, "try again")
		}
		w.ExpectNoEvent()
		w.clock.SetTime(w.clock.Now().Add(2 * w.Limit))
		if got := w.Evict("web-1").Allowed; got != c.passed {
			t.Errorf("let through %v where the failure was of an earlier drain, want %v", got, c.passed)
		}
		w.clock.SetTime(w.clock.Now().Add(w.Limit))
		if got := w.Evict("web-1").Allowed; got != c.ends {
			t.Errorf("let through %v at the limit, want %v: %s", got, c.ends, c.reason)
		}
	})
}

// Two managers answer a drain in parallel, and the budget has room for one pod: only the one that leads may use it.
func TestEvictionsAtAManagerThatDoesNotLead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgetOf(1), podThat(owned), podThat(owned, called("web-2")), podThat(owned, called("web-3")), podThat(owned, called("web-4")))
	w.other = true
	w.ExpectHeld(w.Evict("web-1"), "only the manager that leads begins evictions")
	if leaves(lifecycle.PodOf(w.Pod("web-1"))) {
		t.Fatal("a manager that does not lead has labelled the pod")
	}
	w.other = false
	w.ExpectHeld(w.Evict("web-2"), "is not evicted directly")
	w.ExpectHeld(w.Evict("web-1"), "disruption budget web")
	w.other = true
	w.ExpectHeld(w.Evict("web-2"), "is in progress")
}

// Two nodes are drained at once, and each of two managers is asked about one pod: both find room for it, before either has used that.
func TestTwoManagersStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	leader := newWorld(t, budgetOf(1), podThat(owned), podThat(owned, called("web-2")), podThat(owned, called("web-3")), podThat(owned, called("web-4")))
	options := leader.Options
	options.Leads = func() bool { return false }
	other := &world{t: t, Webhook: New(options)}
	other.Apply(lifecycle.Ownership{Owned: []string{"example.com/*"}}, 15*time.Second)
	writes, asked := make(chan struct{}), make(chan struct{})
	leader.patching = func(attempt func() error) error {
		close(writes)
		<-asked
		return attempt()
	}
	var first sync.WaitGroup
	first.Go(func() { leader.ExpectHeld(leader.Evict("web-1"), "is not evicted directly") })
	<-writes
	leader.ExpectHeld(other.Evict("web-2"), "only the manager that leads")
	close(asked)
	first.Wait()
	if !leaves(lifecycle.PodOf(leader.Pod("web-1"))) || leaves(lifecycle.PodOf(leader.Pod("web-2"))) {
		t.Error("want the pod of which the leader was asked on its way out, and it alone")
	}
	leader.ExpectHeld(leader.Evict("web-2"), "disruption budget web")
}

// No manager leads, or the API server reaches none that does: a drain ends all the same.
func TestEvictionsWithoutALeaderEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgetOf(2), podThat(owned), podThat(owned, called("web-2")), podThat(owned, called("web-3")), podThat(owned, called("web-4")),
		podThat(owned, called("web-5"), specified, evictedUntil("not before 2026-11-22T11:10:00Z")))
	w.other = true
	w.ExpectHeld(w.Evict("web-1"), "try again")
	w.ExpectHeld(w.Evict("web-5"), "try again")
	w.clock.SetTime(w.clock.Now().Add(w.Limit))
	w.ExpectPassed(w.Evict("web-1"), "not gone 10m0s after its first eviction")
	w.ExpectPassed(w.Evict("web-5"), "not gone 10m0s after its first eviction")
}

// The limit counts from the first eviction that no budget refuses, also for a manager that does not lead.
func TestEvictionsThatABudgetRefusesDoNotReachTheLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgetOf(1), podThat(owned), podThat(owned, called("web-2")), podThat(owned, called("web-3")), podThat(owned, called("web-4")))
	w.other = true
	w.ExpectHeld(w.Evict("web-1"), "try again")
	w.other = false
	w.ExpectHeld(w.Evict("web-2"), "is not evicted directly")
	w.other = true
	w.clock.SetTime(w.clock.Now().Add(w.Limit / 2))
	w.ExpectHeld(w.Evict("web-1"), "disruption budget web")
	w.clock.SetTime(w.clock.Now().Add(w.Limit / 2))
	expect.NoError(t, w.api.Delete(t.Context(), w.Pod("web-2")))
	expect.NoError(t, w.api.Create(t.Context(), podThat(owned, called("web-6"))))
	w.ExpectHeld(w.Evict("web-1"), "try again")
}

// kube-controller-manager is away: the budget's status has the place that was used, also once the pod that used it is gone.
func TestEvictionsWhileTheBudgetsStatusLags(t *testing.T) {
	t.Parallel()
	for name, become := range map[string]func(*world, *corev1.Pod) error{
		"terminating": func(w *world, pod *corev1.Pod) error {
			pod.Finalizers = []string{"example.com/hold"}
			return errors.Join(w.api.Update(w.t.Context(), pod), w.api.Delete(w.t.Context(), pod))
		},
		"unready": func(w *world, pod *corev1.Pod) error { unready(pod); return w.api.Status().Update(w.t.Context(), pod) },
		"gone":    func(w *world, pod *corev1.Pod) error { return w.api.Delete(w.t.Context(), pod) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stateless := func(p *corev1.Pod) { delete(p.Labels, appspub.LifecycleStateKey); delete(p.Labels, hookKey) }
			w := newWorld(t, budgetOf(1), podThat(owned), podThat(owned, called("web-2")), podThat(owned, called("web-3")),
				podThat(called("web-4"), stateless))
			w.ExpectHeld(w.Evict("web-1"), "is not evicted directly")
			expect.NoError(t, become(w, w.Pod("web-1")))
			w.ExpectHeld(w.Evict("web-2"), "disruption budget web")
			if name != "gone" { // no pod is known to leave, and it is not OpenKruise's
				w.ExpectHeld(w.Evict("web-4"), "disruption budget web")
			}
			expect.NoError(t, w.api.Create(t.Context(), podThat(called("web-5"), stateless)))
			w.ExpectHeld(w.Evict("web-2"), "is not evicted directly")
		})
	}
}

// A pod without hooks is of a budget whose place a pod uses that leaves by its hooks: the API server does not know that.
func TestEvictionsOfPodsWithoutHooksStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]func(*corev1.Pod){
		"not managed": func(p *corev1.Pod) { p.OwnerReferences = nil },
		"not armed":   func(p *corev1.Pod) { delete(p.Labels, hookKey) },
		"with claims": claims("data-web-x7k2p"),
	}, func(t *testing.T, unhooked func(*corev1.Pod)) {
		pod := podThat(owned, called("web-2"), unhooked)
		w := newWorld(t, budgetOf(1), podThat(owned), pod, podThat(owned, called("web-3")), podThat(owned, called("web-4")))
		if got := w.Evict("web-2"); !got.Allowed {
			t.Errorf("got %+v while no pod leaves, want it let through", got.AdmissionResponse)
		}
		w.ExpectHeld(w.Evict("web-1"), "is not evicted directly")
		w.ExpectHeld(w.Evict("web-2"), "disruption budget web")
		w.API = interceptor.NewClient(w.api, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("connection refused")
			},
		})
		if got := w.Evict("web-2"); !got.Allowed {
			t.Errorf("got %+v while no budget can be read, want it let through: Rollcall does not manage it", got.AdmissionResponse)
		}
	})
}

// OpenKruise deletes the pod, with the grace period that the pod has.
func TestEvictionTellsThatItsGracePeriodIsNotUsed(t *testing.T) {
	t.Parallel()
	grace := func(seconds int64) func(*admission.Request, *policyv1.Eviction) {
		return func(_ *admission.Request, e *policyv1.Eviction) {
			e.DeleteOptions = &metav1.DeleteOptions{GracePeriodSeconds: &seconds}
		}
	}
	w := newWorld(t, podThat(owned, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(30)) }))
	const words = "own grace period of 30s, not with the 5s of this eviction"
	w.ExpectHeld(w.Evict("web-1", grace(5)), words)
	w.ExpectHeld(w.Evict("web-1", grace(5)), words)
	if got := w.Evict("web-1", grace(30)); strings.Contains(got.Result.Message, "grace period") {
		t.Errorf("got %q, want no word of a grace period that is used", got.Result.Message)
	}
}

// A pod that OpenKruise reached just before the limit drains as long as any other; one that a tenant has drain for a month does not.
func TestEvictionsAtTheLimitLeaveTheDrain(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	reached := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			in(appspub.LifecycleStatePreparingDelete)(pod)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, appspub.LifecycleTimestampKey, now.Add(-ago).Format(time.RFC3339))
		}
	}
	since := evictedUntil(lifecycle.NotBefore(now))
	drains := func(text string) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, service.AnnotationDrain, text) }
	}
	out := func(ago time.Duration) func(*corev1.Pod) {
		return func(pod *corev1.Pod) {
			record, err := json.Marshal(lifecycle.Record{
				Version: 1, Stamp: lifecycle.Stamp{UID: pod.UID}, Want: lifecycle.Absent, OutSince: new(now.Add(-ago)),
			})
			expect.NoError(t, err)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, lifecycle.AnnotationRecord, string(record))
		}
	}
	type row struct {
		reason string
		pod    *corev1.Pod
		// after is how long it is held from the limit on.
		after time.Duration
	}
	expect.Each(t, map[string]row{
		"reached just now":        {"its drain has just begun", podThat(reached(time.Second)), 19 * time.Second},
		"out just now":            {"the registry took long to acknowledge", podThat(reached(time.Minute), out(time.Second)), 19 * time.Second},
		"reached long ago":        {"it waits for a registry, as it would again", podThat(reached(time.Minute)), 0},
		"drains for a month":      {"no more than the limit", podThat(reached(time.Second), drains("720h")), 10*time.Minute + 4*time.Second},
		"drains for a minute":     {"its clients need it", podThat(reached(time.Second), drains("1m")), 64 * time.Second},
		"reached, it says, later": {"a tenant wrote that", podThat(reached(-time.Hour)), 20 * time.Second},
		"out, it says, later":     {"a tenant wrote that", podThat(reached(time.Minute), out(-time.Hour)), 20 * time.Second},
	}, func(t *testing.T, c row) {
		owned(c.pod)
		specified(c.pod)
		since(c.pod)
		w := newWorld(t, c.pod)
		if c.after > 0 {
			w.clock.SetTime(now.Add(c.after - time.Second))
			w.ExpectHeld(w.Evict("web-1"), "is in progress")
		}
		w.clock.SetTime(now.Add(c.after))
		w.ExpectPassed(w.Evict("web-1"), "not gone 10m0s after its first eviction")
	})
}

// A pod that leaves uses its disruption budget and its PodUnavailableBudget, and each is asked.
func TestEvictionWithBothKindsOfBudgets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, budgetOf(2), &kruisepolicy.PodUnavailableBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Status:     kruisepolicy.PodUnavailableBudgetStatus{UnavailableAllowed: 1, CurrentAvailable: 4, DesiredAvailable: 3},
	}, podThat(owned, budgeted("web")), podThat(owned, budgeted("web"), called("web-2")), podThat(owned, called("web-3")),
		podThat(owned, called("web-4")))
	w.ExpectHeld(w.Evict("web-1"), "is not evicted directly")
	w.ExpectHeld(w.Evict("web-2"), "PodUnavailableBudget web")
}

func scopeOf(namespace string) *clusterstate.Scope {
	return clusterstate.NewScope(service.Namespaces{Names: []string{namespace}}, []string{namespace})
}
