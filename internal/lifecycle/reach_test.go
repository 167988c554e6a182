package lifecycle

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestReach(t *testing.T) {
	t.Parallel()
	single := func() *corev1.Pod {
		return &corev1.Pod{
			Spec:   corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}},
			Status: corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "192.0.2.1"},
		}
	}
	dual, mapped, network := single(), single(), single()
	dual.Status.PodIPs = append(dual.Status.PodIPs, corev1.PodIP{IP: "fd00::1"})
	mapped.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{ContainerPort: 8080, HostPort: 31080}, {ContainerPort: 9090, HostPort: 8080},
		{ContainerPort: 7070, HostPort: 7070, HostIP: "127.0.0.1"}, {ContainerPort: 53, HostPort: 53, Protocol: corev1.ProtocolUDP},
	}
	network.Spec.Containers[0].Ports[0].HostPort, network.Status.PodIP, network.Status.PodIPs = 8080, "192.0.2.1", nil
	ended := mapped.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	type row struct {
		reason string
		pod    *corev1.Pod
		at     Endpoint
		want   []Endpoint
	}
	expect.Each(t, map[string]row{
		"one address":        {"there is no other", single(), Endpoint{"10.0.0.1", 8080}, nil},
		"two families":       {"one port at both", dual, Endpoint{"10.0.0.1", 8080}, []Endpoint{{"fd00::1", 8080}}},
		"a hostPort":         {"the node has a port of its own", mapped, Endpoint{"10.0.0.1", 8080}, []Endpoint{{"192.0.2.1", 31080}}},
		"at the node":        {"and back", mapped, Endpoint{"192.0.2.1", 31080}, []Endpoint{{"10.0.0.1", 8080}}},
		"at the node, again": {"its 8080 is the container's 9090", mapped, Endpoint{"192.0.2.1", 8080}, []Endpoint{{"10.0.0.1", 9090}}},
		"another's port":     {"the node is shared", mapped, Endpoint{"192.0.2.1", 9090}, nil},
		"only on loopback":   {"nobody else reaches it", mapped, Endpoint{"10.0.0.1", 7070}, nil},
		"UDP":                {"registries know no protocols", mapped, Endpoint{"10.0.0.1", 53}, []Endpoint{{"192.0.2.1", 53}}},
		"on a network": {"its other addresses have the same", mapped, Endpoint{"172.16.0.1", 8080},
			[]Endpoint{{"10.0.0.1", 8080}, {"192.0.2.1", 31080}}},
		"on a network, with one address": {"clients may be given that", single(), Endpoint{"172.16.0.1", 8080}, []Endpoint{{"10.0.0.1", 8080}}},
		"no address":                     {"it is nowhere yet", &corev1.Pod{}, Endpoint{"10.0.0.1", 8080}, nil},
		"hostNetwork":                    {"the node's address is the pod's", network, Endpoint{"192.0.2.1", 8080}, nil},
		"ended":                          {"another pod may have its addresses", ended, Endpoint{"10.0.0.1", 8080}, nil},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, ReachOf(PodOf(tc.pod)).Others(tc.at), "%s", tc.reason)
	})
}
