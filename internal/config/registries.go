package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/rollcall-dev/rollcall/registry"
)

// registries completes and checks the registries and which of them are the default.
func (v *validator) registries(c *Config, d *document, limits Limits) {
	if c.single {
		v.singleRegistry(c, d, limits)
		return
	}
	path := field.NewPath("registries")
	most := v.mostInFlight(path, len(d.Registries), limits)
	if d.Registry != nil {
		v.add(field.Forbidden(path, "registry and registries exclude each other: move the content of registry to "+
			"registries.default, the name that it had, and remove registry"))
	}
	if len(d.Registries) == 0 {
		v.add(field.Required(path, "write at least one registry, under a name"))
	}
	c.Registries = make(map[string]Registry, len(d.Registries))
	for _, name := range slices.Sorted(maps.Keys(d.Registries)) {
		at := c.RegistryPath(name)
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			v.add(field.Invalid(at, name, "write a name of at most 63 lower-case letters, digits or - that begins and ends "+
				"with a letter or digit"))
		}
		var section registryDocument
		problems, ok := unmarshal(d.Registries[name], &section, at)
		v.problems = append(v.problems, problems...)
		if ok {
			c.Registries[name] = v.registry(at, &section, limits, most)
		}
	}
	v.differentServers(c)
	c.DefaultRegistries = v.defaultRegistries(d.DefaultRegistries, slices.Sorted(maps.Keys(d.Registries)))
}

// differentServers refuses two names for one server: what a pod registers under one of them it removes when it leaves the
// other.
func (v *validator) differentServers(c *Config) {
	names := slices.Sorted(maps.Keys(c.Registries))
	for i, name := range names {
		for _, first := range names[:i] {
			if c.Registries[name].SameServer(c.Registries[first]) {
				v.add(field.Invalid(c.RegistryPath(name).Child("endpoint"), c.Registries[name].Endpoint, fmt.Sprintf(
					"registries[%s] is the same server, with the same driver and options: remove one of the two names, and from "+
						"defaultRegistries and the pods' annotations too; to rename a registry, write only the new name", first)))
			}
		}
	}
}

// singleRegistry checks the form with one registry, which is the default because there is no other.
func (v *validator) singleRegistry(c *Config, d *document, limits Limits) {
	section := d.Registry
	if section == nil {
		section = &registryDocument{}
	}
	path := c.RegistryPath(DefaultRegistry)
	c.Registries = map[string]Registry{DefaultRegistry: v.registry(path, section, limits, v.mostInFlight(path, 1, limits))}
	c.DefaultRegistries = []string{DefaultRegistry}
	if d.DefaultRegistries != nil {
		v.add(field.Forbidden(field.NewPath("defaultRegistries"), "registry defines only one registry: remove this field, or "+
			"write several under registries"))
	}
}

func (v *validator) defaultRegistries(names, known []string) []string {
	path := field.NewPath("defaultRegistries")
	switch {
	case names == nil && len(known) == 1:
		return known
	case len(names) == 0:
		v.add(field.Required(path, "list the registries for pods that name none: one or more of "+strings.Join(known, ", ")))
	}
	for i, name := range names {
		if !slices.Contains(known, name) {
			v.add(field.NotSupported(path.Index(i), name, known))
		}
		if slices.Contains(names[:i], name) {
			v.add(field.Duplicate(path.Index(i), name))
		}
	}
	return slices.Sorted(slices.Values(names))
}

func (v *validator) registry(path *field.Path, d *registryDocument, limits Limits, mostInFlight int) Registry {
	known := slices.Sorted(slices.Values(limits.Drivers))
	switch {
	case d.Driver == "":
		v.add(field.Required(path.Child("driver"), "write one of "+strings.Join(known, ", ")))
	case !slices.Contains(known, d.Driver):
		v.add(field.NotSupported(path.Child("driver"), d.Driver, known))
	}
	timeout := v.duration(path.Child("timeout"), d.Timeout, DefaultTimeout, time.Millisecond)
	if limits.Timeout > 0 && timeout >= limits.Timeout {
		v.add(field.Invalid(path.Child("timeout"), timeout.String(), fmt.Sprintf(
			"write less than %s: a call that timed out may reach the registry until twice the timeout has passed, and that must be "+
				"within the leader's lease", limits.Timeout)))
	}
	return Registry{
		Driver:   d.Driver,
		Endpoint: d.Endpoint,
		TLS:      registry.TLS{CAFile: d.TLS.CAFile, CertFile: d.TLS.CertFile, KeyFile: d.TLS.KeyFile},
		Auth: registry.Auth{
			TokenFile: d.Auth.TokenFile, Username: d.Auth.Username, PasswordFile: d.Auth.PasswordFile,
		},
		Timeout:     timeout,
		MaxInFlight: v.maxInFlight(path.Child("maxInFlight"), d.InFlight, mostInFlight),
		Options:     v.options(path.Child("options"), d.Options),
	}
}

// mostInFlight is how many calls to one of so many registries may be under way. All registries but one together get at
// most three quarters of the workers, so that the one finds workers although all others hang. 0 is no limit.
func (v *validator) mostInFlight(path *field.Path, registries int, limits Limits) int {
	if limits.Workers == 0 {
		return 0
	}
	share := limits.Workers * 3 / 4
	if registries <= 1 {
		return max(share, leastInFlight)
	}
	others := registries - 1
	if share < leastInFlight*others {
		v.add(field.Invalid(path, field.OmitValueType{}, fmt.Sprintf(
			"%d registries need more than %d workers, so that registries that hang leave workers for the others: set --workers to %d or "+
				"more, or name fewer registries", registries, limits.Workers, (4*leastInFlight*others+2)/3)))
	}
	return max(share/others, leastInFlight)
}

// maxInFlight reads how many calls may be under way, by default fewer where most, if any, is less.
func (v *validator) maxInFlight(path *field.Path, written *int, most int) int {
	switch {
	case written == nil && most > 0:
		return min(DefaultMaxInFlight, most)
	case written == nil:
		return DefaultMaxInFlight
	case *written < leastInFlight:
		v.add(field.Invalid(path, *written, fmt.Sprintf("write %d or more: one service gets at most half of them", leastInFlight)))
	case most > 0 && *written > most:
		v.add(field.Invalid(path, *written, fmt.Sprintf(
			"write at most %d, three quarters of --workers divided by the number of other registries, so that slow registries leave "+
				"workers for the others", most)))
	}
	return *written
}
