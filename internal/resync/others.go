package resync

import (
	"context"
	"fmt"
	"slices"
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

// isAnothers reports whether it was written for another cluster with the same name. An entry of an older version may be either's.
func (k *keeper) isAnothers(e registry.Entry) bool {
	uid := k.resync.Identity.UID()
	return uid != "" && e.ClusterUID != "" && e.ClusterUID != uid
}

// lookForOthers finds the clusters with this one's name at whose entries somebody is at work: one is there, or in a state, that the
// list before had not.
func (k *keeper) lookForOthers(ctx context.Context, owned []registry.Entry) {
	before := k.others
	k.others = others{seen: map[identity]registry.State{}, live: map[string]bool{}, warned: before.warned}
	var written []registry.Entry
	for _, e := range owned {
		if !k.isAnothers(e) {
			continue
		}
		id := identityOf(e.Instance)
		k.others.seen[id] = e.State
		if before.seen != nil && before.seen[id] != e.State {
			written = append(written, e)
		}
		if before.live[e.ClusterUID] {
			k.others.live[e.ClusterUID] = true
		}
	}
	for _, e := range written {
		k.others.live[e.ClusterUID] = true
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
	first := slices.IndexFunc(entries, k.isAnothers)
	if first < 0 {
		return ""
	}
	n := 0
	for _, e := range entries[first:] {
		if k.isAnothers(e) {
			n++
		}
	}
	return fmt.Sprintf(" (%d carry the UID of another cluster, such as %s)", n, entries[first].ClusterUID)
}
