package service

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// dualStack is a pod with every kind of address.
func dualStack(annotations ...string) Subject {
	s := Subject{
		Namespace: "shop", Pod: "web-0", Labels: map[string]string{"app": "web"},
		Annotations: map[string]string{lifecycle.AnnotationNetworks: `[
			{"name": "cbr0", "interface": "eth0", "ips": ["10.0.0.1", "fd00::1"], "default": true},
			{"name": "shop/storage", "interface": "net1", "ips": ["172.16.0.1", "172.16.0.2"]},
			{"name": "infra/fast", "interface": "net2", "ips": ["172.17.0.1"]},
			{"name": "shop/empty", "interface": "net3"},
			{"name": "shop/storage", "interface": "net4", "ips": ["172.18.0.1"]}
		]`},
		Spec: &lifecycle.PodSpec{Containers: []lifecycle.Container{{Name: "web", Ports: []corev1.ContainerPort{
			{ContainerPort: 8080, HostPort: 31080}, {ContainerPort: 9090, HostPort: 1090}, {ContainerPort: 7070},
			{ContainerPort: 6060, HostPort: 6060, HostIP: "127.0.0.1"}, {ContainerPort: 5353, HostPort: 5353, Protocol: corev1.ProtocolUDP},
		}}}},
		Status: &lifecycle.PodStatus{PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}, HostIP: "192.0.2.1"},
	}
	for i := 0; i < len(annotations); i += 2 {
		s.Annotations[annotations[i]] = annotations[i+1]
	}
	s.Networks = lifecycle.NetworksOf(s.Namespace, s.Annotations)
	return s
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	web := func(address string, port int) []Endpoint {
		return []Endpoint{{Name: "web", Address: address, Port: port}}
	}
	type row struct {
		reason  string
		address Address
		pod     Subject
		want    []Endpoint
		missing []string
		wantErr []string
	}
	v4 := dualStack()
	v4.Status.PodIPs = nil // the cache keeps them only if there are several
	none, hostNetwork := dualStack(), dualStack()
	none.Status.PodIP, none.Status.PodIPs = "", nil
	hostNetwork.Spec.HostNetwork, hostNetwork.Spec.Containers = true, []lifecycle.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}
	hostNetwork.Status = nil
	both := dualStack()
	both.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{ContainerPort: 8080, HostPort: 31080, Protocol: corev1.ProtocolUDP}, {ContainerPort: 8080, HostPort: 32080, Protocol: corev1.ProtocolTCP},
	}
	statusless := dualStack()
	statusless.Networks = lifecycle.Networks{}
	expect.Each(t, map[string]row{
		"by default":       {"as Kubernetes sees the pod", "", dualStack(), web("10.0.0.1", 8080), nil, nil},
		"of the node":      {"clients outside can't reach pods, and the port there is another", "HostIP", dualStack(), web("192.0.2.1", 31080), nil, nil},
		"IPv4":             {"", "IPv4", dualStack(), web("10.0.0.1", 8080), nil, nil},
		"IPv6":             {"it need not be the first", "IPv6", dualStack(), web("fd00::1", 8080), nil, nil},
		"of one family":    {"", "IPv4", v4, web("10.0.0.1", 8080), nil, nil},
		"network":          {"a network of the pod's namespace is called by its name", "network/storage", dualStack(), web("172.16.0.1", 8080), nil, nil},
		"attached twice":   {"the first interface of it counts, as with several IPs", "network/storage", dualStack(), web("172.16.0.1", 8080), nil, nil},
		"another's":        {"of another namespace, with that", "network/infra/fast", dualStack(), web("172.17.0.1", 8080), nil, nil},
		"annotation":       {"it wins", "HostIP", dualStack(AnnotationAddress, " IPv6 "), web("fd00::1", 8080), nil, nil},
		"listed network":   {"the configuration allows it", "", dualStack(AnnotationAddress, "network/infra/fast"), web("172.17.0.1", 8080), nil, nil},
		"default network":  {"what the configuration chooses needs no list", "network/storage", dualStack(AnnotationAddress, "network/storage"), web("172.16.0.1", 8080), nil, nil},
		"several services": {"each port has its own on the node, and the order is by those", "HostIP", dualStack(AnnotationServices, "web=8080,web=9090"), []Endpoint{{Name: "web", Address: "192.0.2.1", Port: 1090}, {Name: "web", Address: "192.0.2.1", Port: 31080}}, nil, nil},
		"template":         {"it has no address, and its ports with hostNetwork are the node's", "HostIP", hostNetwork, web("", 80), nil, nil},

		"no IP":         {"the node's is known first, and nothing serves yet", "HostIP", none, web("", 31080), []string{"no IP yet"}, nil},
		"no IPv6":       {"what it has is said", "IPv6", v4, web("", 8080), []string{"address IPv6", AnnotationAddress, "HostIP 192.0.2.1", "IPv4 10.0.0.1", "network/storage 172.16.0.1", "network/infra/fast 172.17.0.1"}, nil},
		"no network":    {"its name may be misspelt", "network/strange", dualStack(), web("", 8080), []string{"network/strange", "network/storage"}, nil},
		"empty network": {"it may get the address yet", "network/empty", dualStack(), web("", 8080), []string{"network/empty"}, nil},
		"not JSON":      {"nobody but Multus should write it, and what can't be read is not empty", "network/storage", dualStack(lifecycle.AnnotationNetworks, "storage"), web("", 8080), []string{"network/storage", lifecycle.AnnotationNetworks, "not a list of networks"}, nil},
		"no status":     {"Multus may not have written it yet", "network/storage", statusless, web("", 8080), []string{"network/storage", lifecycle.AnnotationNetworks, "is missing"}, nil},

		"unknown":         {"", "", dualStack(AnnotationAddress, "podip"), nil, nil, []string{AnnotationAddress, `"podip"`, `did you mean "PodIP"?`, "PodIP, HostIP, IPv4, IPv6 or network/NAME"}},
		"unlisted":        {"a tenant can write what address the pod has there", "", dualStack(AnnotationAddress, "network/storage"), nil, nil, []string{AnnotationAddress, `"storage"`, "service.networks"}},
		"no hostPort":     {"the node forwards nothing", "HostIP", dualStack(AnnotationServices, "web=7070"), nil, nil, []string{"containerPort 7070", "hostPort"}},
		"loopback":        {"nobody else reaches it", "HostIP", dualStack(AnnotationServices, "web=6060"), nil, nil, []string{"containerPort 6060", "without hostIP"}},
		"UDP":             {"game servers are reached there", "HostIP", dualStack(AnnotationServices, "web=5353"), web("192.0.2.1", 5353), nil, nil},
		"UDP and TCP":     {"most clients speak TCP", "HostIP", both, web("192.0.2.1", 32080), nil, nil},
		"the node's port": {"the container's is named, everywhere", "HostIP", dualStack(AnnotationServices, "web=31080"), nil, nil, []string{"containerPort 31080"}},
	}, func(t *testing.T, tc row) {
		r := Rules{Name: "{label:app}", Address: tc.address, Networks: []string{"infra/fast"}}
		got, err := r.EndpointsOf(tc.pod)
		expectError(t, tc.reason, err, tc.wantErr)
		expect.Equal(t, tc.want, got, "%s", tc.reason)
		if tc.pod.Status == nil {
			return
		}
		missing, unknown := r.NoAddress(tc.pod)
		expect.Equal(t, strings.Contains(missing, "no IP yet") || strings.Contains(missing, lifecycle.AnnotationNetworks), unknown, "unknown: %s", tc.reason)
		if missing != "" && tc.missing == nil {
			t.Errorf("got %q: %s", missing, tc.reason)
		}
		for _, text := range tc.missing {
			if !strings.Contains(missing, text) {
				t.Errorf("got %q, want one with %q: %s", missing, text, tc.reason)
			}
		}
	})
}

func TestPlaceholdersOfAPod(t *testing.T) {
	t.Parallel()
	ofStatefulSet, v4, template := dualStack(), dualStack(), dualStack()
	ofStatefulSet.Spec.Hostname, ofStatefulSet.Spec.Subdomain = "web-0", "web-headless"
	v4.Status.PodIPs, v4.Spec.Subdomain = nil, "web-headless"
	template.Status, template.Pod = nil, ""
	type row struct {
		reason string
		pod    Subject
		want   map[string]string
	}
	expect.Each(t, map[string]row{
		"of a StatefulSet": {"DNS has its name", ofStatefulSet, map[string]string{
			"ip": "10.0.0.1", "v4": "10.0.0.1", "v6": "fd00::1", "node": "192.0.2.1", "pod": "web-0", "name": "https://web-0.web-headless.shop.svc",
		}},
		"of one family": {"half a value is worse than none, and DNS has no name without a hostname", v4, map[string]string{
			"ip": "10.0.0.1", "v4": "10.0.0.1", "node": "192.0.2.1", "pod": "web-0",
		}},
		"of a template": {"nothing is known", template, nil},
	}, func(t *testing.T, tc row) {
		r := Rules{Metadata: map[string]ValueTemplate{}}
		for key, text := range map[string]string{
			"ip": "{podIP}", "v4": "{podIPv4}", "v6": "{podIPv6}", "node": "{hostIP}", "pod": "{pod}", "name": "https://{subdomain}",
		} {
			value, err := ParseValueTemplate(text)
			expect.NoError(t, err)
			r.Metadata[key] = value
		}
		got, err := r.AttributesOf(tc.pod)
		expect.NoError(t, err)
		expect.Equal(t, tc.want, got.Metadata, "%s", tc.reason)
	})
}
