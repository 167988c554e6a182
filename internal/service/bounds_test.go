package service

import (
	"strings"
	"testing"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestMetadataChoosesNoAddress: clients go to the pod, or where the configuration sends them.
func TestMetadataChoosesNoAddress(t *testing.T) {
	t.Parallel()
	ofStatefulSet, template := dualStack(), dualStack()
	ofStatefulSet.Spec.Hostname, ofStatefulSet.Spec.Subdomain = "web-0", "web"
	template.Status = nil
	type row struct {
		reason  string
		pod     Subject
		written string
		wantErr []string
	}
	expect.Each(t, map[string]row{
		"another host":      {"it may be anybody's", dualStack(), "wan=evil.example.com", []string{AnnotationMetadata, "wan", `"evil.example.com"`, "service.metadata"}},
		"link-local":        {"a cloud's metadata are there", dualStack(), "lan=169.254.169.254", []string{"lan"}},
		"Eureka's":          {"", dualStack(), "hostName=evil.example.com", []string{"hostName"}},
		"Nacos'":            {"", dualStack(), "IPv6=fd00::2", []string{"IPv6"}},
		"Spring Boot Admin": {"", dualStack(), "management.address=10.0.0.2", []string{"management.address"}},
		"the node's":        {"another process may serve the port there", dualStack(), "wan=192.0.2.1", []string{"wan"}},
		"in a template":     {"no two pods have one address", template, "wan=10.0.0.1", []string{"wan"}},
		"its own":           {"that is where clients go anyway", dualStack(), "lan_ipv4=10.0.0.1,IPv6=fd00::1", nil},
		"its own in a URL":  {"Spring Cloud Alibaba needs the brackets", dualStack(), "IPv6=[fd00::1]", nil},
		"another in a URL":  {"", dualStack(), "IPv6=[fd00::99]", []string{"IPv6"}},
		"its own name":      {"DNS gives its address", ofStatefulSet, "hostName=web-0.web.shop.svc", nil},
		"none":              {"it removes what the configuration has", dualStack(), "wan=", nil},
		"others":            {"they are the pod's to write", dualStack(), "version=evil.example.com", nil},
	}, func(t *testing.T, tc row) {
		tc.pod.Annotations[AnnotationMetadata] = tc.written
		_, err := Rules{}.AttributesOf(tc.pod)
		expectError(t, tc.reason, err, tc.wantErr)
	})
}

func TestConfigurationLetsNoAuthorChooseAnAddress(t *testing.T) {
	t.Parallel()
	for value, allowed := range map[ValueTemplate]bool{
		"{podIP}": true, "{hostIP}": true, "{subdomain}": true, "gateway.example.com": true, "{pod}.example.com": true, "{pod}.{namespace}.svc": true,
		"{label:host}": false, "{pod}": false, "{workload}": false, "web.{label:host}": false, "{pod}.{namespace}": false, "{label:a}x": false,
	} {
		if err := CheckMetadata("hostName", value); (err == nil) != allowed {
			t.Errorf("%s: got error %v, allowed %t", value, err, allowed)
		}
		if err := CheckMetadata("version", value); err != nil {
			t.Errorf("%s is no address elsewhere: %v", value, err)
		}
	}
}

// TestAddressOnANetwork: a tenant can write the annotation, so it counts only within the ranges.
func TestAddressOnANetwork(t *testing.T) {
	t.Parallel()
	only, err := ParseRange("172.20.0.0/16")
	expect.NoError(t, err)
	type row struct {
		reason  string
		address string
		ranges  []Range
		wantErr []string
	}
	expect.Each(t, map[string]row{
		"private":        {"networks mostly have such", "172.16.0.1", nil, nil},
		"private IPv6":   {"the same", "fd00:1::1", nil, nil},
		"public":         {"it may be anybody's", "203.0.113.1", nil, []string{"203.0.113.1", "network/storage", "service.networkAddresses", "10.0.0.0/8"}},
		"link-local":     {"a cloud's metadata are there", "169.254.169.254", nil, []string{"service.networkAddresses"}},
		"loopback":       {"it is the client's own", "127.0.0.1", nil, []string{"service.networkAddresses"}},
		"mapped":         {"it would pass for another family", "::ffff:10.0.0.1", nil, []string{"::ffff:10.0.0.1"}},
		"a name":         {"it may be anybody's", "evil.example.com", nil, []string{`"evil.example.com"`, "not an IP address"}},
		"in the range":   {"the configuration has it", "172.20.1.1", []Range{only}, nil},
		"out of a range": {"pods may be there", "10.0.0.2", []Range{only}, []string{"172.20.0.0/16"}},
	}, func(t *testing.T, tc row) {
		pod := dualStack(lifecycle.AnnotationNetworks, `[{"name": "shop/storage", "ips": ["`+tc.address+`"]}]`)
		got, err := Rules{Name: "{label:app}", Address: "network/storage", NetworkAddresses: tc.ranges}.EndpointsOf(pod)
		expectError(t, tc.reason, err, tc.wantErr)
		if tc.wantErr == nil {
			expect.Equal(t, tc.address, got[0].Address, "%s", tc.reason)
		}
	})
}

func TestAnnotationsAreCountedBeforeTheyAreParsed(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		AnnotationServices: "5001 services: use at most 50", AnnotationTags: "5001 tags: use at most 50", AnnotationMetadata: "5001 pairs: use at most 100",
	} {
		pod := dualStack(key, strings.Repeat("a,", 5000)+"a")
		_, endpoints := Rules{}.EndpointsOf(pod)
		_, attributes := Rules{}.AttributesOf(pod)
		for _, err := range []error{endpoints, attributes} {
			if err != nil && !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "no service name") {
				t.Errorf("got %v, want %q", err, want)
			}
		}
	}
	long := dualStack(AnnotationServices, strings.Repeat("x", lifecycle.MaxText+1))
	if _, err := (Rules{}).EndpointsOf(long); err == nil || !strings.Contains(err.Error(), "more than 16384 bytes") || len(err.Error()) > 200 {
		t.Errorf("got %v", err)
	}
}
