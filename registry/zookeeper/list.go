package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// readers is how many requests of one list or batch are under way at the same time. They share a connection.
const readers = 32

// List implements [registry.Lister]. It holds all that was acknowledged before it.
func (r *Registry) List(ctx context.Context, cluster string) ([]registry.Entry, error) {
	return driverkit.List(ctx, cluster, func(ctx context.Context, cluster string) ([]registry.Entry, error) {
		listed := make(chan []registry.Entry, 1) // what comes after the context has ended has no reader
		err := r.run(ctx, func(ctx context.Context) error {
			entries, err := caughtUp(ctx, r.session, func(ctx context.Context) ([]registry.Entry, error) { return r.list(ctx, cluster) })
			listed <- entries
			return err
		})
		if err != nil {
			return nil, err
		}
		return <-listed, nil
	})
}

// list reads service by service. An entry that goes away meanwhile may be missing or not, one that is replaced is not: it
// is replaced as one.
func (r *Registry) list(ctx context.Context, cluster string) ([]registry.Entry, error) {
	services, _, err := r.session.children(ctx, r.tree.folder())
	if errors.Is(err, zk.ErrNoNode) {
		return nil, r.checkChroot(ctx)
	} else if err != nil {
		return nil, err
	}
	places, err := r.placesOf(ctx, services)
	if err != nil {
		return nil, err
	}
	return r.entriesOf(ctx, cluster, places)
}

// checkChroot tells a folder that does not exist yet from a chroot that is wrong.
func (r *Registry) checkChroot(ctx context.Context) error {
	if r.tree.chroot == "" {
		return nil
	}
	there, err := r.session.exists(ctx, r.tree.chroot)
	if err == nil && !there {
		return r.noChroot()
	}
	return err
}

// place is where an entry may be.
type place struct{ service, id string }

// idsOf returns the IDs of a service's entries, those of others too.
func (r *Registry) idsOf(ctx context.Context, service string) ([]string, *zk.Stat, error) {
	folder := r.tree.service(service)
	ids, stat, err := r.session.children(ctx, folder)
	if errors.Is(err, zk.ErrNoAuth) {
		err = fmt.Errorf("listing %s: %w", folder, err) // it can't be left out: a hook may rest on what no list has
	}
	return ids, stat, err
}

// placesOf returns where the entries of all services are, those of others too.
func (r *Registry) placesOf(ctx context.Context, services []string) ([]place, error) {
	perService := make([][]string, len(services))
	err := each(ctx, len(services), func(ctx context.Context, i int) (err error) {
		perService[i], _, err = r.idsOf(ctx, services[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	var places []place
	for i, ids := range perService {
		for _, id := range ids {
			places = append(places, place{services[i], id})
		}
	}
	return places, nil
}

func (r *Registry) entriesOf(ctx context.Context, cluster string, places []place) ([]registry.Entry, error) {
	var mu sync.Mutex
	var entries []registry.Entry
	err := each(ctx, len(places), func(ctx context.Context, i int) error {
		p := places[i]
		raw, _, err := r.session.get(ctx, r.tree.service(p.service)+slash+p.id)
		if errors.Is(err, zk.ErrNoAuth) && !strings.HasPrefix(p.id, idPrefix) {
			return nil // another's, which no other user may read
		}
		if err != nil {
			return err
		}
		var found []registry.Entry
		if e, _, ours := decode(p.service, p.id, raw); !ours {
			found = decodeForeign(p.service, p.id, cluster, raw)
		} else if e.Cluster == cluster {
			found = []registry.Entry{e}
		}
		mu.Lock()
		defer mu.Unlock()
		entries = append(entries, found...)
		return nil
	})
	return entries, err
}

// each calls f for 0 to n-1, several at the same time, and returns the first error. What is not there any more is none.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i := range n {
		group.Go(func() error {
			if err := f(ctx, i); !errors.Is(err, zk.ErrNoNode) {
				return err
			}
			return nil
		})
	}
	return group.Wait()
}
