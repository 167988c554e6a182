package config

import (
	"slices"
	"testing"
)

// FuzzParse: whatever the file says, it is refused with an error or it is a configuration that can be worked with.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "{}", minimal, "cluster: [", "registry: null", "hooks: {owned: ['*']}", "a: &a [*a]", "drain: 1e400s",
		minimal + "resync: {interval: 1m, maxRemovals: 20%}\n", minimal + "service: {name: '{label:', port: -1}\n",
		minimal + "namespaces: ['', a, a]\n", minimal + "cluster: twice\n", "\xff\xfe", "--- \n--- \n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data, limits())
		if (c == nil) != (err != nil) {
			t.Fatalf("got %+v and %v, want one of them", c, err)
		}
		if err != nil {
			if err.Error() == "" {
				t.Error("refused without a word")
			}
			return
		}
		if c.Cluster == "" || c.Drain.Max < 0 {
			t.Errorf("accepted %+v", c)
		}
		expectRegistries(t, c)
		expectEffective(t, c)
	})
}

func expectRegistries(t *testing.T, c *Config) {
	t.Helper()
	names := c.RegistryNames()
	if len(names) == 0 || len(c.DefaultRegistries) == 0 || !slices.IsSorted(c.DefaultRegistries) {
		t.Errorf("registries %q, of which %q by default", names, c.DefaultRegistries)
	}
	for _, name := range c.DefaultRegistries {
		if !slices.Contains(names, name) {
			t.Errorf("default registry %q is none of %q", name, names)
		}
	}
	for _, name := range names {
		r := c.Registries[name]
		if !slices.Contains(limits().Drivers, r.Driver) || r.Timeout <= 0 || r.Timeout >= c.Lease.TimeoutLimit() {
			t.Errorf("accepted registry %q: %+v", name, r)
		}
		if r.Cluster != c.Cluster {
			t.Errorf("registry %q is given cluster %q", name, r.Cluster)
		}
		_ = c.RegistryPath(name).String()
	}
}
