package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// TestTheClusterUIDComesWithTheNextRegister: an upgrade makes no call for an entry that lacks the UID, nor does a list.
func TestTheClusterUIDComesWithTheNextRegister(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.namespace(metav1.NamespaceSystem, func(n *corev1.Namespace) { n.UID = "uid-of-the-cluster" })
	w.restart()
	w.rebuilt(func(o *Options) { o.Identity = clusterstate.NewIdentity(o.APIReader, logr.Discard()) })
	w.r.Identity.Learn(w.Context())
	for range 2 {
		if got := w.resync(Listing{Confirms: true}); len(got.Missing)+got.Different > 0 {
			t.Fatalf("resync found %+v, want nothing", got)
		}
		w.reconciles(pod, "the entry is as good as one that has it")
	}
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcileIn(pod, appspub.LifecycleStateUpdated)
	entries, err := w.registry.Truth(t.Context(), testCluster)
	w.must(err, "listing")
	if len(entries) != 1 || entries[0].ClusterUID != "uid-of-the-cluster" {
		t.Errorf("the registry has %+v, want one entry with the UID", entries)
	}
}

func TestQueueHasDoubtsLast(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)
	w.queue.take()
	w.r.Tracker.Doubt(lifecycle.PodIDOf(lifecycle.PodOf(pod)))
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
	return l
}

// resync compares the registry with what is known.
func (w *world) resync(l Listing) Comparison {
	w.Helper()
	w.sleep(time.Second)
	return w.compare(w.listing(l))
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
	case <-w.r.Tracker.Signal:
	default:
		if len(want) > 0 {
			w.Fatalf("there is no signal to look\nwhy: %s", why)
		}
	}
	wanted := make([]lifecycle.PodID, 0, len(want))
	for _, pod := range want {
		wanted = append(wanted, lifecycle.PodIDOf(lifecycle.PodOf(pod)))
	}
	if !slices.Equal(got, wanted) {
		w.Fatalf("to be looked at are %v, want %v\nwhy: %s", got, wanted, why)
	}
}

// noLister is a registry that could list.
type noLister struct{ registry.Lister }
