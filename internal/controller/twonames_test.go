package controller

import (
	"errors"
	"slices"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// withAnotherName adds a registry which is the same server as the default one under another name in DNS.
func (w *world) withAnotherName(name string) *fakeregistry.Registry {
	w.Helper()
	other := fakeregistry.New(w.backend)
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{
			"default": s.Registries["default"],
			name:      {Calls: other},
		}
	})
	return other
}

// runBoth is a run of resync over both names.
func (w *world) runBoth(why string, other *fakeregistry.Registry) {
	w.Helper()
	for _, l := range []Listing{{Registry: "default", Server: w.registry}, {Registry: "alias", Server: other}} {
		listing := w.listing(Listing{Server: l.Server})
		listing.Registry = l.Registry
		if got := w.compare(listing); len(got.Missing)+got.Different+len(got.Unknown) > 0 {
			w.Fatalf("resync of %q found %+v, want no difference\nwhy: %s", l.Registry, got, why)
		}
	}
}

func TestTwoNamesForOneServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.withAnotherName("alias")
	pod := w.servingPod(w.cloneSet("web"), "web-1")

	for _, now := range [][]string{{"alias"}, {"default"}, {"alias", "default"}, {"alias"}} {
		t.Logf("The pod moves to %v.", now)
		w.apply(func(s *choices) { s.DefaultRegistries = now })
		w.sleep(backoffCap)
		w.reconcile(pod)
		w.expectInService(pod)
		w.sleep(backoffCap)
		w.runBoth("the entry is there, and whose it is has been said", other)
		w.reconcile(pod)
		w.expectInService(pod)
	}
	w.expectEvents("nothing is wrong with it")

	t.Log("What has to go goes, whichever name the entry has.")
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"alias", "default"} })
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectAbsent(pod)
}

// TestARegistryIsRenamed: a registry has another name than the one that entries and records have.
func TestRegistryIsRenamed(t *testing.T) {
	t.Parallel()
	renamed := func(s *choices) {
		s.Registries = map[string]Registry{"main": s.Registries["default"]}
		s.DefaultRegistries = []string{"main"}
	}
	lists := func(w *world) Comparison {
		listing := w.listing(Listing{})
		listing.Registry = "main"
		return w.compare(listing)
	}

	t.Run("before a restart", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t)
		renamed(&w.settings)
		w.restart()
		if got := lists(w); len(got.Standing) != 1 || len(got.Missing)+got.Different > 0 || !slices.Equal(got.Renamed, []string{"default"}) {
			t.Fatalf("the first list found %+v, want the entry, which is this registry's, by its former name", got)
		}
		if got := lists(w); len(got.Renamed) > 0 {
			t.Errorf("the second list says again that the registry was %q, want that once", got.Renamed)
		}
		w.reconciles(pod, "the entry gets the new name, and no registry is left that there is no more", registers, writes)
		w.expectEvents("nothing is wrong with the pod")
		w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
		w.expectNotInService(pod)
	})
	t.Run("before a list, and a new pod has no record", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		other := w.withRegistry("new")
		pod := w.bornPod(w.cloneSet("web", inRegistries("default,new")), "web-1")
		other.FailNext(anyCall(), errors.New("down"))
		w.reconciles(pod, "nothing is written before both have acknowledged", registers, "new: "+registers+failed)

		w.apply(func(s *choices) {
			s.Registries = map[string]Registry{"main": s.Registries["default"], "new": s.Registries["new"]}
			s.DefaultRegistries, s.FormerNames = []string{"main", "new"}, map[string]string{"default": "main"}
		})
		w.changePod(pod, annotated(service.AnnotationRegistries, "main,new"))
		_ = lists(w)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		w.reconciles(pod, "it was registered under the former name", deregisters, "new: "+deregisters, writes)
		w.expectAbsent(pod)
	})
	t.Run("while a pod that is not ready stays in", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t, keepsUnready)
		w.changePod(pod, unready)
		renamed(&w.settings)
		w.settings.FormerNames = map[string]string{"default": "main"}
		w.restart()
		w.reconciles(pod, "")
		if kept := w.r.Tracker.Kept("main"); len(kept) != 1 {
			t.Errorf("heartbeats go to %+v, want the pod: its entry would expire", kept)
		}
	})
	t.Run("while the manager runs and a pod that is not ready stays in", func(t *testing.T) {
		t.Parallel()
		w, pod := serving(t, keepsUnready)
		w.changePod(pod, unready)
		w.reconciles(pod, "it is kept as it is")
		w.apply(func(s *choices) {
			renamed(s)
			s.FormerNames = map[string]string{"default": "main"}
		})
		w.reconciles(pod, "it is kept under the new name too")
		if kept := w.r.Tracker.Kept("main"); len(kept) != 1 {
			t.Errorf("heartbeats go to %+v, want the pod: its entry would expire", kept)
		}
	})
}
