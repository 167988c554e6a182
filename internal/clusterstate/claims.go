package clusterstate

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// KeptFor is for how long a name stays with a namespace after the last of its pods has left it, so that a workload which
// is deleted and made again finds its name free.
const KeptFor = 5 * time.Minute

// recheck is for a namespace that the cache has yet to show.
const recheck = time.Second

// Claims answers which namespace may register pods under a service name. A name belongs to the namespace whose pods are
// registered under it, by what this process had acknowledged and what the registries list. Where no pod is, it belongs to
// the namespace that was created first among those that use it.
type Claims struct {
	mu         sync.Mutex
	namespaces map[string]namespaceFacts
	// users are, by name as [claimKey] has it, the namespaces of the workloads that use it.
	users map[string]map[string]bool
	// groups are by name, as [claimKey] has it, and by namespace.
	groups map[string]map[string]*claimGroup
	holds  map[types.UID][]hold
	// listed are the registries that have listed what they hold: there, a record proves nothing any more. No list has the entries that
	// applications write.
	listed map[string]bool
	// known are the registries of the configuration. A call that began before that was read names a registry as it was called.
	known configured
	// readAt is when the records were read.
	readAt time.Time
}

// namespaceFacts is what a decision about a namespace rests on.
type namespaceFacts struct {
	created time.Time
	labels  labels.Set
}

// hold is one instance of a pod that is registered under a name, or may be.
type hold struct {
	lifecycle.Key
	namespace string
	evidence  evidence
	// lands is until when the last Register may still be carried out.
	lands time.Time
}

// evidence is why an instance counts as registered, the weakest first.
type evidence int

const (
	// byRecord: only the pod's record says so, which a tenant can write.
	byRecord evidence = iota
	// byRequest: a Register was about to be made, and its outcome is unknown.
	byRequest
	// byList: the registry lists it with the pod's mark.
	byList
	// byAnswer: the registry has acknowledged it to this process.
	byAnswer
)

// certain reports that the instance was registered, and not only that it may have been.
func (e evidence) certain() bool { return e >= byList }

// claimGroup are the holds of one namespace on one name.
type claimGroup struct {
	proven, recorded int
	// keptUntil is until when the name stays with the namespace although no hold is left.
	keptUntil time.Time
}

func (g *claimGroup) count(e evidence, n int) {
	if e == byRecord {
		g.recorded += n
	} else {
		g.proven += n
	}
}

func newClaims() *Claims {
	return &Claims{
		groups: map[string]map[string]*claimGroup{}, holds: map[types.UID][]hold{}, listed: map[string]bool{},
		known: func(in lifecycle.Key) (lifecycle.Key, bool) { return in, false },
	}
}

// claimKey is what a name claims: all that registries' clients take for the same name, too.
func claimKey(name string) string { return service.Fold(name) }

// Use is a pod's use of a service name.
type Use struct {
	Rules   *Rules
	Pod     lifecycle.PodID
	Service string
	Now     time.Time
}

// Refusal is why a pod may not use a service name.
type Refusal struct {
	Reason  reason.Reason
	Message string
	// After is when the answer may change by itself; zero where an event will say so.
	After time.Duration
}

// Ask returns why the pod may not use the name; nil where it may. A pod that is registered under the name stays, whatever
// the answer.
func (c *Claims) Ask(u Use) (refused *Refusal, registered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal(u), c.registered(u)
}

// Take notes that a Register is about to be made, which may be carried out until lands, or returns why it must not be.
// Asking and noting is one step: of two namespaces that come at the same moment, one gets the name. A pod that keeps the
// name was registered under it when it was looked at, and is not refused: it may have left an address of its own since.
func (c *Claims) Take(u Use, keeps bool, in lifecycle.Key, lands time.Time) *Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused := c.refusal(u); refused != nil && !keeps {
		return refused
	}
	c.note(u.Pod.UID, hold{Key: in, namespace: u.Pod.Namespace, evidence: byRequest, lands: lands})
	return nil
}

// Acknowledged notes that a registry has an entry of the pod, which is or was in service.
func (c *Claims) Acknowledged(pod lifecycle.PodID, in lifecycle.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(pod.UID, hold{Key: in, namespace: pod.Namespace, evidence: byAnswer})
}

// Missed notes that a Register found no application's entry that it could put in service. What was certain before stays: the
// application may be about to register again.
func (c *Claims) Missed(uid types.UID, in lifecycle.Key, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, false, func(h hold) bool { return h.Key == in && h.evidence == byRequest })
}

// Removed notes that a registry has no such entry any more.
func (c *Claims) Removed(uid types.UID, in lifecycle.Key, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, true, func(h hold) bool { return h.Key == in })
}

// Forget notes that no registry has an entry of the pod any more.
func (c *Claims) Forget(uid types.UID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, true, func(hold) bool { return true })
}

// configured returns an instance under the name that its registry has by now, and whether the configuration has one of that name.
type configured func(lifecycle.Key) (now lifecycle.Key, has bool)

// recorded notes what the records of pods say, for registries that have not said themselves what they hold.
func (c *Claims) recorded(pods []corev1.Pod, known configured, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readAt = now
	for i := range pods {
		pod := &pods[i]
		record := lifecycle.RecordOf(pod)
		if record.Want == lifecycle.Absent || !record.WasInService() {
			continue
		}
		for _, in := range record.Instances {
			in, has := known(in)
			if has && (in.ByApp() || !c.listed[in.Registry]) {
				c.note(pod.UID, hold{Key: in, namespace: pod.Namespace, evidence: byRecord})
			}
		}
	}
}

// reconfigured has holds go by the names that their registries have by now, and forgets what only records say of registries that the
// configuration does not have: no list will tell of those.
func (c *Claims) reconfigured(known configured, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = known
	for uid, holds := range c.holds {
		for _, h := range slices.Clone(holds) {
			former := h.Key
			renamed, has := known(former)
			if has && renamed == former || !has && h.evidence != byRecord {
				continue
			}
			c.drop(uid, now, false, func(h hold) bool { return h.Key == former })
			if has {
				c.note(uid, h)
			}
		}
	}
}

// haveListed reports whether all the registries have listed what they hold.
func (c *Claims) haveListed(registries []lifecycle.Source) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(registries, func(of lifecycle.Source) bool { return of.ByApp() || !c.listed[of.Registry] })
}

// Size returns of how many pods and names something is remembered.
func (c *Claims) Size() (pods, names int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holds), len(c.groups)
}

// Entry is one entry that a registry lists.
type Entry struct {
	lifecycle.Key
	Pod lifecycle.PodID
}

// Listed notes what a registry lists of pods that are there, as of a time. What this process had acknowledged stays: the
// registry may have lost it, and then it is put back.
//
// A record of an application's entry counts until a list that comes after the
// records were read: between the two, the reconciler asks the registry about each pod that it does not keep as it is.
func (c *Claims) Listed(registry string, entries []Entry, asOf, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed[registry] = true
	there := map[types.UID][]lifecycle.Key{}
	for _, e := range entries {
		there[e.Pod.UID] = append(there[e.Pod.UID], e.Key)
		c.note(e.Pod.UID, hold{Key: e.Key, namespace: e.Pod.Namespace, evidence: byList})
	}
	for uid := range c.holds {
		c.drop(uid, now, false, func(h hold) bool {
			if h.ByApp() {
				return h.Registry == registry && h.evidence == byRecord && asOf.After(c.readAt)
			}
			return h.Registry == registry && h.evidence != byAnswer && !h.lands.After(asOf) && !slices.Contains(there[uid], h.Key)
		})
	}
}

// observed notes which namespaces there are, and which of them have workloads that use a name.
func (c *Claims) observed(namespaces map[string]namespaceFacts, users map[string]map[string]bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces, c.users = namespaces, users
	for name, groups := range c.groups {
		for namespace := range groups {
			c.tidy(name, namespace, now)
		}
	}
}

// refusal says why the namespace may not use the name. The caller holds the lock, as of all that follows.
func (c *Claims) refusal(u Use) *Refusal {
	namespace, shared := u.Pod.Namespace, u.Rules.Services.SharedAcrossNamespaces
	of, known := c.namespaces[namespace]
	switch {
	case shared && u.Rules.Services.Allowed == nil:
		return nil
	case !known:
		return &Refusal{Reason: reason.NotPermitted, After: recheck,
			Message: fmt.Sprintf("this manager has not seen namespace %s yet", namespace)}
	case !u.Rules.Services.Allowed.Allows(namespace, of.labels, u.Service):
		return &Refusal{Reason: reason.ServiceNotAllowed, Message: service.NotAllowed(namespace, u.Service)}
	case shared:
		return nil
	}
	return c.claimedByAnother(u)
}

func (c *Claims) claimedByAnother(u Use) *Refusal {
	owner, because, until := c.owner(u)
	if owner == u.Pod.Namespace {
		return nil
	}
	refusal := &Refusal{Reason: reason.ServiceClaimed, Message: fmt.Sprintf(
		"service %q belongs to namespace %s: %s; write another name in annotation %s, put {namespace} into service.name, or set "+
			"service.sharedAcrossNamespaces", u.Service, owner, because, service.AnnotationServices)}
	if !until.IsZero() {
		refusal.After = until.Sub(u.Now)
	}
	return refusal
}

// owner returns the namespace that the name belongs to, and why. Where until is not zero, that ends then.
func (c *Claims) owner(u Use) (namespace, because string, until time.Time) {
	groups := c.groups[claimKey(u.Service)]
	among := func(is func(*claimGroup) bool) string {
		others := func(namespace string) bool { return !is(groups[namespace]) }
		return c.first(u, slices.DeleteFunc(slices.Collect(maps.Keys(groups)), others))
	}
	if namespace = among(func(g *claimGroup) bool { return g.proven > 0 }); namespace != "" {
		return namespace, "its pods are registered under it", time.Time{}
	}
	if namespace = among(func(g *claimGroup) bool { return g.keptUntil.After(u.Now) }); namespace != "" {
		until = groups[namespace].keptUntil
		return namespace, "its pods were registered under it, and it keeps the name until " + until.Format(time.RFC3339), until
	}
	if namespace = among(func(g *claimGroup) bool { return g.recorded > 0 }); namespace != "" {
		return namespace, "its pods have a record of being registered under it", time.Time{}
	}
	users := slices.AppendSeq([]string{u.Pod.Namespace}, maps.Keys(c.users[claimKey(u.Service)]))
	return c.first(u, users), "a workload there uses it, and the namespace was created before " + u.Pod.Namespace, time.Time{}
}

// first returns the namespace that was created first among those that may use the name.
func (c *Claims) first(u Use, among []string) (first string) {
	for _, namespace := range among {
		if !u.Rules.Services.Allowed.Allows(namespace, c.namespaces[namespace].labels, u.Service) {
			continue
		}
		if first == "" || c.older(namespace, first) {
			first = namespace
		}
	}
	return first
}

// older orders namespaces by what no tenant can write. One that is gone, or that the cache has yet to see, comes last.
func (c *Claims) older(a, b string) bool {
	of, knowsA := c.namespaces[a]
	other, knowsB := c.namespaces[b]
	switch {
	case knowsA != knowsB:
		return knowsA
	case !of.created.Equal(other.created):
		return of.created.Before(other.created)
	}
	return a < b
}

func (c *Claims) registered(u Use) bool {
	return slices.ContainsFunc(c.holds[u.Pod.UID], func(h hold) bool {
		return h.evidence.certain() && claimKey(h.Service) == claimKey(u.Service)
	})
}

// note adds a hold, or what is now known of one. Stronger evidence stays.
func (c *Claims) note(uid types.UID, h hold) {
	if now, has := c.known(h.Key); has {
		h.Key = now
	}
	i := slices.IndexFunc(c.holds[uid], func(other hold) bool { return other.Key == h.Key })
	if i < 0 {
		c.holds[uid] = append(c.holds[uid], h)
		c.group(claimKey(h.Service), h.namespace).count(h.evidence, 1)
		return
	}
	before := &c.holds[uid][i]
	group := c.group(claimKey(before.Service), before.namespace)
	group.count(before.evidence, -1)
	before.evidence = max(before.evidence, h.evidence)
	if h.lands.After(before.lands) {
		before.lands = h.lands
	}
	group.count(before.evidence, 1)
}

func (c *Claims) group(name, namespace string) *claimGroup {
	if c.groups[name] == nil {
		c.groups[name] = map[string]*claimGroup{}
	}
	group := c.groups[name][namespace]
	if group == nil {
		group = &claimGroup{}
		c.groups[name][namespace] = group
	}
	return group
}

// drop takes away those holds of a pod. Where one was certain and the namespace keeps the name, it does so for a while.
func (c *Claims) drop(uid types.UID, now time.Time, keeps bool, gone func(hold) bool) {
	remaining := slices.DeleteFunc(c.holds[uid], func(h hold) bool {
		if !gone(h) {
			return false
		}
		name := claimKey(h.Service)
		group := c.group(name, h.namespace)
		group.count(h.evidence, -1)
		if keeps && h.evidence.certain() {
			group.keptUntil = now.Add(KeptFor)
		}
		c.tidy(name, h.namespace, now)
		return true
	})
	if c.holds[uid] = remaining; len(remaining) == 0 {
		delete(c.holds, uid)
	}
}

// tidy forgets a group that no longer says anything.
func (c *Claims) tidy(name, namespace string, now time.Time) {
	group := c.groups[name][namespace]
	if group.proven+group.recorded > 0 || group.keptUntil.After(now) {
		return
	}
	if delete(c.groups[name], namespace); len(c.groups[name]) == 0 {
		delete(c.groups, name)
	}
}
