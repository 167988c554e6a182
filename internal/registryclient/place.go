package registryclient

import (
	"context"

	"github.com/rollcall-dev/rollcall/internal/place"
	"github.com/rollcall-dev/rollcall/registry"
)

// Here alone, what a driver is told and what it returns changes its form: a driver has the place of a service apart, and everybody else as
// the beginning of the service.

// told is an instance as the driver gets it.
func (c *Client) told(in registry.Instance) registry.Instance {
	in.Place, in.Service = place.Split(c.PlaceTemplate(), in.Service)
	return in
}

// inPlace has an error's names of services begin with the place in which the driver found them.
func inPlace(at string, err error) error {
	var names []string
	for _, name := range registry.OtherNamesOf(err) {
		names = append(names, place.Join(at, name))
	}
	if names == nil {
		return err
	}
	return registry.OtherNames(err, names...)
}

// ListPlace returns a cluster's entries in one place, if the registry has places. What is elsewhere is not this list's to tell.
func (c *Client) ListPlace(ctx context.Context, cluster, at string) ([]registry.Entry, error) {
	found, err := c.list(ctx, func(ctx context.Context) ([]registry.Entry, error) { return c.placer.ListPlace(ctx, cluster, at) })
	var entries []registry.Entry
	for _, e := range found {
		if e.Place == at {
			e.Place, e.Service = "", place.Join(at, e.Service)
			entries = append(entries, e)
		}
	}
	return entries, err
}
