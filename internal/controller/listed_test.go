package controller

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

func TestListConfirmsWhatIsRegistered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	var pods []*corev1.Pod
	for i := range 3 {
		pods = append(pods, w.servingPod(web, fmt.Sprintf("web-%d", i)))
	}
	w.restart()
	w.resync(Listing{Confirms: true})
	for _, pod := range pods {
		w.reconcile(pod)
	}
	w.expectJournal("the list says that all of them are in service")
	w.expectResync("and they are known by now", Comparison{})

	w.kruiseMoves(pods[0], appspub.LifecycleStatePreparingDelete)
	w.reconcile(pods[0])
	w.expectAbsent(pods[0])
}

func TestListThatConfirmsNothing(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		happen func(w *world, pod *corev1.Pod)
		l      Listing
	}{
		"a list that confirms nothing": {"it may be stale, or the entry another process's", nothing, Listing{}},
		"an entry out of service": {"the pod is to be in service", func(w *world, pod *corev1.Pod) {
			w.must(w.backend.FailOver(w.Context(), w.instance(pod, "web", 8080)), "failing over")
		}, Listing{Confirms: true}},
		"an entry with another weight": {"clients read another weight", func(w *world, pod *corev1.Pod) {
			in := w.instance(pod, "web", 8080)
			in.Weight = 7
			w.must(w.backend.Register(w.Context(), in), "registering")
		}, Listing{Confirms: true}},
		"a pod that Kruise waits for": {"a hook hangs on it", func(w *world, pod *corev1.Pod) {
			w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
		}, Listing{Confirms: true}},
		"a list of another registry of that name": {"it has moved", nothing, Listing{Confirms: true, Server: newBackend(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pod := serving(t)
			tc.happen(w, pod)
			w.takeJournal()
			w.restart()
			w.resync(tc.l)
			w.reconcile(pod)
			if got := w.takeJournal(); len(got) == 0 || got[0] != "Register web@10.0.0.1:8080" {
				t.Errorf("made %q, want a Register\nreason: %s", got, tc.reason)
			}
		})
	}
}

func nothing(*world, *corev1.Pod) {}

func TestDriftIsCorrected(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(w *world, in registry.Instance) error
		want   string
	}{
		"the state": {"somebody has taken it out", func(w *world, in registry.Instance) error {
			return w.backend.FailOver(w.Context(), in)
		}, "Register web@10.0.0.1:8080"},
		"the weight": {"somebody has changed it in a console", func(w *world, in registry.Instance) error {
			in.Weight = 7
			return w.backend.Register(w.Context(), in)
		}, "Register web@10.0.0.1:8080"},
		"another service": {"a call of a process that died, say", func(w *world, in registry.Instance) error {
			in.Service = "api"
			return w.backend.Register(w.Context(), in)
		}, "Deregister api@10.0.0.1:8080"},
		"another address": {"a call of a process that died, say", func(w *world, in registry.Instance) error {
			in.Address = "10.9.9.9"
			return w.backend.Register(w.Context(), in)
		}, "Deregister web@10.9.9.9:8080"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, pod := serving(t)
			w.must(tc.change(w, w.instance(pod, "web", 8080)), "changing the registry")
			w.resync(Listing{})
			w.expectDoubtful(tc.reason, pod)
			w.reconciles(pod, tc.reason, tc.want)
			w.expectInService(pod)
			w.resync(Listing{})
			w.expectDoubtful("all is well")
		})
	}
}

func TestDriftOfAWeightThatTheRegistryHasNoPlaceFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1", annotated(service.AnnotationWeight, "7"))
	plain := func() Listing {
		l := w.listing(Listing{})
		for i := range l.Entries {
			l.Entries[i].Weight = 0
		}
		return l
	}
	if got := w.compare(plain()); got.Different != 1 {
		t.Errorf("got %+v, want the weight to be missed", got)
	}
	w.reconciles(pod, "the weight is registered again", "Register web@10.0.0.1:8080")
	w.sleep(time.Second)
	if got := w.compare(plain()); got.Different != 0 {
		t.Errorf("got %+v, want no third call: the registry has no place for a weight", got)
	}
	w.expectResync("somebody has found a place", Comparison{})
	w.sleep(time.Second)
	if got := w.compare(plain()); got.Different != 1 {
		t.Errorf("got %+v, want it to be corrected: it was there", got)
	}
}

func TestGone(t *testing.T) {
	t.Parallel()
	unseen := func(w *world, pod *corev1.Pod) { w.cacheLags(pod, nil) }
	ended := func(w *world, pod *corev1.Pod) {
		unlabelled(w, pod)
		w.changePod(pod, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
	}
	dying := func(w *world, pod *corev1.Pod) { unlabelled(w, pod); w.deletePod(pod) }
	heir := func(w *world, pod *corev1.Pod) { w.removePod(pod); w.pod(w.cloneSet("api"), pod.Name) }
	stranger := func(w *world, _ *corev1.Pod) { w.pod(w.cloneSet("api"), "web-9") }
	misnamed := func(in *registry.Instance) { in.Pod = "web-9" }
	elsewhere := func(in *registry.Instance) { in.Namespace = "other" }
	for name, tc := range map[string]struct {
		reason string
		happen func(w *world, pod *corev1.Pod)
		// beside is what a second entry of the pod says otherwise than the first; nil where there is none.
		beside func(in *registry.Instance)
		want   bool
		reads  int
	}{
		"a live pod":                     {"the cache has it", nothing, nil, false, 0},
		"a pod that is no more":          {"no pod answers there", (*world).removePod, nil, true, 0},
		"a pod the cache does not have":  {"the cache may lag", unseen, nil, false, 1},
		"a pod without the label":        {"it lives", unlabelled, nil, false, 1},
		"a dying pod without the label":  {"it is freed as well", dying, nil, false, 1},
		"an ended pod without the label": {"it never comes back", ended, nil, true, 1},
		"another pod of the name":        {"its UID is another", heir, nil, true, 0},

		"an entry with a name that no pod has":  {"the pod of its UID lives under another", nothing, misnamed, false, 0},
		"an entry with another live pod's name": {"that one has another UID, and both live", stranger, misnamed, false, 0},
		"an entry in another namespace":         {"the pod of its UID lives in its own", nothing, elsewhere, false, 0},
		"an unseen pod's entry with a wrong name": {
			"the API server knows the name that the other entry says", unseen, misnamed, false, 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			web := w.cloneSet("web")
			w.pod(web, "a-page-of-its-own")
			pod := w.pod(web, "web-1")
			entries := []registry.Entry{{Instance: w.instance(pod, "web", 8080), State: registry.InService}}
			if tc.beside != nil {
				entries = append(entries, entries[0])
				tc.beside(&entries[1].Instance)
			}
			tc.happen(w, pod)
			for range entries { // in either order
				w.liveReads = 0
				got, err := w.gone(t.Context(), entries)
				w.must(err, "asking")
				if (len(got) == 1) != tc.want || w.liveReads != tc.reads {
					t.Errorf("got %v with %d reads of the API server, want gone %t with %d\nreason: %s",
						got, w.liveReads, tc.want, tc.reads, tc.reason)
				}
				slices.Reverse(entries)
			}
		})
	}
}

func unlabelled(w *world, pod *corev1.Pod) {
	w.changePod(pod, func(p *corev1.Pod) { delete(p.Labels, appspub.LifecycleStateKey) })
}

func TestDyingPodThatIsListedIsFreed(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	unlabelled(w, pod)
	w.deletePod(pod)
	w.restart()
	w.resync(Listing{})
	_, err := w.gone(t.Context(), w.listing(Listing{}).Entries)
	w.must(err, "asking")
	w.expectDoubtful("the cache has no such pod", pod)
	w.reconcile(pod)
	w.expectAbsent(pod)
	w.expectHooks("it was held by our finalizer alone", pod, "gone")
}

func TestQueueHasDoubtsLast(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.queue.take()
	w.r.Tracker.Doubt(lifecycle.PodIDOf(pod))
	w.lose(pod)
	w.r.enqueueDoubted(w.Context(), w.queue)
	got := w.queue.take()
	if len(got) != 2 || got[0].Priority != 0 || got[1].Priority != handler.LowPriority {
		t.Errorf("got %+v, want what is missing before what is in doubt", got)
	}
}

// listing asks the registry for all that is ours.
func (w *world) listing(l Listing) Listing {
	w.Helper()
	entries, err := w.registry.Truth(w.Context(), testCluster)
	w.must(err, "listing")
	l.Registry, l.Asked, l.Entries = "default", w.clock.Now(), entries
	if l.Server == nil {
		l.Server = w.registry
	}
	return l
}

// resync compares the registry with what is known.
func (w *world) resync(l Listing) Comparison {
	w.Helper()
	w.sleep(time.Second)
	return w.compare(w.listing(l))
}

func (w *world) expectResync(why string, want Comparison) {
	w.Helper()
	got := w.resync(Listing{})
	if len(got.Missing) != len(want.Missing) || got.Different != want.Different || len(got.Unknown) != len(want.Unknown) {
		w.Fatalf("resync found %+v, want %+v\nwhy: %s", got, want, why)
	}
}

// expectDoubtful expects these pods to be looked at because something differs, and expectLosers because a registry lost them.
func (w *world) expectDoubtful(why string, want ...*corev1.Pod) {
	w.Helper()
	_, doubtful := w.r.Tracker.TakeDoubted()
	w.expectLooks(why, doubtful, want)
}

func (w *world) expectLosers(why string, want ...*corev1.Pod) {
	w.Helper()
	lost, _ := w.r.Tracker.TakeDoubted()
	w.expectLooks(why, lost, want)
}

func (w *world) expectLooks(why string, got []lifecycle.PodID, want []*corev1.Pod) {
	w.Helper()
	select {
	case <-w.r.Tracker.Signal():
	default:
		if len(want) > 0 {
			w.Fatalf("there is no signal to look\nwhy: %s", why)
		}
	}
	wanted := make([]lifecycle.PodID, 0, len(want))
	for _, pod := range want {
		wanted = append(wanted, lifecycle.PodIDOf(pod))
	}
	if !slices.Equal(got, wanted) {
		w.Fatalf("to be looked at are %v, want %v\nwhy: %s", got, wanted, why)
	}
}
