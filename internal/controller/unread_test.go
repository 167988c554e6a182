package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// fails has the reads of a type fail, from the cache or from the API server.
func fails[T runtime.Object](cached bool, err error) func(runtime.Object, bool) error {
	return func(of runtime.Object, fromCache bool) error {
		if _, is := of.(T); is && cached == fromCache {
			return err
		}
		return nil
	}
}

// TestReadThatFailsForLongIsShown: whatever can't be read, the pod that waits for it shows what, and why.
func TestReadThatFailsForLongIsShown(t *testing.T) {
	t.Parallel()
	away := apierrors.NewInternalError(errors.New("no leader in etcd"))
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "apps.kruise.io", Resource: "clonesets"}, "web", errors.New("no right"))
	orphaned := func(w *world, web *kruisev1alpha1.CloneSet, _ *corev1.Pod) { w.deleteCloneSet(web) }
	none := func(*world, *kruisev1alpha1.CloneSet, *corev1.Pod) {}
	type row struct {
		reason     string
		happens    func(*world, *kruisev1alpha1.CloneSet, *corev1.Pod)
		unreadable func(runtime.Object, bool) error
		words      []string
	}
	expect.Each(t, map[string]row{
		"the workload": {"its hooks are not known", orphaned, fails[*kruisev1alpha1.CloneSet](false, away),
			[]string{"reading CloneSet shop/web: ", "no leader in etcd", "check the API server"}},
		"the workload, without the right": {"a person has to give it", orphaned, fails[*kruisev1alpha1.CloneSet](false, refused),
			[]string{"reading CloneSet shop/web: ", "no right", "grant the manager the right"}},
		"the pod": {"nothing is known of it", none, fails[*corev1.Pod](true, away), []string{"reading the pod: ", "no leader in etcd"}},
		"the node": {"it may be lost", func(w *world, _ *kruisev1alpha1.CloneSet, pod *corev1.Pod) {
			w.changePod(pod, func(p *corev1.Pod) { p.Spec.NodeName = "node-1" })
		}, fails[*corev1.Node](true, away), []string{"reading node node-1: ", "no leader in etcd"}},
		"the workloads": {"another may have the name", func(w *world, _ *kruisev1alpha1.CloneSet, _ *corev1.Pod) {
			w.r.State.Workloads.Changed()
		}, fails[*kruisev1alpha1.CloneSetList](true, away), []string{"listing workloads: ", "no leader in etcd"}},
		"whether it is gone": {"it may be there without its label", func(w *world, _ *kruisev1alpha1.CloneSet, pod *corev1.Pod) {
			w.removePod(pod)
		}, fails[*corev1.Pod](false, away), []string{"asking whether the pod is gone: ", "no leader in etcd"}},
	}, func(t *testing.T, tc row) {
		w := newWorld(t)
		web := w.cloneSet("web")
		pod := w.servingPod(web, "web-1")
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		tc.happens(w, web, pod)
		w.takeEvents()

		w.unreadable = tc.unreadable
		for range 2 {
			w.reconcileFails(pod)
			w.sleep(waiting.RolloutPatience / 2)
		}
		w.expectEvents("most failures pass by themselves")
		w.expectResult("an event may never come", w.reconcile(pod), waiting.Longest)
		waits := w.r.Waits()
		if len(waits) != 1 || waits[0].Reason != string(reason.APIServerFailed) || waits[0].Pod != pod.Name || !waits[0].Warning {
			t.Fatalf("got %+v, want the pod with %s\nreason: %s", waits, reason.APIServerFailed, tc.reason)
		}
		for _, word := range tc.words {
			if !strings.Contains(waits[0].Message, word) {
				t.Errorf("the message %q lacks %q", waits[0].Message, word)
			}
		}
		w.expectJournal("nothing is done on what is not known")
		w.sleep(waiting.Longest)
		w.reconcile(pod)
		got := w.takeEvents()
		shown := 0
		for _, e := range got {
			if strings.HasPrefix(e, "Warning APIServerFailed ") {
				shown++
			}
		}
		if shown != 1 {
			t.Errorf("got Events %q, want one of the reason", got)
		}

		w.unreadable = nil
		w.reconcile(pod)
		w.expectNotInService(pod)
	})
}

func TestReadThatFailsOfPodsThatWaitForNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.cloneSet("other", func(c *kruisev1alpha1.CloneSet) {
		c.Spec.Lifecycle, c.Spec.Template.Finalizers, c.Spec.Template.Labels = nil, nil, map[string]string{"app": "other"}
	})
	pod := w.bornPod(other, "other-1", inState(appspub.LifecycleStateNormal))
	w.deleteCloneSet(other)
	w.unreadable = fails[*kruisev1alpha1.CloneSet](false, errors.New("down"))
	w.reconcileFails(pod)
	w.sleep(waiting.RolloutPatience)
	w.reconcileFails(pod)
	w.expectWaits("Rollcall has nothing to do with it")
	w.expectEvents("nor a word to say")
}

// TestReadThatFailsOfManyPods: each pod shows it, and the API server is not flooded with Events.
func TestReadThatFailsOfManyPods(t *testing.T) {
	t.Parallel()
	const pods = 300
	w := newWorld(t)
	web := w.cloneSet("web")
	var all []*corev1.Pod
	for i := range pods {
		all = append(all, w.bornPod(web, fmt.Sprintf("web-%d", i)))
	}
	w.unreadable = fails[*kruisev1alpha1.CloneSetList](true, errors.New("down"))
	w.r.State.Workloads.Changed()
	for _, pod := range all {
		w.reconcileFails(pod)
	}
	w.sleep(waiting.RolloutPatience)
	look := func() (events int) {
		for _, pod := range all {
			w.reconcile(pod)
		}
		return len(w.takeEvents())
	}
	if n := look(); n == 0 || n > 60 {
		t.Errorf("there are %d Events in the first second, want a few", n)
	}
	if waits := w.r.Waits(); len(waits) != pods {
		t.Errorf("%d pods show why they wait, want all %d", len(waits), pods)
	}
	total := 0
	for range 15 {
		w.sleep(30 * time.Second)
		total += look()
	}
	if total < pods-60 || total > 15*31 {
		t.Errorf("there are %d more Events in the next minutes, want each pod's, and one a second at most", total)
	}
}

// TestAddressThatMayBeAnotherPods: the entry may be at an address that was not asked for, since nothing tells whose it is.
func TestAddressThatMayBeAnotherPods(t *testing.T) {
	t.Parallel()
	w := steering(t)
	pod := w.pod(w.cloneSet("web"), "web-1", inState(appspub.LifecycleStateNormal), dualStack)
	app := w.appAt(pod, otherIP)
	app.Register()
	w.reconcile(w.pod(w.cloneSet("db"), "db-1", unready))
	w.unreadable = fails[*corev1.PodList](true, errors.New("down"))
	w.reconcile(pod)
	w.expectEvents("it is not known whether it is registered", "Warning APIServerFailed the application's own entry")
	w.unreadable = nil
	w.reconcile(pod)
	w.expectEvents("it was found", "Normal Resolved APIServerFailed resolved")
	w.expectApp("", app, registry.InService)
}
