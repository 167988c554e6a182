package registrytest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rollcall-dev/rollcall/registry"
)

// opBatch is Batch with one Register in it.
const opBatch Op = "Batch"

// interfacesOf says which of the optional interfaces a driver has.
func interfacesOf(d registry.Registry) map[Capability]bool {
	_, lists := d.(registry.Lister)
	_, gets := d.(registry.Getter)
	_, probes := d.(registry.Prober)
	beats, has := d.(registry.Heartbeater)
	_, batches := d.(registry.Batcher)
	_, closes := d.(io.Closer)
	return map[Capability]bool{
		Listing: lists, Getting: gets, Probing: probes, Heartbeats: has && beats.HeartbeatInterval() > 0,
		Batching: batches, Closing: closes,
	}
}

// operations returns those that the driver has.
func operations(d registry.Registry) []Op {
	all := []Op{OpRegister, OpFailOver, OpDeregister}
	has := interfacesOf(d)
	for _, optional := range []struct {
		capability Capability
		op         Op
	}{
		{Listing, OpList}, {Getting, OpGet}, {Probing, OpProbe}, {Heartbeats, OpHeartbeat}, {Batching, opBatch},
	} {
		if has[optional.capability] {
			all = append(all, optional.op)
		}
	}
	return all
}

func invoke(ctx context.Context, op Op, d registry.Registry, in registry.Instance) error {
	switch op {
	case OpRegister:
		return d.Register(ctx, in)
	case OpFailOver:
		return d.FailOver(ctx, in)
	case OpDeregister:
		return d.Deregister(ctx, in)
	case OpList:
		_, err := d.(registry.Lister).List(ctx, in.Cluster)
		return err
	case OpGet:
		_, err := d.(registry.Getter).Get(ctx, in)
		return err
	case OpProbe:
		return d.(registry.Prober).Probe(ctx, in)
	case OpHeartbeat:
		return d.(registry.Heartbeater).Heartbeat(ctx, in)
	case opBatch:
		errs := d.(registry.Batcher).Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})
		if len(errs) != 1 {
			return fmt.Errorf("one change was answered with %d errors, want 1", len(errs))
		}
		return errs[0]
	}
	return fmt.Errorf("no such operation: %s", op)
}

// joined is errors.Join of the first errors: a thousand are no easier to read.
func joined(errs []error) error {
	var first []error
	more := 0
	for _, err := range errs {
		switch {
		case err == nil:
		case len(first) < maxLines:
			first = append(first, err)
		default:
			more++
		}
	}
	if more > 0 {
		first = append(first, fmt.Errorf("and %d more", more))
	}
	return errors.Join(first...)
}
