package registry_test

import (
	"encoding/json"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestTLSIsGiven(t *testing.T) {
	t.Parallel()
	if (registry.TLS{}).Given() || !(registry.TLS{KeyFile: "/key"}).Given() {
		t.Error("Given: want none for no file, and any for one")
	}
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"10.0.0.1": "10.0.0.1:80", "fd00::1": "[fd00::1]:80"} {
		expect.Equal(t, want, (registry.Instance{Address: address, Port: 80}).Endpoint(), "endpoint of %s", address)
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
