package controller

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// withRegistry adds a registry beside the default one. Its calls are in the journal under its name.
func (w *world) withRegistry(name string) *fakeregistry.Registry {
	w.Helper()
	other := w.withServer(name, fakeregistry.Memory(w.Context()))
	w.journals(other, name+": ")
	return other
}

func (w *world) withServer(name string, server fakeregistry.Backend) *fakeregistry.Registry {
	w.Helper()
	other := fakeregistry.New(server)
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{"default": s.Registries["default"], name: {Calls: other}}
	})
	return other
}

func inRegistries(names string) func(*kruisev1alpha1.CloneSet) {
	return func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Template.Annotations = map[string]string{service.AnnotationRegistries: names}
	}
}

func TestRegistryThatTheConfigurationDropsWhileAPodIsInIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.bornPod(w.cloneSet("web", inRegistries("new")), "web-1")
	w.reconciles(pod, "", "new: "+registers, writes)
	both := w.settings.Registries

	w.apply(func(s *choices) { s.Registries = map[string]Registry{"default": both["default"]} })
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("no event tells when it is back but the configuration's own", w.reconcile(pod), waiting.Longest)
	w.expectJournal("there is no registry to call")
	w.expectHooks("clients may still be given the pod", pod, "preNormal inPlaceUpdate preDelete")
	w.expectEvents("", `Warning UnknownRegistry hook preDelete waits: service "web" at 10.0.0.1:8080 in registry "new": the configuration`)

	w.apply(func(s *choices) { s.Registries = both })
	w.reconciles(pod, "", "new: "+deregisters, writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

// TestAnotherClusterRenamesNothing: what another cluster calls a registry tells nothing about what this one did.
func TestAnotherClusterRenamesNothing(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		// own and theirs are the clusters' UIDs, as far as they are known.
		own, theirs string
		held        bool
	}
	expect.Each(t, map[string]row{
		"another cluster's":      {"its configuration is its own", "own", "other", true},
		"whose UID is not known": {"it may be another cluster's", "", "other", true},
		"this cluster's":         {"only this one writes it", "own", "own", false},
		"an older version's":     {"no UID is as good as this cluster's", "own", "", false},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		w.withRegistry("new")
		pod := w.bornPod(w.cloneSet("web", inRegistries("new")), "web-1")
		w.reconciles(pod, "", "new: "+registers, writes)
		theirs := w.instance(pod, "web", 9999)
		theirs.UID, theirs.Registry, theirs.ClusterUID = "another pod's", "new", tc.theirs
		w.must(w.registry.Register(t.Context(), theirs), "registering")

		w.withoutRegistry("new")
		w.resync(Listing{ClusterUID: tc.own})
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.reconcile(pod)
		hooks := "inPlaceUpdate"
		if tc.held {
			hooks = "preNormal inPlaceUpdate preDelete"
		}
		w.expectHooks(tc.reason, pod, hooks)
	})
}

func TestInstanceCarriesItsAttributes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "eu-1a", corev1.LabelTopologyRegion: "eu-1"},
	}}), "creating the node")
	where, err := service.ParseValueTemplate("{region}/{node}")
	w.must(err, "parsing the metadata")
	w.apply(func(s *choices) {
		s.Services.Metadata, s.Services.Tags = map[string]service.ValueTemplate{"where": where}, []service.ValueTemplate{where}
	})
	onNode := func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" }
	pod := w.servingPod(w.cloneSet("web"), "web-1", onNode, annotated(service.AnnotationMetadata, "weight=10"))

	want := w.instance(pod, "web", 8080)
	want.Weight, want.Zone, want.Tags = 10, "eu-1a", []string{"eu-1/node-1"}
	want.Metadata = map[string]string{"where": "eu-1/node-1"}
	w.expectLastInstance("", want)

	w.changePod(pod, annotated(service.AnnotationTags, "primary"), annotated(service.AnnotationMetadata, "version=2,weight=20"))
	w.reconciles(pod, "clients read of it; nothing has to be recorded", registers)
	want.Weight, want.Tags = 20, []string{"eu-1/node-1", "primary"}
	want.Metadata = map[string]string{"where": "eu-1/node-1", "version": "2"}
	w.expectLastInstance("", want)
	w.reconciles(pod, "once is enough")

	node := &corev1.Node{}
	w.must(w.api.Get(t.Context(), client.ObjectKey{Name: "node-1"}, node), "reading the node")
	node.Labels[corev1.LabelTopologyZone] = "eu-1b"
	w.must(w.api.Update(t.Context(), node), "labelling the node")
	w.reconciles(pod, "its node's zone is its own", registers)
	want.Zone = "eu-1b"
	w.expectLastInstance("", want)

	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.takeJournal()
	w.changePod(pod, annotated(service.AnnotationMetadata, "weight=30"))
	w.reconciles(pod, "who is not given the instance need not know its weight")

	w.changePod(pod, annotated(service.AnnotationMetadata, "weight=heavy"))
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.reconciles(pod, "it can't be told what the pod wants")
	w.expectEvents("", "Warning InvalidPod hook inPlaceUpdate waits: metadata weight: \"heavy\"")
}

func TestNodeChanges(t *testing.T) {
	t.Parallel()
	node := func(name, zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	}
	ends := func(node *corev1.Node) *corev1.Node {
		node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
		return node
	}
	lost := func(node *corev1.Node) *corev1.Node {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
		return node
	}
	type row struct {
		reason   string
		old, now *corev1.Node
		first    bool
		want     []string
		behind   bool
	}
	expect.Each(t, map[string]row{
		"another zone":      {"clients choose by it", node("node-1", "eu-1a"), node("node-1", "eu-1b"), false, []string{"web-1"}, true},
		"status alone":      {"kubelet writes it often", node("node-1", "eu-1a"), node("node-1", "eu-1a"), false, nil, false},
		"the cache is late": {"its pods were registered without a zone", nil, node("node-1", "eu-1a"), false, []string{"web-1"}, false},
		"first list":        {"the pods come by themselves", nil, node("node-1", "eu-1a"), true, nil, false},
		"gone":              {"its pods go too", node("node-1", "eu-1a"), nil, false, nil, false},
		"no pod on it":      {"nothing says where it is", node("node-3", "eu-1a"), node("node-3", "eu-1b"), false, nil, false},
		"ends":              {"its pods have to leave", node("node-1", "eu-1a"), ends(node("node-1", "eu-1a")), false, []string{"web-1"}, false},
		"lost":              {"a gated pod on it is no longer ready", node("node-1", "eu-1a"), lost(node("node-1", "eu-1a")), false, []string{"web-1"}, false},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web := w.cloneSet("web")
		for i, on := range []string{"node-1", "node-2"} {
			onNode := func(pod *corev1.Pod) { pod.Spec.NodeName = on }
			w.bornPod(web, fmt.Sprintf("web-%d", i+1), onNode, inState(appspub.LifecycleStatePreparingDelete))
		}
		w.queue.take()
		switch events := w.r.nodeEvents(); {
		case tc.old == nil:
			events.Create(t.Context(), event.TypedCreateEvent[*corev1.Node]{Object: tc.now, IsInInitialList: tc.first}, w.queue)
		case tc.now == nil:
			events.Delete(t.Context(), event.TypedDeleteEvent[*corev1.Node]{Object: tc.old}, w.queue)
		default:
			events.Update(t.Context(), event.TypedUpdateEvent[*corev1.Node]{ObjectOld: tc.old, ObjectNew: tc.now}, w.queue)
		}
		var got []string
		for _, a := range w.queue.take() {
			got = append(got, a.Request.Name)
			if behind := a.Priority == handler.LowPriority; behind != tc.behind {
				t.Errorf("%s goes in at %d, behind what waits for more: want %t", a.Request.Name, a.Priority, tc.behind)
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("looks again at (-want +got):\n%sreason: %s", diff, tc.reason)
		}
	})
}

func (w *world) expectLastInstance(why string, want registry.Instance) {
	w.Helper()
	calls := w.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister})
	if got := calls[len(calls)-1].Instance; !got.Equal(want) {
		w.Fatalf("registered %+v, want %+v\nwhy: %s", got, want, why)
	}
}

func TestHookWaitsUntilClientsAreGivenThePod(t *testing.T) {
	t.Parallel()
	asked, why := 0, errors.New("the check has not passed")
	probe := probes(func() error {
		asked++
		return why
	})
	w, pod := born(t, with(func(r *Registry) { r.Prober = probe }))

	w.expectResult("with a back-off", w.reconcile(pod), backoffBase)
	w.expectResult("with a back-off", w.reconcile(pod), 2*backoffBase)
	w.expectJournal("it is registered once", registers)
	w.expectHooks("Kruise must not count on it yet", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", `Warning NotEffective hook preNormal waits: service "web" at 10.0.0.1:8080 is registered, but not given to clients yet: the check`)

	why = registry.Terminal(errors.New("the check is misconfigured"))
	w.expectResult("at once is of no use", w.reconcile(pod), waiting.Longest)
	why = registry.RetryAfter(errors.New("later"), 7*time.Second)
	w.expectResult("the registry knows when", w.reconcile(pod), 7*time.Second)

	why = nil
	w.reconciles(pod, "", writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")

	asked = 0
	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	if asked > 0 {
		t.Errorf("asked %d times where no hook hangs on it", asked)
	}
	why = errors.New("the check has not passed")
	w.reconcileIn(pod, appspub.LifecycleStateUpdated)
	w.expectHooks("an update is not over before clients are given the pod", pod, "preDelete")
	why = nil
	w.reconcile(pod)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
}

func TestNoHeartbeatKeepsWhatIsBeingTakenAway(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.expectHeld("it is registered", pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	hold := w.registry.Hold(anyCall())
	var ended sync.WaitGroup
	ended.Go(func() { w.reconcile(pod) })
	w.must(hold.AwaitReached(t.Context(), 1), "waiting for the call")
	w.expectHeld("the call is under way")
	hold.Release()
	ended.Wait()
	w.expectHeld("")
}

func (w *world) expectHeld(why string, want ...*corev1.Pod) {
	w.Helper()
	var got, wanted []string
	for _, in := range w.r.Tracker.Kept("default") {
		got = append(got, in.Pod)
	}
	for _, pod := range want {
		wanted = append(wanted, pod.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, wanted) {
		w.Fatalf("held are %v, want %v\nwhy: %s", got, wanted, why)
	}
}

// lose has a heartbeat find no entry of the pod.
func (w *world) lose(pod *corev1.Pod) {
	w.r.Tracker.Missing(tracker.Target{Registry: "default", Instance: w.instance(pod, "web", 8080)}, w.clock.Now())
}

// runBoth is a run of resync over both names.
func (w *world) runBoth(why string) {
	w.Helper()
	for _, name := range []string{"default", "alias"} {
		listing := w.listing(Listing{})
		listing.Registry = name
		if got := w.compare(listing); len(got.Missing)+got.Different+len(got.Unknown) > 0 {
			w.Fatalf("resync of %q found %+v, want no difference\nwhy: %s", name, got, why)
		}
	}
}

func TestTwoNamesForOneServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withServer("alias", w.backend) // the default one under another name in DNS
	pod := w.servingPod(w.cloneSet("web"), "web-1")

	for _, now := range [][]string{{"alias"}, {"default"}, {"alias", "default"}, {"alias"}} {
		t.Logf("The pod moves to %v.", now)
		w.apply(func(s *choices) { s.DefaultRegistries = now })
		w.sleep(waiting.Longest)
		w.reconcile(pod)
		w.expectInService(pod)
		w.sleep(waiting.Longest)
		w.runBoth("the entry is there, and whose it is has been said")
		w.reconcile(pod)
		w.expectInService(pod)
	}
	w.expectEvents("nothing is wrong with it")

	t.Log("What has to go goes, whichever name the entry has.")
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"alias", "default"} })
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectAbsent(pod)
}

// TestRegistryIsRenamedAndLeft: the entry carries the former name, and has to go all the same.
func TestRegistryIsRenamedAndLeft(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		fails  bool
		byApp  bool
	}
	expect.Each(t, map[string]row{
		"for another":                   {reason: "the list tells that the entry carries another name"},
		"for another, and a call fails": {reason: "what the list told stays known", fails: true},
		"for the application's":         {reason: "clients are given the application's from now on", byApp: true},
	}, func(t *testing.T, tc row) {
		w := steering(t, func(s *choices) { s.RegisteredByApp = nil })
		pod := w.servingPod(w.cloneSet("web"), "web-1")
		w.registry.App(w.instance(pod, "web", 8080)).Register()
		w.settings.RegisteredByApp = map[string]bool{"main": tc.byApp}
		w.renames("default", "main")
		if !tc.byApp {
			w.apply(func(s *choices) {
				s.Registries["new"] = Registry{Calls: fakeregistry.New(fakeregistry.Memory(w.Context()))}
				s.DefaultRegistries = []string{"new"}
			})
		}
		if tc.fails {
			w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, errors.New("down"))
			w.reconcile(pod)
			w.expectInService(pod)
			w.sleep(waiting.Longest)
		}
		w.reconcile(pod)
		t.Log(tc.reason) // shown where it fails
		w.expectAbsent(pod)
	})
}

// renames gives a registry another name than the one that entries and records have, which takes a restart.
func (w *world) renames(former, now string) Comparison {
	w.Helper()
	w.settings.Registries = map[string]Registry{now: w.settings.Registries[former]}
	w.settings.DefaultRegistries = []string{now}
	w.restart()
	return w.lists(now)
}

func (w *world) lists(name string) Comparison {
	w.Helper()
	listing := w.listing(Listing{})
	listing.Registry = name
	return w.compare(listing)
}

func TestRegistryIsRenamed(t *testing.T) {
	t.Parallel()
	t.Run("and its pods get the new name", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t)
		if got := w.renames("default", "main"); len(got.Standing) != 1 || len(got.Missing)+got.Different > 0 || !slices.Equal(got.Renamed, []string{"default"}) {
			t.Fatalf("the first list found %+v, want the entry, which is this registry's, by its former name", got)
		}
		if got := w.lists("main"); len(got.Renamed) > 0 {
			t.Errorf("the second list says again that the registry was %q, want that once", got.Renamed)
		}
		w.reconciles(pod, "the entry gets the new name, and no registry is left that there is no more", registers, writes)
		w.expectEvents("nothing is wrong with the pod")
		w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
		w.expectNotInService(pod)
	})
	t.Run("and a pod that is not ready stays in", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t, keepsUnready)
		w.changePod(pod, unready)
		w.renames("default", "main")
		w.reconciles(pod, "")
		if kept := w.r.Tracker.Kept("main"); len(kept) != 1 {
			t.Errorf("heartbeats go to %+v, want the pod: its entry would expire", kept)
		}
	})
	t.Run("and a drain goes on", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t, draining15s)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
		w.expectResult("the drain begins", w.reconcile(pod), 15*time.Second)
		w.sleep(5 * time.Second)
		w.renames("default", "main")
		w.expectResult("the record says when it began", w.reconcile(pod), 10*time.Second)
	})
}
