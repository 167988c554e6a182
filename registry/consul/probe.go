package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// prober is a [Registry] with the option probe.
type prober struct{ *Registry }

// Probe implements [registry.Prober]: others may have put checks of the service or its node. It reads those of the node, which has a part
// of the entries, and not the service, in which a server would look through all.
func (p prober) Probe(ctx context.Context, in registry.Instance) error {
	return driverkit.CallError(ctx, "asking whether clients are given", in, p.given(ctx, in))
}

func (r *Registry) given(ctx context.Context, in registry.Instance) error {
	if err := checkInstance(in); err != nil {
		return err
	}
	if !hasPath(in.Service) {
		return nil // the endpoint takes no such name: no client reads it there
	}
	held, _, err := r.holds(ctx, in)
	switch {
	case err != nil:
		return err
	case held == nil, held.Meta[registry.MetaUID] != in.UID:
		return errors.New("it is not registered")
	}
	checks, _, err := r.checksOf(ctx, r.nodes[nodeNumber(in.Address)].Node, serviceID(in), "")
	if err != nil {
		return err
	}
	if c := (appService{Checks: checks}).failing(); c != nil {
		return fmt.Errorf("check %q is critical: %s", c.Name, r.credentials.Excerpt(c.Output))
	}
	return nil
}

// checksOf are those for which clients may not be given a service of a node: its own and the node's. With an index it waits for a change
// of the node since, and can return earlier.
func (r *Registry) checksOf(ctx context.Context, of, id, since string) (checks []check, header http.Header, err error) {
	query := url.Values{"filter": {fmt.Sprintf("ServiceID == \"\" or ServiceID == %s", quote(id))}}
	if since != "" {
		query.Set("index", since)
		query.Set("wait", waitIn(ctx).String())
	}
	header, err = r.read(ctx, "/v1/health/node/"+url.PathEscape(of), query, false, &checks)
	return checks, header, err
}
