package controller

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

func inNamespace(namespace string) func(*kruisev1alpha1.CloneSet) {
	return func(web *kruisev1alpha1.CloneSet) { web.Namespace = namespace }
}

func called(services string) func(*kruisev1alpha1.CloneSet) {
	return func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Template.Annotations = map[string]string{service.AnnotationServices: services}
	}
}

// leaves has Kruise scale in a pod that the registry knows, to the end.
func (w *world) leaves(pod *corev1.Pod) {
	w.Helper()
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectAbsent(pod)
	w.removePod(pod)
	w.reconcile(pod)
}

// expectRefused: the pod waits, for a reason that begins like this, and the registry has not heard of it.
func (w *world) expectRefused(pod *corev1.Pod, warning string) {
	w.Helper()
	w.takeEvents()
	w.takeJournal()
	w.reconcile(pod)
	w.expectAbsent(pod)
	waits := w.r.memory.Of(lifecycle.PodIDOf(lifecycle.PodOf(pod))).Shown()
	if got := fmt.Sprintf("%s %s", waits.Reason, waits.Message); !strings.HasPrefix(got, warning) {
		w.Fatalf("%s waits for %q, want what begins with %q", pod.Name, got, warning)
	}
}

// expectJoins: the pod goes in service when it is looked at.
func (w *world) expectJoins(pod *corev1.Pod) {
	w.Helper()
	w.reconcile(pod)
	w.expectInService(pod)
}

func TestServiceNameBelongsToOneNamespace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	prod := w.cloneSet("web")
	staging := w.cloneSet("web", inNamespace("staging"))
	first := w.servingPod(prod, "web-1")
	pod := w.bornPod(staging, "web-2")

	w.expectResult("no event tells when the name is free", w.reconcile(pod), waiting.Longest)
	w.expectJournal("staging never joins prod")
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", `Warning ServiceNotAllowed hook preNormal waits: service "web" belongs to namespace shop: its pods are registered `+
		"under it; set another name in annotation rollcall.dev/services")

	t.Log("It may go as it came.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "it was never in", "write web-2")
	w.expectHooks("", pod, "inPlaceUpdate")
	w.expectEvents("", "Normal Resolved ServiceNotAllowed")

	t.Log("One that this manager knows nothing of.")
	found := w.pod(staging, "web-9", unready, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
	w.reconciles(found, "nothing is said under a name that is another's, not even that it is out")

	t.Log("The name becomes free.")
	next := w.bornPod(staging, "web-3")
	w.deleteCloneSet(prod)
	w.expectRefused(next, "ServiceNotAllowed")
	w.leaves(first)
	w.sleep(clusterstate.KeptFor - time.Second)
	w.expectResult("not later than the name is free", w.reconcile(next), time.Second)
	w.sleep(time.Second)
	w.expectJoins(next)
}

// TestWarningOutlastsAnUpdate: the pod waits for something else meanwhile, and what was wrong with its description still is.
func TestWarningOutlastsAnUpdate(t *testing.T) {
	t.Parallel()
	update := []appspub.LifecycleStateType{appspub.LifecycleStatePreparingUpdate, appspub.LifecycleStateUpdating, appspub.LifecycleStateUpdated}
	t.Run("of a pod that was never in rotation", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		prod := w.cloneSet("web")
		first, pod := w.servingPod(prod, "web-1"), w.bornPod(w.cloneSet("web", inNamespace("staging")), "web-2")
		w.expectRefused(pod, "ServiceNotAllowed")
		for _, state := range update {
			w.takeEvents()
			w.reconcileIn(pod, state, unready)
			w.expectEvents("the name is still another's")
		}
		w.turn(pod, ready)
		w.reconcile(pod)
		w.expectEvents("another hook waits for it now", `Warning ServiceNotAllowed hook inPlaceUpdate waits: service "web" belongs to namespace shop`)

		w.deleteCloneSet(prod)
		w.leaves(first)
		w.sleep(clusterstate.KeptFor)
		w.takeEvents()
		w.expectJoins(pod)
		w.expectEvents("it joins", "Normal Resolved ServiceNotAllowed resolved")
	})
	t.Run("of a pod in rotation", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		pod := w.servingPod(w.cloneSet("web"), "web-1", annotated("rollcall.dev/drian", "5s"))
		w.reconcile(pod)
		w.takeEvents()
		for _, state := range update {
			w.reconcileIn(pod, state, unready)
		}
		w.turn(pod, ready)
		w.reconcileIn(pod, appspub.LifecycleStateNormal)
		w.expectEvents("the annotation is as it was")
		w.turn(pod, func(p *corev1.Pod) { delete(p.Annotations, "rollcall.dev/drian") })
		w.reconcile(pod)
		w.expectEvents("it is corrected", "Normal Resolved InvalidPod resolved")
	})
}

func TestTwoNamespacesAtTheSameMoment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	named := annotated(service.AnnotationServices, "payments=8080")
	another := annotated(service.AnnotationServices, "Payments=8080") // Eureka's clients take both for one
	a, b := w.bornPod(w.cloneSet("a"), "a-1", named), w.bornPod(w.cloneSet("b", inNamespace("other")), "b-1", another)

	t.Log("The second asks while the first's Register is under way.")
	register := w.registry.Hold(fakeregistry.Match{Pod: "a-1"})
	var both sync.WaitGroup
	both.Go(func() { w.reconcile(a) })
	w.must(register.AwaitReached(w.Context(), 1), "waiting for the call")
	w.reconcile(b)
	register.Release()
	both.Wait()
	w.expectInService(a)
	w.expectAbsent(b)
}

// TestTakingAPodOutGivesNoRightToAName: it was never registered under it, which the next leader knows by the record.
func TestTakingAPodOutGivesNoRightToAName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	starts := w.startingPods(w.cloneSet("web", inNamespace("staging")), 1)
	w.anotherLeads(starts)
	if !w.record(starts[0]).Exists() {
		t.Fatal("it was not taken out")
	}
	w.anotherLeads(starts)
	w.expectJoins(w.bornPod(w.cloneSet("web"), "web-1"))
	w.turn(starts[0], ready)
	w.expectRefused(starts[0], `ServiceNotAllowed service "web" belongs to namespace shop`)
}

func allowed(namespaces, selector, names string) func(*choices) {
	return func(s *choices) {
		a := service.Allowance{}
		for pattern := range strings.FieldsSeq(namespaces) {
			a.Namespaces = append(a.Namespaces, service.NamespacePattern(pattern))
		}
		for pattern := range strings.FieldsSeq(names) {
			a.Names = append(a.Names, service.NamePattern(pattern))
		}
		if selector != "" {
			a.Selector = labels.SelectorFromSet(labels.Set{"team": selector})
		}
		s.Services.Allowed = append(s.Services.Allowed, a)
	}
}

func TestPolicyTakesNoPodOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *choices) { s.PanicThreshold = 100 })
	web := w.cloneSet("web")
	pod := w.servingPod(web, "web-1")
	w.apply(allowed("prod", "", "web"))
	w.restart()
	w.resync(Listing{Confirms: true})
	w.reconciles(pod, "it is registered under the name already")
	w.expectEvents("", `Warning ServiceNotAllowed service.allowed in the configuration does not give service "web" to namespace shop`)
	w.expectRefused(w.bornPod(web, "web-2"), "ServiceNotAllowed")

	t.Log("It goes its way as ever.")
	w.turn(pod, unready)
	w.reconcile(pod)
	w.expectNotInService(pod)
	w.turn(pod, ready)
	w.expectJoins(pod)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectNotInService(pod)
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.expectJoins(pod)
	w.turn(pod, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.99" })
	w.expectJoins(pod)
	w.turn(pod, func(p *corev1.Pod) { p.Annotations[service.AnnotationServices] = "Web=8080" })
	w.takeJournal()
	w.reconciles(pod, "in another case it is the same name", "Register Web@10.0.0.99:8080", "Deregister web@10.0.0.99:8080", writes)
	w.leaves(pod)
	w.expectRefused(w.bornPod(web, "web-3"), "ServiceNotAllowed")
}

func TestLabelOfANamespaceChanges(t *testing.T) {
	t.Parallel()
	w, pod := born(t, allowed("", "a", "web"))
	w.expectRefused(pod, "ServiceNotAllowed")
	w.queue.take()

	shop := &corev1.Namespace{}
	w.must(w.api.Get(t.Context(), client.ObjectKey{Name: testNamespace}, shop), "reading the namespace")
	before := metadataOf(shop)
	change := func() {
		w.must(w.api.Update(t.Context(), shop), "labelling the namespace")
		w.r.namespaceEvents().Update(t.Context(), event.TypedUpdateEvent[*metav1.PartialObjectMetadata]{
			ObjectOld: before, ObjectNew: metadataOf(shop),
		}, w.queue)
	}
	shop.Annotations = map[string]string{"team": "a"}
	change()
	w.expectAsked("only an annotation changed")
	shop.Labels = map[string]string{"team": "a"}
	change()
	w.expectAsked("the namespace's pod", "web-1")
	w.expectJoins(pod)

	t.Log("Where labels decide which names are shared, its pods may count with those of others now.")
	w.bornPod(w.cloneSet("web", inNamespace("staging")), "staging-1")
	w.apply(func(s *choices) { s.Services.Allowed[0].Shared = true })
	w.queue.take()
	shop.Labels = map[string]string{"team": "b"}
	change()
	w.expectAsked("the pods of all namespaces", "staging-1", "web-1")
}
