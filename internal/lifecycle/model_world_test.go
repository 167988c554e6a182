package lifecycle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The model's times. A call that timed out is carried out within twice the timeout of its start, or never; a manager
// that died is followed by the next one only after that, which the lease sees to.
const (
	modelTimeout   = 2 * time.Second
	modelLateBound = 2 * modelTimeout
	// modelPanic is the panic threshold in percent.
	modelPanic = 50
)

// modelEpoch is when every walk begins.
func modelEpoch() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// world is a CloneSet and its pods, as Kruise, kubelet and people move them. Everything in it is random, from one seed.
type world struct {
	rng   *rand.Rand
	now   time.Time
	calm  bool // no more faults and no more whims: everyone does what is to be done
	drain time.Duration
	// How this walk is: how many pods there are, how long a while is and a call takes, how often calls fail, and in how
	// many steps the manager dies once.
	replicas int
	while    time.Duration
	takes    time.Duration
	failures int
	lifespan int
	// unready is the policy for pods in Normal that are not ready.
	unready UnreadyPolicy
	guard   bool

	workload *Workload // nil once the CloneSet is gone
	shapes   []*Workload
	edits    int // of the workload's hooks
	revision int
	paused   bool

	pods     []*modelPod
	created  int
	changes  int // of pods, and calls of the registry
	registry *modelRegistry
	// remembers reports whether the manager knows of calls for the instance.
	remembers func(entry) bool

	trace     []string
	violation string
}

// modelPod is a pod, with what only its node and the test know of it.
type modelPod struct {
	api      *corev1.Pod   // nil once it is gone
	versions []*corev1.Pod // all that the API server ever had, for views that lag; nil is the last of a pod that is gone
	uid      types.UID
	revision int // that Kruise asked for
	running  int // that kubelet runs
	healthy  bool
	up       bool            // containers are ready
	held     map[string]bool // markPodNotReady, by hook
	stays    map[string]bool // timestamps and states that it was in
	// specified for deletion, which can't be cancelled.
	specified bool

	// For the checks:
	releasedHook bool      // we let Kruise go on with an update or a delete
	disturbed    bool      // since preNormal was asserted: not ready for a moment, a new IP, or other hooks
	wasOut       bool      // it was not in rotation, at its present address, when it left Normal
	unwritten    bool      // a registry was asked to take it out, or the hooks were edited, and no visit has ended since
	taken        bool      // we let Kruise update it, and have not yet said that it is back
	hadFinalizer bool      // a finalizer of ours stood on it when it was deleted
	unasked      bool      // Kruise took it with a hook that could not be armed yet
	unarmed      []Handler // what could not be armed before it was last put in service: it says "go on" there
	registeredIn int       // the edit of the hooks under which it was last told to be in service; -1 never
	orphaned     bool      // a manager died that knew it, or none ran when it went
}

func newWorld(seed uint64) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0x5eed)), now: modelEpoch(), revision: 1, registry: newModelRegistry()}
	w.drain = []time.Duration{0, 0, 20 * time.Second}[w.rng.IntN(3)]
	w.replicas = 1 + w.rng.IntN(3)
	w.takes = []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, modelTimeout}[w.rng.IntN(3)]
	w.while = []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second}[w.rng.IntN(3)]
	w.failures = []int{10, 30, 60}[w.rng.IntN(3)]
	w.lifespan = []int{30, 150, 600}[w.rng.IntN(3)]
	w.remembers = func(entry) bool { return true }
	w.shapes = modelShapes()
	w.unready = []UnreadyPolicy{UnreadyFailOver, UnreadyKeep}[w.rng.IntN(2)]
	w.guard = w.rng.IntN(2) == 0
	w.workload = w.shapes[w.rng.IntN(len(w.shapes))]
	w.scale()
	return w
}

// modelShapes are hooks in every style, each with something of ours in it.
func modelShapes() []*Workload {
	preNormal, update, del := label("example.com/normal", "go"), label("example.com/update", "blocked"), label("example.com/delete", "true")
	fUpdate, fDelete := finalizer("example.com/f-update"), finalizer("exact.io/registered")
	all := label("example.com/all", "held")
	workload := func(preNormal, inPlaceUpdate, preDelete *appspub.LifecycleHook) *Workload {
		return &Workload{
			Lifecycle: &appspub.Lifecycle{PreNormal: preNormal, InPlaceUpdate: inPlaceUpdate, PreDelete: preDelete},
			Selector:  selector("app"),
		}
	}
	markNotReady := func(h *appspub.LifecycleHook) *appspub.LifecycleHook {
		h.MarkPodNotReady = true
		return h
	}
	templated := workload(hookOf(preNormal), hookOf(update), hookOf(del))
	templated.TemplateLabels = map[string]string{
		preNormal.Label: "stop", update.Label: update.Value, del.Label: del.Value, markKeyOwned: "true",
	}
	return []*Workload{
		workload(hookOf(preNormal), hookOf(update), hookOf(del)),
		templated,
		workload(hookOf(preNormal), hookOf(fUpdate), hookOf(fDelete)),
		workload(hookOf(preNormal), hookOf(update, fUpdate), hookOf(del, fDelete)),
		workload(nil, hookOf(fDelete), hookOf(fDelete)),
		workload(hookOf(all), hookOf(all), hookOf(all)),
		workload(hookOf(preNormal, label("other.io/normal", "true")), hookOf(update, finalizer("other.io/update")),
			hookOf(fDelete, label("other.io/delete", "true"))),
		workload(nil, nil, hookOf(fDelete)),
		workload(nil, hookOf(update), nil),
		workload(hookOf(preNormal), markNotReady(hookOf(update)), markNotReady(hookOf(del))),
	}
}

func (w *world) logf(format string, args ...any) {
	w.trace = append(w.trace, w.now.Format("05.000 ")+fmt.Sprintf(format, args...))
}

// violatef notes the first broken promise.
func (w *world) violatef(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.logf("VIOLATION %s", w.violation)
	}
}

// last is the pod as the API server last had it.
func (p *modelPod) last() *corev1.Pod {
	if p.api != nil {
		return p.api
	}
	return p.versions[len(p.versions)-2]
}

// pick is one of the pods, mostly one that lives or was the last to go.
func (w *world) pick() *modelPod {
	from := 0
	if w.chance(90) {
		from = max(0, len(w.pods)-w.replicas-1)
	}
	return w.pods[from+w.rng.IntN(len(w.pods)-from)]
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// pass lets time pass, and what was late lands.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, in := range w.registry.land(w.now) {
		w.logf("late: %s", in)
	}
	w.check()
}

// commit writes a pod as the API server does: a new version, and gone with the last finalizer of a dead pod.
func (w *world) commit(p *modelPod, pod *corev1.Pod) {
	before := p.api
	p.api = dropEmpty(pod)
	w.setReady(p)
	if reflect.DeepEqual(before, p.api) {
		return
	}
	w.changes++
	p.versions = append(p.versions, p.api.DeepCopy())
	w.check()
}

func (w *world) setReady(p *modelPod) {
	ready := p.up && len(p.held) == 0
	if !ready {
		p.disturbed = true
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.api.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
}

// move is a move of Kruise's, with the timestamp in whole seconds.
func (w *world) move(p *modelPod, to appspub.LifecycleStateType, also ...func(*corev1.Pod)) {
	from := state(p.api)
	// Back in a state within one second, a pod looks as if it had stayed. A manager that put it in service in between and
	// died before it wrote that down is deceived: the timestamp can't tell, and the design accepts it.
	stay := func() string { return w.now.Format(time.RFC3339) + string(to) }
	for p.stays[stay()] {
		w.pass(time.Second)
	}
	p.stays[stay()] = true
	if from == appspub.LifecycleStateUpdating {
		p.unasked = false
	}
	if from == appspub.LifecycleStateNormal {
		p.wasOut = !w.registry.exactly(p.uid, modelInstances(p.api))
	}
	w.logf("kruise: %s %s -> %s", p.uid, from, to)
	switch to {
	case appspub.LifecycleStatePreparingNormal:
		// Between the call and the write that follows it, nothing can keep Kruise from counting the pod available. Nor can a
		// key that preDelete shares, which stays while the pod drains.
		preNormal := ours(w.hook(PreNormal))
		shared := len(preNormal) > 0 && len(without(preNormal, ours(w.hook(PreDelete)))) == 0
		p.disturbed = p.unwritten || p.wasOut || shared && !p.releasedHook
		p.releasedHook = false
	case appspub.LifecycleStateNormal, appspub.LifecycleStateUpdated:
		// Rolled back before we released: our handlers stand as they stood, and nobody asked us. With another owner's that
		// makes a pod Normal before it is back, as trap 1 does.
		p.disturbed = p.disturbed || from == appspub.LifecycleStatePreparingUpdate && !p.releasedHook
		p.releasedHook = false
		if to == appspub.LifecycleStateNormal {
			p.arrive(w)
		}
	case appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete:
	}
	pod := p.api.DeepCopy()
	for _, change := range also {
		change(pod)
	}
	setHandler(pod, label(appspub.LifecycleStateKey, string(to)))
	annotate(pod, appspub.LifecycleTimestampKey, w.now.Format(time.RFC3339))
	w.commit(p, pod)
}

// arrive notes that Kruise counts the pod available. One that was updated is armed by then, where preNormal is ours: it was
// cleared for the update, and is set again together with inPlaceUpdate.
func (p *modelPod) arrive(w *world) {
	if p.taken && len(ours(w.hook(PreNormal))) > 0 {
		p.unarmed, p.unasked = nil, false
	}
	p.taken = false
}

// scale creates the pods that are missing.
func (w *world) scale() {
	if w.workload == nil {
		return
	}
	active := 0
	for _, p := range w.pods {
		if p.api != nil && p.api.DeletionTimestamp == nil && !finished(p.api) && state(p.api) != appspub.LifecycleStatePreparingDelete {
			active++
		}
	}
	for ; active < w.replicas; active++ {
		w.created++
		p := &modelPod{uid: types.UID(fmt.Sprintf("pod-%d", w.created)), revision: w.revision, running: w.revision,
			healthy: true, held: map[string]bool{}, stays: map[string]bool{}, registeredIn: -1}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(p.uid), UID: p.uid, Labels: map[string]string{"app": "web"},
			CreationTimestamp: metav1.Time{Time: w.now}}}
		maps.Copy(pod.Labels, w.workload.TemplateLabels)
		p.api = pod
		w.pods = append(w.pods, p)
		w.move(p, appspub.LifecycleStatePreparingNormal)
	}
}

func (w *world) lifecycle() *appspub.Lifecycle {
	if w.workload == nil {
		return nil
	}
	return w.workload.Lifecycle
}

// hook is one hook of the CloneSet, or nil.
func (w *world) hook(h Hook) *appspub.LifecycleHook {
	l := w.lifecycle()
	if l == nil {
		return nil
	}
	return map[Hook]*appspub.LifecycleHook{PreNormal: l.PreNormal, InPlaceUpdate: l.InPlaceUpdate, PreDelete: l.PreDelete}[h]
}

// isHooked and isAllHooked are Kruise's IsPodHooked and IsPodAllHooked.
func isHooked(hook *appspub.LifecycleHook, pod *corev1.Pod) bool {
	return slices.ContainsFunc(handlersOf(hook), func(h Handler) bool { return carries(pod, h) })
}

func isAllHooked(hook *appspub.LifecycleHook, pod *corev1.Pod) bool {
	return hook != nil && !slices.ContainsFunc(handlersOf(hook), func(h Handler) bool { return !carries(pod, h) })
}

// ours are the handlers of a hook that the configuration claims.
func ours(hook *appspub.LifecycleHook) []Handler {
	o := testOwnership()
	return filter(handlersOf(hook), func(h Handler) bool { return o.Owns(h.Key()) })
}

// refresh is Kruise's refreshPodState.
func (w *world) refresh(p *modelPod) {
	inPlace, l := w.hook(InPlaceUpdate), w.lifecycle()
	done := func() {
		if l != nil && !isAllHooked(inPlace, p.api) {
			if inPlace != nil && inPlace.MarkPodNotReady {
				delete(p.held, "update")
			}
			w.move(p, appspub.LifecycleStateUpdated)
			return
		}
		w.move(p, appspub.LifecycleStateNormal)
	}
	switch state(p.api) {
	case appspub.LifecycleStatePreparingNormal:
		if hook := w.hook(PreNormal); hook == nil || isAllHooked(hook, p.api) {
			w.checkInService(p, "Kruise goes on from PreparingNormal", hook)
			w.move(p, appspub.LifecycleStateNormal)
		}
	case appspub.LifecycleStatePreparingUpdate:
		if p.revision == w.revision {
			done()
		}
	case appspub.LifecycleStateUpdating:
		if p.running == p.revision {
			done()
		}
	case appspub.LifecycleStateUpdated:
		if inPlace == nil || isAllHooked(inPlace, p.api) {
			w.checkInService(p, "Kruise goes on from Updated", inPlace)
			w.move(p, appspub.LifecycleStateNormal)
		}
	case appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingDelete:
	}
}

// update is Kruise's updatePod.
func (w *world) update(p *modelPod) {
	if p.revision == w.revision || w.paused || p.specified {
		return
	}
	inPlace := w.hook(InPlaceUpdate)
	prepare := func(also ...func(*corev1.Pod)) {
		if inPlace.MarkPodNotReady {
			p.held["update"] = true
		}
		w.move(p, appspub.LifecycleStatePreparingUpdate, also...)
	}
	switch state(p.api) {
	case appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal:
		if isHooked(inPlace, p.api) {
			prepare()
			return
		}
		w.checkUnasked(p, "updates", inPlace)
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
	p.revision = w.revision
	w.move(p, appspub.LifecycleStateUpdating)
}

// remove is Kruise's deletePods.
func (w *world) remove(p *modelPod) {
	hook := w.hook(PreDelete)
	if !isHooked(hook, p.api) {
		if state(p.api) != appspub.LifecycleStatePreparingDelete {
			w.checkUnasked(p, "deletes", hook)
		}
		w.kill(p, "kruise")
		return
	}
	if state(p.api) != appspub.LifecycleStatePreparingDelete {
		if hook.MarkPodNotReady {
			p.held["delete"] = true
		}
		w.move(p, appspub.LifecycleStatePreparingDelete)
	}
}

// cancel is Kruise's managePreparingDelete, which brings a pod back that need not go.
func (w *world) cancel(p *modelPod) {
	if l := w.lifecycle(); w.workload == nil || p.specified || l != nil && marksNotReady(l) {
		return
	}
	w.move(p, appspub.LifecycleStatePreparingNormal)
}

// kill is a delete at the API server.
func (w *world) kill(p *modelPod, by string) {
	if p.api == nil || p.api.DeletionTimestamp != nil {
		return
	}
	w.logf("%s: deletes %s", by, p.uid)
	pod := p.api.DeepCopy()
	pod.DeletionTimestamp = &metav1.Time{Time: w.now}
	p.hadFinalizer = slices.ContainsFunc(pod.Finalizers, ourFinalizer)
	w.commit(p, pod)
}

// finish removes a dead pod whose containers ended and whose finalizers are gone.
func (w *world) finish(p *modelPod) {
	if p.up {
		p.up = false
		w.commit(p, p.api.DeepCopy())
	}
	if len(p.api.Finalizers) > 0 {
		return
	}
	w.logf("kubelet: %s is gone", p.uid)
	p.api = nil
	p.versions = append(p.versions, nil)
}

// traceTail is the end of what happened, for a failure.
func (w *world) traceTail() string { return strings.Join(w.trace[max(0, len(w.trace)-80):], "\n\t") }
