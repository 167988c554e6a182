package consul

import (
	"context"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Get implements [registry.Getter] with a transaction that reads service and check together, consistently: the leader
// answers it after a majority has confirmed that it leads. As in a list, a service without Rollcall's check is in rotation.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	state, err := r.state(ctx, in)
	return state, driverkit.CallError(ctx, "asking for", in, err)
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := checkInstance(in); err != nil {
		return "", err
	}
	held, status, err := r.holds(ctx, in)
	if err != nil {
		return "", err
	}
	foreign, err := r.isForeign(ctx, in)
	switch {
	case err != nil:
		return "", err
	case foreign:
		return registry.Foreign, nil
	case held == nil, !in.OwnsMeta(held.Meta), held.Meta[registry.MetaCluster] != in.Cluster:
		return registry.Absent, nil
	case status == statusCritical:
		return registry.OutOfService, nil
	}
	return registry.InService, nil
}

// holds returns the service at the instance's identity, nil if there is none, and the status of its check, "" if it
// has none.
func (r *Registry) holds(ctx context.Context, in registry.Instance) (*service, string, error) {
	ops := []operation{r.serviceOp(get, in, 0), r.checkOp(get, in, "", "")}
	for {
		response, err := r.transact(ctx, ops)
		switch {
		case err != nil:
			return nil, "", err
		case len(response.Errors) == 0:
			return results(ops, response)
		}
		for _, e := range response.Errors {
			if !e.isNotThere() {
				return nil, "", r.refusedOperation(e)
			}
			if e.OpIndex == 0 {
				return nil, "", nil
			}
		}
		if len(ops) == 1 {
			return nil, "", r.refusedOperation(response.Errors[0])
		}
		ops = ops[:1] // a transaction that asks for what is not there is answered with nothing but what that is
	}
}

// results takes the results apart. One that is missing is hidden from the token.
func results(ops []operation, made *outcome) (held *service, status string, err error) {
	if len(made.Results) != len(ops) {
		return nil, "", notAllowed(errHidden)
	}
	for _, result := range made.Results {
		switch {
		case result.Service != nil:
			held = result.Service
		case result.Check != nil:
			status = result.Check.Status
		}
	}
	if held == nil {
		return nil, "", notAllowed(errHidden)
	}
	return held, status, nil
}
