package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const teamKey = "example.org/team"

func placedBy(template string) func(*choices) {
	return func(s *choices) { s.Services.Places = map[string]string{"default": template} }
}

func labelled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func unlabelled(key string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { delete(pod.Labels, key) }
}

// expectServices holds under which services the registry has a pod in service, with their places.
func (w *world) expectServices(why string, pod *corev1.Pod, want ...string) {
	w.Helper()
	entries, err := w.registry.Truth(context.WithoutCancel(w.Context()), testCluster)
	w.must(err, "reading the registry")
	var got []string
	for _, e := range entries {
		if e.UID == string(pod.UID) && e.State == registry.InService {
			got = append(got, e.Service)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		w.Fatalf("services of %s (-want +got):\n%swhy: %s", pod.Name, diff, why)
	}
}

// TestFortyNamespacesAndOneSection: each has its own service web, and none claims another's.
func TestFortyNamespacesAndOneSection(t *testing.T) {
	t.Parallel()
	w := newWorld(t, placedBy("{namespace}"))
	for i := range 40 {
		team := fmt.Sprintf("team-%02d", i)
		pod := w.bornPod(w.cloneSet("web", inNamespace(team)), "web-of-"+team)
		w.reconcile(pod)
		w.expectServices("no annotation says so", pod, team+"/web")
	}
}

// TestAPodThatMovesToAnotherPlace is found in the new one before it leaves the old one.
func TestAPodThatMovesToAnotherPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, placedBy("{label:"+teamKey+"}"))
	pod := w.servingPod(w.cloneSet("web"), "web-1", labelled(teamKey, "a"))
	w.expectServices("", pod, "a/web")
	w.turn(pod, labelled(teamKey, "b"))
	w.reconciles(pod, "it joins first", "Register b/web@10.0.0.1:8080", "Deregister a/web@10.0.0.1:8080", writes)
	w.expectServices("", pod, "b/web")
}

// relabel gives the pods' namespace a label, and the manager hears of it.
func (w *world) relabel(key, value string) {
	w.Helper()
	now := &corev1.Namespace{}
	w.must(w.api.Get(w.Context(), client.ObjectKey{Name: testNamespace}, now), "reading the namespace")
	old := now.DeepCopy()
	now.Labels = map[string]string{key: value}
	w.must(w.api.Update(w.Context(), now), "labelling the namespace")
	w.r.namespaceEvents().Update(w.Context(), event.TypedUpdateEvent[*metav1.PartialObjectMetadata]{
		ObjectOld: metadataOf(old), ObjectNew: metadataOf(now),
	}, w.queue)
}

// TestPodWithoutItsPlaceWaits: it stays where it is, and goes from there.
func TestPodWithoutItsPlaceWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, placedBy("{nsLabel:tier}/{label:"+teamKey+"}"))
	web := w.cloneSet("web")
	pod := w.bornPod(web, "web-1", labelled(teamKey, "a"))
	w.expectRefused(pod, `InvalidPod registry "default": the registry has pods in "{nsLabel:tier}/{label:example.org/team}", `+
		"and namespace shop has no label tier: set it")
	w.relabel("tier", "gold")
	w.expectJoins(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.turn(pod, unlabelled(teamKey))
	w.reconcile(pod)
	w.expectServices("it is lost without a reason", pod, "gold/a/web")
	next := w.bornPod(web, "web-2")
	w.expectRefused(next, `InvalidPod registry "default": the registry has pods in "{nsLabel:tier}/{label:example.org/team}", `+
		"and the pod has no label example.org/team: set it")
	w.leaves(pod)
}

// TestAppOfAnotherPlaceAtTheAddress: that another place's pod has the name and the address by now leaves the entry that was the dead pod's.
func TestAppOfAnotherPlaceAtTheAddress(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, team string
		want         registry.State
	}
	expect.Each(t, map[string]row{
		"the same place": {"it is that pod's by now", "a", registry.InService},
		"another place":  {"nobody else takes it out", "b", registry.OutOfService},
	}, func(t *testing.T, tc row) {
		w := steering(t, placedBy("{label:"+teamKey+"}"))
		web := w.cloneSet("web")
		pod := w.bornPod(web, "web-1", labelled(teamKey, "a"))
		app := w.registry.App(w.instance(pod, "a/web", 8080))
		app.Register()
		w.reconcile(pod)
		w.kruiseMoves(pod, appspub.LifecycleStateNormal)
		w.reconcile(pod)
		w.bornPod(web, "web-2", labelled(teamKey, tc.team), func(p *corev1.Pod) { p.Status.PodIP = pod.Status.PodIP })
		w.removePod(pod)
		w.reconcile(pod)
		w.expectApp(tc.reason, app, tc.want)
	})
}

// TestAppWithAnotherNameInAPlace: what people write is the name alone.
func TestAppWithAnotherNameInAPlace(t *testing.T) {
	t.Parallel()
	w := steering(t, placedBy("{namespace}"))
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.registry.App(w.instance(pod, "shop/api", 8080)).Register()
	w.reconcile(pod)
	got := w.takeEvents()
	if len(got) != 1 || !strings.Contains(got[0], `under ["api"]: set that`) || !strings.Contains(got[0], `register as "web"`) {
		t.Errorf("got events %q, want one with the names alone", got)
	}
}

// covering are lists of the world's namespace, which answers or does not.
func covering(answers bool) Listing {
	return Listing{Coverage: lifecycle.Coverage{Template: "{namespace}", Places: map[string]bool{testNamespace: answers}}}
}

// TestPodWithoutARecordWaitsForItsPlace, but not for the list of all places, which never comes.
func TestPodWithoutARecordWaitsForItsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, placedBy("{namespace}"), with(func(r *Registry) { r.Lister = noLister{} }))
	pod := w.pod(w.cloneSet("web"), "web-1", unready, inState(appspub.LifecycleStatePreparingDelete))
	w.reconcile(pod)
	w.expectHooks("it may be there under another name", pod, "inPlaceUpdate preDelete")
	w.compare(w.listing(covering(false)))
	w.reconcile(pod)
	w.expectHooks("its place did not answer", pod, "inPlaceUpdate preDelete")
	w.compare(w.listing(covering(true)))
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}

// TestLabelThatLeadsToARefusedPlace: the pods stay in rotation where they are, as long as it takes, also with a new leader.
func TestLabelThatLeadsToARefusedPlace(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]string{"a place that is refused": "forbidden", "no place": ""}, func(t *testing.T, value string) {
		w := newWorld(t, placedBy("{nsLabel:tier}"))
		w.relabel("tier", "gold")
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		kept := func(why string) {
			t.Helper()
			w.expectServices(why, pod, "gold/web")
			if got := w.r.Tracker.Kept("default"); len(got) != 1 || got[0].Service != "gold/web" {
				t.Fatalf("%d entries are renewed, want the one in the old place: %s", len(got), why)
			}
		}
		w.registry.Fail(fakeregistry.Match{Op: fakeregistry.OpRegister, Service: "forbidden/web"}, registry.Terminal(errors.New("403")))
		w.relabel("tier", value)
		for _, leader := range []string{"this leader", "the next one"} {
			w.reconcile(pod)
			kept(leader + ": it has joined nowhere else")
			got := w.compare(Listing{Registry: "default", Asked: w.clock.Now().Add(time.Second), Coverage: lifecycle.Coverage{
				Template: "{nsLabel:tier}", Places: map[string]bool{"forbidden": false},
			}})
			w.sleep(time.Minute)
			if len(got.Missing) > 0 {
				t.Errorf("%s: %v is missing, and no list covers it", leader, got.Missing)
			}
			w.reconcile(pod)
			kept(leader + ": no list has said otherwise")
			w.restart()
		}
		w.relabel("tier", "silver")
		w.reconcile(pod)
		w.expectServices("it can move again", pod, "silver/web")
	})
}

// TestDefaultForANamespace: a pod moves with the label of its namespace.
func TestDefaultForANamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	second := w.withRegistry("new")
	w.apply(func(s *choices) {
		s.DefaultsFor = map[string]service.Allowance{"new": {Selector: labels.SelectorFromSet(labels.Set{"unit": "retail"})}}
	})
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.relabel("unit", "retail")
	w.reconciles(pod, "it joins first", "new: "+registers, deregisters, writes)
	entries, err := second.Truth(t.Context(), testCluster)
	if err != nil || len(entries) != 1 {
		t.Errorf("the other registry has %v and error %v, want the pod", entries, err)
	}
}
