package evictions

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// action is that of the Events on a pod.
const action = "Evict"

// What the descheduler knows a held eviction by: a pod with both annotations counts as being evicted, and so does one with the first whose
// eviction is answered with the text.
// https://github.com/kubernetes-sigs/descheduler/blob/v0.36.0/pkg/descheduler/evictions/evictions.go
const (
	annotationEvictOnly  = "descheduler.alpha.kubernetes.io/request-evict-only"
	annotationInProgress = "descheduler.alpha.kubernetes.io/eviction-in-progress"
	// Evacuation begins each answer about a pod that leaves by its hooks. The plugin knows it by that too.
	Evacuation = "Eviction triggered evacuation"
)

// answerTime is how long an answer may take. The API server waits longer, since it lets the eviction through if none comes.
const answerTime = 5 * time.Second

// Options are what a [Webhook] is made of.
type Options struct {
	// Cache has the workloads and their pods of the Scope, once Synced.
	Cache  client.Reader
	Pods   clusterstate.Pods
	Scope  *clusterstate.Scope
	Synced func() bool
	// API reads without a cache, whether or not this manager leads.
	API client.Reader
	// Leader writes as long as this manager leads, and Leads reports whether it does: see [errOther].
	Leader   client.Writer
	Leads    func() bool
	Recorder events.EventRecorder
	// Limit is how long an eviction is held.
	Limit  time.Duration
	Clock  clock.PassiveClock
	Logger logr.Logger
}

// Webhook answers evictions and resizes. It is an admission.Handler for CREATE of pods/eviction and UPDATE of pods/resize. Every manager
// answers, and only the one that leads begins a deletion: what it remembers is on the pods, except for when it first failed to write it
// there.
type Webhook struct {
	Options

	ownership atomic.Pointer[lifecycle.Ownership]
	drain     atomic.Int64
	// turns has for each namespace that has evictions under way, as budgets are, what is held while one is checked and used: two
	// evictions must not use the same place in it. It is an order for the cluster since only one manager leads. mu is its lock.
	turns map[string]*turn
	mu    sync.Mutex
	// failing has the [failure] of each pod, by its UID, that could not be labelled.
	failing *lru.Cache
}

// turn is held by one of those that are under way.
type turn struct {
	*semaphore.Weighted

	underWay int
}

// mostFailing bounds the memory; a pod that is forgotten is held for longer.
const mostFailing = 1000

// New returns a Webhook that passes all evictions until [Webhook.Apply].
func New(o Options) *Webhook {
	w := &Webhook{Options: o, turns: map[string]*turn{}, failing: lru.New(mostFailing)}
	w.Apply(lifecycle.Ownership{}, 0)
	return w
}

// Apply sets which handlers are Rollcall's, and how long pods drain that say nothing else.
func (w *Webhook) Apply(o lifecycle.Ownership, drain time.Duration) {
	w.ownership.Store(&o)
	w.drain.Store(int64(drain))
}

// Handle implements admission.Handler. It never holds up a pod that is not managed, and whatever it can't do for a managed
// one it leaves undone, so that a drain ends. For a pod that is gone it answers 404, as the API server would: OpenKruise's
// webhook, which comes next, answers 400, and kubectl drain takes only 404 for the end.
func (w *Webhook) Handle(ctx context.Context, request admission.Request) admission.Response {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	key := types.NamespacedName{Namespace: request.Namespace, Name: request.Name}
	response, err := w.answer(ctx, key, request)
	switch {
	case err == nil:
		return response
	case apierrors.IsNotFound(err):
		return refuse(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("pods %q not found", key.Name))
	case lifecycle.IsRefused(err) && !apierrors.IsConflict(err): // also by a webhook, which need not give a reason
		w.Logger.Error(err, "failed to label a pod for its deletion, so the eviction bypasses the hooks", "pod", key)
		return admission.Allowed("").WithWarnings(fmt.Sprintf("Rollcall lets the eviction of pod %s bypass its hooks: %v", key.Name, err))
	default:
		return tryAgain(fmt.Sprintf("try again: %v", err))
	}
}

func (w *Webhook) answer(ctx context.Context, key types.NamespacedName, request admission.Request) (admission.Response, error) {
	if !w.Scope.Watches(key.Namespace) || !w.Synced() {
		return admission.Allowed(""), nil
	}
	if request.SubResource == "resize" {
		return w.resize(ctx, request)
	}
	whole := &corev1.Pod{}
	if err := w.API.Get(ctx, key, whole); err != nil {
		return admission.Response{}, fmt.Errorf("reading pod %s: %w", key.Name, err)
	}
	asked, pod := readRequest(request), lifecycle.PodOf(whole)
	if !asked.means(pod) {
		return admission.Allowed(""), nil // the API server refuses it
	}
	hooks, err := w.hooksOf(ctx, pod)
	switch {
	case err != nil:
		return admission.Response{}, err
	case len(hooks.PreDelete) == 0:
		return w.passed(ctx, pod, admission.Allowed("")), nil
	}
	response, err := w.decided(ctx, pod, hooks, asked.dryRun)
	if held := response.Result; held != nil && held.Details == nil { // no budget refused
		held.Message += asked.graceLost(whole)
	}
	return response, err
}

// decided answers for a pod whose workload has hooks.
func (w *Webhook) decided(ctx context.Context, pod *lifecycle.Pod, hooks lifecycle.Hooks, dryRun bool) (admission.Response, error) {
	now := w.Clock.Now()
	node, err := clusterstate.NodeOf(ctx, w.Cache, pod)
	if err != nil {
		return admission.Response{}, fmt.Errorf("reading the node of pod %s: %w", pod.Name, err)
	}
	switch answer, notBefore := Decide(pod, node, hooks, now, w.Limit, w.drainOf(pod)); answer {
	case Begin:
		return w.begin(ctx, pod, notBefore, dryRun)
	case Wait:
		return evacuating(fmt.Sprintf("eviction of pod %s is in progress: OpenKruise deletes it once it has left the registry and drained; "+
			"the eviction is not let through before %s; keep retrying", pod.Name, notBefore.UTC().Format(time.RFC3339))), nil
	case TakeOut:
		return w.takeOut(ctx, pod, dryRun)
	case GiveUp:
		return w.giveUp(pod, cmp.Or(lifecycle.EndOf(pod, node, now).Why, w.overdue()), dryRun), nil
	case KeepClaims:
		return w.passed(ctx, pod, admission.Allowed("").WithWarnings(fmt.Sprintf("Rollcall lets the eviction of pod %s bypass its hooks: "+
			"if OpenKruise deleted the pod, it would delete the pod's PersistentVolumeClaims too", pod.Name))), nil
	case Pass:
	}
	return w.passed(ctx, pod, admission.Allowed("")), nil
}

// passed is the answer for a pod that no hook holds, unless its budget is used by pods that leave by theirs: the API server's own count
// does not have them. Whatever can't be read holds up no such pod.
func (w *Webhook) passed(ctx context.Context, pod *lifecycle.Pod, answer admission.Response) admission.Response {
	if ended(pod) {
		return answer
	}
	refusing, _, err := w.blocking(ctx, pod, leaves)
	switch {
	case err != nil:
		w.Logger.Error(err, "failed to ask a budget about the eviction of a pod without hooks", "pod", client.ObjectKeyFromObject(pod))
	case refusing != nil:
		return overBudget(pod, refusing)
	}
	return answer
}

// hooksOf returns the hooks that are Rollcall's of the pod's workload: none where OpenKruise would not delete the pod.
func (w *Webhook) hooksOf(ctx context.Context, pod *lifecycle.Pod) (lifecycle.Hooks, error) {
	workload, err := clusterstate.WorkloadOf(ctx, pod, w.Cache)
	if workload == nil || workload.GetDeletionTimestamp() != nil || !workload.DeletesSpecified() {
		return lifecycle.Hooks{}, err
	}
	return lifecycle.HooksOf(workload.ForDecision(), *w.ownership.Load()), nil
}

// asked is what a request for an eviction contains.
type asked struct {
	// name, in namespace, is that of the request.
	namespace, name string
	eviction        *policyv1.Eviction
	dryRun          bool
}

func readRequest(request admission.Request) asked {
	a := asked{namespace: request.Namespace, name: request.Name}
	if err := json.Unmarshal(request.Object.Raw, &a.eviction); err != nil {
		return asked{} // the API server reports what is wrong with it
	}
	a.dryRun = request.DryRun != nil && *request.DryRun
	if o := a.eviction.DeleteOptions; o != nil {
		a.dryRun = a.dryRun || len(o.DryRun) > 0
	}
	return a
}

// means reports whether the API server would evict this pod: the body has its name, and it is as the preconditions want it.
// https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/registry/core/pod/storage/eviction.go
func (a *asked) means(pod *lifecycle.Pod) bool {
	if a.eviction == nil || a.eviction.Name != a.name || a.eviction.Namespace != "" && a.eviction.Namespace != a.namespace {
		return false
	}
	if a.eviction.DeleteOptions == nil || a.eviction.DeleteOptions.Preconditions == nil {
		return true
	}
	must := a.eviction.DeleteOptions.Preconditions
	return (must.UID == nil || *must.UID == pod.UID) && (must.ResourceVersion == nil || *must.ResourceVersion == pod.ResourceVersion)
}

// graceLost tells who evicts that OpenKruise deletes the pod with its own grace period, if another was asked for.
func (a *asked) graceLost(pod *corev1.Pod) string {
	if a.eviction.DeleteOptions == nil || a.eviction.DeleteOptions.GracePeriodSeconds == nil {
		return ""
	}
	grace := *a.eviction.DeleteOptions.GracePeriodSeconds
	own := ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, grace)
	if grace == own {
		return ""
	}
	return fmt.Sprintf("; OpenKruise deletes it with its own grace period of %ds, not with the %ds of this eviction", own, grace)
}

// begin labels the pod, unless a budget refuses.
func (w *Webhook) begin(ctx context.Context, pod *lifecycle.Pod, notBefore time.Time, dryRun bool) (admission.Response, error) {
	leave, err := w.takeTurn(ctx, pod.Namespace)
	if err != nil {
		return admission.Response{}, err
	}
	defer leave()
	refused, err := w.withinBudget(ctx, pod, leaves, dryRun, func() error { return w.label(ctx, pod, notBefore) })
	switch {
	case refused != nil:
		w.failing.Remove(pod.UID)
		return *refused, nil
	case err != nil && dryRun:
		return admission.Response{}, err
	case err != nil:
		return w.unlabelled(pod, err)
	case !dryRun:
		w.failing.Remove(pod.UID)
		w.Recorder.Eventf(pod, nil, reason.EvictionHooked.Event(), string(reason.EvictionHooked), action,
			"An eviction became a hooked deletion: OpenKruise deletes the pod once it has left the registry and drained")
	}
	return evacuating(fmt.Sprintf("pod %s is not evicted directly: OpenKruise deletes it once it has left the registry and drained, "+
		"and replaces it after that, or earlier with maxSurge; keep retrying", pod.Name)), nil
}

// takeOut writes on the pod when its eviction is let through: the leader takes it out of rotation first and drains it. If a budget
// refuses, the API server would refuse that eviction too, and the pod stays.
func (w *Webhook) takeOut(ctx context.Context, pod *lifecycle.Pod, dryRun bool) (admission.Response, error) {
	leave, err := w.takeTurn(ctx, pod.Namespace)
	if err != nil {
		return admission.Response{}, err
	}
	defer leave()
	now := w.Clock.Now()
	serving := *pod // to the API server the label means nothing
	serving.Labels = maps.Clone(pod.Labels)
	delete(serving.Labels, kruisev1alpha1.SpecifiedDeleteKey)
	at := lifecycle.EndOnceDrained(now, w.drainOf(pod)).UTC().Format(time.RFC3339)
	refused, err := w.withinBudget(ctx, &serving, func(p *lifecycle.Pod) bool { return isOut(p, now) }, dryRun,
		func() error { return w.announce(ctx, pod, at) })
	switch {
	case refused != nil:
		return *refused, nil
	case err != nil && (dryRun || apierrors.IsConflict(err)):
		return admission.Response{}, err
	case errors.Is(err, errOther):
		return w.unlabelled(pod, err)
	case err != nil: // which may never pass by itself
		w.Logger.Error(err, "failed to take a pod out of rotation", "pod", client.ObjectKeyFromObject(pod))
		return w.giveUp(pod, w.overdue(), false), nil
	}
	return evacuating(fmt.Sprintf("OpenKruise has not replaced pod %s for %s: the pod leaves the rotation, and its eviction is let through "+
		"at %s; try again", pod.Name, w.Limit, at)), nil
}

// withinBudget writes what has the pod go, unless it is a dry run or the budgets refuse, whose answer it returns. Of the pods on their
// way out, it counts those that are out.
func (w *Webhook) withinBudget(
	ctx context.Context, pod *lifecycle.Pod, out func(*lifecycle.Pod) bool, dryRun bool, write func() error,
) (refused *admission.Response, err error) {
	refusing, several, err := w.blocking(ctx, pod, out)
	switch {
	case err != nil:
		return nil, err
	case several:
		return new(admission.Allowed("")), nil
	case refusing != nil:
		return new(overBudget(pod, refusing)), nil
	case dryRun:
		return nil, nil
	case !w.Leads():
		return nil, errOther
	}
	if err := write(); err == nil || w.Leads() {
		return nil, err
	}
	return nil, errOther // the write may have been refused for that
}

// errOther keeps the order of evictions in one process. It passes: who evicts tries again, and reaches the manager that leads, or this one
// leads by then.
var errOther = errors.New("only the manager that leads begins evictions, and another one was asked")

func (w *Webhook) drainOf(pod *lifecycle.Pod) time.Duration {
	configured := time.Duration(w.drain.Load())
	if p, err := service.DrainOf(pod.Annotations, drain.Fixed(configured)); err == nil {
		return MostDrain(p.Max, configured, w.Limit)
	}
	return configured
}

// announce fails with a conflict if the pod has changed since it was read.
func (w *Webhook) announce(ctx context.Context, pod *lifecycle.Pod, at string) error {
	err := w.write(ctx, pod, func(meta *metav1.ObjectMeta) { metav1.SetMetaDataAnnotation(meta, lifecycle.AnnotationEndsAt, at) })
	if err != nil {
		return fmt.Errorf("announcing the end of pod %s: %w", pod.Name, err)
	}
	return nil
}

// write fails with a conflict if the pod has changed since it was read.
func (w *Webhook) write(ctx context.Context, pod *lifecycle.Pod, change func(*metav1.ObjectMeta)) error {
	written := &metav1.PartialObjectMetadata{ObjectMeta: *pod.ObjectMeta.DeepCopy()}
	written.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	patch := client.MergeFromWithOptions(written.DeepCopy(), client.MergeFromWithOptimisticLock{})
	change(&written.ObjectMeta)
	return w.Leader.Patch(ctx, written, patch)
}

// takeTurn waits until no other eviction of the namespace is decided, and returns what ends the turn.
func (w *Webhook) takeTurn(ctx context.Context, namespace string) (leave func(), err error) {
	turn := w.enter(namespace)
	if err := turn.Acquire(ctx, 1); err != nil {
		w.leave(namespace)
		return nil, fmt.Errorf("waiting for other evictions in namespace %s: %w", namespace, err)
	}
	return func() {
		turn.Release(1)
		w.leave(namespace)
	}, nil
}

func (w *Webhook) enter(namespace string) *turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turns[namespace] == nil {
		w.turns[namespace] = &turn{Weighted: semaphore.NewWeighted(1)}
	}
	w.turns[namespace].underWay++
	return w.turns[namespace]
}

func (w *Webhook) leave(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turns[namespace].underWay--; w.turns[namespace].underWay == 0 {
		delete(w.turns, namespace)
	}
}

// full is a budget that refuses an eviction.
type full struct {
	name       string
	needs, has int32
}

// blocking returns the budget that refuses the eviction, or nil. Of the pods on their way out, it counts those that are out.
func (w *Webhook) blocking(
	ctx context.Context, pod *lifecycle.Pod, out func(*lifecycle.Pod) bool,
) (refusing *full, several bool, err error) {
	var budgets policyv1.PodDisruptionBudgetList
	if err := w.API.List(ctx, &budgets, client.InNamespace(pod.Namespace)); err != nil {
		return nil, false, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	disruption, several := BudgetOf(pod, budgets.Items)
	if several {
		return nil, true, nil
	}
	unavailable, err := w.unavailableBudget(ctx, pod)
	if err != nil || disruption == nil && unavailable == nil {
		return nil, false, err
	}
	leaving, err := w.leaving(ctx, pod.Namespace)
	leaving = slices.DeleteFunc(leaving, func(p *lifecycle.Pod) bool { return p.UID == pod.UID || !out(p) })
	if err == nil && disruption != nil {
		refusing, err = w.disrupting(ctx, disruption, pod, leaving, out)
	}
	if err != nil || refusing != nil {
		return refusing, false, err
	}
	return forbidding(unavailable, pod, leaving), false, nil
}

// forbidding returns the budget, which may be nil, if it refuses.
func forbidding(budget *kruisepolicy.PodUnavailableBudget, pod *lifecycle.Pod, leaving []*lifecycle.Pod) *full {
	if budget == nil || !Forbidding(budget, pod, leaving) {
		return nil
	}
	return &full{"PodUnavailableBudget " + budget.Name, budget.Status.DesiredAvailable, budget.Status.CurrentAvailable}
}

// disrupting returns the budget if it refuses, by its status or by a count of its pods, which the status may lag behind. A pod that is not
// OpenKruise's, and whose budget no pod uses that leaves, is not worth that count: it may be one of very many.
func (w *Webhook) disrupting(
	ctx context.Context, budget *policyv1.PodDisruptionBudget, pod *lifecycle.Pod, leaving []*lifecycle.Pod, out func(*lifecycle.Pod) bool,
) (*full, error) {
	name, status := "disruption budget "+budget.Name, budget.Status
	_, known := pod.Labels[appspub.LifecycleStateKey]
	used := slices.ContainsFunc(leaving, func(p *lifecycle.Pod) bool { return selects(budget, p) })
	switch {
	case Blocking(budget, pod, leaving):
		return &full{name, status.DesiredHealthy, status.CurrentHealthy}, nil
	case !known && !used, !Short(budget, pod, 0):
		return nil, nil
	}
	goes := make(map[types.UID]bool, len(leaving))
	for _, p := range leaving {
		goes[p.UID] = true
	}
	staying, err := w.staying(ctx, budget, pod, func(p *lifecycle.Pod) bool { return goes[p.UID] || out(p) })
	if err != nil || !Short(budget, pod, staying) {
		return nil, err
	}
	return &full{name, status.DesiredHealthy, staying + 1}, nil
}

// staying counts the other pods of the budget that stay. The cache has those with a lifecycle state: a pod leaves for longer than the cache
// lags, and the webhook knows the pods that began to leave just now. It is read without copies: a namespace can have many. The others are
// listed only if these are too few.
func (w *Webhook) staying(
	ctx context.Context, budget *policyv1.PodDisruptionBudget, pod *lifecycle.Pod, goes func(*lifecycle.Pod) bool,
) (n int32, err error) {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return 0, fmt.Errorf("reading the selector of PodDisruptionBudget %s: %w", budget.Name, err)
	}
	stays := func(p *lifecycle.Pod) bool { return p.UID != pod.UID && !ended(p) && counted(budget, p) && !goes(p) }
	err = w.Pods.Each(ctx, clusterstate.InNamespace(pod.Namespace).Labelled(selector), func(p *lifecycle.Pod) bool {
		if stays(p) {
			n++
		}
		return Short(budget, pod, n) // until they are enough
	})
	if err != nil {
		return 0, fmt.Errorf("counting the pods of PodDisruptionBudget %s: %w", budget.Name, err)
	}
	if !Short(budget, pod, n) {
		return n, nil
	}
	stateless, _ := labels.NewRequirement(appspub.LifecycleStateKey, selection.DoesNotExist, nil)
	var others corev1.PodList
	err = w.API.List(ctx, &others, client.InNamespace(pod.Namespace), client.MatchingLabelsSelector{Selector: selector.Add(*stateless)})
	if err != nil {
		return 0, fmt.Errorf("counting the pods of PodDisruptionBudget %s: %w", budget.Name, err)
	}
	for i := range others.Items {
		if stays(lifecycle.PodOf(&others.Items[i])) {
			n++
		}
	}
	return n, nil
}

// unavailableBudget returns the PodUnavailableBudget of the pod, nil if it has none. Without the right to read it, it is OpenKruise's
// alone to ask.
func (w *Webhook) unavailableBudget(ctx context.Context, pod *lifecycle.Pod) (*kruisepolicy.PodUnavailableBudget, error) {
	name := pod.Annotations[lifecycle.AnnotationRelatedPUB]
	if len(validation.NameIsDNSSubdomain(name, false)) > 0 { // there is none of such a name, and tenants write annotations
		return nil, nil
	}
	budget := &kruisepolicy.PodUnavailableBudget{}
	switch err := w.API.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, budget); {
	case apierrors.IsNotFound(err): // also if OpenKruise's CRD is gone
		return nil, nil
	case apierrors.IsForbidden(err):
		w.Logger.Error(err, "failed to ask a PodUnavailableBudget about an eviction", "pod", client.ObjectKeyFromObject(pod), "budget", name)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading PodUnavailableBudget %s: %w", name, err)
	}
	return budget, nil
}

// leaving returns the pods of the namespace that are on their way out by their hooks. One that is labelled between the two lists is in
// both.
func (w *Webhook) leaving(ctx context.Context, namespace string) (pods []*lifecycle.Pod, err error) {
	preparing := labels.Set{appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingDelete)}.String()
	for _, which := range []string{preparing + ",!" + kruisev1alpha1.SpecifiedDeleteKey, kruisev1alpha1.SpecifiedDeleteKey} {
		var some corev1.PodList
		selector, err := labels.Parse(which)
		if err == nil {
			err = w.API.List(ctx, &some, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector})
		}
		if err != nil {
			return nil, fmt.Errorf("listing the pods on their way out: %w", err)
		}
		for i := range some.Items {
			pods = append(pods, lifecycle.PodOf(&some.Items[i]))
		}
	}
	return pods, nil
}

// label fails with a conflict where the pod has changed since it was read.
func (w *Webhook) label(ctx context.Context, pod *lifecycle.Pod, notBefore time.Time) error {
	err := w.write(ctx, pod, func(meta *metav1.ObjectMeta) {
		metav1.SetMetaDataLabel(meta, kruisev1alpha1.SpecifiedDeleteKey, "true")
		metav1.SetMetaDataAnnotation(meta, lifecycle.AnnotationEndsAt, lifecycle.NotBefore(notBefore))
		for _, key := range []string{annotationEvictOnly, annotationInProgress} {
			if _, written := meta.Annotations[key]; !written { // a template may have it
				metav1.SetMetaDataAnnotation(meta, key, "true")
			}
		}
	})
	if err != nil {
		return fmt.Errorf("labelling pod %s for its deletion: %w", pod.Name, err)
	}
	return nil
}

// failure is when a pod could first not be labelled, and when last.
type failure struct{ first, last time.Time }

// unlabelled holds the eviction for no longer than one whose beginning is recorded on the pod: the failure may never pass by itself. One
// that is older than the limit was of an earlier drain.
func (w *Webhook) unlabelled(pod *lifecycle.Pod, err error) (admission.Response, error) {
	if lifecycle.IsRefused(err) {
		return admission.Response{}, err
	}
	now := w.Clock.Now()
	noted, _ := w.failing.Get(pod.UID)
	since, failed := noted.(failure)
	if !failed || now.Sub(since.last) > w.Limit {
		since.first = now
	}
	since.last = now
	w.failing.Add(pod.UID, since)
	if now.Sub(since.first) < w.Limit {
		return admission.Response{}, err
	}
	w.Logger.Error(err, "failed to label a pod for its deletion", "pod", client.ObjectKeyFromObject(pod))
	return w.giveUp(pod, w.overdue(), false), nil
}

// overdue is why an eviction is let through that took longer than the limit.
func (w *Webhook) overdue() string {
	return fmt.Sprintf("it is not gone %s after its first eviction", w.Limit)
}

// giveUp lets the eviction through, and reports it wherever someone may look.
func (w *Webhook) giveUp(pod *lifecycle.Pod, why string, dryRun bool) admission.Response {
	note := "Rollcall lets the pod be evicted without its hooks: " + why
	if !dryRun {
		w.Logger.Info("eviction let through", "pod", client.ObjectKeyFromObject(pod), "because", why)
		w.Recorder.Eventf(pod, nil, reason.ReleasedUnacknowledged.Event(), string(reason.ReleasedUnacknowledged), action, "%s",
			reason.ReleasedUnacknowledged.WithRemedy(note))
	}
	return admission.Allowed("").WithWarnings(note)
}

// overBudget answers as the API server does.
func overBudget(pod *lifecycle.Pod, budget *full) admission.Response {
	response := tryAgain(fmt.Sprintf("pod %s can't be evicted now, as that would violate its %s: "+
		"pods that are leaving by their hooks count as disrupted", pod.Name, budget.name))
	response.Result.Details = &metav1.StatusDetails{Causes: []metav1.StatusCause{{
		Type:    policyv1.DisruptionBudgetCause,
		Message: fmt.Sprintf("The %s needs %d healthy pods and has %d currently", budget.name, budget.needs, budget.has),
	}}}
	return response
}

// evacuating answers for a pod that is on its way out.
func evacuating(message string) admission.Response { return tryAgain(Evacuation + ": " + message) }

// tryAgain answers 429, on which everything that drains nodes tries again. It has no time to wait: with one, clients would
// wait and retry by themselves, without a word to their users.
func tryAgain(message string) admission.Response {
	return refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, message)
}

func refuse(code int32, status metav1.StatusReason, message string) admission.Response {
	response := admission.Denied(message)
	response.Result.Code, response.Result.Reason = code, status
	return response
}
