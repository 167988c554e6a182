package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// Annotations of pods.
const (
	servicesKey = "rollcall.dev/services"
	drainKey    = "rollcall.dev/drain"
	recordKey   = "rollcall.dev/registration"
)

const (
	// patience is how long anything may take before it counts as stuck.
	patience = 2 * time.Minute
	// glance is how often a condition is looked at.
	glance = 20 * time.Millisecond
)

// scenario is one story: one namespace, one CloneSet, one service.
type scenario struct {
	*testing.T

	k8s      client.WithWatch
	history  *watched
	manager  *rollcall
	standby  *rollcall // nil where there is but one manager
	registry *registryServer
	style    style
	ns       string
	key      types.NamespacedName

	// port is where each pod is registered, under the namespace's name.
	port int
	// cluster is the owner in the entries' marks.
	cluster string
	// zones are those of the nodes that have one.
	zones map[string]string
	// generation is that of our last change to the CloneSet.
	generation int64
	// hooks have all handlers that any version of the CloneSet named.
	hooks checker.Hooks
	// forgetting is since when no workload names the handlers any more, so they are released wherever the pod stands.
	forgetting time.Time
	// troubled: the manager was restarted or reconfigured, or the registry failed, so calls may be repeated.
	troubled bool
	// conditioned: the manager writes the pods' condition.
	conditioned bool
	// drain is what the pods' annotation says.
	drain time.Duration
}

func newScenario(t *testing.T, m *rollcall, r *registryServer, s style, namespace string) *scenario {
	t.Helper()
	sc := newScenarioOn(t, env.client, env.history, m, r, s, namespace)
	sc.zones = env.zones
	return sc
}

// newScenarioOn is newScenario on another cluster.
func newScenarioOn(
	t *testing.T, k8s client.WithWatch, h *watched, m *rollcall, r *registryServer, s style, namespace string,
) *scenario {
	t.Helper()
	sc := &scenario{
		T: t, k8s: k8s, history: h, manager: m, registry: r, style: s, hooks: checker.Hooks{},
		ns: namespace, port: 80, cluster: clusterName,
	}
	env.scenarios.Add(1)
	sc.must(sc.k8s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	return sc
}

func (s *scenario) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v\n%s", err, s.describe())
	}
}

func (s *scenario) await(what string, look func() error) {
	s.Helper()
	expect.Soon(s.T, what, look, s.describe)
}

func (s *scenario) until(what string, so func() bool) {
	s.Helper()
	expect.Becomes(s.T, what, so, s.describe)
}

// untilPod returns once it is so of the pod as it is now, which is nil once it is gone.
func (s *scenario) untilPod(pod *corev1.Pod, what string, so func(now *corev1.Pod) bool) {
	s.Helper()
	s.until("pod "+pod.Name+" "+what, func() bool { return so(s.Now(pod.UID)) })
}

// describe says where everything stands, for the reader of a failure.
func (s *scenario) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "namespace %s\n", s.ns)
	if set := s.history.Set(s.key); set != nil {
		fmt.Fprintf(&b, "CloneSet generation %d, wanted %d: %+v\n", set.Generation, s.generation, set.Status)
	}
	for _, pod := range s.history.Pods(s.ns) {
		fmt.Fprintf(&b, "pod %s %s: state %s since %s, ready %t, deleting %t, ip %s, labels %v, finalizers %v, record %s\n",
			pod.Name, pod.UID, stateOf(pod), pod.Annotations[appspub.LifecycleTimestampKey], lifecycle.IsReady(lifecycle.PodOf(pod)),
			pod.DeletionTimestamp != nil, pod.Status.PodIP, pod.Labels, pod.Finalizers,
			pod.Annotations["rollcall.dev/registration"])
	}
	for _, e := range s.registry.Entries(s.T, s.ns) {
		fmt.Fprintf(&b, "registry: %s at %s of %s: %s\n", e.Service, e.Endpoint(), e.Pod, e.State)
	}
	for _, a := range s.registry.Answers(s.ns, "") {
		fmt.Fprintf(&b, "journal: %s %s %s %s: %v\n", a.Started.Format("05.000"), a.Op, a.Instance.Service, a.Instance.Pod, a.Err)
	}
	for _, w := range s.writes() {
		if w.ToPod() {
			fmt.Fprintf(&b, "write: %s %s %d %s\n", w.Received.Format("05.000"), w.Name, w.Status, w.Changes())
		}
	}
	for _, e := range s.Events() {
		fmt.Fprintf(&b, "event: %s %s %s %s: %s\n", e.Regarding.Kind, e.Regarding.Name, e.Type, e.Reason, e.Note)
	}
	fmt.Fprintf(&b, "log of manager %s:\n%s", s.manager.Name, s.manager.Tail())
	return b.String()
}

// Create creates the style's CloneSet, changed as the scenario wants it.
func (s *scenario) Create(edits ...func(*kruisev1alpha1.CloneSet)) {
	s.Helper()
	set := s.style.load(s.T)
	set.Namespace = s.ns
	set.Spec.Selector.MatchLabels = map[string]string{"app": s.ns}
	set.Spec.Template.Labels["app"] = s.ns
	for _, edit := range edits {
		edit(set)
	}
	s.must(s.k8s.Create(s.Context(), set))
	s.key = client.ObjectKeyFromObject(set)
	s.noted(set)
}

// noted remembers what we last asked for.
func (s *scenario) noted(set *kruisev1alpha1.CloneSet) {
	s.generation = set.Generation
	for hook, handlers := range hooksOf(set.Spec.Lifecycle) {
		s.hooks[hook] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(s.hooks[hook], handlers))))
	}
}

func (s *scenario) Edit(edit func(*kruisev1alpha1.CloneSet)) {
	s.Helper()
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: s.key.Name}}
	s.must(kube.Change(s.Context(), s.k8s, set, func() { edit(set) }))
	s.noted(set)
}

// forget notes that from now on no workload names the handlers.
func (s *scenario) forget() {
	if s.forgetting.IsZero() {
		s.forgetting = time.Now()
	}
}

// Edits that many scenarios make.

func replicas(n int32) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) { set.Spec.Replicas = &n }
}

func image(name string) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) { set.Spec.Template.Spec.Containers[0].Image = name }
}

func updateType(kind kruisev1alpha1.CloneSetUpdateStrategyType) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) { set.Spec.UpdateStrategy.Type = kind }
}

// inPlace has the pods updated where they are, one after the other, with no new ones beside them.
func inPlace(set *kruisev1alpha1.CloneSet) {
	updateType(kruisev1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType)(set)
	one := intstr.FromInt32(1)
	set.Spec.UpdateStrategy.MaxSurge, set.Spec.UpdateStrategy.MaxUnavailable = nil, &one
}

func annotated(key, value string) func(*kruisev1alpha1.CloneSet) {
	return func(set *kruisev1alpha1.CloneSet) {
		if set.Spec.Template.Annotations == nil {
			set.Spec.Template.Annotations = map[string]string{}
		}
		set.Spec.Template.Annotations[key] = value
	}
}

// Begin is Create, and returns the pods once all is steady.
func (s *scenario) Begin(edits ...func(*kruisev1alpha1.CloneSet)) []*corev1.Pod {
	s.Helper()
	s.Create(edits...)
	s.ExpectSteady()
	return s.Pods()
}

// UpdateInPlace updates the pods, and returns once all is steady. They are the same as before, where these are given.
func (s *scenario) UpdateInPlace(image string, before []*corev1.Pod) {
	s.Helper()
	s.UpdateImage(image)
	s.ExpectSteady()
	s.ExpectImage(image, before)
}

// ScaleTo is Scale, and returns once all is steady.
func (s *scenario) ScaleTo(n int32) { s.Helper(); s.Scale(n); s.ExpectSteady() }

// Replace has Kruise delete a pod and make another one, and returns once all is steady.
func (s *scenario) Replace(pod *corev1.Pod) {
	s.Helper()
	s.DeleteByLabel(pod)
	s.AwaitGone(pod)
	s.ExpectSteady()
}

func (s *scenario) UpdateImage(name string) { s.Helper(); s.Edit(image(name)) }

func (s *scenario) Scale(n int32) { s.Helper(); s.Edit(replicas(n)) }

// Pods are the pods as last seen, the oldest first.
func (s *scenario) Pods() []*corev1.Pod { return s.history.Pods(s.ns) }

// Now is the last version of a pod, or nil once it is gone.
func (s *scenario) Now(uid types.UID) *corev1.Pod {
	seen := s.history.Of(uid)
	if len(seen) == 0 || seen[len(seen)-1].deleted {
		return nil
	}
	return seen[len(seen)-1].pod
}

// AwaitPod returns a pod of which this is so, once there is one.
func (s *scenario) AwaitPod(what string, is func(*corev1.Pod) bool) (found *corev1.Pod) {
	s.Helper()
	s.until("a pod "+what, func() bool {
		pods := s.Pods()
		i := slices.IndexFunc(pods, is)
		if i >= 0 {
			found = pods[i]
		}
		return i >= 0
	})
	return found
}

func (s *scenario) AwaitPodIn(state appspub.LifecycleStateType) *corev1.Pod {
	s.Helper()
	return s.AwaitPod("in "+string(state), func(pod *corev1.Pod) bool { return stateOf(pod) == string(state) })
}

// AwaitRunning returns a pod that has an address, once there is one.
func (s *scenario) AwaitRunning() *corev1.Pod {
	s.Helper()
	return s.AwaitPod("that runs", func(pod *corev1.Pod) bool { return pod.Status.PodIP != "" })
}

func (s *scenario) wasIn(pod *corev1.Pod, state appspub.LifecycleStateType) bool {
	return slices.ContainsFunc(s.history.Of(pod.UID), func(v sighting) bool { return v.state() == string(state) })
}

func (s *scenario) AwaitState(pod *corev1.Pod, state appspub.LifecycleStateType) {
	s.Helper()
	s.untilPod(pod, "in "+string(state), func(now *corev1.Pod) bool { return now != nil && stateOf(now) == string(state) })
}

func (s *scenario) AwaitLeaves(pod *corev1.Pod, state appspub.LifecycleStateType) {
	s.Helper()
	s.untilPod(pod, "to leave "+string(state), func(now *corev1.Pod) bool { return now == nil || stateOf(now) != string(state) })
}

func (s *scenario) AwaitGone(pod *corev1.Pod) {
	s.Helper()
	s.untilPod(pod, "to be gone", func(now *corev1.Pod) bool { return now == nil })
}

func (s *scenario) AwaitPods(n int) []*corev1.Pod {
	s.Helper()
	s.until(fmt.Sprintf("%d pods", n), func() bool { return len(s.Pods()) == n })
	return s.Pods()
}

func (s *scenario) awaitAtLeast(n int, what string, count func() int) {
	s.Helper()
	s.until(fmt.Sprintf("%d %s", n, what), func() bool { return count() >= n })
}

// AwaitReleased returns once none of Rollcall's handlers of the hook is set on the pod.
func (s *scenario) AwaitReleased(pod *corev1.Pod, hook string) {
	s.Helper()
	s.await(fmt.Sprintf("handlers of %s to be cleared on pod %s", hook, pod.Name), func() error {
		now := s.Now(pod.UID)
		if now == nil {
			return errors.New("it is gone")
		}
		for _, h := range s.hooks[hook] {
			if ours(h) && setOn(h, now) {
				return fmt.Errorf("%s is set", h)
			}
		}
		return nil
	})
}

func (s *scenario) AwaitHeld(g *apiproxy.Gate, n int) {
	s.Helper()
	s.awaitAtLeast(n, "writes at the gate", g.Held)
}

// AwaitObserved returns once Kruise has seen the last change to the CloneSet.
func (s *scenario) AwaitObserved() {
	s.Helper()
	s.until("Kruise to see the change", func() bool {
		set := s.history.Set(s.key)
		return set != nil && set.Status.ObservedGeneration >= s.generation
	})
}

// counted is how many calls of an operation the registry acknowledged for a pod.
func (s *scenario) counted(pod *corev1.Pod, op fakeregistry.Op) int {
	return len(slices.DeleteFunc(s.registry.Answers(s.ns, string(pod.UID)), func(a fakeregistry.Call) bool {
		return a.Op != op || !a.Acknowledged()
	}))
}

// countWrites is how many of the managers' writes are like this.
func (s *scenario) countWrites(like func(apiproxy.Write) bool) int {
	return len(slices.DeleteFunc(s.writes(), func(w apiproxy.Write) bool { return !like(w) }))
}

func (s *scenario) match(op fakeregistry.Op) fakeregistry.Match {
	return fakeregistry.Match{Op: op, Namespace: s.ns}
}

// writes are the managers' requests that change something in the namespace.
func (s *scenario) writes() []apiproxy.Write {
	writes := s.manager.proxy.Writes(s.ns)
	if s.standby != nil {
		writes = append(writes, s.standby.proxy.Writes(s.ns)...)
	}
	return writes
}

// PatchPod applies a merge patch to a pod, as somebody else, and returns when our watch has seen it.
func (s *scenario) PatchPod(pod *corev1.Pod, patch string) {
	s.Helper()
	patched := pod.DeepCopy()
	s.must(s.k8s.Patch(s.Context(), patched, kube.Merge("%s", patch)))
	s.untilPod(pod, "to be seen as patched", func(now *corev1.Pod) bool { return now == nil || version(now) >= version(patched) })
}

func (s *scenario) DeletePod(pod *corev1.Pod) {
	s.Helper()
	s.must(client.IgnoreNotFound(s.k8s.Delete(s.Context(), pod.DeepCopy(), client.Preconditions{UID: &pod.UID})))
}

// DeleteByLabel has Kruise delete a pod and replace it.
func (s *scenario) DeleteByLabel(pod *corev1.Pod) {
	s.Helper()
	s.PatchPod(pod, `{"metadata":{"labels":{"apps.kruise.io/specified-delete":"true"}}}`)
}

func (s *scenario) DeleteCloneSet(how metav1.DeletionPropagation) {
	s.Helper()
	s.forget()
	s.must(client.IgnoreNotFound(s.k8s.Delete(s.Context(), &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: s.key.Name},
	}, client.PropagationPolicy(how))))
}

// HoldCalls holds back the registry's work and answer for one operation in this namespace.
func (s *scenario) HoldCalls(op fakeregistry.Op) *fakeregistry.Hold {
	return s.registry.Hold(s.match(op))
}

// Fail has the registry refuse an operation in this namespace until it is repaired.
func (s *scenario) Fail(op fakeregistry.Op, why string) (repair func()) {
	return s.registry.Fail(s.match(op), errors.New(why))
}

func (s *scenario) AwaitCalls(h *fakeregistry.Hold, n int) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	s.must(h.AwaitReached(ctx, n))
}

func (s *scenario) Events() []eventsv1.Event {
	var list eventsv1.EventList
	// The context of a test that has failed is over.
	if err := s.k8s.List(context.Background(), &list, client.InNamespace(s.ns)); err != nil && !apierrors.IsNotFound(err) {
		s.Errorf("listing events: %v", err)
	}
	return list.Items
}

// The other owner's handler of inPlaceUpdate, in the mixed style and wherever a scenario adds it.
const (
	otherKey   = "other.example.org/update-gate"
	otherValue = "shut"
)

// Play has the other owner do its part at once, for as long as the scenario runs: it releases the hook in PreparingUpdate,
// and sets it again in Updated.
func (s *scenario) Play() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			for _, pod := range s.Pods() {
				s.playOn(ctx, pod)
			}
			time.Sleep(glance)
		}
	}()
	s.Cleanup(func() { cancel(); <-done })
}

func (s *scenario) playOn(ctx context.Context, pod *corev1.Pod) {
	set := pod.Labels[otherKey] == otherValue
	var patch string
	switch state := appspub.LifecycleStateType(stateOf(pod)); {
	case state == appspub.LifecycleStatePreparingUpdate && set:
		patch = labelPatch(pod, otherKey, nil)
	case state == appspub.LifecycleStateUpdated && !set:
		patch = labelPatch(pod, otherKey, new(otherValue))
	default:
		return
	}
	err := s.k8s.Patch(ctx, pod.DeepCopy(), kube.Merge("%s", patch))
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		s.Errorf("the other owner: %v", err)
	}
}

func labelPatch(pod *corev1.Pod, key string, value *string) string {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "labels": map[string]*string{key: value},
	}})
	if err != nil {
		panic(err)
	}
	return string(patch)
}
