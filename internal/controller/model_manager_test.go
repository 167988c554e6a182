package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/drain"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/observe"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

var (
	errDead = errors.New("the manager died")
	errLost = errors.New("connection reset")
)

// modelManager is the manager of a model: the real reconciler, which dies anywhere. After that, nothing that it still does has
// an effect.
type modelManager struct {
	*PodReconciler

	dead    bool
	downFor time.Time // until then, none leads
	queue   requests

	// all are the registries, registries those that pods belong to, and there those that the configuration has. asks: they can be asked for one
	// instance. wanders: the configuration moves pods from one to another, and the manager never dies, since only a manager
	// that lives knows what it had not written down of a registry that pods have left meanwhile.
	all, registries, there []string
	asks, wanders          bool
	// failed counts the calls that failed since the registries' clients were made.
	failed int

	// called is what the present manager asked for last, and acked whether it had the answer. doubted are the calls that failed,
	// until the registry was asked.
	called         map[entry]registry.State
	acked, doubted map[entry]bool
	// inSince is since when an entry has been in by the present manager's calls.
	inSince map[entry]time.Time

	// The present visit: when it began, the edits that it rests on, the pod as it was seen, what can't be armed before the pod
	// is put in service, and whether a write failed.
	began   time.Time
	edits   int
	seen    *corev1.Pod
	unarmed []lifecycle.Handler
	refused bool
	// mayTell is the Event of a release in this visit, which needs one where mustTell, and told the one that came.
	mayTell, told plan.Excuse
	mustTell      bool
}

// manage chooses how the manager is configured and starts it.
func (m *model) manage(seed uint64) {
	if m.manager.all = []string{"default"}; seed%2 == 1 {
		m.manager.all = []string{"default", "new"}
	}
	m.manager.registries, m.manager.there = m.manager.all, m.manager.all
	m.manager.wanders, m.manager.asks = seed%4 == 1 && !m.losing, seed%8 < 4 //nolint:mnd // every combination
	if seed%3 == 2 {                                                         //nolint:mnd // the same
		m.registerThemselves()
	}
	m.choose()
	m.lead()
}

// lead has a manager start that remembers nothing.
func (m *model) lead() {
	c := clusterstate.CacheThrough(interceptor.NewClient(nil, interceptor.Funcs{Get: m.get, List: m.list, Patch: m.patch}))
	live := interceptor.NewClient(nil, interceptor.Funcs{Get: m.getLive})
	m.manager.dead, m.manager.called, m.manager.doubted = false, map[entry]registry.State{}, map[entry]bool{}
	m.manager.acked, m.manager.inSince = map[entry]bool{}, map[entry]time.Time{}
	m.manager.PodReconciler = New(Options{
		Client: c, Pods: clusterstate.PodsThrough(c), APIReader: live, Recorder: modelRecorder{m}, Tracker: tracker.New(), State: clusterstate.New(c, clusterstate.PodsThrough(c), nil),
		Releases: metrics.NewReleaseMetrics(prometheus.NewRegistry()), Workers: 1, Clock: m.clock,
		Ahead: func() time.Duration { return 0 }, PodCondition: func() bool { return false }, NoCondition: func() string { return "" }, Asker: mute{},
	})
	if err := m.manager.started(context.Background(), &m.manager.queue); err != nil {
		panic(err)
	}
	m.configure(m.manager.there...)
	for _, p := range m.pods {
		p.view = len(p.versions) - 1
		if p.view > 0 && !m.calm && m.chance(30) {
			p.view-- // the cache lags
		}
		if pod := p.versions[p.view]; pod != nil {
			m.manager.podEvents().Create(context.Background(),
				event.TypedCreateEvent[client.Object]{Object: lifecycle.PodOf(pod), IsInInitialList: true}, &m.manager.queue)
		} else {
			p.done = true
		}
	}
	if m.chance(50) || m.rivals { // which of two namespaces has a name, a leader knows by the lists that it waits for
		m.listAll()
	}
}

// configure gives the manager a configuration with these registries and new clients, as when a credential was rotated.
func (m *model) configure(there ...string) {
	m.manager.there, m.manager.failed = there, 0
	name, err := service.ParseNameTemplate("{label:app}")
	if err != nil {
		panic(err)
	}
	s := observe.Settings{
		Cluster: testCluster, DefaultRegistries: m.manager.registries, Drain: drain.Fixed(m.drain), Guard: m.guard,
		ProceedAfter: m.policy,
		Registries:   map[string]*registryclient.Client{}, RegisteredByApp: maps.Clone(m.apps.by),
		Rules: clusterstate.Rules{
			Ownership: modelOwnership(), Services: service.Rules{Name: name}, PanicThreshold: m.panicThreshold,
		},
	}
	m.configured(&s)
	for _, name := range there {
		driver := &modelDriver{m, name, lifecycle.Rollcall}
		o := registryclient.Options{Name: name, Driver: name, Timeout: modelTimeout, MaxInFlight: modelCallsAtOnce}
		switch {
		case m.apps.one == oneCaller:
			s.Registries[name] = registryclient.New(callingDriver{steeredDriver{askedDriver{driver}}}, o)
		case m.apps.one == oneServer:
			o.Driver = "the same"
			fallthrough
		case m.apps.by != nil:
			s.Registries[name] = registryclient.New(steeredDriver{askedDriver{driver}}, o)
		case m.manager.asks:
			s.Registries[name] = registryclient.New(askedDriver{driver}, o)
		default:
			s.Registries[name] = registryclient.New(driver, o)
		}
	}
	m.manager.Apply(s)
}

// instancesOf are those that the pod has now.
func (m *model) instancesOf(pod *corev1.Pod) (instances []lifecycle.Key) {
	if pod.Status.PodIP == "" {
		return nil
	}
	for _, name := range m.manager.registries {
		byApp := m.apps.by[name]
		for _, in := range m.modelServices(pod, name) {
			if in.Address, in.Port = m.endpointOf(pod, in.Port); byApp {
				in.Address = addressesOf(pod)[m.podOf(pod.UID).appAt]
				in = in.By(lifecycle.Application)
			}
			instances = append(instances, in)
		}
	}
	return m.entriesOf(pod.UID, instances)
}

// modelServices are the pod's in a registry, without their address.
func (m *model) modelServices(pod *corev1.Pod, registry string) (keys []lifecycle.Key) {
	for one := range strings.SplitSeq(pod.Annotations[service.AnnotationServices], ",") {
		name, port, _ := strings.Cut(one, "=")
		number, err := strconv.Atoi(port)
		if err != nil {
			panic(err)
		}
		keys = append(keys, lifecycle.Key{Registry: registry, Service: lifecycle.Service(m.placeOf(pod, registry) + name), Port: number})
	}
	slices.SortFunc(keys, lifecycle.Key.Compare)
	return keys
}

// visit is one look of the manager at one pod.
func (m *model) visit(p *modelPod) {
	if m.now.Before(m.manager.downFor) {
		p.orphaned = p.orphaned || p.api == nil && p.view < 0
		m.pass(m.aWhile())
		return
	}
	if m.manager.dead {
		m.lead()
	}
	m.trouble()
	m.watch(p)
	if p.done {
		return
	}
	m.begin(p)
	var result reconcile.Result
	var err error
	m.inTurns(func() {
		result, err = m.manager.Reconcile(context.Background(), lifecycle.PodID{
			NamespacedName: types.NamespacedName{Namespace: p.namespace, Name: string(p.uid)}, UID: p.uid,
		})
	})
	m.logWait(p, result.RequeueAfter)
	switch {
	case m.manager.dead:
		m.die()
	case m.manager.told != m.manager.mayTell && (m.manager.told != plan.Acknowledged && m.manager.edits == m.edits || m.manager.mustTell && !m.manager.refused):
		m.violatef("%s was released with the Event of excuse %d, want %d", p.uid, m.manager.told, m.manager.mayTell)
	case err == nil && m.manager.seen == nil:
		p.done = result.RequeueAfter == 0
	case err == nil && !m.manager.refused && result.RequeueAfter != observe.StaleRecheck:
		stayed := p.api != nil && lifecycle.StampOf(lifecycle.PodOf(m.manager.seen)) == lifecycle.StampOf(lifecycle.PodOf(p.api))
		p.unwritten = p.unwritten && (m.manager.edits != m.edits || !stayed)
		p.takenBack = p.takenBack || stayed && stateOf(m.manager.seen) == appspub.LifecycleStateUpdating
	}
}

// logWait notes what the pod waits for from now on, since not everything gets an Event, and when it is looked at again.
func (m *model) logWait(p *modelPod, again time.Duration) {
	text := again.String()
	for _, w := range m.manager.memory.Waits() {
		if w.UID == string(p.uid) {
			text += fmt.Sprintf(", waits: %s %s: %s", w.Hook, w.Reason, w.Message)
		}
	}
	if text != p.waits {
		m.logf("rollcall: looks at %s again in %s", p.uid, text)
		p.waits = text
	}
}

// begin notes what the visit rests on.
func (m *model) begin(p *modelPod) {
	m.manager.began, m.manager.mayTell, m.manager.told, m.manager.mustTell = m.now, plan.Acknowledged, plan.Acknowledged, false
	m.manager.edits, m.manager.seen, m.manager.refused, m.manager.unarmed = m.edits, p.versions[p.view], false, nil
	if m.manager.seen == nil || !isReady(m.manager.seen) {
		return
	}
	switch stateOf(m.manager.seen) {
	case appspub.LifecycleStatePreparingNormal:
		m.manager.unarmed = ours(m.hook(lifecycle.PreNormal))
	case appspub.LifecycleStateUpdated:
		m.manager.unarmed = ours(m.hook(lifecycle.InPlaceUpdate))
	default:
	}
}

// watch shows the manager a later version of the pod, as a cache that may lag does.
func (m *model) watch(p *modelPod) {
	latest, ctx, q := len(p.versions)-1, context.Background(), &m.manager.queue
	defer q.take()
	before := p.view
	if p.view = latest; before >= 0 && !m.calm && m.chance(30) {
		p.view = before + m.rng.IntN(latest-before+1)
	}
	switch pod := p.versions[p.view]; {
	case before == p.view:
	case before < 0 && pod == nil: // it was gone before this process looked
		p.orphaned, p.done = true, true
	case before < 0:
		m.manager.podEvents().Create(ctx, event.TypedCreateEvent[client.Object]{Object: lifecycle.PodOf(pod)}, q)
	case pod == nil:
		m.manager.podEvents().Delete(ctx, event.TypedDeleteEvent[client.Object]{Object: lifecycle.PodOf(p.last())}, q)
	default:
		m.manager.podEvents().Update(ctx, event.TypedUpdateEvent[client.Object]{ObjectOld: lifecycle.PodOf(p.versions[before]), ObjectNew: lifecycle.PodOf(pod)}, q)
	}
}

// step is where others act, and where the manager may die.
func (m *model) step() { m.stepOf(m.lifespan) }

// stepOf is a step that the manager dies in once in so many times.
func (m *model) stepOf(times int) {
	m.others()
	if m.mayDie() && m.rng.IntN(times) == 0 {
		m.manager.dead = true
	}
}

func (m *model) mayDie() bool { return !m.calm && !m.manager.wanders }

// die loses all that was only in memory. The lease keeps the next one out until every call of this one has landed.
func (m *model) die() {
	m.logf("rollcall: dies")
	m.manager.dead = true
	for _, p := range m.pods {
		p.orphaned = p.orphaned || !p.done
	}
	m.manager.downFor = m.now.Add(modelLateBound + time.Duration(m.rng.IntN(5000))*time.Millisecond)
	if m.chance(30) {
		m.outage(m.manager.all...) // both are lost together
	}
}

// trouble changes the configuration, or has a registry list what it has or lose an entry.
func (m *model) trouble() {
	if m.calm {
		return
	}
	if m.manager.failed > 2 {
		m.configure(m.manager.there...) // before a breaker opens, which lasts by the clock on the wall
	}
	all := m.manager.all
	one := all[m.rng.IntN(len(all))]
	if m.apps.by != nil && m.chance(30) {
		m.glance()
	}
	switch n := m.rng.IntN(100); {
	case n < 5:
		m.listAll()
	case n < 8:
		m.lose()
	case n >= 97:
		m.outage(one)
	case n >= 19 || !m.manager.wanders:
	case n >= 15 && m.apps.by == nil:
		m.readdress()
	case n >= 15 && m.apps.one == "":
		m.changeHands(one)
	case n < 11:
		m.reassign(all, all)
	case n < 13:
		m.reassign([]string{one}, all)
	default:
		m.reassign([]string{one}, []string{one})
	}
}

// readdress has the pods registered at another of their addresses, or at the same.
func (m *model) readdress() {
	m.choices.address = modelAddresses()[m.rng.IntN(len(modelAddresses()))]
	m.logf("someone: wants the pods at their address %q", m.choices.address)
	m.configure(m.manager.there...)
	m.edited()
}

// reassign changes the registries that pods belong to, and those that there are.
func (m *model) reassign(into, there []string) {
	m.logf("someone: moves the pods into %q of %q", into, there)
	m.manager.registries = into
	m.configure(there...)
	m.edited()
}

// listAll holds what the registries have against what the manager knows.
func (m *model) listAll() {
	names := map[string]bool{}
	for _, name := range m.manager.there {
		names[name] = true
	}
	for _, name := range m.manager.there {
		l := tracker.Listing{
			Registry: name, Names: names, Asked: m.now, Confirms: true,
			Foreign: m.foreign(name),
		}
		for e, state := range m.registry.entries {
			if e.in.Registry == name && !e.isByApp() {
				l.Entries = append(l.Entries, registry.Entry{Instance: m.registry.instances[e], State: state})
			}
		}
		m.manager.Tracker.Compare(l)
		m.listClaims(l)
	}
}

// lose has a registry lose an entry, which a heartbeat finds out at once.
func (m *model) lose() {
	for _, e := range m.registry.sorted(func(e entry) bool { return !e.isByApp() && slices.Contains(m.manager.there, e.in.Registry) }) {
		m.logf("registry: loses %s at %s", e.uid, e.in.Address)
		m.registry.carryOut(effect{e, registry.Absent, m.now})
		m.podOf(e.uid).disturbed = true
		m.pass(time.Millisecond)
		m.manager.Tracker.Missing(tracker.Target{Registry: e.in.Registry, Instance: m.registry.instances[e]}, m.now)
		return
	}
}

func (m *model) podOf(uid types.UID) *modelPod {
	return m.pods[slices.IndexFunc(m.pods, func(p *modelPod) bool { return p.uid == uid })]
}

func notFound(key client.ObjectKey) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
}

// get reads from the manager's cache.
func (m *model) get(_ context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *corev1.Pod:
		if p := m.podOf(types.UID(key.Name)); p.versions[p.view] != nil {
			p.versions[p.view].DeepCopyInto(obj)
			return nil
		}
	case *kruisev1alpha1.CloneSet:
		if m.workload != nil {
			m.workloadIn(key.Namespace).DeepCopyInto(obj)
			return nil
		}
	case *corev1.Node:
		m.node(key.Name).DeepCopyInto(obj)
		return nil
	}
	return notFound(key)
}

// getLive reads from the API server.
func (m *model) getLive(
	ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption,
) error {
	pod, isPod := obj.(*corev1.Pod)
	switch {
	case !isPod:
		return m.get(ctx, c, key, obj)
	case m.podOf(types.UID(key.Name)).api == nil:
		return notFound(key)
	}
	m.podOf(types.UID(key.Name)).api.DeepCopyInto(pod)
	return nil
}

func (m *model) list(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
	switch list := list.(type) {
	case *kruisev1alpha1.CloneSetList:
		for _, namespace := range m.namespaces() {
			if m.workload != nil {
				list.Items = append(list.Items, *m.workloadIn(namespace))
			}
		}
	case *metav1.PartialObjectMetadataList:
		for _, namespace := range m.namespaces() {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		}
	case *corev1.PodList:
		for _, p := range m.pods {
			if p.view >= 0 && p.versions[p.view] != nil {
				list.Items = append(list.Items, *p.versions[p.view])
			}
		}
	}
	return nil
}

// patch writes to the API server, which refuses it where the pod moved on. It may get lost on the way, or its answer may.
func (m *model) patch(
	_ context.Context, _ client.WithWatch, obj client.Object, patch client.Patch, _ ...client.PatchOption,
) (err error) {
	defer func() { m.manager.refused = err != nil }()
	data, err := patch.Data(obj)
	if err != nil {
		return fmt.Errorf("reading the patch: %w", err)
	}
	if m.step(); m.manager.dead {
		return errDead
	}
	p := m.podOf(types.UID(obj.GetName()))
	if p.api == nil {
		return notFound(client.ObjectKeyFromObject(obj))
	}
	if !m.calm && m.chance(10) {
		return errLost
	}
	before := p.api
	after, err := patched(before, data)
	if err != nil {
		m.logf("rollcall: the patch of %s is refused", p.uid)
		return patchTestFailed()
	}
	m.logf("rollcall: patches %s: %s", p.uid, data)
	p.unwritten = p.unwritten && m.manager.edits != m.edits
	m.commit(p, after)
	if m.manager.took(p.uid) && before.Annotations[lifecycle.AnnotationRecord] != after.Annotations[lifecycle.AnnotationRecord] {
		m.recorded(p)
	}
	m.checkPatch(p, m.manager.seen, before, p.api, m.manager.edits != m.edits)
	m.manager.seen = p.api.DeepCopy()
	p.api.ObjectMeta.DeepCopyInto(&obj.(*metav1.PartialObjectMetadata).ObjectMeta)
	if !m.calm && m.chance(10) {
		return errLost
	}
	m.step()
	return nil
}

// patched does to the pod what the API server does with a JSON Patch, with the library that the API server uses.
func patched(pod *corev1.Pod, data []byte) (*corev1.Pod, error) {
	operations, err := jsonpatch.DecodePatch(data)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	if text, err = operations.Apply(text); err != nil {
		return nil, err
	}
	changed := &corev1.Pod{}
	return changed, json.Unmarshal(text, changed)
}
