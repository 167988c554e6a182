package clusterstate

import (
	"testing"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestHostNetworkOfACachedPod: its node's address has each of its ports, declared or not.
func TestHostNetworkOfACachedPod(t *testing.T) {
	t.Parallel()
	name, err := service.ParseNameTemplate("{label:app}")
	expect.NoError(t, err)
	rules := service.Rules{Name: name, Port: 8080, Address: "HostIP"}
	pod := decoded(t, 1)
	pod.Spec.HostNetwork, pod.Status.HostIP = true, "10.0.0.1"
	endpoints, err := rules.EndpointsOf(service.SubjectOf(strip(t, NewSharer(), pod)))
	if want := (service.Endpoint{Name: "web", Address: "10.0.0.1", Port: 8080}); err != nil || len(endpoints) != 1 || endpoints[0] != want {
		t.Errorf("got %v and error %v, want %v", endpoints, err, want)
	}
	pod.Spec.HostNetwork = false
	if _, err := rules.EndpointsOf(service.SubjectOf(strip(t, NewSharer(), pod))); err == nil {
		t.Error("a pod that has a network of its own is registered at its node's address, and has no hostPort")
	}
}
