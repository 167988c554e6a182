package consul

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/rollcall-dev/rollcall/registry"
)

// Get implements [registry.Getter] with a transaction that reads service and check together, consistently: the leader
// answers it after a majority has confirmed that it leads. As in a list, a service without our check is in service.
func (r *Registry) Get(ctx context.Context, in registry.Instance) (registry.State, error) {
	state, err := r.state(ctx, in)
	if err != nil {
		return "", fmt.Errorf("asking for %s at %s: %w", in.Service, in.Endpoint(), err)
	}
	return state, nil
}

func (r *Registry) state(ctx context.Context, in registry.Instance) (registry.State, error) {
	if err := check(in); err != nil {
		return "", registry.Terminal(err)
	}
	service, status, err := r.holds(ctx, in)
	if err != nil {
		return "", err
	}
	foreign, err := r.isForeign(ctx, in)
	switch {
	case err != nil:
		return "", err
	case foreign:
		return registry.Foreign, nil
	case service == nil, !owns(in, service), service.Meta[registry.MetaCluster] != in.Cluster:
		return registry.Absent, nil
	case status == api.HealthCritical:
		return registry.OutOfService, nil
	}
	return registry.InService, nil
}

// isForeign reports whether clients are given the address by a service that no Rollcall has written: an agent's, say, whose
// address is its node's where it has none. What the token may not see is not counted.
func (r *Registry) isForeign(ctx context.Context, in registry.Instance) (bool, error) {
	if path.Clean("/"+in.Service) != "/"+in.Service {
		return false, nil // the endpoint takes no such name, and no agent registers one
	}
	e := &exchange{scoped: true}
	q := &api.QueryOptions{RequireConsistent: true, Filter: fmt.Sprintf("Service.Port == %d and %q not in Service.Meta and "+
		"(Service.Address == %s or Service.Address == \"\" and Node.Address == %[3]s)",
		in.Port, registry.MetaUID, quote(in.Address))}
	found, _, err := r.client.Health().Service(in.Service, "", true, q.WithContext(e.on(ctx)))
	if err != nil {
		return false, r.requestError(ctx, err, e)
	}
	return len(found) > 0, nil
}

// holds returns the service at the instance's identity, nil where there is none, and the status of its check, "" where it
// has none.
func (r *Registry) holds(ctx context.Context, in registry.Instance) (*api.AgentService, string, error) {
	ops := api.TxnOps{r.serviceOp(api.ServiceGet, in, 0), r.checkGet(in)}
	for {
		response, err := r.transact(ctx, ops)
		switch {
		case err != nil:
			return nil, "", err
		case len(response.Errors) == 0:
			return read(ops, response.Results)
		}
		for _, e := range response.Errors {
			if !strings.Contains(e.What, "doesn't exist") {
				return nil, "", r.operationError(e)
			}
			if e.OpIndex == 0 {
				return nil, "", nil
			}
		}
		if len(ops) == 1 {
			return nil, "", r.operationError(response.Errors[0])
		}
		ops = ops[:1] // a transaction that asks for what is not there is answered with nothing but what that is
	}
}

// read takes the results apart. One that is missing is kept from us.
func read(ops api.TxnOps, results api.TxnResults) (service *api.AgentService, status string, err error) {
	if len(results) != len(ops) {
		return nil, "", notAllowed(errHidden)
	}
	for _, result := range results {
		switch {
		case result.Service != nil:
			service = result.Service
		case result.Check != nil:
			status = result.Check.Status
		}
	}
	if service == nil {
		return nil, "", notAllowed(errHidden)
	}
	return service, status, nil
}

func (r *Registry) checkGet(in registry.Instance) *api.TxnOp {
	op := r.checkOp(in, "", "")
	op.Check.Verb = api.CheckGet
	return op
}
