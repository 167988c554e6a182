package resync

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// others is what the lists of a registry tell of other clusters with this one's name.
type others struct {
	// seen is what the last list had of their entries; nil before the first list.
	seen map[identity]registry.State
	// live are the UIDs of the clusters that something was written for between two lists, for as long as they have entries.
	live map[string]bool
	// warned is when an Event told of one.
	warned time.Time
}

// isOurs reports whether an entry was written for this very cluster.
func (k *keeper) isOurs(e registry.Entry) bool {
	return e.ClusterUID != "" && e.ClusterUID == k.resync.Identity.UID()
}

// anothers are the entries that were written for another cluster with the same name. One of an older version may be either's.
func (k *keeper) anothers(entries []registry.Entry) (theirs []registry.Entry) {
	uid := k.resync.Identity.UID()
	for _, e := range entries {
		if uid != "" && e.ClusterUID != "" && e.ClusterUID != uid {
			theirs = append(theirs, e)
		}
	}
	return theirs
}

// lookForOthers finds the clusters with this one's name at whose entries somebody is at work: one is there, or in a state, that the
// list before had not.
func (k *keeper) lookForOthers(ctx context.Context, owned []registry.Entry) {
	before := k.others
	k.others = others{seen: map[identity]registry.State{}, live: map[string]bool{}, warned: before.warned}
	var written []registry.Entry
	for _, e := range k.anothers(owned) {
		id, live := identityOf(e.Instance), before.live[e.ClusterUID]
		k.others.seen[id] = e.State
		if before.seen != nil && before.seen[id] != e.State {
			written, live = append(written, e), true
		}
		if live {
			k.others.live[e.ClusterUID] = true
		}
	}
	if len(written) == 0 || time.Since(before.warned) < reason.EventRepeat {
		return
	}
	k.others.warned = time.Now()
	note := fmt.Sprintf("Another cluster writes into registry %q under this cluster's name %q: %s is of the cluster with UID %s, and "+
		"this one has %s. Two clusters with one name can remove each other's entries: set another cluster in the configuration of one of them",
		k.name, k.resync.Cluster, describe(written, 1)[0], written[0].ClusterUID, k.resync.Identity.UID())
	k.resync.Logger.Info(note, "registry", k.name, "entries", len(written))
	k.resync.Tell(ctx, corev1.EventTypeWarning, clusterNameShared, note)
}

// whose tells, for a note, how many of the entries are another cluster's.
func (k *keeper) whose(entries []registry.Entry) string {
	theirs := k.anothers(entries)
	if len(theirs) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d carry the UID of another cluster, such as %s)", len(theirs), theirs[0].ClusterUID)
}
