// Package checker holds what managers do to pods against what a registry acknowledged. Its callers report each call to the
// registry, each patch of a pod, before it is passed on, and each version of a pod that a watch brings, with their times on
// one clock. The invariants are in docs/testing.md. It shares no rule with the product: a mistake there must not blind it. So it
// imports nothing of the product but the protocol's own type of an instance.
package checker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
)

// Options are what the managers are configured with.
type Options struct {
	// Drain is how long a pod stays out before its hook is released.
	Drain time.Duration
	// CallTimeout bounds their calls. What is carried out later than twice that after it came is not judged: the design assumes
	// that it never is, so no manager waits for longer.
	CallTimeout time.Duration
	// CallsUnseen: the registry is a real one. What was acknowledged is not known, and what readers are given is judged instead.
	CallsUnseen bool
	// OnlyManagers: no one else calls the registry, so each call that takes a pod out must have a reason (I9).
	OnlyManagers bool
	// Cluster is the owner in the ownership tag of each entry; empty: what clients are told is not judged.
	Cluster string
	// ReaderLag is how long clients take to notice, by registry.
	ReaderLag map[string]time.Duration
	// Lease is how long a manager may work after it has written the lease; 0: that is not judged.
	Lease time.Duration
}

// Call is one request that reached the registry. A zero time means: not yet, or never.
type Call struct {
	Manager, Registry string
	Op                Op
	// Instance of a call that asks is only what it is narrowed to.
	Instance registry.Instance
	// Fault is what it met, for the reader.
	Fault                       string
	Received, Applied, Answered time.Time
	// Status is 0 where the answer was lost.
	Status int

	number int
	// seen is what the registry held when it was asked.
	seen map[Key]registry.State
}

// Key is the instance that it is about.
func (c *Call) Key() Key { return KeyOf(c.Registry, c.Instance) }

func (c *Call) succeeded() bool { return c.Status/100 == 2 } //nolint:mnd // of 2xx

// Patch is one write of a manager to a pod.
type Patch struct {
	apiproxy.Write

	manager  string
	finished time.Time
	version  uint64 // resource version of the pod after it
}

// operation is one of a JSON Patch.
type operation struct {
	Op, Path string
	Value    any
}

// operations is empty for a body that is no JSON Patch: managers send no other.
func (w *Patch) operations() []operation {
	var all []operation
	_ = json.Unmarshal([]byte(w.Body), &all)
	return all
}

// changes reports whether the patch sets the handler, or clears it.
func (w *Patch) changes(handler string, set bool) bool {
	label, value, isLabel := strings.Cut(handler, "=")
	if !isLabel {
		return w.changesFinalizer(handler, set)
	}
	path := "/metadata/labels/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(label)
	return slices.ContainsFunc(w.operations(), func(o operation) bool {
		return o.Op != "test" && o.Path == path && (o.Value == value) == set
	})
}

func (w *Patch) changesFinalizer(finalizer string, set bool) bool {
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

// Sighting is one version of a pod, as the watch brought it.
type Sighting struct {
	At      time.Time
	Version uint64

	// State and Stamp are Kruise's: the state of the lifecycle, and since when.
	State, Stamp string
	Ready        bool
	Deleting     bool
	Held         bool // by finalizers
	Gone         bool
	// Gap: versions between this one and the one before may not have been seen.
	Gap bool
	// Set are the handlers, of its workload's hooks, that are set on it.
	Set map[string]bool
	// Keys are the instances that it has by what it says of itself.
	Keys                   []Key
	Address, Image, Record string
	// Told is what clients must be told of it; nil: that is not judged.
	Told *Attributes
	// Drain is the pod's own, if it is not that of the configuration.
	Drain *time.Duration
	// Ends: it is announced that the pod ends. It does not count as ready then.
	Ends bool
	// Workload says whose pod it is; it means nothing to the checker.
	Workload string
}

// podLog is all that is known of one pod.
type podLog struct {
	uid       string
	name      types.NamespacedName
	hooks     Hooks
	sightings []Sighting
	patches   []*Patch
	calls     []*Call
	wipes     []wipe
	appeared  []wipe // put in by their application
	hookFlips []hookFlip
}

// wipe is an instance that the harness itself removed from the registry.
type wipe struct {
	key Key
	at  time.Time
}

// hookFlip is a hook that a manager released or asserted, and was right to.
type hookFlip struct {
	hook     string
	asserted bool
	// at is the arrival of the patch, and version the index of the sighting that shows it.
	at      time.Time
	version int
	// drained is how long the pod had been out by then, at least.
	drained time.Duration
}

// since is a time before which the pod was not in the sighting's state: the watch may lag behind. Kruise stamps every move,
// in whole seconds.
func (s Sighting) since() time.Time {
	if moved, err := time.Parse(time.RFC3339, s.Stamp); err == nil && moved.Before(s.At) {
		return moved
	}
	return s.At
}

// leaving reports whether the pod is in a state in which it is out of service, ready or not.
func (s Sighting) leaving() bool {
	return s.Deleting || s.Gone || leaves(s.State)
}

func (p *podLog) last() Sighting {
	if len(p.sightings) == 0 {
		return Sighting{}
	}
	return p.sightings[len(p.sightings)-1]
}

// Journal is everything that was seen, in the order of one clock. It is safe for concurrent use.
type Journal struct {
	Options

	mu          sync.Mutex
	numbers     int
	pods        map[string]*podLog
	byName      map[types.NamespacedName]*podLog
	orphans     map[types.NamespacedName][]*Patch // patches of pods whose first sighting has not come yet
	early       map[string][]*Call                // calls of such pods
	listings    []*Call                           // by when they were done
	patches     []*Patch                          // of all pods
	pending     []flip
	unjudged    []*Call // that change something, and were done
	undescribed []*Call // that put a pod in, of which is not judged yet what they say
	renewed     map[string][]time.Time
	violations  []Violation
	blindnesses []*blindness
	judged      int // flips by managers
	transitions int
	counting    bool
	reused      int
	addresses   map[string]string // the pod that had the address last
	met         map[string]int    // how many calls met a fault
	foreign     map[Place]time.Time
}

// New makes an empty journal.
func New(o Options) *Journal {
	return &Journal{
		Options: o, pods: map[string]*podLog{}, byName: map[types.NamespacedName]*podLog{},
		orphans: map[types.NamespacedName][]*Patch{}, early: map[string][]*Call{}, addresses: map[string]string{}, met: map[string]int{},
		foreign: map[Place]time.Time{}, renewed: map[string][]time.Time{},
	}
}

// CallReceived writes down a call when it comes. The functions below have what becomes of it.
func (j *Journal) CallReceived(c Call) *Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.numbers++
	j.met[c.Fault]++
	c.number = j.numbers
	uid := c.Instance.UID
	if c.Op.Changes() {
		j.checkLease(c.Manager, fmt.Sprintf("call #%d", c.number), uid, c.Received)
	}
	if c.Op == Register && j.Cluster != "" {
		j.undescribed = append(j.undescribed, &c)
	}
	switch p := j.pods[uid]; {
	case !c.Op.Changes():
	case p != nil:
		p.calls = append(p.calls, &c)
	default:
		j.early[uid] = append(j.early[uid], &c)
	}
	return &c
}

// CallApplied writes down that the work was done. The caller makes sure that calls are written down in the order in which
// the registry does them.
func (j *Journal) CallApplied(c *Call, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Applied = at
	j.unjudged = append(j.unjudged, c)
}

// Wiped writes down that the harness removed an instance, or let it expire. The registry makes no call meanwhile.
func (j *Journal) Wiped(k Key, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.pods[k.UID]; p != nil {
		p.wipes = append(p.wipes, wipe{key: k, at: at})
	}
}

// Appeared writes down that a pod's application put an instance in service itself. The registry makes no call meanwhile.
func (j *Journal) Appeared(k Key, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.pods[k.UID]; p != nil {
		p.appeared = append(p.appeared, wipe{key: k, at: at})
	}
}

// CallSaw writes down what a call that asks gets as its answer.
func (j *Journal) CallSaw(c *Call, seen map[Key]registry.State, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.seen, c.Applied = seen, at
	j.listings = append(j.listings, c)
}

// CallAnswered must be called before the answer leaves; status 0 is an answer that is lost.
func (j *Journal) CallAnswered(c *Call, status int, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.Answered, c.Status = at, status
}

// PatchReceived writes down a patch before it is passed on.
func (j *Journal) PatchReceived(manager string, write apiproxy.Write) *Patch {
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &Patch{Write: write, manager: manager}
	j.patches = append(j.patches, w)
	pod := types.NamespacedName{Namespace: w.Namespace, Name: w.Name}
	if p := j.byName[pod]; p != nil {
		j.checkLease(manager, "a patch", p.uid, w.Received)
		p.patches = append(p.patches, w)
	} else {
		j.orphans[pod] = append(j.orphans[pod], w)
	}
	return w
}

// PatchFinished writes down the API server's answer; status 0 where there is none.
func (j *Journal) PatchFinished(w *Patch, status int, version uint64, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	w.Status, w.version, w.finished = status, version, at
}

// PatchesOf writes down the patches of a manager's proxy, from before each is passed on until its answer, and when it renews its lease.
func (j *Journal) PatchesOf(manager string) apiproxy.Observer {
	return func(w apiproxy.Write) (answered func(apiproxy.Write)) {
		w.Received = time.Now()
		if w.Resource == "leases" {
			return func(w apiproxy.Write) {
				if w.Status/100 == 2 { //nolint:mnd // of 2xx
					j.Renewed(manager, w.Received)
				}
			}
		}
		if !w.ToPod() {
			return nil
		}
		entry := j.PatchReceived(manager, w)
		return func(w apiproxy.Write) {
			var version uint64
			if w.Pod != nil {
				version, _ = strconv.ParseUint(w.Pod.ResourceVersion, 10, 64)
			}
			j.PatchFinished(entry, w.Status, version, time.Now())
		}
	}
}

// Begin has transitions counted from now on.
func (j *Journal) Begin() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counting = true
}

// Saw writes down a version of a pod, and finds what the change shows. A pod's hooks are those of its first version.
func (j *Journal) Saw(uid string, name types.NamespacedName, hooks Hooks, s Sighting) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.pods[uid]
	if p == nil {
		p = j.open(uid, name, hooks)
	}
	known, before := len(p.sightings), p.last()
	if s.Version <= before.Version && s.Gone == before.Gone {
		return // a new list brings again what is known
	}
	p.sightings = append(p.sightings, s)
	if s.Address != before.Address {
		if holder := j.addresses[s.Address]; holder != "" && holder != uid {
			j.reused++ // it is given again
		}
		j.addresses[s.Address] = uid
	}
	if known == 0 {
		return
	}
	if s.State != before.State && j.counting {
		j.transitions++
	}
	j.noteFlips(p, known)
}

// Belongs writes down where the pod belongs from then on, by a configuration that has changed: no version of the pod shows it.
func (j *Journal) Belongs(uid string, keys []Key, at time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p := j.pods[uid]; p != nil {
		s := p.last()
		s.At, s.Keys, s.Gap = at, keys, false
		p.sightings = append(p.sightings, s)
	}
}

// open makes the log of a pod, with what came before the watch had shown it. The caller holds the lock.
func (j *Journal) open(uid string, name types.NamespacedName, hooks Hooks) *podLog {
	p := &podLog{uid: uid, name: name, hooks: hooks, calls: j.early[uid]}
	others := j.orphans[name][:0:0]
	for _, w := range j.orphans[name] {
		if w.Pod != nil && string(w.Pod.UID) != uid { // another pod will have the name: scenarios are judged at their end
			others = append(others, w)
			continue
		}
		p.patches = append(p.patches, w)
	}
	j.orphans[name] = others
	delete(j.early, uid)
	j.pods[uid], j.byName[name] = p, p
	return p
}

// Known are the pods that are there, as the watch showed them last, by UID.
func (j *Journal) Known() map[string]Pod {
	j.mu.Lock()
	defer j.mu.Unlock()
	live := map[string]Pod{}
	for uid, p := range j.pods {
		if last := p.last(); !last.Gone {
			live[uid] = Pod{Sighting: last, UID: uid, Name: p.name}
		}
	}
	return live
}

// Pod is a pod that is there.
type Pod struct {
	Sighting

	UID  string
	Name types.NamespacedName
}

// Calls are those that changed something of a pod, or were to, whether the watch has shown the pod or not.
func (j *Journal) Calls(uid string) []Call {
	j.mu.Lock()
	defer j.mu.Unlock()
	calls := j.early[uid]
	if p := j.pods[uid]; p != nil {
		calls = p.calls
	}
	var all []Call
	for _, c := range calls {
		all = append(all, *c)
	}
	return all
}

// Counts is how much has happened.
type Counts struct {
	Transitions int
	// Flips of handlers by managers that were judged, and Released those that released a hook.
	Flips, Released int
	// Reused addresses.
	Reused int
	Calls  int
	// Met is how many calls met which fault.
	Met map[string]int
}

// Counts counts what was seen so far.
func (j *Journal) Counts() Counts {
	j.mu.Lock()
	defer j.mu.Unlock()
	released := 0
	for _, p := range j.pods {
		var hooks []hookFlip // one of several handlers is released once
		for _, h := range p.hookFlips {
			if !h.asserted && !slices.Contains(hooks, h) {
				hooks = append(hooks, h)
			}
		}
		released += len(hooks)
	}
	return Counts{
		Transitions: j.transitions, Flips: j.judged, Released: released, Reused: j.reused, Calls: j.numbers, Met: maps.Clone(j.met),
	}
}

// Violation is an invariant that did not hold for a pod. Its text begins with the invariant's name and a colon.
type Violation struct {
	UID  string
	At   time.Time
	Text string
}

// Broken are the violations so far.
func (j *Journal) Broken() []Violation {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.violations)
}
