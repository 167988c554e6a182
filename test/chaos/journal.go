package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
)

// op is one operation of the registry's protocol, by the last part of its path.
type op string

const (
	opRegister   op = "register"
	opFailOver   op = "fail-over"
	opDeregister op = "deregister"
)

// opHeartbeat is what the leased registry adds to the protocol.
const opHeartbeat op = "heartbeat"

// changes reports whether the operation changes anything; the others ask.
func (o op) changes() bool { return o == opRegister || o == opFailOver || o == opDeregister }

// key is one instance of one pod in one registry.
type key struct {
	registry, uid, service, address string
	port                            int
}

func keyOf(name string, in registry.Instance) key {
	return key{registry: name, uid: in.UID, service: in.Service, address: in.Address, port: in.Port}
}

// String is the instance without the pod.
func (k key) String() string {
	return fmt.Sprintf("%s at %s:%d in registry %s", k.service, k.address, k.port, k.registry)
}

// call is one request that reached the registry. A zero time means: not yet, or never.
type call struct {
	number   int
	manager  string
	registry string
	op       op
	instance registry.Instance // of a call that asks only what it is narrowed to
	received time.Time
	applied  time.Time
	answered time.Time
	status   int // 0 where the answer was lost
	fault    string
	// seen is what the registry held when it was asked.
	seen map[key]registry.State
}

func (c *call) key() key { return keyOf(c.registry, c.instance) }

func (c *call) acknowledgedBy(at time.Time) bool {
	return !c.answered.IsZero() && !c.answered.After(at) && c.status >= 200 && c.status < 300
}

func (c *call) appliedBy(at time.Time) bool { return !c.applied.IsZero() && !c.applied.After(at) }

// doneTo reports whether the work was done to the instance between two times.
func (c *call) doneTo(k key, after, by time.Time) bool {
	return c.key() == k && c.appliedBy(by) && !c.applied.Before(after)
}

// patch is one write of a manager to a pod.
type patch struct {
	manager  string
	received time.Time
	finished time.Time
	status   int    // 0 where the API server's answer is not known
	version  uint64 // resource version of the pod after it
	body     string
}

// operation is one of a JSON Patch.
type operation struct {
	Op, Path string
	Value    any
}

// operations is empty for a body that is no JSON Patch: managers send no other.
func (w *patch) operations() []operation {
	var all []operation
	_ = json.Unmarshal([]byte(w.body), &all)
	return all
}

// changes reports whether the patch sets the handler, or clears it.
func (w *patch) changes(handler string, set bool) bool {
	label, value, isLabel := strings.Cut(handler, "=")
	if !isLabel {
		return w.changesFinalizer(handler, set)
	}
	path := "/metadata/labels/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(label)
	return slices.ContainsFunc(w.operations(), func(o operation) bool {
		return o.Op != "test" && o.Path == path && (o.Value == value) == set
	})
}

func (w *patch) changesFinalizer(finalizer string, set bool) bool {
	tested := map[string]any{}
	for _, o := range w.operations() {
		if !strings.HasPrefix(o.Path, "/metadata/finalizers/") {
			continue
		}
		switch before := tested[o.Path]; o.Op {
		case "test":
			tested[o.Path] = o.Value
		case "add":
			if set && o.Value == finalizer {
				return true
			}
		case "remove": // where nothing says what stands there it may be any
			if !set && (before == finalizer || before == nil) {
				return true
			}
		}
	}
	return false
}

// sighting is one version of a pod, as the watch brought it.
type sighting struct {
	at      time.Time
	version uint64

	state, stamp string
	ready        bool
	deleting     bool
	held         bool // by finalizers
	gone         bool
	// gap: versions between this one and the one before may not have been seen.
	gap bool
	// set are the handlers, of its workload's hooks, that are set on it.
	set     map[string]bool
	address string
	image   string
	record  string
}

// podLog is all that is known of one pod.
type podLog struct {
	uid, namespace, name string
	workload             *workload
	sightings            []sighting
	patches              []*patch
	calls                []*call
	wipes                []wipe
	hookFlips            []hookFlip
}

// wipe is an instance that the harness itself removed from the registry.
type wipe struct {
	key key
	at  time.Time
}

// hookFlip is a hook that a manager released or asserted, and was right to.
type hookFlip struct {
	hook     string
	asserted bool
	// at is the arrival of the patch, and version the index of the sighting that shows it.
	at      time.Time
	version int
}

// since is a time before which the pod was not in the sighting's state: the watch may lag behind. Kruise stamps every move,
// in whole seconds.
func (s sighting) since() time.Time {
	if moved, err := time.Parse(time.RFC3339, s.stamp); err == nil && moved.Before(s.at) {
		return moved
	}
	return s.at
}

// leaving reports whether the pod is in a state in which it is out of service, ready or not.
func (s sighting) leaving() bool {
	switch appspub.LifecycleStateType(s.state) {
	case appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStatePreparingDelete:
		return true
	default:
		return s.deleting || s.gone
	}
}

func (p *podLog) last() sighting {
	if len(p.sightings) == 0 {
		return sighting{}
	}
	return p.sightings[len(p.sightings)-1]
}

// podName is a name with its namespace.
type podName struct{ namespace, name string }

// journal is everything that was seen, in the order of one clock. It is safe for concurrent use.
type journal struct {
	mu          sync.Mutex
	numbers     int
	pods        map[string]*podLog
	byName      map[podName]*podLog
	orphans     map[podName][]*patch // patches of pods whose first sighting has not come yet
	early       map[string][]*call   // calls of such pods
	listings    []*call
	pending     []flip
	unjudged    []*call // that change something, and were done
	violations  []finding
	blindnesses []*blindness
	judged      int // flips by managers
	transitions int
	counting    bool
	reused      int
	addresses   map[string]string // the pod that had the address last
	met         map[string]int    // how many calls met a fault
}

func newJournal() *journal {
	return &journal{
		pods: map[string]*podLog{}, byName: map[podName]*podLog{}, orphans: map[podName][]*patch{},
		early: map[string][]*call{}, addresses: map[string]string{}, met: map[string]int{},
	}
}

func (j *journal) callReceived(manager, registryName string, o op, in registry.Instance, fault string, at time.Time) *call {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.numbers++
	j.met[fault]++
	c := &call{number: j.numbers, manager: manager, registry: registryName, op: o, instance: in, received: at, fault: fault}
	switch p := j.pods[in.UID]; {
	case !o.changes():
		j.listings = append(j.listings, c)
	case p != nil:
		p.calls = append(p.calls, c)
	default:
		j.early[in.UID] = append(j.early[in.UID], c)
	}
	return c
}

// callApplied writes down that the work was done. The caller makes sure that calls are written down in the order in which
// the registry does them.
func (j *journal) callApplied(c *call, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.applied = at
	j.unjudged = append(j.unjudged, c)
}

// wiped writes down that the harness removed an instance, or let it expire. The registry makes no call meanwhile.
func (j *journal) wiped(k key, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.pods[k.uid]; p != nil {
		p.wipes = append(p.wipes, wipe{key: k, at: at})
	}
}

// callSaw writes down what a call that asks gets as its answer.
func (j *journal) callSaw(c *call, seen map[key]registry.State, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.seen, c.applied = seen, at
}

// callAnswered must be called before the answer leaves; status 0 is an answer that is lost.
func (j *journal) callAnswered(c *call, status int, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.answered, c.status = at, status
}

// patchReceived writes down a patch before it is passed on.
func (j *journal) patchReceived(manager string, pod podName, body string, at time.Time) *patch {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &patch{manager: manager, received: at, body: body}
	if p := j.byName[pod]; p != nil {
		p.patches = append(p.patches, w)
	} else {
		j.orphans[pod] = append(j.orphans[pod], w)
	}
	return w
}

// patchFinished writes down the API server's answer; status 0 where there is none.
func (j *journal) patchFinished(w *patch, status int, version uint64, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.status, w.version, w.finished = status, version, at
}

// patchesOf writes down the patches of a manager's proxy, from before each is passed on until its answer.
func (j *journal) patchesOf(manager string) apiproxy.Observer {
	return func(w apiproxy.Write) (answered func(apiproxy.Write)) {
		if !w.ToPod() {
			return nil
		}
		entry := j.patchReceived(manager, podName{w.Namespace, w.Name}, w.Body, time.Now())
		return func(w apiproxy.Write) {
			var version uint64
			if w.Pod != nil {
				version, _ = strconv.ParseUint(w.Pod.ResourceVersion, 10, 64)
			}
			j.patchFinished(entry, w.Status, version, time.Now())
		}
	}
}

func (j *journal) begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counting = true
}

func (j *journal) saw(uid string, name podName, w *workload, s sighting) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.pods[uid]
	if p == nil {
		p = j.open(uid, name, w)
	}
	known, before := len(p.sightings), p.last()
	if known > 0 && (s.version < before.version || s.version == before.version && s.gone == before.gone) {
		return // a new list brings again what is known
	}
	p.sightings = append(p.sightings, s)
	if s.address != before.address {
		j.addressed(uid, s.address)
	}
	if known == 0 {
		return
	}
	if s.state != before.state && j.counting {
		j.transitions++
	}
	j.noteFlips(p, known)
}

// open makes the log of a pod, with what came before the watch had shown it. The caller holds the lock.
func (j *journal) open(uid string, name podName, w *workload) *podLog {
	p := &podLog{
		uid: uid, namespace: name.namespace, name: name.name, workload: w, patches: j.orphans[name], calls: j.early[uid],
	}
	delete(j.orphans, name)
	delete(j.early, uid)
	j.pods[uid], j.byName[name] = p, p
	return p
}

// addressed counts the addresses that are given again. The caller holds the lock.
func (j *journal) addressed(uid, address string) {
	if holder := j.addresses[address]; holder != "" && holder != uid {
		j.reused++
	}
	j.addresses[address] = uid
}

func (j *journal) known() map[string]livePod {
	j.mu.Lock()
	defer j.mu.Unlock()
	live := map[string]livePod{}
	for uid, p := range j.pods {
		if last := p.last(); !last.gone {
			live[uid] = livePod{sighting: last, uid: uid, name: podName{p.namespace, p.name}, workload: p.workload}
		}
	}
	return live
}

// livePod is a pod that is there.
type livePod struct {
	sighting

	uid      string
	name     podName
	workload *workload
}

// counts is how much has happened.
type counts struct {
	transitions int
	// flips of handlers by managers that were judged.
	flips int
	// reused addresses.
	reused int
	calls  int
	// met is how many calls met which fault.
	met map[string]int
}

func (j *journal) counts() counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	return counts{transitions: j.transitions, flips: j.judged, reused: j.reused, calls: j.numbers, met: maps.Clone(j.met)}
}

func (j *journal) broken() []finding {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.violations)
}
