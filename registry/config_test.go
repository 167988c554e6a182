package registry_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
)

func TestFiles(t *testing.T) {
	t.Parallel()
	cfg := registry.Config{
		TLS:  registry.TLS{CAFile: "/ca", CertFile: "/cert", KeyFile: "/key"},
		Auth: registry.Auth{TokenFile: "/token", Username: "me", PasswordFile: "/password"},
	}
	if got, want := cfg.Files(), []string{"/ca", "/cert", "/key", "/token", "/password"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want every file there is: one that is left out is never read again: %v", got, want)
	}
	if got := (registry.Config{Endpoint: "/not/a/file"}).Files(); len(got) != 0 {
		t.Errorf("got %v, want none", got)
	}
	if (registry.TLS{}).Given() || !(registry.TLS{KeyFile: "/key"}).Given() {
		t.Error("Given: want none for no file, and any for one")
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1:80", "fd00::1": "[fd00::1]:80"} {
		if got := (registry.Instance{Address: address, Port: 80}).Endpoint(); got != want {
			t.Errorf("endpoint of %s: got %s, want %s", address, got, want)
		}
	}
}

func TestEntryIsFlatJSON(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(registry.Entry{Instance: registry.Instance{Service: "web", Port: 80}, State: registry.InService})
	want := `{"service":"web","address":"","port":80,"cluster":"","namespace":"","pod":"","uid":"","state":"InService"}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}
