package integration

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// TestAddresses: pods in service move from one of their addresses to the next, while clients of a real Consul are given each of them all
// the time, and leave at the address where they are.
func TestAddresses(t *testing.T) {
	t.Parallel()
	const namespace = "addresses"
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	config := defaultConfiguration("", namespace)
	config["registry"] = map[string]any{"driver": "consul", "endpoint": server.URL, "timeout": callTimeout.String()}
	s := newScenario(t, startManager(t, namespace, config), env.registry, labels, namespace)
	reader := addressed{s, read.Consul(server.URL, namespace), map[string]bool{}}
	s.Create(replicas(2), func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 31080}}
	})
	for i, pod := range s.AwaitPods(2) {
		s.untilPod(pod, "to be ready", func(now *corev1.Pod) bool { return now != nil && lifecycle.IsReady(lifecycle.PodOf(now)) })
		at := fmt.Sprintf("192.0.2.%d", i+1) // here the nodes share one address, and pods have one
		s.must(s.k8s.Status().Patch(t.Context(), pod.DeepCopy(), kube.Merge(
			`{"status":{"podIPs":[{"ip":%q},{"ip":"fd00::%d"}],"hostIP":%q,"hostIPs":[{"ip":%[3]q}]}}`, s.Now(pod.UID).Status.PodIP, i+1, at)))
		s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, lifecycle.AnnotationNetworks,
			fmt.Sprintf(`[{"name":"%s/storage","ips":["172.16.0.%d"]}]`, namespace, i+1)))
	}
	pods := s.Pods()
	reader.ExpectGiven(pods[0].Status.PodIP+":80", pods[1].Status.PodIP+":80")
	for _, step := range []struct {
		address string
		want    []string
	}{
		{"IPv6", []string{"[fd00::1]:80", "[fd00::2]:80"}},
		{"network/storage", []string{"172.16.0.1:80", "172.16.0.2:80"}},
		{"HostIP", []string{"192.0.2.1:31080", "192.0.2.2:31080"}},
	} {
		t.Log("Someone wants " + step.address + ".")
		config = maps.Clone(config)
		config["service"] = map[string]any{"name": "{label:app}", "address": step.address}
		s.must(s.manager.Configure(config))
		reader.ExpectGiven(step.want...)
	}
	s.DeleteByLabel(pods[0])
	reader.ExpectGiven("192.0.2.2:31080", "127.0.0.1:31080") // the next pod's node has the address of all
	s.AwaitGone(pods[0])
}

// addressed is a client of a service.
type addressed struct {
	*scenario

	read  read.Reader
	known map[string]bool // the pods that clients were given
}

// ExpectGiven waits until clients are given these places and no other, and are given a pod at one place at least until then.
func (a addressed) ExpectGiven(want ...string) {
	a.Helper()
	slices.Sort(want)
	a.await(fmt.Sprintf("clients to be given %v", want), func() error {
		entries, err := a.read(a.Context())
		if err != nil {
			return err
		}
		var given []string
		there := map[string]bool{}
		for _, e := range entries {
			if e.State == registry.InService {
				given, there[e.Pod] = append(given, e.Endpoint()), true
			}
		}
		for _, pod := range a.Pods() {
			a.Expect(there[pod.Name] || !a.known[pod.Name] || lifecycle.RolloutWaits(lifecycle.PodOf(pod)), "clients are given nothing of pod %s", pod.Name)
		}
		maps.Copy(a.known, there)
		if slices.Sort(given); !slices.Equal(given, want) {
			return fmt.Errorf("clients are given %v", given)
		}
		return nil
	})
}
