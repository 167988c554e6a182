package consul

import (
	"regexp"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func instance(service, address string, port int) registry.Instance {
	return registry.Instance{Service: service, Address: address, Port: port, Cluster: "test", Namespace: "shop", Pod: "web-1", UID: "uid-1"}
}

func TestServiceIDsAreReadable(t *testing.T) {
	t.Parallel()
	for want, in := range map[string]registry.Instance{
		"web-10.0.0.1-8080":                  instance("web", "10.0.0.1", 8080),
		"web-fd00::1-80":                     instance("web", "fd00::1", 80),
		"Web-10.0.0.1-8080-2975104784a401e3": instance("Web", "10.0.0.1", 8080),
	} {
		if got := serviceID(in); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestServiceIDsDiffer has identities whose parts are alike. Consul compares IDs without regard to case.
func TestServiceIDsDiffer(t *testing.T) {
	t.Parallel()
	seen := map[string]registry.Instance{}
	for _, in := range []registry.Instance{
		instance("web", "10.0.0.1", 80), instance("web", "10.0.0.1", 8080), instance("web", "10.0.0.10", 80),
		instance("web-10.0.0.1", "10.0.0.1", 80), instance("web-10.0.0.1-80", "10.0.0.1", 80),
		instance("Web", "10.0.0.1", 80), instance("WEB", "10.0.0.1", 80), instance("wEb", "10.0.0.1", 80),
		instance("é", "10.0.0.1", 80), instance("É", "10.0.0.1", 80),
		instance("web", "fd00::1", 80), instance("web", "fd00::1:80", 80), instance("web-fd00:", "::1", 80),
	} {
		id := strings.ToLower(serviceID(in))
		if other, taken := seen[id]; taken {
			t.Errorf("%s at %s and %s at %s have one ID, %s", in.Service, in.Endpoint(), other.Service, other.Endpoint(), id)
		}
		seen[id] = in
	}
}

func TestWhatConsulDoesNotTake(t *testing.T) {
	t.Parallel()
	meta := func(key, value string) func(*registry.Instance) {
		return func(in *registry.Instance) { in.Metadata = map[string]string{key: value} }
	}
	type row struct {
		reason string
		spoil  func(*registry.Instance)
		says   string // "": it is taken
	}
	expect.Each(t, map[string]row{
		"all is well": {"the others differ from it in one thing", func(*registry.Instance) {}, ""},

		"key at the limit":      {"Consul takes 128", meta(strings.Repeat("k", 128), "v"), ""},
		"key over it":           {"Consul takes 128", meta(strings.Repeat("k", 129), "v"), "128 at most"},
		"value at the limit":    {"Consul takes 512", meta("k", strings.Repeat("v", 512)), ""},
		"value over it":         {"Consul takes 512", meta("k", strings.Repeat("v", 513)), "513 bytes"},
		"label of Kubernetes":   {"Consul takes no dot or slash", meta("app.kubernetes.io/name", "web"), `"app.kubernetes.io/name"`},
		"empty key":             {"Consul takes none", meta("", "v"), `""`},
		"key of Consul's own":   {"Consul takes none", meta("consul-version", "v"), `"consul-version"`},
		"more than Consul has":  {"Consul takes 64 with ours", many(60), "65 pairs"},
		"as many as Consul has": {"Consul takes 64 with ours", many(59), ""},
	}, func(t *testing.T, tc row) {
		in := instance("web", "10.0.0.1", 80)
		tc.spoil(&in)
		err := checkInstance(in)
		if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("got error %v, want one with %q\nreason: %s", err, tc.says, tc.reason)
		}
	})
}

func many(n int) func(*registry.Instance) {
	return func(in *registry.Instance) {
		in.Metadata = map[string]string{}
		for i := range n {
			in.Metadata[strings.Repeat("k", i+1)] = "v"
		}
	}
}

func TestFiltersAreQuoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"prod-1": `"prod-1"`, `a"b`: `"a\x22b"`, `a\`: `"a\x5c"`, "ü%": `"ü%"`, "a\nb": `"a\nb"`,
	} {
		expect.Equal(t, want, quote(text), "%q", text)
	}
}

// TestAppsAreLookedForInEachForm of an IPv6 address: Java writes all of the groups and some add brackets, and to Consul they are text.
func TestAppsAreLookedForInEachForm(t *testing.T) {
	t.Parallel()
	in, other := instance("web", "2001:db8::1:0:0:a", 80), instance("web", "10.0.0.1", 80)
	names, apps := namesFilter([]*registry.Instance{&in, &other}), appsFilter([]*registry.Instance{&in, &other})
	pattern := regexp.MustCompile(strings.ReplaceAll(regexp.MustCompile(`"(\(\?i\)[^"]*)"`).FindStringSubmatch(apps)[1], `\x5c`, `\`))
	for _, form := range []string{"2001:db8::1:0:0:a", "2001:db8:0:0:1:0:0:a", "[2001:db8::1:0:0:a]", "2001:DB8::1:0:0:A"} {
		if strings.Count(names, `Address == "`+form+`"`) != 2 { // the service's, and that of the node of one that has none
			t.Errorf("filter %s does not let pass %s", names, form)
		}
		s := appService{}
		if s.Node.Address, s.Service.Port = form, 80; !pattern.MatchString(form) || !s.isAt(in) {
			t.Errorf("%s is not found by the filter %s", form, apps)
		}
	}
	for _, text := range []string{"10.0.0.1", "::ffff:10.0.0.1"} {
		if !pattern.MatchString(text) {
			t.Errorf("filter %s does not let pass %s", apps, text)
		}
	}
	if pattern.MatchString("10.0.0.12:1") || strings.Count(apps, "Service.Port == 80") != 1 {
		t.Errorf("filter %s lets pass too much, or is too long", apps)
	}
}
