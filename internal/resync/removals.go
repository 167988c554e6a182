package resync

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/steer"
	"github.com/rollcall-dev/rollcall/registry"
)

const (
	// fewRemovals may go whatever percentage they are: of a registry with five entries, two can have vanished.
	fewRemovals = 3
	// examples is how many of the entries a blocked removal names.
	examples = 3
	// digestBytes make a digest that a person can copy, and that are unique in practice.
	digestBytes = 6
)

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

// mayRemove reports whether what is gone may be removed, and tells a person where it may not.
func (k *keeper) mayRemove(ctx context.Context, gone []registry.Entry, owned int) bool {
	policy, _ := k.resync.inForce()
	limit := policy.MaxRemovals
	if !slices.ContainsFunc(gone, k.approval.has) {
		k.approval = approval{} // none is left of what it named
	}
	if len(gone) <= allowed(limit, owned) {
		k.unblock()
		return true
	}
	digest := digestOf(k.name, gone)
	if k.isApproved(gone, digest) {
		k.unblock()
		return true
	}
	k.resync.Metrics.Blocked(k.name, len(gone))
	if asked := k.asked.Swap(false); k.blocked == digest && !asked && time.Since(k.warned) < reason.EventRepeat {
		return false
	}
	k.blocked, k.warned = digest, time.Now()
	note := fmt.Sprintf("%d of %d entries in registry %q have no live pod, which is more than resync.maxRemovals "+
		"(%s) allows: Rollcall removes none of them. If they should go, %s. Examples: %s",
		len(gone), owned, k.name, limit.String(), k.resync.howToApprove(digest), describe(gone))
	k.resync.Logger.Info("removal blocked: "+note, "registry", k.name, "entries", len(gone), "digest", digest)
	k.resync.Warn(ctx, note)
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

func (r *Resync) howToApprove(digest string) string {
	const raise = "raise resync.maxRemovals"
	if !r.Approvable {
		return raise
	}
	return steer.HowToApprove(r.ApproveBy, digest) + ", or " + raise
}

func (k *keeper) unblock() {
	k.blocked = ""
	k.resync.Metrics.Blocked(k.name, 0)
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

func describe(entries []registry.Entry) string {
	var texts []string
	for _, e := range entries[:min(examples, len(entries))] {
		texts = append(texts, fmt.Sprintf("%s at %s of pod %s/%s", e.Service, e.Endpoint(), e.Namespace, e.Pod))
	}
	return strings.Join(texts, ", ")
}
