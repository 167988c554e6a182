package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/memory"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const (
	testNamespace = "shop"
	testCluster   = "prod-1"
	testTimeout   = 5 * time.Second

	preNormalLabel     = "example.com/pre-normal"
	inPlaceLabel       = "example.com/in-place"
	preDeleteFinalizer = "example.com/pre-delete"
	newlyCreatedMark   = "example.io/initialing"
)

func testEpoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// world is an API server, a cache over it, a registry with faults and one manager, all in one place. Its journal holds
// the registry calls and the writes to the API server in the order in which they were made.
type world struct {
	testing.TB
	api      client.WithWatch
	registry *fakeregistry.Registry
	backend  *memory.Registry
	clock    *clocktesting.FakePassiveClock
	events   *events.FakeRecorder
	settings choices
	clients  map[string]*registryclient.Client
	queue    *requests
	r        *PodReconciler
	counted  *prometheus.Registry // by r
	lines    history.Log

	mu         sync.Mutex
	journal    []string
	liveReads  int
	stale      *corev1.Pod // what the cache answers with instead, if anything
	onPatch    func(attempt func() error) error
	addresses  int
	moves      int
	namespaces int
	// ahead is what a new manager knows of its clock.
	ahead time.Duration
	// conditionRefused is what the API server answers to a patch of a pod's status.
	conditionRefused error
	// unreadable is the error of a read, if any: of a type, from the cache or from the API server.
	unreadable func(of runtime.Object, cached bool) error
}

func (w *world) readable(of runtime.Object, cached bool) error {
	if w.unreadable == nil {
		return nil
	}
	return w.unreadable(of, cached)
}

func newWorld(t testing.TB, change ...func(*choices)) *world {
	t.Helper()
	w := &world{
		TB:      t,
		backend: fakeregistry.Memory(t.Context()),
		clock:   clocktesting.NewFakePassiveClock(testEpoch()),
		events:  events.NewFakeRecorder(1000),
		queue:   &requests{},
		clients: map[string]*registryclient.Client{},
	}
	w.registry = fakeregistry.New(w.backend)
	w.journals(w.registry, "")
	w.api = fake.NewClientBuilder().WithScheme(kube.Scheme()).Build()
	name, err := service.ParseNameTemplate("{label:app}")
	w.must(err, "parsing the service's name")
	w.settings = choices{Settings: observe.Settings{
		Cluster: testCluster, DefaultRegistries: []string{"default"},
		Rules: clusterstate.Rules{
			Ownership:      lifecycle.Ownership{Owned: []string{"example.com/*"}, NewlyCreated: []string{newlyCreatedMark}},
			Services:       service.Rules{Name: name},
			PanicThreshold: 50,
		},
	}}
	w.settings.use(w.registry)
	w.namespace(testNamespace)
	for _, c := range change {
		c(&w.settings)
	}
	w.restart()
	return w
}

// journals has each answer of a registry noted, after a prefix.
func (w *world) journals(reg *fakeregistry.Registry, prefix string) {
	reg.OnAnswer(fakeregistry.Match{}, func(c fakeregistry.Call) {
		line := fmt.Sprintf("%s%s %s@%s", prefix, c.Op, c.Instance.Service, c.Instance.Endpoint())
		if c.Err != nil {
			line += " failed"
		}
		w.note(line)
	})
}

func keepsUnready(s *choices) { s.PanicThreshold = 0 }

// with changes the default registry, which is the only one then.
func with(change func(*Registry)) func(*choices) {
	return func(s *choices) {
		one := s.Registries["default"]
		change(&one)
		s.Registries = map[string]Registry{"default": one}
	}
}

// use makes reg the only registry.
func (s *choices) use(reg registry.Registry) { s.Registries = only(reg) }

func only(reg registry.Registry) map[string]Registry {
	return map[string]Registry{"default": {Calls: reg}}
}

// restart replaces the manager by one that remembers nothing. What it finds is in its initial list.
func (w *world) restart() {
	w.Helper()
	cached := clusterstate.CacheThrough(interceptor.NewClient(w.api, interceptor.Funcs{Get: w.cachedGet, List: w.cachedList, Patch: w.countedPatch, SubResourcePatch: w.countedCondition}))
	w.counted = prometheus.NewRegistry()
	w.r = New(Options{
		Releases: metrics.NewReleaseMetrics(w.counted),
		Client:   cached, Pods: clusterstate.PodsThrough(cached), APIReader: interceptor.NewClient(w.api, interceptor.Funcs{Get: w.liveGet}),
		Tracker: tracker.New(), State: clusterstate.New(cached, clusterstate.PodsThrough(cached), nil), History: w.lines,
		Recorder: w.events, Workers: 1, Clock: w.clock, Ahead: func() time.Duration { return w.ahead },
		PodCondition: func() bool { return false }, NoCondition: func() string { return "" }, Asker: mute{},
	})
	w.must(w.r.started(w.Context(), w.queue), "starting the controller")
	w.r.Apply(w.built())
}

// mute is an Asker whose pods don't answer.
type mute struct{}

func (mute) Ask(drain.Question)               {}
func (mute) Stop(types.UID)                   {}
func (mute) Last(drain.Question) drain.Answer { return drain.Answer{} }

// apply puts changed settings in force.
func (w *world) apply(change func(*choices)) {
	w.Helper()
	change(&w.settings)
	w.r.Apply(w.built())
}

func (w *world) must(err error, doing string) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", doing, err)
	}
}

func (w *world) note(line string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = append(w.journal, line)
}

// countedCondition notes what the status of a pod is to say.
func (w *world) countedCondition(
	ctx context.Context, c client.Client, _ string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	if w.conditionRefused != nil {
		return w.conditionRefused
	}
	err := c.Status().Patch(ctx, obj, patch, opts...)
	for _, condition := range obj.(*corev1.Pod).Status.Conditions {
		if condition.Type == lifecycle.ConditionInRotation {
			w.note(fmt.Sprintf("condition of %s: %s", obj.GetName(), condition.Status))
		}
	}
	return err
}

// cachedGet and cachedList answer as the manager's cache does: it holds only pods that have the state label, and it may lag.
func (w *world) cachedGet(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	if err := w.readable(obj, true); err != nil {
		return err
	}
	pod, isPod := obj.(*corev1.Pod)
	if !isPod {
		return c.Get(ctx, key, obj, opts...)
	}
	if w.stale != nil {
		w.stale.DeepCopyInto(pod)
		return nil
	}
	if err := c.Get(ctx, key, pod, opts...); err != nil {
		return err
	}
	if _, labelled := pod.Labels[appspub.LifecycleStateKey]; !labelled {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
	}
	return nil
}

func (w *world) cachedList(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if err := w.readable(list, true); err != nil {
		return err
	}
	if _, isPods := list.(*corev1.PodList); isPods {
		opts = append(opts, client.HasLabels{appspub.LifecycleStateKey})
	}
	return c.List(ctx, list, opts...)
}

func (w *world) liveGet(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption,
) error {
	w.mu.Lock()
	w.liveReads++
	w.mu.Unlock()
	if err := w.readable(obj, false); err != nil {
		return err
	}
	return c.Get(ctx, key, obj, opts...)
}

// countedPatch answers a failed test with what a real API server (v1.34) answers it with.
func (w *world) countedPatch(
	ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption,
) error {
	attempt := func() error {
		if err := ctx.Err(); err != nil {
			return err // as a real client, which sends nothing then
		}
		err := c.Patch(ctx, obj, patch, opts...)
		var status apierrors.APIStatus
		if err != nil && !errors.As(err, &status) {
			err = patchTestFailed()
		}
		return err
	}
	w.mu.Lock()
	onPatch := w.onPatch
	w.mu.Unlock()
	if onPatch == nil {
		onPatch = func(attempt func() error) error { return attempt() }
	}
	err := onPatch(attempt)
	line := "write " + obj.GetName()
	if err != nil {
		line += " failed"
	}
	w.note(line)
	return err
}

func patchTestFailed() error {
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", "", 0, false)
}

// patching has the next writes made this way.
func (w *world) patching(how func(attempt func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onPatch = how
}

// beforeTheNextWrite has something happen once the pod was read.
func (w *world) beforeTheNextWrite(happens func()) {
	w.patching(func(attempt func() error) error {
		w.patching(nil)
		happens()
		return attempt()
	})
}

// hooked is a CloneSet's spec.lifecycle in which every handler is ours: two labels and a finalizer.
func hooked() *appspub.Lifecycle {
	return &appspub.Lifecycle{
		PreNormal:     &appspub.LifecycleHook{LabelsHandler: map[string]string{preNormalLabel: "ok"}},
		InPlaceUpdate: &appspub.LifecycleHook{LabelsHandler: map[string]string{inPlaceLabel: "hold"}},
		PreDelete:     &appspub.LifecycleHook{FinalizersHandler: []string{preDeleteFinalizer}},
	}
}

// namespace creates one, unless it is there, after those that were created before.
func (w *world) namespace(name string, change ...func(*corev1.Namespace)) {
	w.Helper()
	w.namespaces++
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(fmt.Sprintf("uid-of-%s-%d", name, w.namespaces)),
		CreationTimestamp: metav1.NewTime(testEpoch().Add(time.Duration(w.namespaces) * time.Second)),
	}}
	for _, c := range change {
		c(namespace)
	}
	err := w.api.Create(w.Context(), namespace)
	if apierrors.IsAlreadyExists(err) {
		return
	}
	w.must(err, "creating the namespace")
	if w.r == nil {
		return
	}
	w.r.namespaceEvents().Create(w.Context(),
		event.TypedCreateEvent[*metav1.PartialObjectMetadata]{Object: metadataOf(namespace)}, w.queue)
}

// metadataOf is a namespace as the cache has it.
func metadataOf(namespace *corev1.Namespace) *metav1.PartialObjectMetadata {
	metadata := clusterstate.NamespaceMetadata()
	metadata.ObjectMeta = *namespace.ObjectMeta.DeepCopy()
	return metadata
}

// cloneSet creates one with every hook, whose template arms what is to be armed.
func (w *world) cloneSet(name string, change ...func(*kruisev1alpha1.CloneSet)) *kruisev1alpha1.CloneSet {
	w.Helper()
	w.moves++
	workload := &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: testNamespace, Name: name, UID: types.UID(fmt.Sprintf("uid-of-%s-%d", name, w.moves)), Generation: 1,
			CreationTimestamp: metav1.NewTime(testEpoch().Add(time.Duration(w.moves) * time.Second)),
		},
		Spec: kruisev1alpha1.CloneSetSpec{
			Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Lifecycle: hooked(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:     map[string]string{"app": name, inPlaceLabel: "hold"},
					Finalizers: []string{preDeleteFinalizer},
				},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 8080}},
				}}},
			},
		},
	}
	for _, c := range change {
		c(workload)
	}
	w.namespace(workload.Namespace)
	w.must(w.api.Create(w.Context(), workload), "creating the CloneSet")
	w.r.workloadEvents().Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: workload}, w.queue)
	return workload
}

// pod creates one as the CloneSet would: PreparingNormal. It is ready and has an address. The manager is not told.
func (w *world) pod(of *kruisev1alpha1.CloneSet, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	w.addresses++
	w.moves++
	template := of.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace, pod.Name = of.Namespace, name
	pod.UID = types.UID(fmt.Sprintf("uid-of-%s-%d", name, w.moves))
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(of, kruisev1alpha1.GroupVersion.WithKind("CloneSet"))}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Labels[appspub.LifecycleStateKey] = string(appspub.LifecycleStatePreparingNormal)
	pod.Annotations[appspub.LifecycleTimestampKey] = w.clock.Now().Format(time.RFC3339)
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		PodIP:      fmt.Sprintf("10.0.0.%d", w.addresses),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	for _, c := range change {
		c(pod)
	}
	status := pod.Status.DeepCopy()
	w.must(w.api.Create(w.Context(), pod), "creating the pod")
	pod.Status = *status
	w.must(w.api.Status().Update(w.Context(), pod), "writing the pod's status")
	return pod
}

// bornPod creates a pod while the manager watches.
func (w *world) bornPod(of *kruisev1alpha1.CloneSet, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	pod := w.pod(of, name, change...)
	w.r.podEvents().Create(w.Context(), event.TypedCreateEvent[client.Object]{Object: lifecycle.PodOf(pod)}, w.queue)
	return pod
}

// servingPod is a pod that went its way from its birth to Normal and is in service. The journal and the events begin
// after that.
func (w *world) servingPod(of *kruisev1alpha1.CloneSet, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.Helper()
	pod := w.bornPod(of, name, change...)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconcile(pod)
	w.expectInService(pod)
	w.takeJournal()
	w.takeEvents()
	return pod
}

// serving is a world with a pod that is in service, and born one with a pod that the manager has yet to look at.
func serving(t *testing.T, change ...func(*choices)) (*world, *corev1.Pod) {
	t.Helper()
	w := newWorld(t, change...)
	return w, w.servingPod(w.cloneSet("web"), "web-1")
}

func born(t *testing.T, change ...func(*choices)) (*world, *corev1.Pod) {
	t.Helper()
	w := newWorld(t, change...)
	return w, w.bornPod(w.cloneSet("web"), "web-1")
}

func unready(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }
func ready(pod *corev1.Pod)   { pod.Status.Conditions[0].Status = corev1.ConditionTrue }

func annotated(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Annotations[key] = value
	}
}

func inState(state appspub.LifecycleStateType) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[appspub.LifecycleStateKey] = string(state) }
}

// current is the pod as the API server has it, or nil.
func (w *world) current(pod *corev1.Pod) *corev1.Pod {
	w.Helper()
	got := &corev1.Pod{}
	err := w.api.Get(context.WithoutCancel(w.Context()), client.ObjectKeyFromObject(pod), got)
	if apierrors.IsNotFound(err) || err == nil && got.UID != pod.UID {
		return nil
	}
	w.must(err, "reading the pod")
	return got
}

// changePod changes the pod on the API server, as Kruise, kubelet or a person would.
func (w *world) changePod(pod *corev1.Pod, change ...func(*corev1.Pod)) {
	w.Helper()
	got := w.current(pod)
	if got == nil {
		w.Fatalf("pod %s is gone and can't be changed", pod.Name)
	}
	for _, c := range change {
		c(got)
	}
	status := got.Status.DeepCopy()
	w.must(w.api.Update(w.Context(), got), "changing the pod")
	if w.current(pod) == nil {
		return
	}
	got.Status = *status
	w.must(w.api.Status().Update(w.Context(), got), "changing the pod's status")
}

// kruiseMoves moves the pod to a state, stamped as Kruise does. Time passes with each move.
func (w *world) kruiseMoves(pod *corev1.Pod, state appspub.LifecycleStateType, change ...func(*corev1.Pod)) {
	w.Helper()
	w.sleep(time.Second)
	stamp := annotated(appspub.LifecycleTimestampKey, w.clock.Now().Format(time.RFC3339))
	w.changePod(pod, append([]func(*corev1.Pod){inState(state), stamp}, change...)...)
}

func (w *world) changeCloneSet(workload *kruisev1alpha1.CloneSet, change func(*kruisev1alpha1.CloneSet)) {
	w.Helper()
	before := workload.DeepCopy()
	change(workload)
	workload.Generation++
	w.must(w.api.Update(w.Context(), workload), "changing the CloneSet")
	w.r.workloadEvents().Update(w.Context(),
		event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: workload}, w.queue)
}

func (w *world) deleteCloneSet(workload *kruisev1alpha1.CloneSet) {
	w.Helper()
	w.must(w.api.Delete(w.Context(), workload), "deleting the CloneSet")
	w.r.workloadEvents().Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: workload}, w.queue)
}

// deletePod asks for the deletion. The pod stays for as long as it has finalizers.
func (w *world) deletePod(pod *corev1.Pod) {
	w.Helper()
	w.must(w.api.Delete(w.Context(), w.current(pod)), "deleting the pod")
}

// removePod makes the pod disappear, finalizers or not, and tells the manager.
func (w *world) removePod(pod *corev1.Pod) {
	w.Helper()
	last := w.current(pod)
	if last == nil {
		w.Fatalf("pod %s is gone already", pod.Name)
	}
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	w.must(client.IgnoreNotFound(w.api.Patch(w.Context(), last.DeepCopy(), free)), "freeing the pod")
	w.must(client.IgnoreNotFound(w.api.Delete(w.Context(), last.DeepCopy())), "deleting the pod")
	w.tellGone(last)
}

// tellGone is the cache's event that it has no such pod any more.
func (w *world) tellGone(last *corev1.Pod) {
	w.r.podEvents().Delete(w.Context(), event.TypedDeleteEvent[client.Object]{Object: lifecycle.PodOf(last)}, w.queue)
}

// losesLabel takes off the label that the cache selects by, and makes further changes.
func (w *world) losesLabel(pod *corev1.Pod, change ...func(*corev1.Pod)) {
	w.Helper()
	last := w.current(pod)
	w.changePod(pod, append(change, func(p *corev1.Pod) { delete(p.Labels, appspub.LifecycleStateKey) })...)
	w.tellGone(last)
}

// losesWrite has the manager's next write of the pod not come through.
func (w *world) losesWrite(pod *corev1.Pod) {
	w.Helper()
	w.patching(func(func() error) error { return errors.New("connection reset") })
	w.reconcileFails(pod)
	w.patching(nil)
}

// rebuilt has the manager go on with other options.
func (w *world) rebuilt(change func(*Options)) {
	change(&w.r.Options)
	w.r.furnish()
}

func (w *world) sleep(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

func (w *world) reconcile(pod *corev1.Pod) reconcile.Result {
	w.Helper()
	result, err := w.r.Reconcile(w.Context(), lifecycle.PodIDOf(lifecycle.PodOf(pod)))
	w.must(err, "reconciling "+pod.Name)
	return result
}

// reconcileIn has Kruise move the pod to a state, and the manager look at it.
func (w *world) reconcileIn(pod *corev1.Pod, state appspub.LifecycleStateType, change ...func(*corev1.Pod)) {
	w.Helper()
	w.kruiseMoves(pod, state, change...)
	w.reconcile(pod)
}

// reconciles holds what a look at the pod does against what it should be.
func (w *world) reconciles(pod *corev1.Pod, why string, want ...string) {
	w.Helper()
	w.reconcile(pod)
	w.expectJournal(why, want...)
}

func (w *world) reconcileFails(pod *corev1.Pod) {
	w.Helper()
	if _, err := w.r.Reconcile(w.Context(), lifecycle.PodIDOf(lifecycle.PodOf(pod))); err == nil {
		w.Fatalf("reconciling %s succeeded, want an error", pod.Name)
	}
}

// inOrder sorts what follows each other and differs in its registry and its outcome only.
func inOrder(journal []string) []string {
	call := func(line string) string {
		if _, in, named := strings.Cut(line, ": "); named {
			line = in
		}
		return strings.TrimSuffix(line, failed)
	}
	for first := range journal {
		end := first
		for end < len(journal) && call(journal[end]) == call(journal[first]) {
			end++
		}
		slices.Sort(journal[first:end])
	}
	return journal
}

func (w *world) takeJournal() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.journal
	w.journal = nil
	return taken
}

// expectJournal holds the calls and writes since the last look against what they should be, in their order; one call to several
// registries comes in any.
func (w *world) expectJournal(why string, want ...string) {
	w.Helper()
	if diff := cmp.Diff(inOrder(want), inOrder(w.takeJournal())); diff != "" {
		w.Fatalf("calls and writes (-want +got):\n%swhy: %s", diff, why)
	}
}

func (w *world) expectResult(why string, got reconcile.Result, after time.Duration) {
	w.Helper()
	if diff := cmp.Diff(reconcile.Result{RequeueAfter: after}, got); diff != "" {
		w.Fatalf("result (-want +got):\n%swhy: %s", diff, why)
	}
}

func (w *world) takeEvents() []string {
	var taken []string
	for {
		select {
		case e := <-w.events.Events:
			taken = append(taken, e)
		default:
			return taken
		}
	}
}

// expectEvents holds the beginnings of the Events since the last look against what they should be.
func (w *world) expectEvents(why string, want ...string) {
	w.Helper()
	got := w.takeEvents()
	if !slices.EqualFunc(got, want, strings.HasPrefix) {
		w.Fatalf("got events %q, want those that begin with %q\nwhy: %s", got, want, why)
	}
}

func (w *world) state(pod *corev1.Pod) registry.State {
	w.Helper()
	entries, err := w.registry.Truth(context.WithoutCancel(w.Context()), testCluster)
	w.must(err, "reading the registry")
	var state registry.State
	for _, e := range entries {
		if e.UID != string(pod.UID) {
			continue
		}
		if e.State == registry.InService {
			return registry.InService
		}
		state = e.State
	}
	return state
}

func (w *world) expectInService(pod *corev1.Pod) {
	w.Helper()
	if got := w.state(pod); got != registry.InService {
		w.Fatalf("the registry says %q of %s, want it in service", got, pod.Name)
	}
}

func (w *world) expectNotInService(pod *corev1.Pod) {
	w.Helper()
	if w.state(pod) == registry.InService {
		w.Fatalf("the registry has %s in service, want it out", pod.Name)
	}
}

func (w *world) expectAbsent(pod *corev1.Pod) {
	w.Helper()
	if got := w.state(pod); got != "" {
		w.Fatalf("the registry says %q of %s, want it absent", got, pod.Name)
	}
}

// hooks says which hooks are set on the pod, as Kruise sees it.
func (w *world) hooks(pod *corev1.Pod) string {
	w.Helper()
	got := w.current(pod)
	if got == nil {
		return "gone"
	}
	var set []string
	if got.Labels[preNormalLabel] == "ok" {
		set = append(set, "preNormal")
	}
	if got.Labels[inPlaceLabel] == "hold" {
		set = append(set, "inPlaceUpdate")
	}
	if slices.Contains(got.Finalizers, preDeleteFinalizer) {
		set = append(set, "preDelete")
	}
	return strings.Join(set, " ")
}

func (w *world) expectHooks(why string, pod *corev1.Pod, want string) {
	w.Helper()
	if got := w.hooks(pod); got != want {
		w.Fatalf("hooks set on %s: got %q, want %q\nwhy: %s", pod.Name, got, want, why)
	}
}

func (w *world) record(pod *corev1.Pod) lifecycle.Record {
	w.Helper()
	return lifecycle.RecordOf(lifecycle.PodOf(w.current(pod)))
}

// expectWaits expects these waits, by hook, reason and time. Each says whose it is and what is missing.
func (w *world) expectWaits(why string, want ...Wait) {
	w.Helper()
	got := w.r.Waits()
	for i, wait := range got {
		if wait.Namespace == "" || wait.Pod == "" || wait.UID == "" || wait.Message == "" {
			w.Fatalf("%+v: says not whose wait it is, or what is missing\nwhy: %s", wait, why)
		}
		got[i] = Wait{Hook: wait.Hook, Reason: wait.Reason, Since: wait.Since}
	}
	slices.SortFunc(got, func(a, b Wait) int { return strings.Compare(a.Reason+a.Hook, b.Reason+b.Hook) })
	if len(got) == 0 {
		got = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("waits (-want +got):\n%swhy: %s", diff, why)
	}
}

func (w *world) expectNoPages(why string) {
	w.Helper()
	if pods, notes := w.r.Tracker.Pods(), w.r.memory.Len(); pods+notes > 0 {
		w.Fatalf("the tracker has %d pods and there are %d notes, want none\nwhy: %s", pods, notes, why)
	}
}

// requests is a queue that only notes what it is given.
type requests struct {
	priorityqueue.PriorityQueue[lifecycle.PodID]
	mu    sync.Mutex
	added []added
}

type added struct {
	Request  lifecycle.PodID
	Priority int
}

func (q *requests) Add(request lifecycle.PodID) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

func (q *requests) AddWithOpts(o priorityqueue.AddOpts, items ...lifecycle.PodID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, item := range items {
		a := added{Request: item}
		if o.Priority != nil {
			a.Priority = *o.Priority
		}
		q.added = append(q.added, a)
	}
}

func (q *requests) take() (taken []added) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken, q.added = q.added, nil
	return taken
}
