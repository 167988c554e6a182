package resync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/metrics"
	"github.com/rollcall-dev/rollcall/internal/orders"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/registryclient"
	"github.com/rollcall-dev/rollcall/registry"
)

// Reasons of the Events on the ConfigMap.
const (
	removalBlocked    = "RemovalBlocked"
	manyRemovals      = "ManyRemovals"
	clusterNameShared = "ClusterNameShared"
)

const (
	// fewRemovals may go whatever percentage they are: of a registry with five entries, two can have vanished.
	fewRemovals = 3
	// examples is how many of the entries a blocked removal names.
	examples = 3
	// digestBytes make a digest that a person can copy, and that are unique in practice.
	digestBytes = 6
	// reapAtOnce bounds the removals that are under way, which are not urgent.
	reapAtOnce = 8
	// forgiven is after how long it does not count any more that a removal failed.
	forgiven = time.Hour
	// hopeless is how many removals have to fail in a row for a run to begin no more of them.
	hopeless = 5
)

// errLeft is of a removal that was not begun, since those before it failed.
var errLeft = errors.New("left for the next run")

// due returns those of the gone entries that go in this run, and those that are left to the next ones. What was written for this very
// cluster goes whatever its share is, since the API server that knows says that its pods are gone, but in no run more than
// resync.maxRemovals allows. Of all else either all goes or nothing. The registry spares what is another pod's by now.
func (k *keeper) due(ctx context.Context, gone []registry.Entry, owned int) (due, later []registry.Entry) {
	policy, _ := k.resync.inForce()
	most := allowed(policy.MaxRemovals, owned)
	k.failedLast(gone)
	var others []registry.Entry
	for _, e := range gone {
		if most > 0 && k.isOurs(e) {
			due = append(due, e)
		} else {
			others = append(others, e)
		}
	}
	if most = min(most, len(due)); most < len(due) {
		k.tellOfMany(ctx, due, most, owned)
	} else {
		k.told = false
	}
	due, later = due[:most:most], due[most:]
	if k.mayRemove(ctx, others, owned) {
		due = append(due, others...)
		k.failedLast(due)
	}
	return due, later
}

// failedLast puts those that failed behind, the latest last: some that can never be removed must not keep all others.
func (k *keeper) failedLast(entries []registry.Entry) {
	slices.SortStableFunc(entries, func(a, b registry.Entry) int {
		return k.failed[identityOf(a.Instance)].Compare(k.failed[identityOf(b.Instance)])
	})
}

// tellOfMany tells a person once that more goes than one run removes.
func (k *keeper) tellOfMany(ctx context.Context, ours []registry.Entry, most, owned int) {
	if k.told {
		return
	}
	k.told = true
	note := fmt.Sprintf("%d of %d entries in registry %q were written for this very cluster, and the API server has none of their pods: "+
		"Rollcall removes them, at most %d in a run. Examples: %s",
		len(ours), owned, k.name, most, strings.Join(describe(ours, examples), ", "))
	k.resync.Logger.Info(note, "registry", k.name, "entries", len(ours))
	k.resync.Tell(ctx, corev1.EventTypeNormal, manyRemovals, note)
}

// reap removes the entries that are due, behind which no live pod stands.
func (k *keeper) reap(ctx context.Context, gone, later []registry.Entry) error {
	errs := make([]error, len(gone))
	var inARow atomic.Int64
	var group errgroup.Group
	group.SetLimit(reapAtOnce)
	for i, e := range gone {
		if inARow.Load() >= hopeless {
			errs[i] = errLeft
			continue
		}
		group.Go(func() error {
			errs[i] = k.deregister(ctx, e.Instance)
			if errs[i] == nil {
				inARow.Store(0)
			} else if registryclient.Classify(errs[i]) != registryclient.DryRun {
				inARow.Add(1)
			}
			return nil
		})
	}
	_ = group.Wait() // each error is in errs
	return k.noteRemoved(gone, errs, len(later))
}

func (k *keeper) deregister(ctx context.Context, in registry.Instance) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return k.client.Change(ctx, registryclient.Caller{}, registry.Change{Instance: in, State: registry.Absent})
}

// noteRemoved writes down what went, and returns an error for what did not. So many more are left to the next runs.
func (k *keeper) noteRemoved(gone []registry.Entry, errs []error, later int) error {
	now := time.Now()
	removed, failed, left := 0, 0, 0
	var last error
	maps.DeleteFunc(k.failed, func(_ identity, at time.Time) bool { return now.Sub(at) > forgiven })
	for i, e := range gone {
		id := identityOf(e.Instance)
		switch {
		case registryclient.Classify(errs[i]) == registryclient.DryRun:
		case errors.Is(errs[i], errLeft):
			left++
		case errs[i] != nil:
			failed, last = failed+1, errs[i]
			k.failed[id] = now
		default:
			removed++
			k.removed[id] = now
			delete(k.failed, id)
			k.resync.Logger.Info("removed an entry without a live pod", "registry", k.name,
				"service", e.Service, "endpoint", e.Endpoint(), "pod", e.Namespace+"/"+e.Pod, "uid", e.UID)
		}
	}
	k.resync.Metrics.Found(k.name, metrics.FoundReaped, removed)
	k.resync.Metrics.Unfinished(k.name, failed+left+later)
	k.hurry = later > 0 && removed > 0
	if failed == 0 {
		return nil
	}
	err := fmt.Errorf("removing entries without a live pod: %d of %d failed, the last: %w", failed, len(gone), last)
	if left > 0 {
		err = fmt.Errorf("%d removals failed in a row, and %d are left for the next run: %w", hopeless, left, err)
	}
	return err
}

// allowed is how many of the entries that the cluster owns may be removed in one run. A percentage is rounded up, and is never
// fewer than 3 unless it is 0%.
func allowed(limit intstr.IntOrString, owned int) int {
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, owned, true)
	if err != nil {
		return 0 // the configuration was checked
	}
	if limit.Type == intstr.String && limit.StrVal != "0%" {
		n = max(n, fewRemovals)
	}
	return n
}

// mayRemove reports whether what is gone may be removed that need not have been written for this very cluster, and tells a person where
// it may not.
func (k *keeper) mayRemove(ctx context.Context, gone []registry.Entry, owned int) bool {
	policy, _ := k.resync.inForce()
	limit := policy.MaxRemovals
	if !slices.ContainsFunc(gone, k.approval.has) {
		k.approval = approval{} // none is left of what it named
	}
	digest := digestOf(k.name, gone)
	lives := slices.ContainsFunc(gone, func(e registry.Entry) bool { return k.others.live[e.ClusterUID] })
	if len(gone) <= allowed(limit, owned) && !lives || k.isApproved(gone, digest) {
		k.held = nil
		k.resync.Metrics.Blocked(k.name, 0)
		return true
	}
	k.resync.Metrics.Blocked(k.name, len(gone))
	if asked := k.asked.Swap(false); k.held != nil && k.held.Digest == digest && !asked && time.Since(k.warned) < reason.EventRepeat {
		return false
	}
	k.held, k.warned = &orders.Held{Digest: digest, Total: len(gone), Entries: describe(gone, orders.NamedAtMost)}, time.Now()
	why := fmt.Sprintf("which is more than resync.maxRemovals (%s) allows", limit.String())
	if lives {
		why = "and another cluster with the same name in its configuration is at work"
	}
	note := fmt.Sprintf("%d of %d entries in registry %q have no live pod, %s: Rollcall removes none of them%s. If they should go, %s. "+
		"Examples: %s", len(gone), owned, k.name, why, k.whose(gone), k.resync.howToApprove(digest, lives),
		strings.Join(describe(gone, examples), ", "))
	k.resync.Logger.Info("removal blocked: "+note, "registry", k.name, "entries", len(gone), "digest", digest)
	k.resync.Tell(ctx, corev1.EventTypeWarning, removalBlocked, note)
	return false
}

// approval is a person's approval of the removal of a set of entries. It outlasts the run that it lets begin, which may leave
// some of them, and ends when none is left or the digest is approved no longer.
type approval struct {
	digest string
	of     map[identity]bool
}

func (a approval) has(e registry.Entry) bool { return a.of[identityOf(e.Instance)] }

// isApproved reports whether a person has approved of all of these: of exactly these, or of more of which they are left.
func (k *keeper) isApproved(gone []registry.Entry, digest string) bool {
	if k.approval.digest != digest && k.resync.isApproved(digest) {
		k.approval = approval{digest: digest, of: map[identity]bool{}}
		for _, e := range gone {
			k.approval.of[identityOf(e.Instance)] = true
		}
		k.resync.Logger.Info("removal approved", "registry", k.name, "entries", len(gone), "digest", digest)
	}
	return k.resync.isApproved(k.approval.digest) &&
		!slices.ContainsFunc(gone, func(e registry.Entry) bool { return !k.approval.has(e) })
}

// howToApprove says what a person can do. A limit does not tell the entries of a cluster that is at work from others.
func (r *Resync) howToApprove(digest string, lives bool) string {
	otherwise := "raise resync.maxRemovals"
	if lives {
		otherwise = "set another cluster in the configuration of one of the two and restart this one"
	}
	if r.ApproveBy == "" {
		return otherwise
	}
	return orders.HowToApprove(r.ApproveBy, digest) + ", or " + otherwise
}

// identity is what tells an entry, and whose it is.
type identity struct{ service, endpoint, uid string }

func identityOf(in registry.Instance) identity {
	return identity{service: in.Service, endpoint: in.Endpoint(), uid: in.UID}
}

// digestOf tells a set of entries of a registry from every other set, in whatever order they come.
func digestOf(name string, entries []registry.Entry) string {
	lines := make([]string, 0, len(entries))
	for _, e := range entries {
		lines = append(lines, fmt.Sprintf("%q %q %q", e.Service, e.Endpoint(), e.UID))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(name + "\n" + strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:digestBytes])
}

// describe names the first of the entries, at most that many.
func describe(entries []registry.Entry, most int) (texts []string) {
	for _, e := range entries[:min(most, len(entries))] {
		texts = append(texts, fmt.Sprintf("%s at %s of pod %s/%s", e.Service, e.Endpoint(), e.Namespace, e.Pod))
	}
	return texts
}
