package consul

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/rollcall-dev/rollcall/registry"
)

// tidier knows when a node may be empty, so that not every Deregister reads all of it: the node is not empty before the
// witness, some service of this cluster, was seen to go. If the witness is taken at random, a rollout of n services looks
// about ln n times. If another client removed the witness, an empty node stays until it is of use again.
type tidier struct {
	busy    chan struct{} // holds a value while a call has it
	witness string        // an ID, "" if none is known; only for the call that has it
}

func newTidiers() []*tidier {
	tidiers := make([]*tidier, nodeCount)
	for number := range tidiers {
		tidiers[number] = &tidier{busy: make(chan struct{}, 1)}
	}
	return tidiers
}

// tidyAfter drops the nodes whose last service has gone with a transaction. All changes of it are made by then, and an
// empty node does no harm: that it could not be dropped is not their error, and the next Deregister tries again.
func (r *Registry) tidyAfter(ctx context.Context, t *transaction) {
	if slices.ContainsFunc(t.errs, func(err error) bool { return err != nil }) {
		return
	}
	for number, gone := range t.gone {
		r.tidy(ctx, number, gone)
	}
}

func (r *Registry) tidy(ctx context.Context, number int, gone []string) {
	mine := r.tidiers[number]
	select {
	case mine.busy <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-mine.busy }()
	// A call that takes a witness which is about to go does so before the call that removed it gets here.
	if mine.witness == "" || slices.Contains(gone, mine.witness) {
		mine.witness = r.dropIfEmpty(ctx, r.nodes[number])
	}
}

// dropIfEmpty marks an empty node and, if it is still empty then, deletes it; package comment. It returns a witness if
// the node is not empty.
func (r *Registry) dropIfEmpty(ctx context.Context, ours node) (witness string) {
	for range 2 {
		held, services, err := r.services(ctx, ours, "")
		switch {
		case err != nil, held == nil, held.ID != ours.ID:
			return ""
		case len(services) > 0:
			return r.chooseWitness(services)
		}
		op := nodeOp(deleteCAS, *held)
		if held.Meta[metaEmpty] == "" {
			marked := ours
			marked.Meta = maps.Clone(ours.Meta)
			marked.Meta[metaEmpty] = "true"
			marked.ModifyIndex = held.ModifyIndex
			op = nodeOp(cas, marked)
		}
		if response, err := r.transact(ctx, []operation{op}); err != nil || len(response.Errors) > 0 {
			return "" // a registration came between, or another one is dropping it
		}
	}
	return ""
}

// chooseWitness returns the ID of one of this cluster's services: only of these does this process see the end.
func (r *Registry) chooseWitness(services []*service) string {
	ours := slices.DeleteFunc(services, func(s *service) bool {
		return s.Meta[registry.MetaCluster] != r.cluster
	})
	if len(ours) == 0 {
		return ""
	}
	return ours[rand.IntN(len(ours))].ID //nolint:gosec // any of them will do
}
