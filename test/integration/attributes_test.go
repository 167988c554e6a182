package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	weightKey   = "rollcall.dev/weight"
	zoneKey     = "rollcall.dev/zone"
	tagsKey     = "rollcall.dev/tags"
	metadataKey = "rollcall.dev/metadata"
)

// said is what clients see of an instance; a zone that is not said is the node's.
type said struct {
	weight   int
	zone     string
	tags     []string
	metadata map[string]string
}

// Say has the scenario expect this of all pods from now on, with what the configuration says of each.
func (s *scenario) Say(what said) {
	s.describes = func(pod *corev1.Pod, in *registry.Instance) {
		in.Weight = what.weight
		if what.zone != "" {
			in.Zone = what.zone
		}
		in.Tags = what.tags
		in.Metadata = map[string]string{"node": pod.Spec.NodeName, "where": s.ns + "-" + s.zones[pod.Spec.NodeName]}
		maps.Copy(in.Metadata, what.metadata)
	}
}

// TestAttributes: weight, zone, tags and metadata reach the registry from the template, the configuration and the node, and a
// change of them on a pod in service costs one call and no write.
func TestAttributes(t *testing.T) {
	t.Parallel()
	styles := []style{labels, mixed}
	server := startRegistry(t, registryOptions{})
	config := defaultConfiguration(server.URL(), namespacesOf("attributes", styles)...)
	config["service"] = map[string]any{"name": "{label:app}", "tags": []string{"all", "{label:missing}"}, "metadata": map[string]string{
		"node": "{node}", "where": "{namespace}-{zone}", "team": "none", "missing": "{label:missing}",
	}}
	m := startManager(t, "attributes", config)
	for _, style := range styles {
		t.Run(string(style), func(t *testing.T) {
			t.Parallel()
			s := newScenario(t, m, server, style, namespaceOf("attributes", style))
			if style == mixed {
				s.Play()
			}
			s.Say(said{weight: 50, tags: []string{"all"}, metadata: map[string]string{"team": "a", "version": "v1"}})
			s.Begin(inPlace, replicas(2), annotated(weightKey, "50"), annotated(metadataKey, "team=a,version=v1"))

			s.Say(said{weight: 80, zone: "elsewhere", tags: []string{"all", "http"}, metadata: map[string]string{"version": "v2"}})
			for _, pod := range s.Pods() {
				s.expectOneCallFor(pod, map[string]string{
					weightKey: "80", zoneKey: "elsewhere", tagsKey: "http", metadataKey: "team=,version=v2",
				})
			}
			s.ExpectSteady()

			pod := s.Pods()[0]
			s.annotate(pod, map[string]string{weightKey: "heavy", metadataKey: "version=v3"})
			s.ExpectEvent(pod, corev1.EventTypeWarning, "InvalidPod", weightKey, `"heavy"`, "1 to 10000")
			s.Expect(server.gives(t, s.ns, pod), "a pod in service was taken out for what is wrong with its weight")
			s.annotate(pod, map[string]string{weightKey: "80", metadataKey: "team=,version=v2"})
			s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", "InvalidPod")
			s.ExpectSteady()

			before := s.Pods()
			s.Say(said{weight: 7, zone: "elsewhere", tags: []string{"all", "http"}, metadata: map[string]string{"team": "b"}})
			s.Edit(annotated(weightKey, "7"))
			s.Edit(annotated(metadataKey, "team=b"))
			s.ExpectSteady()
			s.ExpectImage("nginx:1", before)

			s.ExpectNothingLeft()
			s.ExpectAlways()
		})
	}
}

// expectOneCallFor annotates a pod in service, and expects one call and no write for it.
func (s *scenario) expectOneCallFor(pod *corev1.Pod, annotations map[string]string) {
	s.Helper()
	toPod := func(w apiproxy.Write) bool { return w.ToPod() && w.Name == pod.Name }
	calls := fakeregistry.Match{UID: string(pod.UID)}
	before, writes := len(s.registry.Calls(calls)), s.countWrites(toPod)
	s.annotate(pod, annotations)
	s.await(fmt.Sprintf("the registry to say of pod %s what it says of itself", pod.Name), func() error {
		var its []registry.Entry
		for _, e := range s.registry.Entries(s.T, s.ns) {
			if e.UID == string(pod.UID) {
				its = append(its, e)
			}
		}
		return compareEntries(s.entriesOf([]*corev1.Pod{s.Now(pod.UID)}), its)
	})
	after := s.registry.Calls(calls)
	s.Expect(len(after) == before+1 && after[before].Op == fakeregistry.OpRegister,
		"the change cost %d calls, not one: %v", len(after)-before, after[before:])
	s.Expect(s.countWrites(toPod) == writes, "the change cost a write")
}

// annotate sets annotations of a pod, as somebody else.
func (s *scenario) annotate(pod *corev1.Pod, annotations map[string]string) {
	s.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	s.must(err)
	s.PatchPod(pod, string(patch))
}
