package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// The model's times. A call that timed out is carried out within twice the timeout of its start, or never; a manager
// that died is followed by the next one only after that, which the lease sees to.
const (
	modelTimeout   = 2 * time.Second
	modelLateBound = 2 * modelTimeout
	// modelPanic is the panic threshold in percent.
	modelPanic = 50

	modelMark = "example.com/newly-created" // the owned pattern matches it too
	modelTier = "tier"
)

func modelOwnership() lifecycle.Ownership {
	return lifecycle.Ownership{Owned: []string{"example.com/*", "exact.io/registered"}, NewlyCreated: []string{modelMark}}
}

// ownedFinalizer reports a finalizer that is Rollcall's to put on and take off.
func ownedFinalizer(f string) bool { return f == lifecycle.GuardFinalizer || modelOwnership().Owns(f) }

// model is a CloneSet and its pods, as Kruise, kubelet and people move them, with the registries that a manager keeps in
// step. Everything in it is random, from one seed.
type model struct {
	rng   *rand.Rand
	now   time.Time
	clock *clocktesting.FakePassiveClock
	calm  bool // no more faults and no more whims: everyone does what is to be done
	drain time.Duration
	// How this walk is: how many pods there are, how many in a hundred crash from their start, how long a while is and a call takes, how
	// often calls fail, and in how many steps the manager dies once.
	replicas int
	crashing int
	while    time.Duration
	takes    time.Duration
	failures int
	lifespan int
	// panicThreshold is modelPanic, or 0, which keeps pods in Normal that are not ready.
	panicThreshold int
	policy         lifecycle.FailurePolicy
	losing         bool // see loseLeaders
	rivals         bool // see model_rivals_test.go
	detaches       bool // people detach pods

	warms, countsAtEnd bool // see model_warmup_test.go
	guard              bool

	workload *kruisev1alpha1.CloneSet // nil once it is gone
	// brings are, by revision, the handlers that its template has besides, and metadata the revisions that change no image.
	brings   map[int][]lifecycle.Handler
	metadata map[int]bool
	shapes   []*kruisev1alpha1.CloneSetSpec
	edits    int // of the workload's hooks and of the configuration
	revision int
	paused   bool

	apps     modelApps
	choices  modelChoices
	named    map[modelName]time.Time // when a namespace had a name last, in a walk with rivals
	pods     []*modelPod
	created  int
	changes  int // of pods, and calls of the registry
	registry *modelRegistry
	manager  modelManager
	turns    modelTurns

	trace     []string
	violation string
}

// modelPod is a pod, with what only its node and the test know of it.
type modelPod struct {
	api       *corev1.Pod // nil once it is gone
	namespace string
	versions  []*corev1.Pod // all that the API server ever had, for views that lag; nil is the last of a pod that is gone
	uid       types.UID
	revision  int // that Kruise asked for
	running   int // that kubelet runs
	healthy   bool
	up        bool            // containers are ready
	ending    bool            // it is about to be deleted, and may never be
	waits     string          // as the manager last showed it
	held      map[string]bool // markPodNotReady, by hook
	stays     map[string]bool // timestamps and states that it was in
	// specified for deletion, which can't be cancelled.
	specified bool
	detached  bool // from the CloneSet, by its labels

	// For the checks:
	releasedHook bool                // Rollcall let Kruise go on with an update or a delete
	freed        bool                // it did so for a person or by the policy, without the registry's word
	excused      bool                // that has happened since the pod was last put in service
	recordedOut  time.Time           // since when it was out when a manager last wrote a record of that
	disturbed    bool                // since preNormal was asserted: not ready for a moment, a new IP, or other hooks
	wasOut       bool                // it was not in rotation, at its present address, when it left Normal
	unwritten    bool                // a registry was asked to take it out, the hooks were edited or brought, and no visit has ended since
	taken        bool                // Rollcall let Kruise update it, and has not yet said that it is back
	takenBack    bool                // a visit has ended well since Kruise last wrote the pod in Updating
	hadFinalizer bool                // an owned finalizer stood on it when it was deleted
	unasked      bool                // Kruise took it with a hook that could not be armed yet
	unarmed      []lifecycle.Handler // what could not be armed before it was last put in service: it says "go on" there
	registeredIn int                 // the edit of the hooks under which it was last registered; -1 never
	orphaned     bool                // a manager died that knew it, or none ran when it went

	nodeEnds  time.Time // when its node ends; zero if that is not announced
	mayEnd    bool      // that was ever announced
	unsettled time.Time // until when a manager may have reason to doubt, since a call or a question for the pod failed
	turned    time.Time // when its readiness last changed
	readyIn   int       // the first version in which it was ready; -1 if none was
	// Of its application: the revision that it last started with, at which of the pod's addresses it registers, and whether it does so
	// although Rollcall is to.
	appRuns, appAt int
	stubborn       bool

	// view is the version that the manager's cache has; -1 before it has one. done: the pod is gone, and undone.
	view int
	done bool
}

func newModel(seed uint64) *model {
	start := testEpoch()
	m := &model{
		rng: rand.New(rand.NewPCG(seed, 0x5eed)), now: start, clock: clocktesting.NewFakePassiveClock(start), revision: 1,
		registry: newModelRegistry(), brings: map[int][]lifecycle.Handler{}, metadata: map[int]bool{},
		named: map[modelName]time.Time{},
	}
	m.drain = []time.Duration{0, 20 * time.Second}[m.rng.IntN(2)]
	m.replicas = 1 + m.rng.IntN(3)
	m.takes = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, modelTimeout}[m.rng.IntN(3)]
	m.while = []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}[m.rng.IntN(3)]
	m.failures = []int{10, 30, 60}[m.rng.IntN(3)]
	m.lifespan = []int{30, 150, 600}[m.rng.IntN(3)]
	m.shapes = modelShapes()
	m.panicThreshold = []int{modelPanic, 0}[m.rng.IntN(2)]
	m.guard = m.rng.IntN(2) == 0
	deadlines := []time.Duration{0, 0, 2 * time.Second, 10 * time.Second}
	m.policy = lifecycle.FailurePolicy{PreDelete: deadlines[m.rng.IntN(4)], InPlaceUpdate: deadlines[m.rng.IntN(4)]}
	m.workload = &kruisev1alpha1.CloneSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "web", UID: "uid-of-web"},
		Spec:       *m.shapes[m.rng.IntN(len(m.shapes))],
	}
	switch {
	case m.chance(20): // a rollout that crashes, with nothing that keeps its pods from Normal
		m.replicas, m.crashing, m.panicThreshold, m.workload.Spec.Lifecycle.PreNormal = 5, 50, modelPanic, nil
	case m.chance(25):
		m.loseLeaders()
	}
	m.registry.steer = m.steer
	m.rivals = seed%5 == 4    //nolint:mnd // with every combination of the manager's configuration
	m.detaches = seed%13 == 5 //nolint:mnd // the same
	m.warms, m.countsAtEnd = seed%7 > 4, seed%7 == 6
	m.manage(seed)
	m.scale()
	return m
}

// modelShapes are hooks in every style, each with something in it that Rollcall owns.
func modelShapes() []*kruisev1alpha1.CloneSetSpec {
	preNormal, update, del := label("example.com/normal", "go"), label("example.com/update", "blocked"), label("example.com/delete", "true")
	fUpdate, fDelete := finalizer("example.com/f-update"), finalizer("exact.io/registered")
	all := label("example.com/all", "held")
	spec := func(preNormal, inPlaceUpdate, preDelete *appspub.LifecycleHook) *kruisev1alpha1.CloneSetSpec {
		return &kruisev1alpha1.CloneSetSpec{
			Lifecycle: &appspub.Lifecycle{PreNormal: preNormal, InPlaceUpdate: inPlaceUpdate, PreDelete: preDelete},
			Selector:  &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", modelTier: "front"}},
		}
	}
	markNotReady := func(h *appspub.LifecycleHook) *appspub.LifecycleHook {
		h.MarkPodNotReady = true
		return h
	}
	templated := spec(hookOf(preNormal), hookOf(update), hookOf(del))
	templated.Template.Labels = map[string]string{
		preNormal.Label: "stop", update.Label: update.Value, del.Label: del.Value, modelMark: "true",
	}
	return []*kruisev1alpha1.CloneSetSpec{
		spec(hookOf(preNormal), hookOf(update), hookOf(del)),
		templated,
		spec(hookOf(preNormal), hookOf(fUpdate), hookOf(fDelete)),
		spec(hookOf(preNormal), hookOf(update, fUpdate), hookOf(del, fDelete)),
		spec(nil, hookOf(fDelete), hookOf(fDelete)),
		spec(hookOf(all), hookOf(all), hookOf(all)),
		spec(hookOf(preNormal, label("other.io/normal", "true")), hookOf(update, finalizer("other.io/update")),
			hookOf(fDelete, label("other.io/delete", "true"))),
		spec(nil, nil, hookOf(fDelete)),
		spec(nil, hookOf(update), nil),
		spec(hookOf(preNormal), markNotReady(hookOf(update)), markNotReady(hookOf(del))),
	}
}

func label(key, value string) lifecycle.Handler { return lifecycle.Handler{Label: key, Value: value} }
func finalizer(f string) lifecycle.Handler      { return lifecycle.Handler{Finalizer: f} }

func hookOf(handlers ...lifecycle.Handler) *appspub.LifecycleHook {
	hook := &appspub.LifecycleHook{LabelsHandler: map[string]string{}}
	for _, h := range handlers {
		if h.Finalizer != "" {
			hook.FinalizersHandler = append(hook.FinalizersHandler, h.Finalizer)
		} else {
			hook.LabelsHandler[h.Label] = h.Value
		}
	}
	return hook
}

// handlersOf are a hook's handlers, whoever owns them, in one order.
func handlersOf(hook *appspub.LifecycleHook) []lifecycle.Handler {
	if hook == nil {
		return nil
	}
	var handlers []lifecycle.Handler
	for _, key := range slices.Sorted(maps.Keys(hook.LabelsHandler)) {
		handlers = append(handlers, label(key, hook.LabelsHandler[key]))
	}
	for _, f := range hook.FinalizersHandler {
		handlers = append(handlers, finalizer(f))
	}
	return handlers
}

func setHandler(pod *corev1.Pod, h lifecycle.Handler) {
	if h.Finalizer != "" {
		pod.Finalizers = append(pod.Finalizers, h.Finalizer)
		return
	}
	pod.Labels[h.Label] = h.Value
}

// carries is Kruise's reading of one handler.
func carries(pod *corev1.Pod, h lifecycle.Handler) bool {
	if h.Finalizer != "" {
		return slices.Contains(pod.Finalizers, h.Finalizer)
	}
	return pod.Labels[h.Label] == h.Value
}

func without(list, other []lifecycle.Handler) []lifecycle.Handler {
	return slices.DeleteFunc(slices.Clone(list), func(h lifecycle.Handler) bool { return slices.Contains(other, h) })
}

func stateOf(pod *corev1.Pod) appspub.LifecycleStateType {
	return appspub.LifecycleStateType(pod.Labels[appspub.LifecycleStateKey])
}

func isFinished(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed }

func (m *model) logf(format string, args ...any) {
	m.trace = append(m.trace, m.now.Format("05.000 ")+fmt.Sprintf(format, args...))
}

// violatef notes the first broken promise.
func (m *model) violatef(format string, args ...any) {
	if m.violation == "" {
		m.violation = fmt.Sprintf(format, args...)
		m.logf("VIOLATION %s", m.violation)
	}
}

// last is the pod as the API server last had it.
func (p *modelPod) last() *corev1.Pod {
	if p.api != nil {
		return p.api
	}
	return p.versions[len(p.versions)-2]
}

// released reports whether Rollcall let Kruise go on, whatever the registry had said.
func (p *modelPod) released() bool { return p.releasedHook || p.freed }

// pick is one of the pods, mostly one that lives or was the last to go.
func (m *model) pick() *modelPod {
	from := 0
	if m.chance(90) {
		from = max(0, len(m.pods)-m.replicas-1)
	}
	return m.pods[from+m.rng.IntN(len(m.pods)-from)]
}

func (m *model) chance(percent int) bool { return m.rng.IntN(100) < percent }

// pass lets time pass, and what was late lands.
func (m *model) pass(d time.Duration) {
	m.now = m.now.Add(d)
	m.clock.SetTime(m.now)
	for _, in := range m.registry.land(m.now) {
		m.logf("late: %s", in)
	}
	m.check()
}

// commit writes a pod as the API server does: a new version, and gone with the last finalizer of a dead pod.
func (m *model) commit(p *modelPod, pod *corev1.Pod) {
	before := p.api
	p.api = pod
	m.setReady(p)
	if reflect.DeepEqual(before, p.api) {
		return
	}
	m.changes++
	p.api.ResourceVersion = strconv.Itoa(m.changes)
	p.versions = append(p.versions, p.api.DeepCopy())
	m.check()
}

func (m *model) setReady(p *modelPod) {
	ready := p.up && len(p.held) == 0
	if !ready || p.ending {
		p.disturbed = true
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	if was := p.api.Status.Conditions; len(was) == 0 && !ready {
		p.turned = p.api.Status.StartTime.Time
	} else if len(was) == 0 || was[0].Status != status {
		p.turned = m.now
	}
	if ready && p.readyIn < 0 {
		p.readyIn = len(p.versions)
	}
	p.api.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Time{Time: p.turned}}}
	if p.ending {
		p.api.Status.Conditions = append(p.api.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
		})
	}
}

// move is a move of Kruise's, with the timestamp in whole seconds.
func (m *model) move(p *modelPod, to appspub.LifecycleStateType, also ...func(*corev1.Pod)) {
	from := stateOf(p.api)
	// Back in a state within one second, a pod looks as if it had stayed. A manager that put it in service in between and
	// died before it wrote that down is deceived: the timestamp can't tell, and the design accepts it.
	stay := func() string { return m.now.Format(time.RFC3339) + string(to) }
	for p.stays[stay()] {
		m.pass(time.Second)
	}
	p.stays[stay()] = true
	if from == appspub.LifecycleStateUpdating {
		p.unasked = false
	}
	if from == appspub.LifecycleStateNormal {
		p.wasOut = !m.registry.exactly(p.uid, m.instancesOf(p.api))
	}
	m.logf("kruise: %s %s -> %s", p.uid, from, to)
	switch to {
	case appspub.LifecycleStatePreparingNormal:
		// Between the call and the write that follows it, nothing can keep Kruise from counting the pod available. Nor can a
		// key that preDelete shares, which stays while the pod drains.
		preNormal := ours(m.hook(lifecycle.PreNormal))
		shared := len(preNormal) > 0 && len(without(preNormal, ours(m.hook(lifecycle.PreDelete)))) == 0
		p.disturbed = p.unwritten || p.wasOut || shared && !p.released()
		p.releasedHook, p.freed = false, false
	case appspub.LifecycleStateNormal, appspub.LifecycleStateUpdated:
		// Rolled back before Rollcall released: its handlers stand as they stood, and Kruise has not asked. With another owner's
		// that makes a pod Normal before it is back.
		p.disturbed = p.disturbed || from == appspub.LifecycleStatePreparingUpdate && !p.released()
		p.releasedHook, p.freed = false, false
		if to == appspub.LifecycleStateNormal {
			m.arrive(p)
		}
	case appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete:
	}
	pod := p.api.DeepCopy()
	for _, change := range also {
		change(pod)
	}
	setHandler(pod, label(appspub.LifecycleStateKey, string(to)))
	pod.Annotations[appspub.LifecycleTimestampKey] = m.now.Format(time.RFC3339)
	m.commit(p, pod)
}

// arrive notes that Kruise counts the pod available. One that was updated is armed by then, where Rollcall owns preNormal: it
// was cleared for the update, and is set again together with inPlaceUpdate.
func (m *model) arrive(p *modelPod) {
	if p.taken && len(ours(m.hook(lifecycle.PreNormal))) > 0 {
		p.unarmed, p.unasked = nil, false
	}
	p.taken = false
}

// scale creates the pods that are missing.
func (m *model) scale() {
	if m.workload == nil {
		return
	}
	active := 0
	for _, p := range m.pods {
		if p.api != nil && !p.detached && p.api.DeletionTimestamp == nil && !isFinished(p.api) && stateOf(p.api) != appspub.LifecycleStatePreparingDelete {
			active++
		}
	}
	for ; active < m.replicas; active++ {
		m.created++
		p := &modelPod{uid: types.UID(fmt.Sprintf("pod-%d", m.created)), revision: m.revision, running: m.revision,
			healthy: !m.chance(m.crashing), held: map[string]bool{}, stays: map[string]bool{}, registeredIn: -1, view: -1, readyIn: -1,
			namespace: m.anyNamespace()}
		if m.apps.by != nil {
			p.appAt, p.stubborn = max(0, m.rng.IntN(4)-2), m.chance(15)
			if m.apps.one == oneCaller {
				p.appAt = 0
			}
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.namespace, Name: string(p.uid), UID: p.uid, Labels: map[string]string{"app": "web", modelTier: "front"},
			Annotations: map[string]string{service.AnnotationServices: modelServiceNames},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(m.workloadIn(p.namespace), kruisev1alpha1.GroupVersion.WithKind("CloneSet")),
			},
		}, Status: corev1.PodStatus{StartTime: &metav1.Time{Time: m.now.Add(-time.Minute)}}}
		maps.Copy(pod.Labels, m.workload.Spec.Template.Labels)
		m.equip(pod)
		bring(pod, nil, without(m.brings[m.revision], handlersOf(m.hook(lifecycle.PreNormal)))) // with which it would wait for nobody
		p.api = pod
		m.pods = append(m.pods, p)
		m.move(p, appspub.LifecycleStatePreparingNormal)
	}
}

func (m *model) lifecycle() *appspub.Lifecycle {
	if m.workload == nil {
		return nil
	}
	return m.workload.Spec.Lifecycle
}

// hook is one hook of the CloneSet, or nil.
func (m *model) hook(h lifecycle.Hook) *appspub.LifecycleHook {
	l := m.lifecycle()
	if l == nil {
		return nil
	}
	return map[lifecycle.Hook]*appspub.LifecycleHook{
		lifecycle.PreNormal: l.PreNormal, lifecycle.InPlaceUpdate: l.InPlaceUpdate, lifecycle.PreDelete: l.PreDelete,
	}[h]
}

// isHooked and isAllHooked are Kruise's IsPodHooked and IsPodAllHooked.
func isHooked(hook *appspub.LifecycleHook, pod *corev1.Pod) bool {
	return slices.ContainsFunc(handlersOf(hook), func(h lifecycle.Handler) bool { return carries(pod, h) })
}

func isAllHooked(hook *appspub.LifecycleHook, pod *corev1.Pod) bool {
	return hook != nil && !slices.ContainsFunc(handlersOf(hook), func(h lifecycle.Handler) bool { return !carries(pod, h) })
}

// ours are the handlers of a hook that Rollcall owns.
func ours(hook *appspub.LifecycleHook) []lifecycle.Handler {
	o := modelOwnership()
	return slices.DeleteFunc(handlersOf(hook), func(h lifecycle.Handler) bool { return !o.Owns(h.Key()) })
}

// refresh is Kruise's refreshPodState.
func (m *model) refresh(p *modelPod) {
	inPlace, l := m.hook(lifecycle.InPlaceUpdate), m.lifecycle()
	done := func() {
		if l != nil && !isAllHooked(inPlace, p.api) {
			if inPlace != nil && inPlace.MarkPodNotReady {
				delete(p.held, "update")
			}
			m.move(p, appspub.LifecycleStateUpdated)
			return
		}
		m.move(p, appspub.LifecycleStateNormal)
	}
	switch stateOf(p.api) {
	case appspub.LifecycleStatePreparingNormal:
		if hook := m.hook(lifecycle.PreNormal); hook == nil || isAllHooked(hook, p.api) {
			m.checkInService(p, "Kruise goes on from PreparingNormal", hook)
			m.move(p, appspub.LifecycleStateNormal)
		}
	case appspub.LifecycleStatePreparingUpdate:
		if p.revision == m.revision {
			done()
		}
	case appspub.LifecycleStateUpdating:
		if p.running == p.revision {
			if isAllHooked(inPlace, p.api) && len(ours(inPlace)) > 0 && p.takenBack && !p.unwritten {
				m.violatef("I2: Kruise takes %s for back from Updating, by handlers that the update brought", p.uid)
			}
			done()
		}
	case appspub.LifecycleStateUpdated:
		if inPlace == nil || isAllHooked(inPlace, p.api) {
			m.checkInService(p, "Kruise goes on from Updated", inPlace)
			m.move(p, appspub.LifecycleStateNormal)
		}
	case appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingDelete:
	}
}

// update is Kruise's updatePod.
func (m *model) update(p *modelPod) {
	if p.revision == m.revision || m.paused || p.specified {
		return
	}
	inPlace := m.hook(lifecycle.InPlaceUpdate)
	prepare := func(also ...func(*corev1.Pod)) {
		if inPlace.MarkPodNotReady {
			p.held["update"] = true
		}
		m.move(p, appspub.LifecycleStatePreparingUpdate, also...)
	}
	switch stateOf(p.api) {
	case appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal:
		if isHooked(inPlace, p.api) {
			prepare()
			return
		}
		m.checkUnasked(p, "updates", inPlace)
	case appspub.LifecycleStateUpdated:
		if inPlace != nil {
			prepare(func(pod *corev1.Pod) {
				for _, h := range handlersOf(inPlace) {
					if !carries(pod, h) {
						setHandler(pod, h)
					}
				}
			})
		}
		return
	case appspub.LifecycleStatePreparingUpdate:
		if isHooked(inPlace, p.api) {
			return
		}
	case appspub.LifecycleStateUpdating:
	case appspub.LifecycleStatePreparingDelete:
		return
	}
	before := m.brings[p.revision]
	p.revision, p.takenBack, p.unwritten = m.revision, false, p.unwritten || len(m.brings[m.revision]) > 0
	if m.metadata[m.revision] {
		p.running = p.revision
	}
	if len(without(before, m.brings[m.revision])) > 0 {
		p.registeredIn = -1 // the update takes handlers away, and nobody can arm the pod before
	}
	m.move(p, appspub.LifecycleStateUpdating, func(pod *corev1.Pod) { bring(pod, before, m.brings[m.revision]) })
}

// bring writes the difference of two templates' handlers, as OpenKruise does together with its move to Updating.
func bring(pod *corev1.Pod, before, after []lifecycle.Handler) {
	for _, h := range without(before, after) {
		if carries(pod, h) {
			flip(pod, h, false)
		}
	}
	for _, h := range without(after, before) {
		if !carries(pod, h) {
			setHandler(pod, h)
		}
	}
}

// remove is Kruise's deletePods.
func (m *model) remove(p *modelPod) {
	hook := m.hook(lifecycle.PreDelete)
	if !isHooked(hook, p.api) {
		if stateOf(p.api) != appspub.LifecycleStatePreparingDelete {
			m.checkUnasked(p, "deletes", hook)
		}
		m.kill(p, "kruise")
		return
	}
	if stateOf(p.api) != appspub.LifecycleStatePreparingDelete {
		if hook.MarkPodNotReady {
			p.held["delete"] = true
		}
		m.move(p, appspub.LifecycleStatePreparingDelete)
	}
}

// cancel is Kruise's managePreparingDelete, which brings a pod back that need not go.
func (m *model) cancel(p *modelPod) {
	if l := m.lifecycle(); m.workload == nil || p.specified || l != nil && (marks(l.InPlaceUpdate) || marks(l.PreDelete)) {
		return
	}
	m.move(p, appspub.LifecycleStatePreparingNormal)
}

func marks(hook *appspub.LifecycleHook) bool { return hook != nil && hook.MarkPodNotReady }

// kill is a delete at the API server.
func (m *model) kill(p *modelPod, by string) {
	if p.api == nil || p.api.DeletionTimestamp != nil {
		return
	}
	m.logf("%s: deletes %s", by, p.uid)
	pod := p.api.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: m.now}
	p.hadFinalizer = slices.ContainsFunc(pod.Finalizers, ownedFinalizer)
	m.commit(p, pod)
}

// finish removes a dead pod whose containers ended and whose finalizers are gone.
func (m *model) finish(p *modelPod) {
	if p.up {
		p.up = false
		m.commit(p, p.api.DeepCopy())
	}
	if len(p.api.Finalizers) > 0 {
		return
	}
	m.logf("kubelet: %s is gone", p.uid)
	p.api = nil
	p.versions = append(p.versions, nil)
}

// traceTail is the end of what happened, for a failure.
func (m *model) traceTail() string {
	return strings.Join(m.trace[max(0, len(m.trace)-80):], "\n\t")
}
