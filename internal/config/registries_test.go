package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestSameServer(t *testing.T) {
	t.Parallel()
	at := func(driver, endpoint, options string) Registry {
		return Registry{Driver: driver, Config: registry.Config{Endpoint: endpoint, Options: json.RawMessage(options)}}
	}
	type row struct {
		reason string
		a, b   Registry
		want   bool
	}
	expect.Each(t, map[string]row{
		"the same text":      {"it is written twice", at("consul", "http://c:8500", ""), at("consul", "http://c:8500", ""), true},
		"upper case":         {"hosts and schemes have no case", at("consul", "HTTP://C.Example.COM:8500", ""), at("consul", "http://c.example.com:8500", ""), true},
		"the default port":   {"it need not be written", at("http", "https://r/base", ""), at("http", "https://r:443/base", ""), true},
		"a slash at the end": {"it means nothing", at("eureka", "http://e:8761/eureka/", ""), at("eureka", "http://e:8761/eureka", ""), true},
		"another order":      {"all are the same servers", at("nacos", "http://a:8848, http://b:8848", ""), at("nacos", "http://b:8848,http://a:8848", ""), true},
		"one of several":     {"the others replicate it", at("nacos", "http://a:8848,http://b:8848", ""), at("nacos", "http://a:8848", ""), true},
		"no URLs":            {"hosts have no case", at("zookeeper", "ZK-0:2181,zk-1:2181/apps", ""), at("zookeeper", "zk-1:2181,zk-0:2181/apps/", ""), true},
		"the same options":   {"they are one place", at("nacos", "http://a", `{"group":"G"}`), at("nacos", "http://a", `{"group":"G"}`), true},
		"IPv6":               {"brackets hold its colons", at("http", "http://[fd00::1]", ""), at("http", "http://[FD00::1]:80/", ""), true},
		"another option":     {"it may be another namespace", at("nacos", "http://a", `{"namespace":"a"}`), at("nacos", "http://a", `{"namespace":"b"}`), false},
		"another driver":     {"they write in different places", at("consul", "http://a", ""), at("http", "http://a", ""), false},
		"another port":       {"another server", at("http", "http://a:81", ""), at("http", "http://a", ""), false},
		"another path":       {"paths have case", at("http", "http://a/X", ""), at("http", "http://a/x", ""), false},
		"another chroot":     {"another tree", at("zookeeper", "zk:2181/a", ""), at("zookeeper", "zk:2181/b", ""), false},
		"no endpoint":        {"each is a store of its own", at("memory", "", ""), at("memory", "", ""), false},
		"what is no URL":     {"the driver refuses it", at("http", "http://a:x", ""), at("http", "http://b:x", ""), false},
	}, func(t *testing.T, tc row) {
		if got := tc.a.SameServer(tc.b); got != tc.want || tc.b.SameServer(tc.a) != got {
			t.Errorf("got %t, want %t, and both ways\nreason: %s", got, tc.want, tc.reason)
		}
	})
}

func TestWhoRegistersChangesWithoutAnotherDriver(t *testing.T) {
	t.Parallel()
	a := Registry{Driver: "nacos", Config: registry.Config{Endpoint: "http://a"}}
	b := a
	b.RegisteredByApp, b.MaxInFlight, b.ReaderLag = true, 7, new(time.Second)
	if !a.SameDriver(b) {
		t.Error("pods would be registered again, as in another registry")
	}
	if b.Endpoint = "http://b"; a.SameDriver(b) {
		t.Error("another endpoint needs another driver")
	}
}

func TestChoices(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(minimal), limits())
	expect.NoError(t, err)
	if c.Registries[DefaultRegistry].RegisteredByApp || c.StatusPage != PageForKnown {
		t.Errorf("unless it is said, applications register themselves: %t, and the status page is %v", c.Registries[DefaultRegistry].RegisteredByApp, c.StatusPage)
	}
	c, err = Parse([]byte(strings.Replace(minimal, "memory", "memory\n  registeredBy: App", 1)+"statusPage: false\n"), limits())
	expect.NoError(t, err)
	if !c.Registries[DefaultRegistry].RegisteredByApp || c.StatusPage != PageOff {
		t.Errorf("applications register themselves: %t, and the status page is %v", c.Registries[DefaultRegistry].RegisteredByApp, c.StatusPage)
	}
	expectEffective(t, c)
}

// TestAnEndpointIsNotRepeated: a password in it is refused by the driver, which is asked only after all that stands here.
func TestAnEndpointIsNotRepeated(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte("cluster: a\nhooks: {owned: [example.com/*]}\nregistries:\n"+
		"- {name: a, default: true, driver: http, endpoint: 'http://me:hunter2@r'}\n- {name: b, driver: http, endpoint: 'http://me:hunter2@r'}\n"),
		Limits{Drivers: []string{"http"}})
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "registries[b].endpoint") {
		t.Errorf("got error %v, want one that names the field and not what it holds", err)
	}
}

// TestDriversOfNoManager: the kubectl plugin does not know which drivers a manager has, and a manager that has none takes none.
func TestDriversOfNoManager(t *testing.T) {
	t.Parallel()
	const file = "cluster: a\nhooks: {owned: [example.com/*]}\nregistry: {driver: acme}\n"
	if c, err := Parse([]byte(file), Limits{}); err != nil || c.Registries[DefaultRegistry].Driver != "acme" {
		t.Errorf("got error %v where all drivers are allowed", err)
	}
	_, err := Parse([]byte("cluster: a\n"), Limits{})
	expect.Error(t, "none can be listed", err, "registry.driver: Required value: set the name of a driver, such as consul")
	if _, err := Parse([]byte(file), Limits{Drivers: []string{}}); err == nil || !strings.Contains(err.Error(), `registry.driver: Unsupported value: "acme"`) {
		t.Errorf("got error %v where no driver is allowed", err)
	}
}

func TestParseDefaultForNamespaces(t *testing.T) {
	t.Parallel()
	const file = "cluster: a\nhooks: {owned: [a.io/b]}\nregistries:\n- {name: main, default: true, driver: memory}\n" +
		"- {name: retail, driver: memory, default: {namespaceSelector: {matchLabels: {unit: retail}}}}\n" +
		"- {name: shop, driver: memory, default: {namespaces: [shop-*]}}\n"
	c, err := Parse([]byte(file), limits())
	expect.NoError(t, err)
	if shown := expectEffective(t, c); !strings.Contains(shown, "unit: retail") || !strings.Contains(shown, "- shop-*") {
		t.Errorf("in force is\n%s", shown)
	}
	for namespace, want := range map[string]string{"shop-eu": "shop", "mall": "main", "outlet": "retail"} {
		of := labels.Set{"unit": map[string]string{"outlet": "retail"}[namespace]}
		if got := service.DefaultsOf(c.DefaultRegistries, c.DefaultsFor, namespace, of); !slices.Equal(got, []string{want}) {
			t.Errorf("pods of %s are in %q, want %s", namespace, got, want)
		}
	}
}
