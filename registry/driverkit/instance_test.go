package driverkit

import (
	"testing"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestForeignIsAtThePodsAddress(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "2001:db8:0:0:1:0:0:a": "2001:db8::1:0:0:a", "2001:DB8::A": "2001:db8::a",
		"::ffff:10.0.0.1": "10.0.0.1", "fe80::1%eth0": "fe80::1", "web.example.com": "web.example.com",
	} {
		if got := Foreign("web", written, 80).Address; got != want {
			t.Errorf("%s: got %q, want %q, the form of Kubernetes", written, got, want)
		}
	}
}

func TestAddressForms(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]string{
		"10.0.0.1":               {"10.0.0.1"},
		"2001:db8::1:0:0:a":      {"2001:db8::1:0:0:a", "2001:db8:0:0:1:0:0:a"},
		"2001:db8:1:2:3:4:5:678": {"2001:db8:1:2:3:4:5:678"},
	} {
		expect.Equal(t, want, AddressForms(address), "%s", address)
		for _, form := range AddressForms(address) {
			if !SameAddress(form, address) {
				t.Errorf("%s is another address than %s", form, address)
			}
		}
	}
}
