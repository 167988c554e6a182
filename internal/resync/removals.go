package resync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/history"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
)

// Reasons of Events.
const (
	removalBlocked    = "RemovalBlocked"
	manyRemovals      = "ManyRemovals"
	clusterNameShared = "ClusterNameShared"
	entriesElsewhere  = "EntriesElsewhere"
	serversNotListed  = "ServersNotListed"
)

const (
	// fewRemovals is the least that a percentage allows.
	fewRemovals = 3
	examples    = 3
	reapAtOnce  = 8
	// remembered is how long tries are kept; no list is that old.
	remembered = time.Hour
	// hopeless failures in a row end a run's removals.
	hopeless = 5
)

// removals tracks entries without a live pod.
type removals struct {
	tries    map[identity]try
	approval approval
	// many: an Event reported that removals take several runs.
	many bool
	// held are the removals that wait for approval, reported by an Event at warned.
	held   *orders.Held
	warned time.Time
	// others are the last run's in [keeper.due].
	others []registry.Entry
}

type try struct {
	at           time.Time
	acknowledged bool
}

// remove removes unknown entries that are gone. The reconciler can't: it takes a pod out of all its registries, without a limit per list.
func (k *keeper) remove(ctx context.Context, r *run) error {
	gone, err := k.resync.Pods.Gone(ctx, k.notRemovedSince(r.began.Add(-k.client.Staleness()), r.unknown))
	if err != nil {
		return fmt.Errorf("asking the API server which pods are gone: %w", err)
	}
	due, later := k.due(ctx, r, gone)
	k.note(r, due, k.reap(ctx, due), later)
	return nil
}

// due returns the gone entries to remove now, and how many later. With maxRemovals 20 and 50 gone entries:
//
//	with this cluster's UID   20 now, 30 later, since the API server knows that the pods are gone
//	others                    50 if approved, else 0; up to 20 need no approval unless one has a UID, which may be another cluster's
//
// With maxRemovals 0, all count as others. So do those that were listed in a place that does not answer now: places that answer in turn
// would get each its share removed. The registry spares what is another pod's by now.
func (k *keeper) due(ctx context.Context, r *run, gone []registry.Entry) (due []registry.Entry, later int) {
	policy, _ := k.resync.inForce()
	owned := r.owned
	most := allowed(policy.MaxRemovals, owned)
	k.failedLast(gone)
	var ours, others []registry.Entry
	for _, e := range gone {
		if most > 0 && k.isOurs(e) {
			ours = append(ours, e)
		} else {
			others = append(others, e)
		}
	}
	for _, e := range k.notRemovedSince(time.Time{}, k.removals.others) {
		if r.coverage.Misses(lifecycle.Service(e.Service)) {
			others = append(others, e)
		}
	}
	k.removals.others = others
	k.tellOfMany(ctx, ours, most, owned)
	n := min(most, len(ours))
	due, later = ours[:n], len(ours)-n
	if k.mayRemove(ctx, others, most, owned) {
		due = slices.Concat(due, others)
		k.failedLast(due)
	}
	return due, later
}

// failedLast moves what was tried last to the end, so that hopeless ones don't hold up the rest.
func (k *keeper) failedLast(entries []registry.Entry) {
	slices.SortStableFunc(entries, func(a, b registry.Entry) int {
		return k.tries[identityOf(a.Instance)].at.Compare(k.tries[identityOf(b.Instance)].at)
	})
}

func (k *keeper) notRemovedSince(asOf time.Time, entries []registry.Entry) []registry.Entry {
	return slices.DeleteFunc(entries, func(e registry.Entry) bool {
		last := k.tries[identityOf(e.Instance)]
		return last.acknowledged && last.at.After(asOf)
	})
}

func (k *keeper) tellOfMany(ctx context.Context, ours []registry.Entry, most, owned int) {
	before := k.many
	if k.many = len(ours) > most; before || !k.many {
		return
	}
	note := fmt.Sprintf("%d of %d entries in registry %q belong to this cluster, but the API server has none of their pods: "+
		"Rollcall removes them, at most %d in a run. Examples: %s",
		len(ours), owned, k.name, most, strings.Join(describe(ours, examples), ", "))
	k.resync.Logger.Info(note, "registry", k.name, "entries", len(ours))
	k.resync.Tell(ctx, corev1.EventTypeNormal, manyRemovals, note)
}

// reap returns the outcomes of the entries that it tried.
func (k *keeper) reap(ctx context.Context, due []registry.Entry) (outcomes []error) {
	outcomes = make([]error, len(due))
	var inARow atomic.Int64
	var group errgroup.Group
	group.SetLimit(reapAtOnce)
	begun := 0
	for ; begun < len(due) && inARow.Load() < hopeless; begun++ {
		outcome, in := &outcomes[begun], due[begun].Instance
		group.Go(func() error {
			if *outcome = k.deregister(ctx, in); isFailure(*outcome) {
				inARow.Add(1)
			} else {
				inARow.Store(0)
			}
			return nil
		})
	}
	_ = group.Wait() // each error is an outcome
	return outcomes[:begun]
}

func (k *keeper) deregister(ctx context.Context, in registry.Instance) error {
	end := func(err error) {
		if until, may := registryclient.MayLandUntil(err); may { // it may hit the next pod at the endpoint
			k.resync.Pods.RemovalMayLand(tracker.Target{Registry: k.name, Instance: in}, time.Now(), until)
		}
	}
	began := time.Now()
	err := k.client.Change(ctx, registryclient.Caller{End: end}, registry.Change{Instance: in, State: registry.Absent})
	if err == nil {
		k.resync.History.Removed(history.Pod{Namespace: in.Namespace, Name: in.Pod, UID: in.UID},
			history.Entry{Registry: k.name, Service: in.Service, Endpoint: in.Endpoint()}, history.ByResync, time.Since(began))
	}
	return err
}

// isFailure is false in a dry run.
func isFailure(err error) bool {
	return err != nil && registryclient.Classify(err) != registryclient.DryRun
}

// note records the outcomes; later counts the entries left for the next runs.
func (k *keeper) note(r *run, due []registry.Entry, outcomes []error, later int) {
	now, removed, failed, left := time.Now(), 0, 0, len(due)-len(outcomes)
	maps.DeleteFunc(k.tries, func(_ identity, last try) bool { return now.Sub(last.at) > remembered })
	for i, err := range outcomes {
		e := due[i]
		switch {
		case err == nil:
			removed++
		case isFailure(err):
			failed++
			r.unremoved = fmt.Errorf("removing entries without a live pod: %d of %d failed, the last: %w", failed, len(due), err)
		default:
			continue // a dry run
		}
		k.tries[identityOf(e.Instance)] = try{at: now, acknowledged: err == nil}
		if err == nil {
			delete(k.approval.of, identityOf(e.Instance)) // if it returns, somebody has put it back
		}
	}
	k.ask()
	k.resync.Metrics.Found(k.name, metrics.FoundReaped, removed)
	k.resync.Metrics.Unfinished(k.name, failed+left+later)
	r.more = removed > 0 && later > 0
	if left > 0 {
		r.unremoved = fmt.Errorf("%d removals failed in a row, and %d are left for the next run: %w", hopeless, left, r.unremoved)
	}
}

// allowed is how many entries one run may remove: 20% of 21, rounded up, is 5; 20% of 5 is 3, the minimum; 0% is 0.
func allowed(limit intstr.IntOrString, owned int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, owned, true)
	if err != nil {
		return 0 // the configuration was validated
	}
	if limit.Type == intstr.String && limit.StrVal != "0%" {
		n = max(n, fewRemovals)
	}
	return n
}

// mayRemove decides about entries that may not be this cluster's, and holds them if they need approval.
func (k *keeper) mayRemove(ctx context.Context, gone []registry.Entry, most, owned int) bool {
	digest := digestOf(k.name, gone)
	k.approval.keep(gone, digest)
	k.ask()
	theirs := k.anothers(gone)
	if len(gone) <= most && len(theirs) == 0 || k.isApproved(gone, digest) {
		k.held = nil
		k.ask()
		k.resync.Metrics.Blocked(k.name, 0)
		return true
	}
	k.resync.Metrics.Blocked(k.name, len(gone))
	if asked := k.asked.Swap(false); asked || k.held == nil || k.held.Digest != digest || time.Since(k.warned) >= reason.EventRepeat {
		k.held, k.warned = &orders.Held{Digest: digest, Total: len(gone), Entries: describe(gone, orders.NamedAtMost)}, time.Now()
		k.ask()
		k.tellOfHeld(ctx, gone, theirs, owned)
	}
	return false
}

// ask publishes what a person may approve. What was approved and is not among it any more is used up.
func (k *keeper) ask() {
	var digests []string
	if k.held != nil {
		digests = append(digests, k.held.Digest)
	}
	if len(k.approval.of) > 0 {
		digests = append(digests, k.approval.digest)
	}
	k.resync.asks(k, digests)
}

func (k *keeper) tellOfHeld(ctx context.Context, gone, theirs []registry.Entry, owned int) {
	policy, _ := k.resync.inForce()
	why := fmt.Sprintf("which is more than resync.maxRemovals (%s) allows", policy.MaxRemovals.String())
	otherwise := "raise resync.maxRemovals"
	if len(theirs) > 0 { // a limit can't tell whose entries they are
		why = fmt.Sprintf("and %d carry the UID of another cluster with the same name, such as %s, which may be at work",
			len(theirs), theirs[0].ClusterUID)
		otherwise = "set another cluster in the configuration of one of the two and restart that one"
	}
	if len(theirs) > 0 && k.uid == "" {
		why = fmt.Sprintf("and %d carry the UID of a cluster, such as %s, which may be another one: this cluster's own, the UID of its "+
			"namespace kube-system, could not be read, and each run tries again", len(theirs), theirs[0].ClusterUID)
		otherwise = "grant Rollcall the right to get the namespace kube-system"
	}
	if k.resync.LeaseNamespace != "" {
		otherwise = orders.HowToApprove(k.resync.LeaseNamespace, k.held.Digest) + ", or " + otherwise
	}
	note := fmt.Sprintf("%s, %s: Rollcall removes none of them. If they should go, %s. Examples: %s",
		orders.Holds(len(gone), owned, k.name), why, otherwise, strings.Join(describe(gone, examples), ", "))
	k.resync.Logger.Info("removal blocked: "+note, "registry", k.name, "entries", len(gone), "digest", k.held.Digest)
	k.resync.Tell(ctx, corev1.EventTypeWarning, removalBlocked, note)
}

// approval lasts until each of the entries was removed or is otherwise gone, or the digest is withdrawn: one run may leave some.
type approval struct {
	digest string
	of     map[identity]bool
}

func (a *approval) has(e registry.Entry) bool { return a.of[identityOf(e.Instance)] }

func (a *approval) hasAll(entries []registry.Entry) bool {
	return !slices.ContainsFunc(entries, func(e registry.Entry) bool { return !a.has(e) })
}

// keep forgets the entries that are no longer among those that are gone, whose digest is given, and all of them if some of the same
// have come back: that needs an approval of its own.
func (a *approval) keep(gone []registry.Entry, digest string) {
	if a.digest == digest && !a.hasAll(gone) {
		*a = approval{}
		return
	}
	left := make(map[identity]bool, len(a.of))
	for _, e := range gone {
		if id := identityOf(e.Instance); a.of[id] {
			left[id] = true
		}
	}
	a.of = left
}

// isApproved reports whether a person approved these entries, or more of which they are left.
func (k *keeper) isApproved(gone []registry.Entry, digest string) bool {
	if k.approval.digest != digest && k.resync.isApproved(digest) {
		k.approval = approval{digest: digest, of: map[identity]bool{}}
		for _, e := range gone {
			k.approval.of[identityOf(e.Instance)] = true
		}
		k.resync.Logger.Info("removal approved", "registry", k.name, "entries", len(gone), "digest", digest)
	}
	return k.resync.isApproved(k.approval.digest) && k.approval.hasAll(gone)
}

type identity struct{ service, endpoint, uid string }

func identityOf(in registry.Instance) identity {
	return identity{service: in.Service, endpoint: in.Endpoint(), uid: in.UID}
}

func digestOf(name string, entries []registry.Entry) string {
	lines := make([]string, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%q %q %q", e.Service, e.Endpoint(), e.UID))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(name + "\n" + strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:orders.DigestBytes])
}

func describe(entries []registry.Entry, most int) (texts []string) {
	for _, e := range entries[:min(most, len(entries))] {
		text := fmt.Sprintf("%s at %s of pod %s/%s", e.Service, e.Endpoint(), e.Namespace, e.Pod)
		if e.ID != "" {
			text += " (" + e.ID + ")"
		}
		texts = append(texts, text)
	}
	return texts
}
