package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// weighing gives all pods the weight 100.
func weighing(s *choices) {
	weight, err := service.ParseValueTemplate("100")
	if err != nil {
		panic(err)
	}
	s.Services.Metadata = map[string]service.ValueTemplate{"weight": weight}
}

// rollout is a CloneSet that is being updated, and its pods.
type rollout struct {
	*world

	set            *kruisev1alpha1.CloneSet
	stable, canary []*corev1.Pod
}

// rolling has so many pods of each revision serve.
func rolling(t *testing.T, stable, canary int, change ...func(*choices)) *rollout {
	t.Helper()
	r := &rollout{world: newWorld(t, append([]func(*choices){weighing}, change...)...)}
	r.set = r.cloneSet("web", func(set *kruisev1alpha1.CloneSet) {
		set.Status.CurrentRevision, set.Status.UpdateRevision = "web-a", "web-b"
	})
	for i := range stable {
		r.stable = append(r.stable, r.servingPod(r.set, fmt.Sprintf("stable-%d", i), ofRevision("a")))
	}
	for i := range canary {
		r.canary = append(r.canary, r.servingPod(r.set, fmt.Sprintf("canary-%d", i), ofRevision("b")))
	}
	r.settle()
	r.takeJournal()
	return r
}

func ofRevision(name string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[appsv1.ControllerRevisionHashLabelKey] = "web-" + name }
}

// shares writes the annotation, or removes it.
func (r *rollout) shares(text string) {
	r.Helper()
	r.write(func(set *kruisev1alpha1.CloneSet) {
		if delete(set.Annotations, lifecycle.AnnotationTraffic); text != "" {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, lifecycle.AnnotationTraffic, text)
		}
	})
}

// write changes what is no part of the CloneSet's generation, and expects that the manager notices.
func (r *rollout) write(change func(*kruisev1alpha1.CloneSet)) {
	r.Helper()
	before := r.set.DeepCopy()
	change(r.set)
	r.must(r.api.Update(r.Context(), r.set), "changing the CloneSet")
	r.queue.take()
	r.r.workloadEvents().Update(r.Context(), event.TypedUpdateEvent[client.Object]{ObjectOld: before, ObjectNew: r.set}, r.queue)
	if len(r.queue.take()) < len(r.stable)+len(r.canary) {
		r.Errorf("the pods are not reconciled")
	}
	r.settle()
}

// settle reconciles the pods until nothing changes.
func (r *rollout) settle() {
	r.Helper()
	for range 3 {
		for _, pod := range slices.Concat(r.stable, r.canary) {
			r.tell(pod)
			r.reconcile(pod)
			r.tell(pod)
		}
	}
}

// expectFirst expects all calls of one kind before those of the other.
func (r *rollout) expectFirst(why, first, then string) {
	r.Helper()
	journal, began := r.takeJournal(), false
	for _, line := range journal {
		began = began || strings.HasPrefix(line, then)
		if began && strings.HasPrefix(line, first) {
			r.Errorf("%s after %s in %q: %s", first, then, journal, why)
		}
	}
	if !began {
		r.Errorf("no %s in %q", then, journal)
	}
}

// expectWeights expects the pods of both revisions in rotation with these weights. Those of weight 0 are out.
func (r *rollout) expectWeights(why string, stable, canary int) {
	r.Helper()
	for _, of := range []struct {
		pods   []*corev1.Pod
		weight int
	}{{r.stable, stable}, {r.canary, canary}} {
		for _, pod := range of.pods {
			if of.weight == 0 {
				r.expectNotInService(pod)
				continue
			}
			r.expectInService(pod)
			if got := r.weight(pod); got != of.weight {
				r.Errorf("the weight of %s is %d, want %d: %s", pod.Name, got, of.weight, why)
			}
		}
	}
}

// TestRolloutIsTold: people who look at the CloneSet see when its update has begun to serve, and when it is done.
func TestRolloutIsTold(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	set := w.cloneSet("web", func(set *kruisev1alpha1.CloneSet) {
		set.Status.CurrentRevision, set.Status.UpdateRevision, set.Status.ExpectedUpdatedReplicas = "web-a", "web-b", 3
	})
	var pods []*corev1.Pod
	look := func() {
		for _, pod := range pods {
			w.tell(pod)
		}
		for _, pod := range pods { // once all have been told of, as after a start
			w.reconcile(pod)
		}
	}
	for i, want := range [][]string{{"Normal RolloutProgress 1 of 3 pods are updated to revision b and in rotation"}, nil, {"Normal RolloutProgress 3 of 3 pods"}} {
		pod := w.bornPod(set, fmt.Sprintf("web-%d", i), ofRevision("b"))
		pods = append(pods, pod)
		w.reconcile(pod)
		w.kruiseMoves(pod, appspub.LifecycleStateNormal)
		look()
		w.expectInService(pod)
		look()
		w.expectEvents("the first pod and the last one are news", want...)
	}
	w.servingPod(set, "old", ofRevision("a"))
	w.restart()
	look()
	w.expectEvents("a new leader repeats nothing")
}

func TestSharesByRevision(t *testing.T) {
	t.Parallel()
	r := rolling(t, 9, 1)
	r.expectWeights("nothing is shared out", 100, 100)
	r.shares("stable=80,canary=20")
	r.expectWeights("9 x 44 and 100", 44, 100)
	if journal := r.takeJournal(); len(journal) != 9 || strings.Contains(strings.Join(journal, " "), "write") {
		t.Errorf("a share is one call for each pod whose weight changes, and no write; got %q", journal)
	}
	r.restart()
	for _, pod := range slices.Concat(r.stable, r.canary) {
		r.r.podEvents().Create(r.Context(), event.TypedCreateEvent[client.Object]{Object: lifecycle.PodOf(r.current(pod))}, r.queue)
	}
	r.settle()
	r.expectWeights("the next leader counts the same pods", 44, 100)

	r.canary = append(r.canary, r.bornPod(r.set, "canary-1", ofRevision("b")))
	r.queue.take()
	r.settle()
	r.r.enqueueShares(t.Context(), r.queue)
	if got := len(r.queue.take()); got < 11 {
		t.Errorf("one pod more changes the weight of all: %d are reconciled again", got)
	}
	r.settle()
	r.expectWeights("9 x 89 and 2 x 100", 89, 100)

	r.shares("stable=1,canary=99")
	r.expectWeights("the smallest share: 9 x 1 and 2 x 100 would be 4 %", 1, 405)
	r.shares("")
	r.expectWeights("all is as before", 100, 100)
	r.expectWaits("and nothing waits")
}

// TestRevisionWithoutShare: a preview of a revision, then all traffic to it, then back. At any moment one of the two serves.
func TestRevisionWithoutShare(t *testing.T) {
	t.Parallel()
	r := rolling(t, 3, 1)
	r.shares("stable=100,canary=0")
	leaves := r.canary[0]
	r.expectNotInService(leaves)
	r.expectEvents("whoever finds it out of rotation knows why", "Normal HeldOut the pod's revision, canary, has no share of the traffic: annotation "+
		"rollcall.dev/traffic of its CloneSet is stable=100,canary=0")
	r.expectWaits("it shows in the metric", Wait{Reason: "HeldOut", Since: r.clock.Now()})
	r.expectWeights("nothing is to be weighed", 100, 0)

	born := r.bornPod(r.set, "canary-1", ofRevision("b"))
	r.reconcile(born)
	r.expectNotInService(born)
	r.expectHooks("OpenKruise must not count it as available", born, "inPlaceUpdate preDelete")
	updated := r.canary[0]
	r.kruiseMoves(updated, appspub.LifecycleStateUpdated)
	r.reconcile(updated)
	r.expectNotInService(updated)
	r.canary = append(r.canary, born)
	r.takeJournal()

	r.shares("stable=0,canary=100")
	r.expectFirst("the canary is in before a stable pod goes", "Register", "FailOver")
	for _, pod := range r.stable {
		r.expectNotInService(pod)
	}
	for _, pod := range r.canary {
		r.expectInService(pod)
		r.kruiseMoves(pod, appspub.LifecycleStateNormal)
	}
	r.settle()
	r.shares("stable=100,canary=0")
	r.expectWeights("back immediately: nothing was updated", 100, 0)
	for _, pod := range r.canary {
		r.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		r.reconcile(pod)
		r.sleep(time.Minute)
		r.reconcile(pod)
		r.expectHooks("it is out, and drained", pod, "inPlaceUpdate")
	}
}

// TestRevisionWithoutShareStays if nobody else is ready to serve, and leaves once the other revision does.
func TestRevisionWithoutShareStays(t *testing.T) {
	t.Parallel()
	r := rolling(t, 2, 0)
	r.shares("stable=0,canary=100")
	for _, pod := range r.stable {
		r.expectInService(pod)
	}
	r.expectEventWith("Warning InvalidPod", "stable=0,canary=100, and no pod of the revision that is to have all traffic is ready")
	r.takeEvents()
	r.takeJournal()

	r.canary = append(r.canary, r.bornPod(r.set, "canary-0", ofRevision("b"), unready))
	r.settle()
	r.expectInService(r.stable[0])
	r.changePod(r.canary[0], ready)
	r.settle()
	r.expectFirst("the canary is in before a stable pod goes", "Register", "FailOver")

	t.Log("OpenKruise completes the update: the canary is the stable revision now.")
	r.stable = nil
	r.write(func(set *kruisev1alpha1.CloneSet) { set.Status.CurrentRevision = "web-b" })
	r.expectWeights("the annotation is about two revisions", 100, 100)
}

// TestSharesThatCannotBe: nothing changes, neither where a pod is nor its weight, and whoever wrote them has to know.
func TestSharesThatCannotBe(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, text string
		change       func(*choices)
		want         string
	}
	expect.Each(t, map[string]row{
		"a typo":   {"the canary waits for its first request", "stable=100,canray=0", func(*choices) {}, "set both shares in whole percent"},
		"no sense": {"more than there is", "stable=100,canary=20", func(*choices) {}, "100 together"},
		"a registry without weights": {
			"its clients would get equal shares", "stable=80,canary=20",
			func(s *choices) { s.Weightless = map[string]bool{"default": true} }, "registry \"default\" can't share traffic out: its clients heed no weights",
		},
		"a service without weights": {
			"an instance without one has 1, so that one of 100 would have nearly all", "stable=80,canary=20",
			func(s *choices) { s.Services.Metadata = nil }, "the pod has none: set the same for all instances",
		},
	}, func(t *testing.T, tc row) {
		r := rolling(t, 2, 1, tc.change)
		r.shares("stable=100,canary=0")
		r.expectNotInService(r.canary[0])
		r.takeJournal()
		r.takeEvents()
		r.shares(tc.text)
		r.expectNotInService(r.canary[0])
		r.expectInService(r.stable[0])
		r.expectJournal(tc.reason)
		if events := r.takeEvents(); !slices.ContainsFunc(events, func(e string) bool {
			return strings.HasPrefix(e, "Warning InvalidPod") && strings.Contains(e, tc.want)
		}) {
			t.Errorf("no Warning about %q in %q: %s", tc.want, events, tc.reason)
		}
		r.shares("stable=0,canary=100")
		r.expectInService(r.canary[0])
		r.expectNotInService(r.stable[0])
	})
}

// TestSharesOfWarmPods: a pod that warms up has a part of its share.
func TestSharesOfWarmPods(t *testing.T) {
	t.Parallel()
	r := rolling(t, 4, 0, func(s *choices) { s.Services.WarmUp = 100 * time.Second })
	r.sleep(time.Hour)
	r.shares("stable=50,canary=50")
	r.canary = append(r.canary, r.bornPod(r.set, "canary-0", ofRevision("b")))
	r.settle()
	r.expectWeights("25 % of the full weight each, and 1 % at first", 25, 1)
	r.sleep(50 * time.Second)
	r.settle()
	r.expectWeights("half-way", 25, 50)
	r.sleep(50 * time.Second)
	r.settle()
	r.expectWeights("half of the traffic", 25, 100)
}
