package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// keptFor is for how long a name stays with a namespace after the last of its pods has left it, so that a workload which
// is deleted and made again finds its name free.
const keptFor = 5 * time.Minute

// claims answers which namespace may register pods under a service name. A name belongs to the namespace whose pods are
// registered under it, by what this process had acknowledged and what the registries list. Where no pod is, it belongs to
// the namespace that was created first among those that use it.
type claims struct {
	mu         sync.Mutex
	namespaces map[string]namespaceFacts
	// users are, by name as [claimKey] has it, the namespaces of the workloads that use it.
	users map[string]map[string]bool
	// groups are by name, as [claimKey] has it, and by namespace.
	groups map[string]map[string]*claimGroup
	holds  map[types.UID][]hold
	// listed are the registries that have listed what they hold: there, a record proves nothing any more.
	listed map[string]bool
}

// namespaceFacts is what a decision about a namespace rests on.
type namespaceFacts struct {
	created time.Time
	labels  labels.Set
}

// hold is one instance of a pod that is registered under a name, or may be.
type hold struct {
	lifecycle.Recorded
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

func newClaims() *claims {
	return &claims{
		groups: map[string]map[string]*claimGroup{}, holds: map[types.UID][]hold{}, listed: map[string]bool{},
	}
}

// claimKey is what a name claims: all that differ from it in case only, too, since Eureka's clients and Consul's DNS take
// them for one.
func claimKey(name string) string { return strings.ToLower(name) }

// question is whether a pod may use a service name.
type question struct {
	settings  *Settings
	uid       types.UID
	namespace string
	service   string
	// keeps: the pod was registered under the name when it was looked at, and may have left an address of its own since.
	keeps bool
	now   time.Time
}

// ask returns why the pod may not use the name; empty where it may. A pod that is registered under the name stays,
// whatever the answer.
func (c *claims) ask(q question) (refused wait, registered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal(q), c.registered(q)
}

// take notes that a Register is about to be made, which may be carried out until lands, or returns why it must not be.
// Asking and noting is one step: of two namespaces that come at the same moment, one gets the name.
func (c *claims) take(q question, in lifecycle.Recorded, lands time.Time) wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused := c.refusal(q); refused.reason != "" && !q.keeps {
		return refused
	}
	c.note(q.uid, hold{Recorded: in, namespace: q.namespace, evidence: byRequest, lands: lands})
	return wait{}
}

// acknowledged notes that a registry has an entry of the pod, in service or out of it.
func (c *claims) acknowledged(in target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(types.UID(in.instance.UID), hold{Recorded: in.key(), namespace: in.instance.Namespace, evidence: byAnswer})
}

// left notes that a registry has no such entry any more.
func (c *claims) left(uid types.UID, in lifecycle.Recorded, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, func(h hold) bool { return h.Recorded == in })
}

// forget notes that no registry has an entry of the pod any more.
func (c *claims) forget(uid types.UID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, func(hold) bool { return true })
}

// recorded notes what the record of a pod says, for registries that have not said themselves what they hold.
func (c *claims) recorded(uid types.UID, namespace string, record lifecycle.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if record.Want == lifecycle.Absent {
		return
	}
	for _, in := range record.Instances {
		if !c.listed[in.Registry] {
			c.note(uid, hold{Recorded: in, namespace: namespace, evidence: byRecord})
		}
	}
}

// hasListed reports whether the registry has listed what it holds.
func (c *claims) hasListed(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed[name]
}

// compare notes what a registry lists. What left it after it was asked has left, and what this process had acknowledged
// stays: the registry may have lost it, and then it is put back.
func (c *claims) compare(l Listing, now time.Time, hasLeft func(found) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed[l.Registry] = true
	asOf := l.Asked.Add(-l.Staleness)
	there := map[types.UID][]lifecycle.Recorded{}
	for _, e := range l.Entries {
		f := found{Entry: e, registry: l.Registry, asOf: asOf}
		if hasLeft(f) {
			continue
		}
		uid, in := types.UID(e.UID), f.key()
		there[uid] = append(there[uid], in)
		c.note(uid, hold{Recorded: in, namespace: e.Namespace, evidence: byList})
	}
	for uid := range c.holds {
		c.drop(uid, now, func(h hold) bool {
			return h.Registry == l.Registry && h.evidence != byAnswer && !h.lands.After(asOf) && !slices.Contains(there[uid], h.Recorded)
		})
	}
}

// observed notes which namespaces there are, and which of them have workloads that use a name.
func (c *claims) observed(namespaces map[string]namespaceFacts, users map[string]map[string]bool, now time.Time) {
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
func (c *claims) refusal(q question) wait {
	of, known := c.namespaces[q.namespace]
	shared := q.settings.SharedAcrossNamespaces
	switch {
	case shared && q.settings.Allowed == nil:
		return wait{}
	case !known:
		return wait{reason: ReasonNotPermitted, after: staleRecheck,
			message: fmt.Sprintf("this manager has yet to see namespace %s", q.namespace)}
	case !q.settings.Allowed.Allows(q.namespace, of.labels, q.service):
		return wait{reason: ReasonServiceNotAllowed, message: fmt.Sprintf(
			"service.allowed in the configuration gives service %q not to namespace %s: write another name in annotation %s, or have "+
				"an entry added to service.allowed with namespaces: [%q] and names: [%q]",
			q.service, q.namespace, service.AnnotationServices, q.namespace, q.service)}
	case shared:
		return wait{}
	}
	return c.claimedByAnother(q)
}

func (c *claims) claimedByAnother(q question) wait {
	owner, because, until := c.owner(q)
	if owner == q.namespace {
		return wait{}
	}
	w := wait{reason: ReasonServiceClaimed, message: fmt.Sprintf(
		"service %q belongs to namespace %s: %s; write another name in annotation %s, put {namespace} into service.name, or set "+
			"service.sharedAcrossNamespaces", q.service, owner, because, service.AnnotationServices)}
	if !until.IsZero() {
		w.after = min(backoffCap, until.Sub(q.now))
	}
	return w
}

// owner returns the namespace that the name belongs to, and why. Where until is not zero, that ends then.
func (c *claims) owner(q question) (namespace, because string, until time.Time) {
	groups := c.groups[claimKey(q.service)]
	among := func(is func(*claimGroup) bool) string {
		return c.first(q, func(yield func(string) bool) {
			for namespace, group := range groups {
				if is(group) && !yield(namespace) {
					return
				}
			}
		})
	}
	if namespace = among(func(g *claimGroup) bool { return g.proven > 0 }); namespace != "" {
		return namespace, "its pods are registered under it", time.Time{}
	}
	if namespace = among(func(g *claimGroup) bool { return g.keptUntil.After(q.now) }); namespace != "" {
		until = groups[namespace].keptUntil
		return namespace, "its pods were registered under it, and it keeps the name until " + until.Format(time.RFC3339), until
	}
	if namespace = among(func(g *claimGroup) bool { return g.recorded > 0 }); namespace != "" {
		return namespace, "its pods have a record of being registered under it", time.Time{}
	}
	return c.first(q, func(yield func(string) bool) {
		if !yield(q.namespace) {
			return
		}
		for namespace := range c.users[claimKey(q.service)] {
			if !yield(namespace) {
				return
			}
		}
	}), "a workload there uses it, and the namespace was created before " + q.namespace, time.Time{}
}

// first returns the namespace that was created first among those that may use the name.
func (c *claims) first(q question, among func(yield func(string) bool)) string {
	var first string
	for namespace := range among {
		if !q.settings.Allowed.Allows(namespace, c.namespaces[namespace].labels, q.service) {
			continue
		}
		if first == "" || c.older(namespace, first) {
			first = namespace
		}
	}
	return first
}

// older orders namespaces by what no tenant can write. One that is gone, or that the cache has yet to see, comes last.
func (c *claims) older(a, b string) bool {
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

func (c *claims) registered(q question) bool {
	return slices.ContainsFunc(c.holds[q.uid], func(h hold) bool {
		return h.evidence.certain() && claimKey(h.Service) == claimKey(q.service)
	})
}

// note adds a hold, or what is now known of one. Stronger evidence stays.
func (c *claims) note(uid types.UID, h hold) {
	i := slices.IndexFunc(c.holds[uid], func(other hold) bool { return other.Recorded == h.Recorded })
	if i < 0 {
		c.holds[uid] = append(c.holds[uid], h)
		c.group(claimKey(h.Service), h.namespace).count(h.evidence, 1)
		return
	}
	before := &c.holds[uid][i]
	group := c.group(claimKey(before.Service), before.namespace)
	group.count(before.evidence, -1)
	before.evidence, before.lands = max(before.evidence, h.evidence), h.lands
	group.count(before.evidence, 1)
}

func (c *claims) group(name, namespace string) *claimGroup {
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

// drop takes away those holds of a pod. Where one was certain, its namespace keeps the name for a while.
func (c *claims) drop(uid types.UID, now time.Time, gone func(hold) bool) {
	remaining := slices.DeleteFunc(c.holds[uid], func(h hold) bool {
		if !gone(h) {
			return false
		}
		name := claimKey(h.Service)
		group := c.group(name, h.namespace)
		group.count(h.evidence, -1)
		if h.evidence.certain() {
			group.keptUntil = now.Add(keptFor)
		}
		c.tidy(name, h.namespace, now)
		return true
	})
	if c.holds[uid] = remaining; len(remaining) == 0 {
		delete(c.holds, uid)
	}
}

// tidy forgets a group that no longer says anything.
func (c *claims) tidy(name, namespace string, now time.Time) {
	group := c.groups[name][namespace]
	if group.proven+group.recorded > 0 || group.keptUntil.After(now) {
		return
	}
	if delete(c.groups[name], namespace); len(c.groups[name]) == 0 {
		delete(c.groups, name)
	}
}
