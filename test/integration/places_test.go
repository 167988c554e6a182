package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/manager"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
)

const (
	trackKey       = "track"
	stable, canary = "stable", "canary"
)

// inPlaces are the pods of one namespace, and clients of Nacos that look for them.
type inPlaces struct {
	*scenario

	server *nacos.Server
	// readers are by group, in the Nacos namespace of the same name.
	readers map[string]*nacos.Reader
}

// TestPlacesInNacos: one section without an annotation places the pods of each Kubernetes namespace in a Nacos namespace of its own, under
// one service name, and a label chooses the group.
func TestPlacesInNacos(t *testing.T) {
	t.Parallel()
	server := registries.Use(t, registries.With(nacos.Start, nacos.Options{Version: nacos.V3}))
	teams := []string{"places-a", "places-b", "places-c"}
	config := defaultConfiguration("", teams...)
	config["registry"] = map[string]any{
		"driver": "nacos", "endpoint": server.Endpoint, "timeout": "5s",
		"options": map[string]any{"namespace": "{namespace}", "group": "{label:" + trackKey + "}"},
	}
	config["resync"] = map[string]any{"interval": "1s"}
	m := startManager(t, "places", config)
	all := map[string]*inPlaces{}
	for _, team := range teams {
		expect.NoError(t, server.CreateNamespace(t.Context(), team))
		s := &inPlaces{scenario: newScenario(t, m, env.registry, labels, team), server: server, readers: map[string]*nacos.Reader{}}
		s.troubled, all[team] = true, s
		for _, group := range []string{stable, canary} {
			reader, err := server.SubscribeIn(t.Context(), team, group, "web")
			s.must(err)
			s.readers[group] = reader
		}
		s.Create(replicas(3), inPlace, func(set *kruisev1alpha1.CloneSet) {
			set.Spec.Selector.MatchLabels["app"], set.Spec.Template.Labels["app"] = "web", "web"
			set.Spec.Template.Labels[trackKey] = stable
		})
	}
	for _, team := range teams {
		all[team].ExpectGiven(stable, 3)
	}

	all["places-a"].UpdateLosingNone("nginx:2")
	all["places-a"].MoveToCanary()
	for _, team := range teams[1:] {
		all[team].ExpectGiven(stable, 3)
	}

	// Nothing lists a place that no pod has any more.
	last := all["places-c"]
	m.Kill()
	last.Scale(0)
	for _, pod := range last.Pods() {
		last.DeletePod(pod)
	}
	restart(t, m)
	last.ExpectGiven(stable, 0)
	last.AwaitPods(0)
	for _, team := range teams[:2] {
		all[team].Scale(0)
		all[team].ExpectGiven(stable, 0)
		all[team].ExpectGiven(canary, 0)
	}
}

const (
	tierKey = "example.com/tier"
	// nacosPassword is that of all users.
	nacosPassword = "Secret-1"
)

// TestPlaceThatNacosRefuses: somebody gives a namespace a label whose place Nacos keeps from Rollcall, and then takes it away. The pods stay
// in rotation where they are, for longer than Nacos keeps them without heartbeats, and show why.
func TestPlaceThatNacosRefuses(t *testing.T) {
	t.Parallel()
	const ns, gold, silver = "place-refused", "gold", "silver"
	server := registries.Use(t, registries.With(nacos.Start, nacos.Options{Version: nacos.V3, Password: nacosPassword}))
	for _, id := range []string{gold, silver} {
		expect.NoError(t, server.CreateNamespace(t.Context(), id))
	}
	expect.NoError(t, server.AddUser(t.Context(), "rollcall", nacosPassword, gold))
	file := filepath.Join(t.TempDir(), "password")
	expect.NoError(t, os.WriteFile(file, []byte(nacosPassword), 0o600))
	config := defaultConfiguration("", ns)
	config["registry"] = map[string]any{
		"driver": "nacos", "endpoint": server.Endpoint, "timeout": "5s",
		"auth":    map[string]any{"username": "rollcall", "passwordFile": file},
		"options": map[string]any{"namespace": "{nsLabel:" + tierKey + "}", "group": stable, "ephemeral": true, "heartbeatInterval": "1s"},
	}
	config["resync"] = map[string]any{"interval": "1s"}
	s := &inPlaces{scenario: newScenario(t, startManager(t, ns, config), env.registry, labels, ns), server: server}
	s.troubled = true
	reader, err := server.SubscribeIn(t.Context(), gold, stable, "web")
	s.must(err)
	s.readers = map[string]*nacos.Reader{stable: reader}
	s.tier(`"` + gold + `"`)
	s.Create(replicas(2), inPlace, func(set *kruisev1alpha1.CloneSet) {
		set.Spec.Selector.MatchLabels["app"], set.Spec.Template.Labels["app"] = "web", "web"
		set.Spec.Template.Labels[trackKey] = stable
	})
	s.ExpectGiven(stable, 2)

	s.tier(`"` + silver + `"`)
	for _, pod := range s.Pods() {
		s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryRefused", silver)
	}
	s.ExpectRenewed(stable, 2)

	s.tier("null")
	for _, pod := range s.Pods() {
		s.ExpectEvent(pod, corev1.EventTypeWarning, "InvalidPod", "namespace "+ns+" has no label "+tierKey)
	}
	s.ExpectRenewed(stable, 2)
}

// tier sets the label of the namespace by which the pods are placed.
func (s *inPlaces) tier(value string) {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}
	s.must(s.k8s.Patch(s.Context(), namespace, kube.Merge(`{"metadata":{"labels":{%q:%s}}}`, tierKey, value)))
}

// ExpectRenewed expects that so many pods are given while they are renewed, each 40 times. Renewed no more, they would be unhealthy after 33
// seconds.
func (s *inPlaces) ExpectRenewed(group string, n int) {
	s.Helper()
	begun := s.heartbeats()
	s.until("the pods to be renewed", func() bool {
		given := s.given(group)
		s.Expect(len(given) == n, "clients are given %v, not %d pods", given, n)
		return s.heartbeats() >= begun+40*n
	})
}

// heartbeats are those that the registry has acknowledged.
func (s *inPlaces) heartbeats() (n int) {
	s.Helper()
	metrics, err := s.manager.Get(s.Context(), manager.MetricsServer, "/metrics")
	s.must(err)
	for line := range strings.SplitSeq(metrics, "\n") {
		if strings.HasPrefix(line, "rollcall_registry_request_duration_seconds_count{") && containsAll(line, []string{`operation="heartbeat"`, `outcome="ok"`}) {
			_, count, _ := strings.Cut(line, "} ")
			n, err = strconv.Atoi(count)
			s.must(err)
		}
	}
	return n
}

func endpointOf(pod *corev1.Pod) string { return net.JoinHostPort(pod.Status.PodIP, "80") }

// given is what the client of a group has.
func (s *inPlaces) given(group string) map[string]bool {
	s.Helper()
	seen, err := s.readers[group].Latest()
	s.must(err)
	return usable(seen)
}

func usable(seen []nacos.Seen) map[string]bool {
	given := map[string]bool{}
	for _, in := range seen {
		if in.Enabled && in.Healthy {
			given[net.JoinHostPort(in.IP, strconv.Itoa(in.Port))] = true
		}
	}
	return given
}

// ExpectGiven waits until the client of a group is given so many pods: those of the namespace with the label, and no others.
func (s *inPlaces) ExpectGiven(group string, n int) {
	s.Helper()
	s.await(fmt.Sprintf("the clients of group %s to be given %d pods", group, n), func() error {
		want, given := map[string]bool{}, s.given(group)
		for _, pod := range s.Pods() {
			if pod.Labels[trackKey] == group && pod.DeletionTimestamp == nil {
				want[endpointOf(pod)] = true
			}
		}
		if len(want) != n || !maps.Equal(given, want) {
			return fmt.Errorf("given %v, want %v", given, want)
		}
		return nil
	})
}

// UpdateLosingNone updates the pods in place, and the clients always have all of them but one.
func (s *inPlaces) UpdateLosingNone(to string) {
	s.Helper()
	least, out := 3, false
	s.UpdateImage(to)
	s.until("the pods to be updated", func() bool {
		given, updated := s.given(stable), 0
		least = min(least, len(given))
		for _, pod := range s.Pods() {
			if pod.Spec.Containers[0].Image == to {
				updated++
			}
			out = out || !given[endpointOf(pod)]
		}
		return updated == 3
	})
	s.ExpectGiven(stable, 3)
	s.Expect(least >= 2, "the clients had %d pods of 3 during the update", least)
	s.Expect(out, "no pod was out during its update")
}

// MoveToCanary changes the label of a pod that serves. Who asks the group that it leaves, and then the one that it joins, finds it.
func (s *inPlaces) MoveToCanary() {
	s.Helper()
	pod := s.Pods()[0]
	s.PatchPod(pod, `{"metadata":{"labels":{"`+trackKey+`":"`+canary+`"}}}`)
	both, asked := false, 0
	s.until("the pod to have left", func() bool {
		before, after := s.ask(stable)[endpointOf(pod)], s.ask(canary)[endpointOf(pod)]
		s.Expect(before || after, "the pod is in neither group")
		both, asked = both || before && after, asked+1
		return after && !before
	})
	s.Logf("asked %d times while the pod moved, and it was in both groups: %t", asked, both)
	s.ExpectGiven(stable, 2)
	s.ExpectGiven(canary, 1)
}

// ask is what the server answers now.
func (s *inPlaces) ask(group string) map[string]bool {
	s.Helper()
	body, err := s.server.Do(s.Context(), http.MethodGet, "/v3/client/ns/instance/list", url.Values{
		"namespaceId": {s.ns}, "groupName": {group}, "serviceName": {"web"},
	}, "")
	var answer struct{ Data []nacos.Seen }
	s.must(errors.Join(err, json.Unmarshal(body, &answer)))
	return usable(answer.Data)
}
