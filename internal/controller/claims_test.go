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
	"github.com/rollcall-dev/rollcall/registry"
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
	waits := w.r.notes.Of(lifecycle.PodIDOf(pod)).Shown()
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

	w.expectResult("no event tells when the name is free", w.reconcile(pod), backoffCap)
	w.expectJournal("staging never joins prod")
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", `Warning ServiceClaimed hook preNormal waits: service "web" belongs to namespace shop: its pods are registered `+
		"under it; write another name in annotation rollcall.dev/services")

	t.Log("It may go as it came.")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "it was never in", "write web-2")
	w.expectHooks("", pod, "inPlaceUpdate")
	w.expectEvents("", "Normal Resolved ServiceClaimed")

	t.Log("One that this manager knows nothing of.")
	found := w.pod(staging, "web-9", unready, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
	w.reconciles(found, "nothing is said under a name that is another's, not even that it is out")

	t.Log("The name becomes free.")
	next := w.bornPod(staging, "web-3")
	w.deleteCloneSet(prod)
	w.expectRefused(next, "ServiceClaimed")
	w.leaves(first)
	w.expectRefused(next, "ServiceClaimed")
	w.sleep(clusterstate.KeptFor)
	w.expectJoins(next)
}

func TestWorkloadThatIsMadeAgainKeepsItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.namespace("staging")
	prod := w.cloneSet("web", inNamespace("staging"))
	pod := w.servingPod(prod, "web-1")
	waits := w.bornPod(w.cloneSet("web"), "web-2")
	w.expectRefused(waits, "ServiceClaimed")

	w.deleteCloneSet(prod)
	w.expectRefused(waits, "ServiceClaimed")
	w.leaves(pod)
	w.expectRefused(waits, `ServiceClaimed service "web" belongs to namespace staging: its pods were registered`)

	w.sleep(clusterstate.KeptFor - time.Minute)
	again := w.cloneSet("web", inNamespace("staging"))
	w.expectRefused(waits, "ServiceClaimed")
	w.expectJoins(w.bornPod(again, "web-3"))
	w.sleep(2 * clusterstate.KeptFor)
	w.expectRefused(waits, "ServiceClaimed")
}

func TestNameIsLookedAtAgainWhenItIsKeptNoLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web", called("a=8080")), "web-1", annotated(service.AnnotationServices, "b=8080"))
	waits := w.bornPod(w.cloneSet("web", inNamespace("staging"), called("b=8080")), "web-2")
	w.leaves(pod)
	w.sleep(clusterstate.KeptFor - 10*time.Second)
	w.expectResult("not later than the name is free", w.reconcile(waits), 10*time.Second)
	w.sleep(10 * time.Second)
	w.expectJoins(waits)
}

func TestNameStaysWhereItIsRegistered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.namespace("staging")
	holder := w.servingPod(w.cloneSet("web", inNamespace("staging")), "web-1")
	newcomer := w.bornPod(w.cloneSet("web", inNamespace(testNamespace)), "web-2")
	w.expectRefused(newcomer, `ServiceClaimed service "web" belongs to namespace staging: its pods are registered`)

	t.Log("Out of service is registered, and so is a pod whose entry the registry has lost.")
	w.turn(holder, unready)
	w.reconcile(holder)
	w.expectRefused(newcomer, "ServiceClaimed")
	w.turn(holder, ready)
	w.expectJoins(holder)
	w.must(w.registry.Expire(w.Context(), w.instance(holder, "web", 8080)), "losing the entry")
	w.resync(Listing{})
	w.sleep(clusterstate.KeptFor)
	w.expectRefused(newcomer, "ServiceClaimed")
	w.expectJoins(holder)
}

func TestNameBeforeAnyRegistration(t *testing.T) {
	t.Parallel()
	hookless := func(web *kruisev1alpha1.CloneSet) { web.Spec.Lifecycle = nil }
	for name, tc := range map[string]struct {
		reason   string
		first    []func(*kruisev1alpha1.CloneSet)
		workload bool
		want     bool
	}{
		"the younger asks":          {"the older namespace's workload may yet have pods", nil, true, false},
		"the older has no workload": {"no other workload uses the name", nil, false, true},
		"another name":              {"no other workload uses the name", []func(*kruisev1alpha1.CloneSet){called("api=8080")}, true, true},
		"without hooks":             {"such a workload registers nothing", []func(*kruisev1alpha1.CloneSet){hookless}, true, true},
		"badly described":           {"its pods get the warning", []func(*kruisev1alpha1.CloneSet){called("web=many")}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.namespace("younger")
			if tc.workload {
				w.cloneSet("web", tc.first...)
			}
			w.reconcile(w.bornPod(w.cloneSet("web", inNamespace("younger")), "web-1"))
			if got := w.r.Waits(); (len(got) == 0) != tc.want {
				t.Errorf("waits %+v; goes on: want %t\nreason: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestOlderNamespaceIsFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		after  time.Duration // that the namespace "a" was created after the namespace "z"
		first  string
	}{
		"the age counts": {"no tenant can write it", time.Second, "z"},
		"a tie":          {"the answer is the same after a restart", 0, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pods := map[string]*corev1.Pod{}
			for namespace, after := range map[string]time.Duration{"z": 0, "a": tc.after} {
				w.namespace(namespace, func(n *corev1.Namespace) { n.CreationTimestamp.Time = testEpoch().Add(after) })
				pods[namespace] = w.bornPod(w.cloneSet("web", inNamespace(namespace)), "web-of-"+namespace)
			}
			t.Log(tc.reason)
			for namespace, pod := range pods {
				if namespace != tc.first {
					w.expectRefused(pod, "ServiceClaimed")
				}
			}
			w.expectJoins(pods[tc.first])
		})
	}
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

func TestNameAfterARestart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		lists  bool
	}{
		"a registry that was listed":               {"the list says who is registered", true},
		"a registry that can't or has yet to list": {"the record is all there is", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Log(tc.reason)
			w := newWorld(t)
			w.namespace("staging")
			holder := w.servingPod(w.cloneSet("web", inNamespace("staging")), "web-1")
			waits := w.bornPod(w.cloneSet("web"), "web-2")
			w.expectRefused(waits, "ServiceClaimed")

			w.restart()
			if tc.lists {
				w.resync(Listing{Confirms: true})
			}
			w.expectRefused(waits, `ServiceClaimed service "web" belongs to namespace staging`)
			w.expectJoins(holder)
			w.leaves(holder)
			w.sleep(clusterstate.KeptFor)
			w.expectJoins(waits)
		})
	}
}

// forgedRecord says that the pod is in service in a registry as web.
func (w *world) forgedRecord(pod *corev1.Pod, registry string) {
	w.Helper()
	record := fmt.Sprintf(`{"stamp":{"uid":%q,"timestamp":%q,"state":"PreparingNormal"},"want":"InService","instances":[`+
		`{"registry":%q,"service":"web","address":%q,"port":8080}]}`,
		pod.UID, pod.Annotations[appspub.LifecycleTimestampKey], registry, pod.Status.PodIP)
	w.turn(pod, annotated(lifecycle.AnnotationRecord, record))
	if got := w.record(pod); !got.Exists() {
		w.Fatal("the forged record is none")
	}
}

// TestNameThatAVanishedPodLeftIsFree: after a restart, the entries of a service have expired, and the registry lists one that a
// pod of an older namespace left.
func TestNameThatAVanishedPodLeftIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web", inNamespace("younger")), "web-1")
	w.must(w.registry.Expire(w.Context(), w.instance(pod, "web", 8080)), "losing the entry")
	left := registry.Instance{
		Service: "web", Address: "10.1.2.3", Port: 8080, Cluster: testCluster, Namespace: testNamespace, Pod: "gone", UID: "gone",
	}
	w.must(w.backend.Register(w.Context(), left), "leaving an entry")
	w.restart()
	w.resync(Listing{})
	w.expectJoins(pod)
}

func TestForgedRecordGivesNoName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	forger := w.bornPod(w.cloneSet("api"), "api-1", annotated(service.AnnotationServices, "web=8080"))
	w.namespace("prod")
	holder := w.servingPod(w.cloneSet("web", inNamespace("prod")), "web-2")
	w.forgedRecord(forger, "default")
	w.expectRefused(forger, `ServiceClaimed service "web" belongs to namespace prod`)

	t.Log("The next manager has heard of the registry what it holds.")
	w.restart()
	w.resync(Listing{Confirms: true})
	w.expectRefused(forger, `ServiceClaimed service "web" belongs to namespace prod`)
	w.expectJoins(holder)
}

func TestForgedRecordOfANameBeforeAnyRegistration(t *testing.T) {
	t.Parallel()
	steers := func(w *world) { w.apply(with(func(one *Registry) { one.Steerer = w.registry })) }
	for name, tc := range map[string]struct {
		reason      string
		registry    string
		with        func(*world)
		listedFirst bool
		counts      bool // until the next list
	}{
		"read before the list": {"nothing else tells what the registry has", "default", nil, false, true},
		"read after the list":  {"the list told what the registry has", "default", nil, true, false},
		"of an application, read before the list": {
			"nothing else tells what the registry has", "default/app", steers, false, true,
		},
		"of an application, read after the list": {
			"the list has no such entries, and by the next one each pod's was asked for", "default/app", steers, true, true,
		},
		"of an application where none can be steered": {"Rollcall writes no such record", "default/app", nil, false, false},
		"of another registry":                         {"there is none of that name", "elsewhere", nil, false, false},
		"of an application in another registry":       {"there is none of that name", "elsewhere/app", steers, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Log(tc.reason)
			w, pod := born(t)
			if tc.with != nil {
				tc.with(w)
			}
			forger := w.bornPod(w.cloneSet("web", inNamespace("younger")), "web-2")
			w.forgedRecord(forger, tc.registry)
			w.restart()
			if tc.listedFirst {
				w.resync(Listing{})
			}
			if tc.counts {
				w.expectRefused(pod, "ServiceClaimed")
				w.resync(Listing{})
			}
			w.expectRefused(forger, `ServiceClaimed service "web" belongs to namespace shop: a workload there uses it`)
			w.expectJoins(pod)
		})
	}
}

// TestNameOfAnApplicationAfterARestart has a pod of an older namespace wait for the name: no list shows who has it.
func TestNameOfAnApplicationAfterARestart(t *testing.T) {
	t.Parallel()
	w := steering(t)
	holder := w.bornPod(w.cloneSet("web", inNamespace("younger")), "web-1")
	w.registry.App(w.instance(holder, "web", 8080)).Register()
	w.reconcile(holder)
	w.reconcileIn(holder, appspub.LifecycleStateNormal)
	waits := w.bornPod(w.cloneSet("web"), "web-2")
	w.registry.App(w.instance(waits, "web", 8080)).Register()
	w.expectRefused(waits, "ServiceClaimed")

	w.restart()
	w.resync(Listing{Confirms: true})
	w.expectRefused(waits, `ServiceClaimed service "web" belongs to namespace younger`)
	w.reconcile(holder)
	w.resync(Listing{Confirms: true})
	w.expectRefused(waits, `ServiceClaimed service "web" belongs to namespace younger: its pods are registered`)
}

// TestRecordInARegistryThatIsGone has a registry leave the configuration before it was listed.
func TestRecordInARegistryThatIsGone(t *testing.T) {
	t.Parallel()
	for when, restarts := range map[string]bool{"while it runs": false, "before it leads": true} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			w, pod := born(t)
			w.withRegistry("old")
			holder := w.bornPod(w.cloneSet("web", inNamespace("younger")), "web-2")
			w.forgedRecord(holder, "old")
			w.restart()
			if !restarts {
				w.expectRefused(pod, "ServiceClaimed")
			}
			w.withoutRegistry("old")
			w.expectJoins(pod) // no list will ever tell what it has
		})
	}
}

// TestRecordInARegistryThatIsRenamed: the same server has another name.
func TestRecordInARegistryThatIsRenamed(t *testing.T) {
	t.Parallel()
	w, pod := born(t)
	w.withRegistry("old")
	holder := w.bornPod(w.cloneSet("web", inNamespace("younger")), "web-2")
	w.forgedRecord(holder, "old")
	w.restart()
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{"default": s.Registries["default"], "new": s.Registries["default"]}
		s.FormerNames = map[string]string{"old": "new"}
	})
	w.expectRefused(pod, "ServiceClaimed")
	w.reconcile(holder)
	w.expectRefused(pod, "ServiceClaimed")
}

func TestRegistrationThatFailedHoldsNoName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	named := annotated(service.AnnotationServices, "payments=8080")
	w.registry.Fail(fakeregistry.Match{Pod: "a-1"}, registry.Terminal(fmt.Errorf("too long a name")))
	first := w.bornPod(w.cloneSet("a"), "a-1", named)
	second := w.bornPod(w.cloneSet("b", inNamespace("other")), "b-1", named)
	w.reconcile(first)
	w.expectRefused(second, "ServiceClaimed")
	w.resync(Listing{})
	w.expectRefused(second, "ServiceClaimed") // the call may still be carried out
	w.sleep(2 * testTimeout)
	w.resync(Listing{})
	w.expectJoins(second)
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

func TestPolicy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowed("team-a", "", "api"))
	pod := w.bornPod(w.cloneSet("web", inNamespace("team-a")), "web-1")
	w.reconcile(pod)
	w.expectAbsent(pod)
	w.expectEvents("another name is given to the namespace", `Warning ServiceNotAllowed hook preNormal waits: service.allowed in the `+
		`configuration does not give service "web" to namespace team-a: write another name in annotation rollcall.dev/services, or have `+
		`an entry added to service.allowed with namespaces: ["team-a"] and names: ["web"]`)

	t.Log("A record that the tenant wrote is no way around it, for the next manager either.")
	w.forgedRecord(pod, "default")
	w.restart()
	w.expectRefused(pod, "ServiceNotAllowed")
	w.apply(allowed("team-a", "", "web"))
	w.expectJoins(pod)
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

func TestPolicyFreesANameOfANamespaceThatItRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.servingPod(w.cloneSet("web"), "web-1")
	prod := w.bornPod(w.cloneSet("web", inNamespace("prod")), "web-2")
	w.expectRefused(prod, "ServiceClaimed")
	w.apply(allowed("prod", "", "web"))
	w.expectJoins(prod)
}

func TestPolicyThatAllowsANameToTwo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, allowed("*", "", "web"))
	w.servingPod(w.cloneSet("web"), "web-1")
	pod := w.bornPod(w.cloneSet("web", inNamespace("staging")), "web-2")
	w.expectRefused(pod, "ServiceClaimed")
	w.apply(func(s *choices) { s.Services.SharedAcrossNamespaces = true })
	w.expectJoins(pod)
	w.expectRefused(w.bornPod(w.cloneSet("api"), "api-1"), "ServiceNotAllowed")
}

func TestSharedServiceName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(s *choices) { s.Services.SharedAcrossNamespaces = true })
	web, staging := w.cloneSet("web"), w.cloneSet("web", inNamespace("staging"))
	w.servingPod(web, "web-1")
	second := w.servingPod(staging, "web-2")

	t.Log("It is shared no more.")
	w.apply(func(s *choices) { s.Services.SharedAcrossNamespaces = false })
	w.reconciles(second, "whoever is registered stays")
	w.expectEvents("", `Warning ServiceClaimed service "web" belongs to namespace shop`)
	w.expectRefused(w.bornPod(staging, "web-3"), "ServiceClaimed")
	w.expectJoins(w.bornPod(web, "web-4"))
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
	if got := w.queue.take(); len(got) > 0 {
		t.Errorf("looks again at %+v, though only an annotation changed", got)
	}
	shop.Labels = map[string]string{"team": "a"}
	change()
	if got := w.queue.take(); len(got) != 1 || got[0].Request.Name != "web-1" {
		t.Errorf("looks again at %+v, want the namespace's pod", got)
	}
	w.expectJoins(pod)
}

func TestNamespaceThatTheCacheHasNotSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: testNamespace}}
	w.must(w.api.Delete(t.Context(), shop), "hiding the namespace")
	w.restart()
	pod := w.bornPod(web, "web-1")
	w.expectResult("it is on its way", w.reconcile(pod), staleRecheck)
	w.expectEvents("no person has to look")
	w.queue.take()
	w.namespace(testNamespace)
	if got := w.queue.take(); len(got) != 1 || got[0].Request.Name != "web-1" {
		t.Errorf("looks again at %+v, want the namespace's pod", got)
	}
	w.expectJoins(pod)
}

// TestNameOfAWorkloadToEnroll: a name is asked for before any pod of the workload needs it.
func TestNameOfAWorkloadToEnroll(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.servingPod(w.cloneSet("web"), "web-1")
	for name, c := range map[string]struct {
		reason, services, want string
		edit                   func(*kruisev1alpha1.CloneSet)
	}{
		"free":      {reason: "no pod has it", services: "api=80", edit: inNamespace("staging")},
		"its own":   {reason: "pods of the namespace have it", services: "web=80", edit: func(*kruisev1alpha1.CloneSet) {}},
		"another's": {reason: "its pods would wait", services: "api=80,web=80", edit: inNamespace("staging"), want: "ServiceClaimed"},
	} {
		set := w.cloneSet("new-"+name, c.edit, called(c.services))
		refused, err := w.r.NameRefused(t.Context(), clusterstate.AsWorkload(set))
		w.must(err, "asking for the names")
		if got := nameRefused(refused).Reason; string(got) != c.want {
			t.Errorf("%s: %s: refused for %q, want %q", name, c.reason, got, c.want)
		}
	}
}

func TestClaimsForget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	for i := range 3 {
		w.leaves(w.servingPod(web, fmt.Sprintf("web-%d", i)))
	}
	w.sleep(clusterstate.KeptFor)
	w.apply(func(*choices) {})
	w.must(w.r.State.Workloads.Refresh(t.Context(), &w.r.settings.Load().Rules, nil, w.clock.Now()), "reading the workloads")
	if pods, names := w.r.State.Claims.Size(); pods+names > 0 {
		t.Errorf("remembers %d pods and %d names, want none", pods, names)
	}
}
