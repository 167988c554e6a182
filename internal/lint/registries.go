package lint

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/suggest"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/driverkit"
)

// Registries returns what the manager refuses at its start because a driver refuses its endpoint, in the driver's words. A driver that is
// not built in is a finding if its name is near to one that is, else a note: it is checked only by the manager that has it. What else a
// driver checks needs the driver.
func Registries(c *config.Config) (findings, notes []string) {
	checks := endpointChecks()
	for _, name := range c.RegistryNames() {
		r := c.Registries[name]
		check, builtIn := checks[r.Driver]
		if !builtIn {
			about := fmt.Sprintf("%s: driver %q is not built in", c.RegistryPath(name), r.Driver)
			if meant := suggest.Nearest(r.Driver, slices.Sorted(maps.Keys(checks))); meant != "" {
				findings = append(findings, fmt.Sprintf("%s: did you mean %q?", about, meant))
				continue
			}
			notes = append(notes, about+": run the manager that has it with --check-config")
			continue
		}
		for _, err := range c.RegistryErrors(name, check(r.Config)) {
			findings = append(findings, err.Error())
		}
	}
	return findings, notes
}

// endpointChecks has every driver that is built in, by its name, with as much as needs no driver: constructors would bring their clients,
// and begin sessions.
func endpointChecks() map[string]func(registry.Config) error {
	urls := func(c registry.Config) error { _, err := driverkit.URLs(c); return err }
	given := func(c registry.Config) error {
		if c.Endpoint != "" {
			return nil
		}
		_, err := driverkit.Addresses(c)
		return err
	}
	none := func(registry.Config) error { return nil }
	return map[string]func(registry.Config) error{
		"consul": urls, "etcd": urls, "eureka": urls, "http": urls, "nacos": urls, "zookeeper": given,
		driverEndpointSlice: none, "memory": none, "pod": none,
	}
}
