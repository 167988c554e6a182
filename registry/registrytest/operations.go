package registrytest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/rollcall-dev/rollcall/registry"
)

// operation is one method of the contract.
type operation string

// The methods of [registry.Registry] and of the optional interfaces. opBatch is Batch with one Register in it; opApp… are
// the methods of AppEntries.
const (
	opRegister   operation = "Register"
	opFailOver   operation = "FailOver"
	opDeregister operation = "Deregister"
	opList       operation = "List"
	opProbe      operation = "Probe"
	opHeartbeat  operation = "Heartbeat"
	opGet        operation = "Get"
	opBatch      operation = "Batch"

	opAppRegister   operation = "AppEntries().Register"
	opAppFailOver   operation = "AppEntries().FailOver"
	opAppDeregister operation = "AppEntries().Deregister"
	opAppGet        operation = "AppEntries().Get"
)

// interfacesOf returns which of the optional interfaces a driver has.
func interfacesOf(d registry.Registry) map[Capability]bool {
	_, lists := d.(registry.Lister)
	_, gets := d.(registry.Getter)
	_, probes := d.(registry.Prober)
	_, beats := d.(registry.Heartbeater)
	_, batches := d.(registry.Batcher)
	_, steers := d.(registry.AppEntrySteerer)
	traits := registry.TraitsOf(d)
	_, closes := d.(io.Closer)
	return map[Capability]bool{
		isLister: lists, isGetter: gets, isProber: probes, isHeartbeater: beats && traits.HeartbeatInterval > 0,
		isBatcher: batches, isSteerer: steers, callsPods: traits.CallsPods, isCloser: closes,
	}
}

// operations returns those that the driver has.
func operations(d registry.Registry) []operation {
	all := []operation{opRegister, opFailOver, opDeregister}
	has := interfacesOf(d)
	if has[callsPods] {
		all = nil
	}
	for _, optional := range []struct {
		capability Capability
		op         operation
	}{
		{isLister, opList}, {isGetter, opGet}, {isProber, opProbe}, {isHeartbeater, opHeartbeat}, {isBatcher, opBatch},
		{isSteerer, opAppRegister}, {isSteerer, opAppFailOver}, {isSteerer, opAppDeregister}, {isSteerer, opAppGet},
	} {
		if has[optional.capability] {
			all = append(all, optional.op)
		}
	}
	return all
}

func invoke(ctx context.Context, op operation, d registry.Registry, in registry.Instance) error {
	switch op {
	case opRegister:
		return d.Register(ctx, in)
	case opFailOver:
		return d.FailOver(ctx, in)
	case opDeregister:
		return d.Deregister(ctx, in)
	case opList:
		_, err := d.(registry.Lister).List(ctx, in.Cluster)
		return err
	case opGet:
		_, err := d.(registry.Getter).Get(ctx, in)
		return err
	case opProbe:
		return d.(registry.Prober).Probe(ctx, in)
	case opHeartbeat:
		return d.(registry.Heartbeater).Heartbeat(ctx, in)
	case opBatch:
		errs := d.(registry.Batcher).Batch(ctx, []registry.Change{{Instance: in, State: registry.InService}})
		if len(errs) != 1 {
			return fmt.Errorf("got %d errors for one change, want 1", len(errs))
		}
		return errs[0]
	case opAppRegister:
		return appsOf(d).Register(ctx, in)
	case opAppFailOver:
		return appsOf(d).FailOver(ctx, in)
	case opAppDeregister:
		return appsOf(d).Deregister(ctx, in)
	case opAppGet:
		_, err := appsOf(d).Get(ctx, in)
		return err
	}
	return fmt.Errorf("no such operation: %s", op)
}

func appsOf(d registry.Registry) registry.AppRegistry {
	return d.(registry.AppEntrySteerer).AppEntries()
}

// joined is errors.Join of the first errors: a thousand would be no easier to read.
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
