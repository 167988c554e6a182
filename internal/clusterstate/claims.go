package clusterstate

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/service"
)

// KeptFor is how long a name stays with a namespace, for a recreated workload.
const KeptFor = 5 * time.Minute

// recheck applies while the cache lacks the namespace.
const recheck = time.Second

// Claims decides which namespace may use a service name. The first that applies owns it:
//
//	1  its pods are registered under the name, or a Register is under way
//	2  its pods were, up to 5 minutes ago
//	3  its pods have records of that
//	4  it has a workload that uses the name
//
// Among several namespaces, the oldest owns it. Namespaces that share the name count as one.
type Claims struct {
	mu         sync.Mutex
	namespaces map[string]namespaceFacts
	// users are the namespaces of workloads, by [claimKey].
	users map[lifecycle.Service]map[string]bool
	// groups are by [claimKey] and namespace.
	groups map[lifecycle.Service]map[string]*claimGroup
	holds  map[types.UID][]hold
	// listed is what each registry has listed of what it holds: there, a record proves nothing any more. No list has the entries that
	// applications write.
	listed map[string]lifecycle.Coverage
	// readAt is when the records were read.
	readAt time.Time
}

type namespaceFacts struct {
	created time.Time
	labels  labels.Set
}

// hold is an instance that is or may be registered.
type hold struct {
	lifecycle.Key
	namespace string
	evidence  evidence
	// lands is until when its last Register may take effect.
	lands time.Time
}

// evidence that an instance is registered, weakest first.
type evidence int

const (
	// byRecord: only the pod's record, which a tenant can write.
	byRecord evidence = iota
	// byRequest: a Register was sent; its outcome is unknown.
	byRequest
	// byList: the registry listed it.
	byList
	// byAnswer: the registry acknowledged it to this process.
	byAnswer
)

func (e evidence) certain() bool { return e >= byList }

// claimGroup are one namespace's holds on a name.
type claimGroup struct {
	proven, recorded int
	keptUntil        time.Time
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
		groups: map[lifecycle.Service]map[string]*claimGroup{}, holds: map[types.UID][]hold{}, listed: map[string]lifecycle.Coverage{},
	}
}

// claimKey folds names that clients of some registry can't tell apart.
func claimKey(s lifecycle.Service) lifecycle.Service {
	return lifecycle.Service(service.Fold(string(s)))
}

// Use is a pod's use of a service name.
type Use struct {
	Rules    *Rules
	Pod      lifecycle.PodID
	Registry string
	Service  lifecycle.Service
	Now      time.Time
}

// name is for the policy.
func (u Use) name() service.Name { return u.Rules.Services.NameIn(u.Registry, u.Service) }

// Refusal is why a pod may not use a service name.
type Refusal struct {
	Reason  reason.Reason
	Message string
	// After is when to ask again; zero if an event will tell.
	After time.Duration
	// Calm: it is not known yet, and passes by itself.
	Calm bool
}

// Ask returns nil if the pod may use the name. A registered pod stays, whatever the answer.
func (c *Claims) Ask(u Use) (refused *Refusal, registered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusal(u), c.registered(u)
}

// Take claims the name for a Register that may take effect until lands; of two namespaces at the same moment, one wins. A pod that keeps
// its name is not refused, even if its last claim went with a former address of its own.
func (c *Claims) Take(u Use, keeps bool, in lifecycle.Key, lands time.Time) *Refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	if refused := c.refusal(u); refused != nil && !keeps {
		return refused
	}
	c.note(u.Pod.UID, hold{Key: in, namespace: u.Pod.Namespace, evidence: byRequest, lands: lands})
	return nil
}

// Acknowledged notes an entry that is or was in rotation.
func (c *Claims) Acknowledged(pod lifecycle.PodID, in lifecycle.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(pod.UID, hold{Key: in, namespace: pod.Namespace, evidence: byAnswer})
}

// Missed notes that a Register found no application's entry. Certain evidence stays: the application may register again.
func (c *Claims) Missed(uid types.UID, in lifecycle.Key, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, false, func(h hold) bool { return h.Key == in && h.evidence == byRequest })
}

// Removed notes that the registry no longer has the entry.
func (c *Claims) Removed(uid types.UID, in lifecycle.Key, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, true, func(h hold) bool { return h.Key == in })
}

// Forget notes that no registry has an entry of the pod.
func (c *Claims) Forget(uid types.UID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(uid, now, true, func(hold) bool { return true })
}

// recorded notes what the records of pods show, for registries that were not listed yet.
func (c *Claims) recorded(pods []*lifecycle.Pod, registries []lifecycle.Source, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readAt = now
	for _, pod := range pods {
		record := lifecycle.RecordOf(pod)
		if record.Want == lifecycle.Absent || !record.WasInService() {
			continue
		}
		for _, in := range record.Instances {
			if slices.Contains(registries, in.Source()) && (in.ByApp() || !c.hasListed(in)) {
				c.note(pod.UID, hold{Key: in, namespace: pod.Namespace, evidence: byRecord})
			}
		}
	}
}

// reconfigured forgets what only records say of registries that the configuration does not have: no list will tell of those.
func (c *Claims) reconfigured(registries []lifecycle.Source, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.holds {
		c.drop(uid, now, false, func(h hold) bool { return h.evidence == byRecord && !slices.Contains(registries, h.Source()) })
	}
}

func (c *Claims) haveListed(registries []lifecycle.Source) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !slices.ContainsFunc(registries, func(of lifecycle.Source) bool {
		covered, listed := c.listed[of.Registry]
		return of.ByApp() || !listed || covered.Template != ""
	})
}

// hasListed needs the lock.
func (c *Claims) hasListed(in lifecycle.Key) bool {
	covered, listed := c.listed[in.Registry]
	return listed && covered.Has(in.Service)
}

// Size returns how many pods and names are remembered.
func (c *Claims) Size() (pods, names int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.holds), len(c.groups)
}

// Entry is one that a registry lists.
type Entry struct {
	lifecycle.Key
	Pod lifecycle.PodID
}

// List is what a registry listed as of AsOf.
type List struct {
	Registry string
	Coverage lifecycle.Coverage
	Entries  []Entry
	AsOf     time.Time
}

// Listed notes a list. Acknowledged entries stay even if missing: they will be put back. So does what lies in places that were not listed.
// Records of applications' entries count until the first list after they were read: by then, the reconciler has asked about each pod that
// changes.
func (c *Claims) Listed(l List, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed[l.Registry] = l.Coverage
	there := map[types.UID][]lifecycle.Key{}
	for _, e := range l.Entries {
		there[e.Pod.UID] = append(there[e.Pod.UID], e.Key)
		c.note(e.Pod.UID, hold{Key: e.Key, namespace: e.Pod.Namespace, evidence: byList})
	}
	for uid := range c.holds {
		c.drop(uid, now, false, func(h hold) bool {
			switch {
			case h.Registry != l.Registry:
				return false
			case h.ByApp():
				return h.evidence == byRecord && l.AsOf.After(c.readAt)
			case !l.Coverage.Has(h.Service):
				return false
			}
			return h.evidence != byAnswer && !h.lands.After(l.AsOf) && !slices.Contains(there[uid], h.Key)
		})
	}
}

func (c *Claims) observed(namespaces map[string]namespaceFacts, users map[lifecycle.Service]map[string]bool, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.namespaces, c.users = namespaces, users
	for name, groups := range c.groups {
		for namespace := range groups {
			c.tidy(name, namespace, now)
		}
	}
}

func (c *Claims) labelsOf(namespace string) labels.Set {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.namespaces[namespace].labels
}

// refusal needs the lock, as does all below.
func (c *Claims) refusal(u Use) *Refusal {
	namespace := u.Pod.Namespace
	of, known := c.namespaces[namespace]
	switch {
	case !known:
		return &Refusal{Reason: reason.ManagerNotReady, Calm: true, After: recheck,
			Message: fmt.Sprintf("the manager's cache does not have namespace %s yet", namespace)}
	case !u.Rules.Services.Allowed.Allows(namespace, of.labels, u.name()):
		return &Refusal{Reason: reason.ServiceNotAllowed, Message: service.NotAllowed(namespace, u.name())}
	}
	return c.claimedByAnother(u)
}

func (c *Claims) claimedByAnother(u Use) *Refusal {
	owner, because, until := c.owner(u)
	if owner == u.Pod.Namespace || c.shares(u.Rules, owner, u.name()) && c.shares(u.Rules, u.Pod.Namespace, u.name()) {
		return nil
	}
	refusal := &Refusal{Reason: reason.ServiceNotAllowed, Message: fmt.Sprintf(
		"service %q belongs to namespace %s: %s; set another name in annotation %s, put {namespace} into service.name, or give "+
			"the name to both in service.allowed with shared: true", u.Service, owner, because, service.AnnotationServices)}
	if !until.IsZero() {
		refusal.After = until.Sub(u.Now)
	}
	return refusal
}

// Shares reports whether the namespace can have the name together with others. One that was not seen can't.
func (c *Claims) Shares(rules *Rules, namespace string, name service.Name) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shares(rules, namespace, name)
}

func (c *Claims) shares(rules *Rules, namespace string, name service.Name) bool {
	of, known := c.namespaces[namespace]
	return known && rules.Services.Allowed.Shares(namespace, of.labels, name)
}

// owner returns why, too, and until when unless until is zero.
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

// first returns the oldest namespace that may use the name.
func (c *Claims) first(u Use, among []string) (first string) {
	for _, namespace := range among {
		if !u.Rules.Services.Allowed.Allows(namespace, c.namespaces[namespace].labels, u.name()) {
			continue
		}
		if first == "" || c.older(namespace, first) {
			first = namespace
		}
	}
	return first
}

// older uses only what tenants can't write. Unknown namespaces come last.
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
	name := claimKey(u.Service)
	return slices.ContainsFunc(c.holds[u.Pod.UID], func(h hold) bool {
		return h.evidence.certain() && (h.Service == u.Service || claimKey(h.Service) == name)
	})
}

// note adds a hold, or raises its evidence.
func (c *Claims) note(uid types.UID, h hold) {
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

func (c *Claims) group(name lifecycle.Service, namespace string) *claimGroup {
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

// drop removes holds. With keeps, a certain one keeps the name for [KeptFor].
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

func (c *Claims) tidy(name lifecycle.Service, namespace string, now time.Time) {
	group := c.groups[name][namespace]
	if group.proven+group.recorded > 0 || group.keptUntil.After(now) {
		return
	}
	if delete(c.groups[name], namespace); len(c.groups[name]) == 0 {
		delete(c.groups, name)
	}
}
