package integration

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/consul"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
)

// TestAppRegistersElsewhere: applications register themselves in a real Consul, at other addresses than their pods', and nothing has
// waited for them before they are deleted.
func TestAppRegistersElsewhere(t *testing.T) {
	t.Parallel()
	const namespace = "elsewhere"
	server := registries.Use(t, registries.With(consul.Start, consul.Options{}))
	at, err := url.Parse(server.URL)
	expect.NoError(t, err)
	config := defaultConfiguration("", namespace)
	config["drain"] = "3s"
	config["registry"] = map[string]any{
		"driver": "consul", "endpoint": server.URL, "timeout": callTimeout.String(), "registeredBy": "App",
		"options": map[string]any{"agentEndpoint": "http://{nodeIP}:" + at.Port()},
	}
	s := newScenario(t, startManager(t, namespace, config), env.registry, labels, namespace)
	apps := elsewhere{s, server}
	s.Create(replicas(3), preDeleteAlone, func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
	})
	pods := s.AwaitPods(3)
	for _, pod := range pods {
		s.untilPod(pod, "to be ready", func(now *corev1.Pod) bool { return now != nil && lifecycle.IsReady(lifecycle.PodOf(now)) })
	}
	for i, pod := range pods { // here the nodes share one address, and pods have one
		at := fmt.Sprintf("192.0.2.%d", i+1)
		s.must(s.k8s.Status().Patch(t.Context(), pod.DeepCopy(), kube.Merge(
			`{"status":{"podIPs":[{"ip":%q},{"ip":"fd00::%d"}],"hostIP":%q,"hostIPs":[{"ip":%[3]q}]}}`, s.Now(pod.UID).Status.PodIP, i+1, at)))
		s.untilPod(pod, "to be at "+at, func(now *corev1.Pod) bool { return now.Status.HostIP == at })
	}
	second, node, nowhere := s.Now(pods[0].UID), s.Now(pods[1].UID), s.Now(pods[2].UID)
	apps.Register(second, "fd00::1")
	apps.Register(node, node.Status.HostIP)
	apps.Register(nowhere, "198.51.100.1")

	t.Log("One is at the pod's second address, and one at the node's, at a port that is the pod's there.")
	apps.ExpectDrains(second, "fd00::1")
	apps.ExpectDrains(node, node.Status.HostIP)

	t.Log("One is where nothing says that it is this pod's.")
	s.ExpectEvent(nowhere, corev1.EventTypeWarning, "AppNotRegistered", "OpenKruise will wait before it deletes the pod")
	s.DeleteByLabel(nowhere)
	s.ExpectEvent(nowhere, corev1.EventTypeWarning, "AppNotRegistered", "hook preDelete waits", nowhere.Status.PodIP, nowhere.Status.HostIP)
	apps.ExpectGiven("198.51.100.1", registry.InService)
	s.Expect(s.Now(nowhere.UID) != nil, "clients are given the pod, and it is gone")
	s.PatchPod(nowhere, `{"metadata":{"annotations":{"rollcall.dev/skip":"preDelete"}}}`)
	s.AwaitGone(nowhere)
	s.ExpectEvent(nowhere, corev1.EventTypeWarning, "ReleasedUnacknowledged")
}

func preDeleteAlone(set *kruisev1alpha1.CloneSet) {
	set.Spec.Lifecycle.PreNormal, set.Spec.Lifecycle.InPlaceUpdate = nil, nil
}

// elsewhere are applications that register by Consul's own command, at an address of their choice.
type elsewhere struct {
	*scenario

	consul *consul.Server
}

func (a elsewhere) Register(pod *corev1.Pod, address string) {
	a.Helper()
	a.must(a.consul.Run(a.Context(), "services", "register", "-id="+pod.Name, "-name="+a.ns, "-address="+address, "-port=80"))
	a.ExpectGiven(address, registry.InService)
}

// ExpectGiven waits until clients are given the address, or are not any more.
func (a elsewhere) ExpectGiven(address string, state registry.State) {
	a.Helper()
	a.await(fmt.Sprintf("%s to be %s", address, state), func() error {
		entries, err := read.Consul(a.consul.URL, a.ns)(a.Context())
		for _, e := range entries {
			if e.Address == address && e.State == state {
				return nil
			}
		}
		return fmt.Errorf("clients are given %v, %w", entries, err)
	})
}

// ExpectDrains deletes a pod, and expects that it is out of rotation for the drain before it goes.
func (a elsewhere) ExpectDrains(pod *corev1.Pod, address string) {
	a.Helper()
	a.DeleteByLabel(pod)
	a.ExpectGiven(address, registry.OutOfService)
	a.Expect(a.Now(pod.UID) != nil && a.Now(pod.UID).DeletionTimestamp == nil, "pod %s is gone before it has drained", pod.Name)
	out := time.Now()
	a.AwaitGone(pod)
	a.Expect(time.Since(out) > time.Second, "pod %s has not drained", pod.Name)
}
