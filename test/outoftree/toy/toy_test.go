package toy_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/registry/registrytest"

	"example.com/toy/toy"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(path, cluster string) func(testing.TB) registry.Registry {
		return func(t testing.TB) registry.Registry { return open(t, path, cluster) }
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	registrytest.Run(t, registrytest.Harness{
		Open:        func(t testing.TB, cluster string) registry.Registry { return open(t, dir, cluster) },
		Unreachable: at(filepath.Join(dir, "missing"), "a"),
		Refusing:    at(file, "a"),
		Stalled:     at(lockedDir(t), "a"),
	})
}

func open(t testing.TB, dir, cluster string) registry.Registry {
	d, err := toy.New(t.Context(), registry.Config{Cluster: cluster, Endpoint: dir})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

// lockedDir is a directory that another process works in and never leaves.
func lockedDir(t *testing.T) string {
	dir := t.TempDir()
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestWhatNewRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		config registry.Config
		field  string
	}{
		"no directory": {"there is no default", registry.Config{}, "endpoint"},
		"relative":     {"whose working directory?", registry.Config{Endpoint: "entries"}, "endpoint"},
		"TLS":          {"it would be ignored", registry.Config{Endpoint: "/a", TLS: registry.TLS{CAFile: "/ca.crt"}}, "tls"},
		"token":        {"it would be ignored", registry.Config{Endpoint: "/a", Auth: registry.Auth{TokenFile: "/token"}}, "auth.tokenFile"},
		"unknown":      {"a typo must not be silent", registry.Config{Endpoint: "/a", Options: []byte(`{"prefx":"a"}`)}, "options"},
		"slash":        {"files elsewhere", registry.Config{Endpoint: "/a", Options: []byte(`{"prefix":"../a"}`)}, "options.prefix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := toy.New(t.Context(), tc.config)
			if field, _ := registry.FieldOf(err); field != tc.field {
				t.Errorf("%s: got %v, want an error that names %s", tc.reason, err, tc.field)
			}
		})
	}
}
