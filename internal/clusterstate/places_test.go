package clusterstate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func inPlaces(template string) *Rules {
	rules := owning()
	rules.Services.Places = map[string]string{"placed": template}
	return rules
}

// TestNameRefusedByPlace asks for the name of a workload whose namespace is younger than the other's, which uses the same.
func TestNameRefusedByPlace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		template string
		own      []lifecycle.Source
		refused  bool
	}{
		"another place":            {"each has its own", "{namespace}", sources("placed"), false},
		"the same place":           {"the older one has it", "{label:team}", sources("placed"), true},
		"a registry without":       {"there is one name for both", "{namespace}", sources("other"), true},
		"both":                     {"it has to be both's", "{namespace}", sources("placed", "other"), true},
		"the place's beginning":    {"the same is before it", "rc-{label:team}", sources("placed"), true},
		"the namespaces' label":    {"it is the same", "{nsLabel:tier}", sources("placed"), true},
		"the label of a namespace": {"it differs", "{nsLabel:" + corev1.LabelMetadataName + "}", sources("placed"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other, asks := cloneSet(first, "web=80"), cloneSet(second, "web=80")
			other.Spec.Template.Labels, asks.Spec.Template.Labels = map[string]string{"team": "a"}, map[string]string{"team": "a"}
			cache := cacheOf(t, other, asks)
			for _, name := range []string{first, second} {
				of := &corev1.Namespace{}
				expect.NoError(t, cache.Get(t.Context(), client.ObjectKey{Name: name}, of))
				of.Labels = map[string]string{corev1.LabelMetadataName: name, "tier": "gold"}
				expect.NoError(t, cache.Update(t.Context(), of))
			}
			refused, err := newState(cache).NameRefused(
				t.Context(), inPlaces(tc.template), sources("placed", "other"), in(tc.own), AsWorkload(asks), time.Now())
			expect.NoError(t, err)
			if (refused != nil) != tc.refused {
				t.Errorf("got %+v, want refused: %t: %s", refused, tc.refused, tc.reason)
			}
		})
	}
}

// TestPlacesOf: a record, which a tenant can write, has nothing listed.
func TestPlacesOf(t *testing.T) {
	t.Parallel()
	pod := func(name string, labels map[string]string) client.Object {
		made := recordedPod(first, lifecycle.InService, at("placed", "forged/web", first))
		made.Name, made.Labels = name, labels
		return made
	}
	cache := cacheOf(t, pod("a", map[string]string{"team": "blue"}), pod("b", map[string]string{"team": "blue"}),
		pod("c", map[string]string{"team": "red"}), pod("d", nil))
	places, err := PlacesOf(t.Context(), cache, PodsThrough(cache), "{namespace}/{label:team}")
	want := map[string]map[string]bool{first: {"shop/blue": true, "shop/red": true}}
	if diff := cmp.Diff(want, places); err != nil || diff != "" {
		t.Errorf("error %v, places (-want +got):\n%s", err, diff)
	}
}

// TestPlacesOfNamespaces: what lies in a place that is not listed would count as missing nowhere, and as gone never.
func TestPlacesOfNamespaces(t *testing.T) {
	t.Parallel()
	cache := cacheOf(t, recordedPod(first, lifecycle.InService, at("placed", "gold/web", first)),
		recordedPod(second, lifecycle.InService, at("placed", "gold/web", second)))
	namespace := &corev1.Namespace{}
	expect.NoError(t, cache.Get(t.Context(), client.ObjectKey{Name: first}, namespace))
	namespace.Labels = map[string]string{"tier": "gold"}
	expect.NoError(t, cache.Update(t.Context(), namespace))
	places, err := PlacesOf(t.Context(), cache, PodsThrough(cache), "{nsLabel:tier}")
	expect.NoError(t, err)
	expect.Equal(t, map[string]map[string]bool{first: {"gold": true}}, places, "the places of the pods, by namespace")
}

// TestListOfSomePlacesIsEvidenceOfThoseAlone: a registry that refuses a place must not give its names away.
func TestListOfSomePlacesIsEvidenceOfThoseAlone(t *testing.T) {
	t.Parallel()
	of := at("default", "blue/web", first)
	lists := func(answers map[string]bool, entries ...Entry) step {
		return func(s *scene) {
			s.Listed(List{Registry: "default", Entries: entries, AsOf: s.now, Coverage: lifecycle.Coverage{
				Template: "{label:team}", Places: answers,
			}}, s.now)
		}
	}
	there := lists(map[string]bool{"blue": true}, Entry{Key: of, Pod: podOf(first)})
	answers, fails, notAsked := map[string]bool{"blue": true}, map[string]bool{"blue": false, "red": true}, map[string]bool{"red": true}
	recorded := records(first, lifecycle.InService, of)
	type row struct {
		reason string
		steps  steps
		claims bool
	}
	expect.Each(t, map[string]row{
		"listed, then gone":        {"it has gone", steps{there, lists(answers)}, false},
		"listed, then refused":     {"it may be there", steps{there, lists(fails)}, true},
		"listed, then not asked":   {"the same", steps{there, lists(notAsked)}, true},
		"recorded, then listed":    {"a tenant can write a record", steps{recorded, lists(answers)}, false},
		"recorded, then refused":   {"nothing else tells", steps{recorded, lists(fails)}, true},
		"listed, then recorded":    {"the list counts", steps{lists(answers), recorded}, false},
		"refused, then recorded":   {"nothing else tells", steps{lists(fails), recorded}, true},
		"refused, then it answers": {"now it is known", steps{recorded, lists(fails), lists(answers)}, false},
	}, func(t *testing.T, tc row) {
		if pods, _ := play(tc.steps...).Size(); (pods == 1) != tc.claims {
			t.Errorf("%d pods have a name, want any: %t: %s", pods, tc.claims, tc.reason)
		}
	})
}

// TestPeersInAPlaceCountTogether: the policy shares a name, and a place is not part of it.
func TestPeersInAPlaceCountTogether(t *testing.T) {
	t.Parallel()
	rules := inPlaces("{label:team}")
	rules.PanicThreshold = 50
	rules.Services.Allowed = service.Policy{{Names: []service.NamePattern{"web"}, Shared: true}}
	for name, tc := range map[string]struct {
		reason, others string
		panics         lifecycle.Service
	}{
		"in the same place": {"9 of 10 are ready", "placed blue/web", ""},
		"in another place":  {"its clients are given this one alone", "placed red/web", "blue/web"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPanics(claimsOf("shop", "mall"), &Records{})
			arrives := func(namespace, name string, ready bool, in string) *lifecycle.Pod {
				registry, service, _ := strings.Cut(in, " ")
				pod := lifecycle.PodOf(peerPod(namespace, name, ready))
				record := lifecycle.Record{Stamp: lifecycle.StampOf(pod), Want: lifecycle.InService, Instances: []lifecycle.Key{
					{Registry: registry, Service: lifecycle.Service(service), Address: "10.0.0.1", Port: 80},
				}}
				text, err := json.Marshal(record)
				expect.NoError(t, err)
				pod.Annotations[lifecycle.AnnotationRecord] = string(text)
				p.Arrived(pod, rules)
				return pod
			}
			for i := range 9 {
				arrives("mall", fmt.Sprintf("web-%d", i), true, tc.others)
			}
			alone := arrives("shop", "web", false, "placed blue/web")
			if got := p.Of("shop", lifecycle.RecordOf(alone), rules).Service; got != tc.panics {
				t.Errorf("service %q is in panic, want %q: %s", got, tc.panics, tc.reason)
			}
			p.TakeCalmed()
			p.Forget(alone.UID, rules)
			expect.Equal(t, 1, len(p.services), "services are kept")
		})
	}
}
