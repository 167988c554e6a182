package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"reflect"
)

// fingerprint identifies the content of a registry's files without revealing it. It is zero where the registry names no
// file.
type fingerprint [sha256.Size]byte

// fingerprints reads the files that the registries name.
func (c *Config) fingerprints() map[string]fingerprint {
	prints := make(map[string]fingerprint, len(c.Registries))
	for name := range c.Registries {
		if files := c.Driver(name).Files(); len(files) > 0 {
			prints[name] = fingerprintOf(files)
		}
	}
	return prints
}

// fingerprintOf counts what keeps a file from being read as its content.
func fingerprintOf(files []string) fingerprint {
	var all []byte
	for _, path := range files {
		digest := sha256.New()
		if err := copyFile(digest, path); err != nil {
			_, _ = fmt.Fprintf(digest, "%T %v", err, err)
		}
		all = digest.Sum(all)
	}
	return sha256.Sum256(all)
}

func copyFile(into io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	_, err = io.Copy(into, f)
	return err
}

// rotated returns the names of the registries in c, sorted, whose section is the same in both configurations but for
// maxInFlight, and whose files are not.
func (c *Config) rotated(before *Config, now, then map[string]fingerprint) []string {
	var names []string
	for _, name := range c.RegistryNames() {
		section, known := before.Registries[name]
		if known && now[name] != then[name] && section.EqualButMaxInFlight(c.Registries[name]) {
			names = append(names, name)
		}
	}
	return names
}

// equal reports whether two configurations say the same, whatever stood in the files that they name.
func (c *Config) equal(other *Config) bool {
	a, b := *c, *other
	a.loaded, b.loaded = nil, nil
	return reflect.DeepEqual(a, b)
}
