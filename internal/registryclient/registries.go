package registryclient

import (
	"maps"
	"slices"
)

// Registries are the clients of all registries of a configuration, by name. The applications' entries in a registry have the name
// that [AppEntries] makes of its name.
type Registries map[string]*Client

// Client returns that of a registry, or of the applications' entries in one; nil where there is none.
func (r Registries) Client(name string) *Client {
	if configured, apps := CutAppEntries(name); apps {
		return r[configured].AppEntries()
	}
	return r[name]
}

// Server returns what [Client.Server] does; false where there is no such registry.
func (r Registries) Server(name string) (identity any, known bool) {
	client := r.Client(name)
	if client == nil {
		return nil, false
	}
	return client.Server(), true
}

// Names are sorted.
func (r Registries) Names() []string { return slices.Sorted(maps.Keys(r)) }

// Places are the names of all registries and, after these, of the applications' entries in those where they can be steered.
func (r Registries) Places() []string {
	all := r.Names()
	for _, name := range r.Names() {
		if r[name].AppEntries() != nil {
			all = append(all, AppEntries(name))
		}
	}
	return all
}
