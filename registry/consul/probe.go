package consul

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// prober is a [Registry] with the option probe.
type prober struct{ *Registry }

// Probe implements [registry.Prober]: it reads what clients read, in which others may have put checks of the service or its node.
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
	var found []appService
	its := fmt.Sprintf("Service.ID == %s and Service.Meta[%q] == %s", quote(serviceID(in)), registry.MetaUID, quote(in.UID))
	_, err := r.read(ctx, healthOfServicePath+url.PathEscape(in.Service), url.Values{"filter": {its}}, false, &found)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("the health endpoint does not list it")
	}
	if c := found[0].failing(); c != nil {
		return fmt.Errorf("check %q is critical: %s", c.Name, r.credentials.Excerpt(c.Output))
	}
	return nil
}
