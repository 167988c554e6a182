package driverkit

import (
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestForeignIsAtThePodsAddress(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "2001:db8:0:0:1:0:0:a": "2001:db8::1:0:0:a", "2001:DB8::A": "2001:db8::a",
		"::ffff:10.0.0.1": "10.0.0.1", "fe80::1%eth0": "fe80::1", "web.example.com": "web.example.com", "[fd00::7]": "fd00::7",
		"[FD00:0:0:0:0:0:0:7%2]": "fd00::7", "fd00:0000:0000:0000:0000:0000:0000:0007": "fd00::7", "[::ffff:a00:1]": "10.0.0.1",
	} {
		expect.Equal(t, want, Foreign("web", written, 80).Address, "%s: the form of Kubernetes", written)
	}
}

func TestAddressForms(t *testing.T) {
	t.Parallel()
	for address, want := range map[string][]string{
		"10.0.0.1": {"10.0.0.1", "::ffff:10.0.0.1"},
		"fd00::7": {
			"fd00::7", "[fd00::7]", "FD00::7", "[FD00::7]",
			"fd00:0:0:0:0:0:0:7", "[fd00:0:0:0:0:0:0:7]", "FD00:0:0:0:0:0:0:7", "[FD00:0:0:0:0:0:0:7]",
			"fd00:0000:0000:0000:0000:0000:0000:0007", "[fd00:0000:0000:0000:0000:0000:0000:0007]",
			"FD00:0000:0000:0000:0000:0000:0000:0007", "[FD00:0000:0000:0000:0000:0000:0000:0007]",
		},
		"2001:1111:1:2:3:4:5:6666": {
			"2001:1111:1:2:3:4:5:6666", "[2001:1111:1:2:3:4:5:6666]",
			"2001:1111:0001:0002:0003:0004:0005:6666", "[2001:1111:0001:0002:0003:0004:0005:6666]",
		},
		"web.example.com": {"web.example.com"},
	} {
		expect.Equal(t, want, AddressForms(address), "%s", address)
		for _, form := range AddressForms(address) {
			if form != address && !SameAddress(form, address) {
				t.Errorf("%s is another address than %s", form, address)
			}
		}
	}
}

func TestForeignWithAnOwnershipTag(t *testing.T) {
	t.Parallel()
	in := registry.Instance{
		Service: "web", Address: "fd00::7", Port: 80, Cluster: "prod", ClusterUID: "c", Namespace: "shop", Pod: "web-1", UID: "u", Registry: "main",
	}
	tagged := Tagged(Foreign("web", "[FD00::7]", 80), in.Meta(), "web on node old-07")
	expect.Equal(t, registry.Entry{Instance: in, State: registry.Foreign, ID: "web on node old-07"}, tagged, "the tag and the ID")
	plain := Foreign("web", "fd00::7", 80)
	expect.Equal(t, plain, Tagged(plain, map[string]string{"version": "v1"}, "x"), "nothing of what is no tag")
	of := func(change func(*registry.Instance)) registry.Instance {
		other := in
		change(&other)
		return other
	}
	for name, tc := range map[string]struct {
		entry registry.Entry
		in    registry.Instance
		want  bool
	}{
		"somebody else's":               {plain, in, true},
		"tagged":                        {tagged, in, true},
		"of a call for any registry":    {tagged, of(func(in *registry.Instance) { in.Registry = "" }), true},
		"of another registry":           {tagged, of(func(in *registry.Instance) { in.Registry = "new" }), false},
		"of another pod, which is gone": {tagged, of(func(in *registry.Instance) { in.UID = "v" }), true},
		"at another port":               {plain, of(func(in *registry.Instance) { in.Port = 81 }), false},
		"of another service":            {plain, of(func(in *registry.Instance) { in.Service = "api" }), false},
		"at another address":            {plain, of(func(in *registry.Instance) { in.Address = "fd00::8" }), false},
		"the own one":                   {registry.Entry{Instance: in, State: registry.InService}, in, false},
	} {
		expect.Equal(t, tc.want, GivesInstance(tc.entry, tc.in), "%s", name)
	}
	for name, tc := range map[string]struct {
		meta map[string]string
		want bool
	}{
		"no tag": {map[string]string{"version": "v1"}, true}, "ours": {in.Meta(), true},
		"another cluster's": {of(func(in *registry.Instance) { in.Cluster = "test" }).Meta(), false},
	} {
		expect.Equal(t, tc.want, IsForeignTo("prod", tc.meta), "%s", name)
	}
}

func TestInURL(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "fd00::7": "[fd00::7]", "[fd00::7]": "[fd00::7]", "web-0.web.shop.svc": "web-0.web.shop.svc",
		"::ffff:10.0.0.1": "[::ffff:10.0.0.1]", "": "",
	} {
		expect.Equal(t, want, InURL(host), "%q", host)
	}
}
