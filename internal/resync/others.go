package resync

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// others is what lists show of other clusters with this one's name.
type others struct {
	// seen is nil before the first list.
	seen map[identity]registry.State
	// live are the UIDs of clusters seen writing, while they have entries.
	live   map[string]bool
	warned time.Time
}

func (k *keeper) isOurs(e registry.Entry) bool {
	return e.ClusterUID != "" && e.ClusterUID == k.resync.Identity.UID()
}

// anothers leaves out entries without a UID: an older version wrote them, in either cluster.
func (k *keeper) anothers(entries []registry.Entry) (theirs []registry.Entry) {
	uid := k.resync.Identity.UID()
	for _, e := range entries {
		if uid != "" && e.ClusterUID != "" && e.ClusterUID != uid {
			theirs = append(theirs, e)
		}
	}
	return theirs
}

// lookForOthers looks for entries of other clusters that were added or changed since the last list.
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

func (k *keeper) whose(entries []registry.Entry) string {
	theirs := k.anothers(entries)
	if len(theirs) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d carry the UID of another cluster, such as %s)", len(theirs), theirs[0].ClusterUID)
}
