package resync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// others is what lists show of other clusters with this one's name.
type others struct {
	// seen is nil before the first list, which covered that.
	seen    map[identity]registry.State
	covered lifecycle.Coverage
	warned  time.Time
}

func (k *keeper) isOurs(e registry.Entry) bool { return e.ClusterUID != "" && e.ClusterUID == k.uid }

// anothers have a UID that is not known to be this cluster's. Entries without one are left out: an older version wrote them, in either
// cluster.
func (k *keeper) anothers(entries []registry.Entry) (theirs []registry.Entry) {
	for _, e := range entries {
		if e.ClusterUID != "" && !k.isOurs(e) {
			theirs = append(theirs, e)
		}
	}
	return theirs
}

// lookForOthers looks for entries of other clusters that were added or changed since the last list.
func (k *keeper) lookForOthers(ctx context.Context, owned []registry.Entry, covered lifecycle.Coverage) {
	before := k.others
	k.others = others{seen: map[identity]registry.State{}, covered: covered, warned: before.warned}
	var written []registry.Entry
	for _, e := range k.anothers(owned) {
		id := identityOf(e.Instance)
		k.others.seen[id] = e.State
		if before.seen != nil && before.covered.Has(lifecycle.Service(e.Service)) && before.seen[id] != e.State {
			written = append(written, e)
		}
	}
	if len(written) == 0 || k.uid == "" || time.Since(before.warned) < reason.EventRepeat {
		return
	}
	k.others.warned = time.Now()
	note := fmt.Sprintf("Another cluster writes into registry %q under this cluster's name %q: %s is of the cluster with UID %s, and "+
		"this one has %s. Two clusters with one name can remove each other's entries: set another cluster in the configuration of one of them",
		k.name, k.resync.Cluster, describe(written, 1)[0], written[0].ClusterUID, k.uid)
	k.resync.Logger.Info(note, "registry", k.name, "entries", len(written))
	k.resync.Tell(ctx, corev1.EventTypeWarning, clusterNameShared, note)
}

// tellOfCopies tells of entries with this cluster's ownership tag, also of pods that are gone, which no call of the driver removes: where
// another section of the configuration does not.
func (k *keeper) tellOfCopies(ctx context.Context, foreign []registry.Entry, names map[string]bool) {
	copies := slices.DeleteFunc(slices.Clone(foreign), func(e registry.Entry) bool {
		return !k.owns(e) || e.Registry != k.name && names[e.Registry]
	})
	if len(copies) == 0 || len(copies) == k.copies.number && time.Since(k.copies.warned) < reason.EventRepeat {
		k.copies.number = len(copies)
		return
	}
	k.copies = copiesTold{number: len(copies), warned: time.Now()}
	note := fmt.Sprintf("Clients of registry %q are given %d entries that have this cluster's ownership tag and are not where this "+
		"configuration has them, such as from before an option of the registry was changed. Rollcall does not remove them: do so. Examples: %s",
		k.name, len(copies), strings.Join(describe(copies, examples), ", "))
	k.resync.Logger.Info(note, "registry", k.name, "entries", len(copies))
	k.resync.Tell(ctx, corev1.EventTypeWarning, entriesElsewhere, note)
}

// copiesTold is what the last Event reported.
type copiesTold struct {
	number int
	warned time.Time
}

// tellOfMembers tells, once for each number of them, of servers of the registry for which the endpoint has no address.
func (k *keeper) tellOfMembers(ctx context.Context) {
	members := k.client.UnlistedMembers()
	before := k.members
	if k.members = len(members); k.members == 0 || k.members == before {
		return
	}
	note := fmt.Sprintf("Registry %q has %d servers, more than addresses in its endpoint: %s. One of them may lack an entry that others give "+
		"to clients, so an entry counts as absent only if %d answers agree, each on a connection of its own. If Rollcall can reach the servers "+
		"themselves, set endpoint to all of their addresses", k.name, len(members), registry.Excerpt(strings.Join(members, ", ")), len(members))
	k.resync.Logger.Info(note, "registry", k.name)
	k.resync.Tell(ctx, corev1.EventTypeWarning, serversNotListed, note)
}
