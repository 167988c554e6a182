package eureka_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/java/spring"
)

// TestSpringApplication has a Spring application look up what Rollcall registers.
func TestSpringApplication(t *testing.T) {
	t.Parallel()
	server := uncached.Use(t)
	reader, err := eureka.StartReader(t.Context(), server, 1)
	expect.NoError(t, err)
	t.Cleanup(reader.Stop)
	d := open(t, configOf(t, server))
	four, six, heavy := web(t, 4), web(t, 6), web(t, 7)
	six.Address = "fd00:10:244::6"
	heavy.Weight, heavy.Zone, heavy.Metadata = 150, "zone-b", map[string]string{"version": "v2", "note": "ünï 🦆 <&>"}
	// expect waits for the URIs that the application gets, and returns the last one's metadata.
	shows := func(service string, want ...string) map[string]string {
		t.Helper()
		var got []string
		var last spring.Instance
		expect.Becomes(t, "the application gets "+strings.Join(want, " and "), func() bool {
			t.Helper()
			instances, err := reader.Instances(service)
			expect.NoError(t, err)
			got = nil
			for _, i := range instances {
				got = append(got, i.URI)
				if last = i; i.URIHost == "" {
					t.Errorf("the application gets %s, which has no host in it", i.URI)
				}
			}
			slices.Sort(got)
			return slices.Equal(got, want)
		})
		return last.Metadata
	}

	shows(four.Service)
	expect.NoError(t, errors.Join(d.Register(t.Context(), four), d.Register(t.Context(), six)))
	shows(four.Service, "http://10.0.0.4:8080", "http://[fd00:10:244::6]:8080")
	shows(strings.ToUpper(four.Service), "http://10.0.0.4:8080", "http://[fd00:10:244::6]:8080")

	expect.NoError(t, d.FailOver(t.Context(), four))
	shows(four.Service, "http://[fd00:10:244::6]:8080")
	expect.NoError(t, errors.Join(d.Register(t.Context(), four), d.Deregister(t.Context(), six)))
	shows(four.Service, "http://10.0.0.4:8080")

	expect.NoError(t, errors.Join(d.Deregister(t.Context(), four), d.Register(t.Context(), heavy)))
	metadata := shows(heavy.Service, "http://10.0.0.7:8080")
	for key, want := range map[string]string{"weight": "150", "zone": "zone-b", "version": "v2", "note": "ünï 🦆 <&>"} {
		if metadata[key] != want { // weight and zone are where Spring Cloud LoadBalancer looks for them
			t.Errorf("the application gets %s=%q, want %q", key, metadata[key], want)
		}
	}

	heavy.Metadata = map[string]string{"hostName": "web-7.web.shop.svc", "secure": "true"}
	expect.NoError(t, d.Register(t.Context(), heavy))
	shows(heavy.Service, "https://web-7.web.shop.svc:8080")
}

// TestAnyNameIsFound has services whose names something on the way could take for something else. Spring Security's
// firewall is on the way to one of the servers.
func TestAnyNameIsFound(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]*eureka.Server{"plain": uncached.Use(t), "with Spring Security": guarded.Use(t)}, func(t *testing.T, server *eureka.Server) {
		d := open(t, configOf(t, server))
		var all []registry.Instance
		for _, service := range []string{
			"a b", "a+b", "a?b=c&d=e#f", "a:b@c", "ünïcödé", "straße", "名前", "🦆", "'a'", `"a"`, "{a}", "$(a)", "${a}", "a|b", "a*",
			"<a&b>", "[a]", "a^b", "`a`", "~", "...", "delta", "Delta", "status", "apps", "a", "A", strings.Repeat("long-", 50),
		} {
			in := web(t, 1)
			in.Service, in.Cluster = service, "names-"+serial(t)
			if err := d.Register(t.Context(), in); err != nil {
				t.Errorf("Register of %q: %v", service, err)
				continue
			}
			all = append(all, in)
		}
		expectEntries(t, server, all, registry.InService)
		for _, in := range all {
			if err := errors.Join(d.Heartbeat(t.Context(), in), d.FailOver(t.Context(), in)); err != nil {
				t.Errorf("%q: %v", in.Service, err)
			}
		}
		expectEntries(t, server, all, registry.OutOfService)
		for _, in := range all {
			if err := d.Deregister(t.Context(), in); err != nil {
				t.Errorf("Deregister of %q: %v", in.Service, err)
			}
		}
		expectEntries(t, server, all[:0], registry.Absent)
	})
}

// expectEntries holds what the registry has of the test's cluster against what it should.
func expectEntries(t *testing.T, server *eureka.Server, want []registry.Instance, state registry.State) {
	t.Helper()
	got, err := truth(t.Context(), server, "names-"+serial(t))
	expect.NoError(t, err)
	states := map[string]registry.State{}
	for _, e := range got {
		states[e.Service] = e.State
	}
	wanted := map[string]registry.State{}
	for _, in := range want {
		wanted[in.Service] = state
	}
	expect.Equal(t, wanted, states, "services")
}

// TestXMLStaysReadable has every reader of XML suffer from what is in one entry, if it is not left out.
func TestXMLStaysReadable(t *testing.T) {
	t.Parallel()
	server := uncached.Use(t)
	d := open(t, configOf(t, server))
	expect.Each(t, map[string]map[string]string{
		"markup":              {"note": "<a>&amp;]]>\n\t\"'", "a.b-c_d": "x"},
		"a key of Kubernetes": {"app.kubernetes.io/name": "web"},
		"a key with spaces":   {"a b <c> 1&2": "x"},
	}, func(t *testing.T, metadata map[string]string) {
		in := web(t, 1)
		in.Metadata = metadata
		expect.NoError(t, d.Register(t.Context(), in))
		expect.NoError(t, readXML(t.Context(), server))
	})
}

// readXML reads everything as XML, from beginning to end.
func readXML(ctx context.Context, server *eureka.Server) error {
	api := registries.Client{URL: server.Endpoint, HTTP: http.DefaultClient, Header: http.Header{"Accept": {"application/xml"}}}
	text, err := api.Do(ctx, http.MethodGet, "/apps?regions="+rand.Text(), nil)
	if err != nil {
		return err
	}
	for decoder := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
