package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/rollcall-dev/rollcall/registry"
)

// maxFolders bounds the services that are remembered. Beyond it, the names in those that are asked for are read again.
const maxFolders = 10_000

// folders remembers which nodes of a service others have written, as long as the service's folder has not changed.
type folders struct {
	mu    sync.Mutex
	known map[string]folder // by the service
}

type folder struct {
	// connection and changed tell whether the folder is as it was: a ZooKeeper that has lost its data counts changes from the beginning.
	connection int
	changed    int64
	theirs     []place
}

func (f *folders) of(service string) folder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.known[service]
}

// keep remembers the folder unless what is known is later.
func (f *folders) keep(service string, found folder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known := f.known[service]; known.connection == found.connection && known.changed > found.changed {
		return
	}
	if f.known == nil || len(f.known) >= maxFolders {
		f.known = map[string]folder{}
	}
	f.known[service] = found
}

func (f *folders) forget(service string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.known, service)
}

// othersOf returns what clients are given of a service by the nodes that have no ID of Rollcall's. ZooKeeper can be asked neither for some
// of the names in a folder nor for those that are new: all are read if nodes came or went. The nodes of others are read each time, since
// their content can change without that. Nodes with an ID of Rollcall's are at the address in their name, so a list reads them, and Get its
// own.
func (r *Registry) othersOf(ctx context.Context, service, cluster string) ([]registry.Entry, error) {
	connection := r.session.connection()
	stat, err := r.session.stat(ctx, r.tree.service(service))
	if errors.Is(err, zk.ErrNoNode) {
		r.folders.forget(service)
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	of := r.folders.of(service)
	if of.connection != connection || of.changed != stat.Pzxid {
		ids, stat, err := r.idsOf(ctx, service)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		of = folder{connection: connection, changed: stat.Pzxid}
		for _, id := range ids {
			if _, _, ours := parseID(id); !ours {
				of.theirs = append(of.theirs, place{service, id})
			}
		}
		r.folders.keep(service, of)
	}
	return r.entriesOf(ctx, cluster, of.theirs)
}
