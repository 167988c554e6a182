package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	armed     = "preNormal inPlaceUpdate preDelete"
	otherIP   = "fd00::1"
	nodeIP    = "192.0.2.1"
	otherIn   = "AppRegister web@[fd00::1]:8080"
	otherOut  = "AppFailOver web@[fd00::1]:8080"
	askedNext = "AppGet web@[fd00::1]:8080"
)

// dualStack gives a pod a second address.
func dualStack(pod *corev1.Pod) {
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}, {IP: otherIP}}
}

// portOnNode gives a pod the service's port at its node's address.
func portOnNode(pod *corev1.Pod) {
	pod.Spec.Containers[0].Ports = append(pod.Spec.Containers[0].Ports, corev1.ContainerPort{Name: "node", ContainerPort: 8080, HostPort: 8080})
	pod.Status.HostIP = nodeIP
}

// appAt is the application of a pod that registers at another address than the pod's.
func (w *world) appAt(pod *corev1.Pod, address string) fakeregistry.App {
	in := w.instance(pod, "web", 8080)
	in.Address = address
	return w.registry.App(in)
}

// unseenApp is a world with a pod in Normal that is ready, and whose application's entry is nowhere that Rollcall looks.
func unseenApp(t *testing.T, change ...func(*choices)) (*world, *corev1.Pod) {
	t.Helper()
	w := steering(t, change...)
	pod := w.pod(w.cloneSet("web"), "web-1", inState(appspub.LifecycleStateNormal))
	w.reconcile(pod)
	w.expectEvents("it is shown before anything waits", "Warning AppNotRegistered the application's own entry")
	return w, pod
}

func TestAppEntryThatNobodySawGoesByTheFailurePolicy(t *testing.T) {
	t.Parallel()
	w, pod := unseenApp(t, proceeds)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectHooks("the deadline is not over", pod, "inPlaceUpdate preDelete")
	w.sleep(time.Minute)
	w.takeEvents()
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
	w.expectEvents("each release has an Event", "Warning ReleasedUnacknowledged hook preDelete was released after 1m0s")
}

// TestAppEntryThatIsMissingWhileThePodGoes: what keeps the pod is that no one ever saw an entry, and nothing else. What
// one process sees of it has rows in visit.
func TestAppEntryThatIsMissingWhileThePodGoes(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		begin  func(t *testing.T) (*world, *corev1.Pod)
		waits  bool
	}
	expect.Each(t, map[string]row{
		"it has deregistered itself, and another manager leads": {"the record says that it was seen", func(t *testing.T) (*world, *corev1.Pod) {
			w, pod, app := servingApp(t)
			app.Deregister()
			w.restart()
			return w, pod
		}, false},
		"it was out when another manager came to lead": {"the record of that says so too", func(t *testing.T) (*world, *corev1.Pod) {
			w, pod, app := servingApp(t)
			w.reconcileIn(pod, appspub.LifecycleStateNormal, unready)
			app.Deregister()
			w.restart()
			return w, pod
		}, false},
		"one of its two services": {"the other may be at another port", func(t *testing.T) (*world, *corev1.Pod) {
			w := steering(t)
			pod := w.pod(w.cloneSet("web"), "web-1", inState(appspub.LifecycleStateNormal), annotated(service.AnnotationServices, "web=8080,admin=9090"))
			w.registry.App(w.instance(pod, "admin", 9090)).Register()
			w.reconcile(pod)
			w.restart() // the record names both
			return w, pod
		}, true},
		"Rollcall had registered the pod": {"that was its entry", func(t *testing.T) (*world, *corev1.Pod) {
			w := steering(t, func(s *choices) { s.RegisteredByApp = nil })
			pod := w.servingPod(w.cloneSet("web"), "web-1")
			w.apply(func(s *choices) { s.RegisteredByApp = map[string]bool{"default": true} })
			w.reconcile(pod)
			return w, pod
		}, false},
		"it never was ready, and got another address": {"it was seen at the former one", func(t *testing.T) (*world, *corev1.Pod) {
			w, pod, app := servingApp(t)
			app.Deregister()
			w.changePod(pod, unready, func(pod *corev1.Pod) { pod.Status.PodIP = "10.0.0.9" })
			w.reconcile(pod)
			return w, pod
		}, false},
	}, func(t *testing.T, tc row) {
		w, pod := tc.begin(t)
		w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
		for range 3 {
			w.reconcile(pod)
			w.sleep(visit.AppRecheck)
		}
		if waits := strings.Contains(w.hooks(pod), "preDelete"); waits != tc.waits {
			t.Errorf("it waits: %t, want %t: %s\nhooks %s, events %q", waits, tc.waits, tc.reason, w.hooks(pod), w.takeEvents())
		}
	})
}

func TestAppEntryAtAnotherAddressOfThePod(t *testing.T) {
	t.Parallel()
	w := steering(t, draining15s)
	pod := w.bornPod(w.cloneSet("web"), "web-1", dualStack)
	app := w.appAt(pod, otherIP)
	app.Register()
	w.reconciles(pod, "it is looked for where the pod is reached too", appIn+failed, appAsked, askedNext, otherIn, writes)
	w.expectHooks("", pod, armed)
	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	w.expectEvents("nothing needs a person")
	w.takeJournal()
	w.reconciles(pod, "it is known by now")

	t.Log("The next manager looks first where the record has it.")
	w.restart()
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectResult("", w.reconcile(pod), 15*time.Second)
	w.expectJournal("it may have moved since", otherOut, askedNext, writes)
	w.expectApp("", app, registry.OutOfService)
	w.sleep(10 * time.Second)
	app.PutBack()
	w.watches("it is watched there", pod)
	w.expectResult("", w.reconcile(pod), 15*time.Second)
	w.sleep(15 * time.Second)
	w.reconcile(pod)
	w.expectHooks("", pod, "preDelete")

	t.Log("The new version registers at the pod's first address.")
	app.Deregister()
	first := w.appAt(pod, pod.Status.PodIP)
	first.Register()
	w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
	w.reconcileIn(pod, appspub.LifecycleStateUpdated, ready)
	w.expectHooks("", pod, armed)
	w.reconcileIn(pod, appspub.LifecycleStateNormal)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectApp("", first, registry.OutOfService)
	w.sleep(15 * time.Second)
	w.reconcile(pod)
	w.expectHooks("", pod, "inPlaceUpdate")
}

// TestAppEntryThatComesAtAnotherAddressIsTakenOut: the pod is out of rotation, and nothing was found where its application is expected.
func TestAppEntryThatComesAtAnotherAddressIsTakenOut(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		out    func(w *world, pod *corev1.Pod, app fakeregistry.App)
	}
	expect.Each(t, map[string]row{
		"the new version registers there, before it is ready": {"it waits for row 6 as any other", func(w *world, pod *corev1.Pod, app fakeregistry.App) {
			w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
			w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
			app.Deregister()
		}},
		"the pod got other addresses while it was not ready": {"an entry was found at the former one", func(w *world, pod *corev1.Pod, app fakeregistry.App) {
			app.Deregister()
			w.changePod(pod, unready, func(pod *corev1.Pod) { pod.Status.PodIP = "10.0.0.9" })
			w.reconcile(pod)
		}},
	}, func(t *testing.T, tc row) {
		w := steering(t, func(c *choices) { c.PanicThreshold = 100 }) // it is the only pod
		pod := w.bornPod(w.cloneSet("web"), "web-1", dualStack)
		app := w.appAt(pod, pod.Status.PodIP)
		app.Register()
		w.reconcile(pod)
		w.reconcileIn(pod, appspub.LifecycleStateNormal)
		tc.out(w, pod, app)
		other := w.appAt(pod, otherIP)
		other.Register()
		w.watchesAll()
		w.expectDoubtful("its application may have registered elsewhere", pod)
		w.reconcile(pod)
		w.expectApp(tc.reason, other, registry.OutOfService)
		w.watchesAll()
		other.PutBack()
		w.watches("it is watched there from then on", pod)
	})
}

// TestAppEntryThatMovesToWhereNoneWasFound: the pod's first address was asked for it before, in vain.
func TestAppEntryThatMovesToWhereNoneWasFound(t *testing.T) {
	t.Parallel()
	w := steering(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", dualStack)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	other := w.appAt(pod, otherIP)
	other.Register()
	w.reconcile(pod)
	w.expectApp("", other, registry.OutOfService)
	other.Deregister()
	first := w.appAt(pod, pod.Status.PodIP)
	first.Register()
	w.watchesAll()
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectApp("that there was none is no acknowledgement any more", first, registry.OutOfService)
}

// TestAppEntryThatMovesIsOne: where the pod leaves, there is none any more.
func TestAppEntryThatMovesIsOne(t *testing.T) {
	t.Parallel()
	w := steering(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", dualStack)
	first, other := w.appAt(pod, pod.Status.PodIP), w.appAt(pod, otherIP)
	first.Register()
	w.reconcile(pod)
	w.reconcileIn(pod, appspub.LifecycleStatePreparingUpdate)
	first.Deregister()
	other.Register()
	w.watchesAll()
	at := registry.Instance{Service: "web", Address: otherIP, Port: 8080}
	w.r.Tracker.Compare(Listing{
		Registry: "default", Asked: w.clock.Now(), Foreign: []registry.Entry{{Instance: at, State: registry.Foreign}},
	})
	w.reconcileIn(pod, appspub.LifecycleStateUpdated)
	w.reconcile(pod)
	w.expectApp("", other, registry.InService)
	w.expectEvents("the application has one entry, at the pod's other address")
}

// TestPodThatOnlyItsApplicationHasRegisteredIsNotLetGo: Rollcall registers it and never did, and the list shows who else has.
func TestPodThatOnlyItsApplicationHasRegisteredIsNotLetGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	at := registry.Instance{Service: "web", Address: pod.Status.PodIP, Port: 8080}
	w.resync(Listing{Foreign: []registry.Entry{{Instance: at, State: registry.Foreign}}})
	w.reconcile(pod)
	w.expectHooks("clients are given it", pod, "inPlaceUpdate preDelete")
	w.expectWaits("", Wait{Hook: "preDelete", Reason: "AlsoRegistersItself", Since: testEpoch().Add(time.Second)})
	w.resync(Listing{})
	w.reconcile(pod)
	w.expectHooks("the application's entry has gone", pod, "inPlaceUpdate")
}

func TestAppEntryThatMayBeAnotherPodsIsNotTaken(t *testing.T) {
	t.Parallel()
	w := steering(t)
	pod := w.pod(w.cloneSet("web"), "web-1", portOnNode, inState(appspub.LifecycleStatePreparingDelete))
	w.pod(w.cloneSet("web-2"), "web-2", portOnNode, annotated(service.AnnotationServices, "web=8080"))
	app := w.appAt(pod, nodeIP)
	app.Register()
	w.reconcile(pod)
	w.expectApp("both pods are reached there, if nodes share an address", app, registry.InService)
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
}

func TestDryRunTellsWhichEntriesNobodySaw(t *testing.T) {
	t.Parallel()
	w := newDryRun(t)
	w.apply(func(s *choices) {
		reg := s.Registries["default"]
		reg.Steerer = w.registry
		s.Registries = map[string]Registry{"default": reg}
		s.RegisteredByApp = map[string]bool{"default": true}
	})
	web := w.cloneSet("web")
	lost, found := w.pod(web, "web-1", inState(appspub.LifecycleStateNormal)), w.pod(web, "web-2", inState(appspub.LifecycleStateNormal))
	w.registry.App(w.instance(found, "web", 8080)).Register()
	w.reconcile(found)
	w.expectEvents("it would be steered")
	w.reconcile(lost)
	w.expectEvents("nobody is to meet it first at a scale-in", `Warning AppNotRegistered the application's own entry of service "web" at 10.0.0.1:8080`)
}

func TestWorkloadIsToldOfEntriesThatNobodySaw(t *testing.T) {
	t.Parallel()
	w, pod := unseenApp(t)
	w.sleep(waiting.RolloutPatience)
	w.reconcile(pod)
	w.expectEvents("where a person looks who has just enrolled it", "Warning AppNotRegistered pod web-1: the application's own entry")
	w.sleep(waiting.RolloutPatience)
	w.reconcile(pod)
	w.expectEvents("once is enough")

	t.Log("OpenKruise comes to wait for it.")
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.takeEvents()
	w.sleep(waiting.RolloutPatience)
	w.reconcile(pod)
	w.expectEvents("that is another matter", "Warning RolloutWaits pod web-1")
}

// TestAppEntryThatWasOnlyFoundIsLeft: the configuration leaves the entries to Rollcall before any change was made for it.
func TestAppEntryThatWasOnlyFoundIsLeft(t *testing.T) {
	t.Parallel()
	w := steering(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1", dualStack, annotated(service.AnnotationServices, "web=8080,admin=9090"))
	in := w.instance(pod, "admin", 9090)
	in.Address = otherIP
	admin := w.registry.App(in)
	admin.Register()
	w.appAt(pod, otherIP).Register()
	w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpAppGet, Service: "admin"}, errors.New("down"))
	w.reconcile(pod)
	w.apply(func(s *choices) { s.RegisteredByApp = nil })
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectApp("its application had it in rotation", admin, registry.OutOfService)
}
