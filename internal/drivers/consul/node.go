package consul

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hashicorp/consul/api"

	"github.com/rollcall-dev/rollcall/registry"
)

// tidier knows when the node may be empty, so that not every Deregister reads all of it: as long as the witness, some
// service of our cluster, was not seen to go, it isn't. Where the witness is taken at random a rollout of n services looks
// about ln n times. If somebody else removed it, an empty node stays until it is of use again.
type tidier struct {
	busy    chan struct{} // holds a value while somebody has it
	witness string        // an ID, "" if none is known; only for who has it
}

func newTidier() tidier { return tidier{busy: make(chan struct{}, 1)} }

// tidyAfter drops the node where the last service has gone with a transaction. All changes of it are made by then, and an
// empty node harms nobody: that it could not be dropped is no error of theirs, and whoever deregisters next tries again.
func (r *Registry) tidyAfter(ctx context.Context, t *transaction, errs []error) {
	if len(t.gone) == 0 || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return
	}
	select {
	case r.tidier.busy <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-r.tidier.busy }()
	// Whoever takes a witness that is about to go does so before the one who removed it gets here.
	if witness := r.tidier.witness; witness != "" && !slices.Contains(t.gone, witness) {
		return
	}
	r.tidier.witness = ""
	r.dropIfEmpty(ctx)
}

// dropIfEmpty marks an empty node and, if it is still empty then, deletes it; package comment.
func (r *Registry) dropIfEmpty(ctx context.Context) {
	for range 2 {
		node, services, err := r.services(ctx, "")
		if err != nil || node == nil || node.ID != r.node.ID {
			return
		}
		if len(services) > 0 {
			r.tidier.witness = r.chooseWitness(services)
			return
		}
		op := nodeOp(api.NodeDeleteCAS, *node)
		if node.Meta[metaEmpty] == "" {
			marked := r.node
			marked.Meta = maps.Clone(r.node.Meta)
			marked.Meta[metaEmpty] = "true"
			marked.ModifyIndex = node.ModifyIndex
			op = nodeOp(api.NodeCAS, marked)
		}
		if response, err := r.transact(ctx, api.TxnOps{op}); err != nil || len(response.Errors) > 0 {
			return // a registration came between, or another one is dropping it
		}
	}
}

// chooseWitness returns the ID of one of our cluster's services: only of these does this process see the end.
func (r *Registry) chooseWitness(services []*api.AgentService) string {
	ours := slices.DeleteFunc(services, func(s *api.AgentService) bool {
		return s.Meta[registry.MetaCluster] != r.cluster
	})
	if len(ours) == 0 {
		return ""
	}
	return ours[rand.IntN(len(ours))].ID //nolint:gosec // any of them will do
}
