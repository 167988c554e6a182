package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/visit"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// The calls for the application's own entry, as they stand in the journal.
const (
	appIn    = "AppRegister web@10.0.0.1:8080"
	appOut   = "AppFailOver web@10.0.0.1:8080"
	appLeave = "AppDeregister web@10.0.0.1:8080"
	appAsked = "AppGet web@10.0.0.1:8080"
)

// steering is a world in which applications register themselves.
func steering(t *testing.T, change ...func(*choices)) *world {
	t.Helper()
	w := newWorld(t)
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{"default": {Calls: w.registry, Steerer: w.registry}}
		s.RegisteredByApp = map[string]bool{"default": true}
		for _, c := range change {
			c(s)
		}
	})
	return w
}

// servingApp is a world with a pod in Normal whose application has registered itself.
func servingApp(t *testing.T, change ...func(*choices)) (*world, *corev1.Pod, fakeregistry.App) {
	t.Helper()
	w := steering(t, change...)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	app := w.registry.App(w.instance(pod, "web", 8080))
	app.Register()
	w.reconciles(pod, "it is found in rotation, and let go", appIn, writes)
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconciles(pod, "")
	w.takeEvents()
	return w, pod, app
}

func (w *world) expectApp(why string, app fakeregistry.App, want registry.State) {
	w.Helper()
	if got := app.State(); got != want {
		w.Fatalf("the application's entry is %s, want %s\nwhy: %s", got, want, why)
	}
}

// watches asks the registry for all applications' entries, as resync does, and looks at the pods that it names.
func (w *world) watches(why string, want ...*corev1.Pod) {
	w.Helper()
	w.watchesAll()
	w.expectLosers(why, want...)
}

// watchesAll is watches, whichever pods it names, by each name of the registry.
func (w *world) watchesAll() {
	w.Helper()
	for name, reg := range w.settings.Registries {
		if reg.Steerer != w.registry {
			continue
		}
		for _, one := range append(w.r.Tracker.Steered(name, true), w.r.Tracker.Steered(name, false)...) {
			state, err := w.registry.AppEntries().Get(w.Context(), one)
			w.must(err, "asking for "+one.Endpoint())
			w.r.Tracker.Answered(tracker.Target{Registry: name, Writer: lifecycle.Application, Instance: one}, state, w.clock.Now())
		}
	}
	w.takeJournal()
}

func TestAppEntryAtAFormerAddressIsAnothers(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
	w.reconcile(pod)
	w.expectApp("no client is to be sent to an address that is free", app, registry.OutOfService)
	app.PutBack()
	w.watches("an application that Rollcall does not know has registered itself there")
	w.reconcile(pod)
	w.expectApp("its entry is not this pod's", app, registry.InService)
}

// TestAppEntryAtAFormerPortOfTheNode: pods of the host's network share an address, and no mark says whose entry is whose.
func TestAppEntryAtAFormerPortOfTheNode(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		leaves func(w *world, pod *corev1.Pod, app fakeregistry.App)
	}
	expect.Each(t, map[string]row{
		"the pod has moved to another port": {"another pod has the former one by now", func(w *world, pod *corev1.Pod, app fakeregistry.App) {
			w.registry.App(w.instance(pod, "web", 9090)).Register()
			app.Deregister()
			w.changePod(pod, annotated(service.AnnotationServices, "web=9090"))
			w.reconciles(pod, "it joins, and leaves", "AppRegister web@10.0.0.1:9090", appLeave, writes)
		}},
		"a tenant has forged the record": {"the pod never had that port", func(w *world, pod *corev1.Pod, app fakeregistry.App) {
			w.registry.App(w.instance(pod, "own", 9090)).Register()
			app.Deregister()
			w.changePod(pod, annotated(service.AnnotationServices, "own=9090"))
			w.reconcile(pod)
			w.restart()
			forged := w.record(pod)
			victim := forged.Instances[0]
			victim.Service, victim.Port = "web", 8080
			forged.Instances = append(forged.Instances, victim)
			w.writeRecord(pod, forged)
		}},
	}, func(t *testing.T, tc row) {
		w, pod, app := servingApp(t)
		tc.leaves(w, pod, app)
		w.addresses = 0
		other := w.bornPod(w.cloneSet("web-2"), "web-2", annotated(service.AnnotationServices, "web=8080"))
		app.Register()
		w.reconcile(other)
		w.reconcileIn(other, appspub.LifecycleStateNormal)
		w.reconcile(pod)
		w.takeEvents()
		for range 2 {
			w.sleep(visit.AppRecheck)
			w.watchesAll()
			w.r.Tracker.TakeDoubted()
			w.reconcile(pod)
			w.expectApp(tc.reason, app, registry.InService)
		}
		w.watches("it is asked for no more on behalf of the first pod")
		w.expectEvents("nothing came back")
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		w.expectHooks("nothing of its own is left", pod, "inPlaceUpdate")
		w.expectApp(tc.reason, app, registry.InService)
	})
}

func TestAppEntryOfAPodWhoseDescriptionDoesNotTellIsTakenOut(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	w.addresses = 0
	w.bornPod(w.cloneSet("web-2"), "web-2", annotated(service.AnnotationServices, "web=8080"))
	w.changePod(pod, annotated(service.AnnotationServices, "?"))
	w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
	w.expectApp("that another pod names its place on the node does not make the entry that one's", app, registry.OutOfService)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestAppEntryThroughAnUpdateInPlace(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t, draining15s)

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.expectResult("clients have time to notice", w.reconcile(pod), 15*time.Second)
	w.expectJournal("taken out, and nothing is written of its own", appOut, writes)
	w.expectApp("", app, registry.OutOfService)
	w.sleep(15 * time.Second)
	w.reconciles(pod, "", writes)
	w.expectHooks("the drain has passed", pod, "preDelete")

	t.Log("The next manager goes on. The container restarts: the application ends and registers anew.")
	w.restart()
	w.reconcileIn(pod, appspub.LifecycleStateUpdating, unready)
	app.Deregister()
	app.Register()
	w.takeJournal()
	w.reconcileIn(pod, appspub.LifecycleStateUpdated, unready)
	w.expectJournal("it is out already")
	w.changePod(pod, ready)
	w.reconciles(pod, "back, and only then may OpenKruise go on", appIn, writes)
	w.expectApp("", app, registry.InService)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
	w.expectEvents("nothing needs a person")
	if n := len(w.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister})); n > 0 {
		t.Errorf("%d entries were made beside the application's own", n)
	}
}

func TestAppThatHasNotRegisteredKeepsThePodWaiting(t *testing.T) {
	t.Parallel()
	w := steering(t)
	since := metav1.NewTime(w.clock.Now())
	pod := w.bornPod(w.cloneSet("web"), "web-1", func(pod *corev1.Pod) { pod.Status.Conditions[0].LastTransitionTime = since })
	app := w.registry.App(w.instance(pod, "web", 8080))

	w.expectResult("it starts, and is looked for again", w.reconcile(pod), backoffBase)
	w.expectJournal("", appIn+failed)
	w.expectEvents("that is part of any start")
	w.expectWaits("and yet it shows", Wait{Hook: "preNormal", Reason: "AppNotRegistered", Since: w.clock.Now()})
	w.expectHooks("", pod, "inPlaceUpdate preDelete")

	w.sleep(visit.AppStarts)
	for range 10 {
		w.reconcile(pod)
	}
	w.expectResult("an application that comes is found soon, however late", w.reconcile(pod), visit.AppRecheck)
	w.expectEvents("what was looked for and where",
		`Warning AppNotRegistered hook preNormal waits: the application's own entry of service "web" at 10.0.0.1:8080: no application has`)
	w.takeJournal()

	app.Register()
	w.reconciles(pod, "", appIn, writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
	w.expectEvents("", "Normal Resolved AppNotRegistered")
}

func TestAppThatNeverRegistersHoldsNoName(t *testing.T) {
	t.Parallel()
	w := steering(t)
	waits := w.bornPod(w.cloneSet("web", inNamespace("staging")), "web-1")
	w.reconciles(waits, "", appIn+failed)

	t.Log("A workload of an older namespace uses the name.")
	pod := w.bornPod(w.cloneSet("web"), "web-2")
	app := w.registry.App(w.instance(pod, "web", 8080))
	app.Register()
	w.reconcile(pod)
	w.expectHooks("its application has registered, and the other pod's has not", pod, "preNormal inPlaceUpdate preDelete")
	w.expectRefused(waits, "ServiceNotAllowed")
}

// TestAppEntriesThatAreNotAsExpected: each has a reason of its own, by what the registry's list has or its agent says.
func TestAppEntriesThatAreNotAsExpected(t *testing.T) {
	t.Parallel()
	listed := func(names ...string) func(*world, *corev1.Pod) {
		return func(w *world, pod *corev1.Pod) {
			var foreign []registry.Entry
			for _, name := range names {
				at := registry.Instance{Service: name, Address: pod.Status.PodIP, Port: 8080}
				foreign = append(foreign, registry.Entry{Instance: at, State: registry.Foreign})
			}
			w.r.Tracker.Compare(tracker.Listing{
				Registry: "default", Asked: w.clock.Now(), Foreign: foreign,
			})
		}
	}
	elsewhere := func(w *world, pod *corev1.Pod) {
		pod.Status.PodIP, pod.Status.PodIPs = "fd00::1", []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
		listed("web")(w, pod)
		w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIPs = pod.Status.PodIPs })
	}
	fails := func(err error) func(*world, *corev1.Pod) {
		return func(w *world, _ *corev1.Pod) {
			w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpAppRegister, Service: "web"}, err, err)
		}
	}
	away := registry.OfAgent(registry.RetryAfter(errors.New("the agent of node n1 is away"), 0))
	const asserted, waits = "preNormal inPlaceUpdate preDelete", "inPlaceUpdate preDelete"
	type row struct {
		reason      string
		with        func(*world, *corev1.Pod)
		hooks, want string
	}
	expect.Each(t, map[string]row{
		"another name, by the list": {
			"it costs no call", listed("web-v2"), waits, `Warning AppNotRegistered hook preNormal waits: the application's own entry of service "web"`,
		},
		"the pod's other name": {
			"the application has two, and the one is late", listed("admin"), waits, "",
		},
		"two entries, by the list": {
			"the driver's calls see one place", listed("web", "web"), asserted, "Warning OtherWriter",
		},
		"two addresses, by the list": {
			"clients are given the other whatever is done to the one", elsewhere, asserted,
			`Warning OtherWriter the application's own entry of service "web" at 10.0.0.1:8080: the application has an entry at [fd00::1]:8080 too`,
		},
		"once, by the list": {"all is as it should be", listed("web"), asserted, ""},
		"the agent is away": {
			"the registry is up, and a person has to look elsewhere", fails(away), waits, "Warning RegistryUnavailable hook preNormal waits: ",
		},
		"the agent refuses the token": {
			"the token reads the catalog, and may not write at the agent", fails(registry.OfAgent(registry.Terminal(errors.New("403")))), waits, "Warning RegistryRefused hook preNormal waits: ",
		},
	}, func(t *testing.T, tc row) {
		w := steering(t)
		pod := w.bornPod(w.cloneSet("web"), "web-1", annotated(service.AnnotationServices, "web=8080,admin=9090"))
		w.registry.App(w.instance(pod, "admin", 9090)).Register()
		if tc.hooks == asserted {
			w.registry.App(w.instance(pod, "web", 8080)).Register()
			w.reconcile(pod)
		} else {
			w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpAppRegister, Service: "web"}, registry.NotRegistered(errors.New("yet")))
			w.reconcile(pod)
			w.expectEvents("it has looked already", "Warning AppNotRegistered")
		}
		tc.with(w, pod)
		w.reconcile(pod)
		w.reconcile(pod)
		w.expectHooks(tc.reason, pod, tc.hooks)
		if tc.want == "" {
			w.expectEvents(tc.reason)
			return
		}
		w.expectEvents(tc.reason, tc.want)
	})
}

func TestAppEntryOfAPodThatMayNotHaveItsNameIsTakenOut(t *testing.T) {
	t.Parallel()
	w := steering(t)
	w.namespace("older", func(n *corev1.Namespace) { n.CreationTimestamp.Time = testEpoch().Add(-time.Hour) })
	w.cloneSet("web", inNamespace("older"), called("taken=8080"))
	web := w.cloneSet("web", called("taken=8080"))
	pod := w.pod(web, "web-1", inState(appspub.LifecycleStatePreparingDelete))
	app := w.registry.App(w.instance(pod, "taken", 8080))
	app.Register()
	w.reconcile(pod)
	w.expectApp("it is at the pod's own address, and the pod leaves", app, registry.OutOfService)
	w.expectHooks("nothing is left to wait for", pod, "inPlaceUpdate")

	t.Log("One that stays is not put in rotation by Rollcall, nor taken out: whoever is asked to put it back would have the name.")
	for _, state := range []appspub.LifecycleStateType{appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingUpdate} {
		stays := w.pod(web, "web-in-"+strings.ToLower(string(state)), inState(state))
		app := w.registry.App(w.instance(stays, "taken", 8080))
		app.Register()
		w.takeJournal()
		w.takeEvents()
		w.reconcile(stays)
		w.expectApp("its application has put it there", app, registry.InService)
		if state == appspub.LifecycleStatePreparingUpdate {
			w.expectHooks("clients are given it while OpenKruise would update it", stays, "inPlaceUpdate preDelete")
			w.expectEvents("a person decides", `Warning ServiceNotAllowed hook inPlaceUpdate waits: service "taken" belongs to namespace older`)
		}
	}
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingNormal)
	w.reconcile(pod)
	w.expectRefused(pod, "ServiceNotAllowed")
}

// TestAppEntryOfAPodWhoseNodeIsGone: Consul's catalog keeps a node that has failed for three days, and no agent answers there.
func TestAppEntryOfAPodWhoseNodeIsGone(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectApp("", app, registry.OutOfService)
	w.registry.Fail(fakeregistry.Match{Op: fakeregistry.OpAppDeregister}, registry.OfAgent(errors.New("no route to host")))
	w.removePod(pod)
	w.reconcile(pod)
	w.expectWaits("", Wait{Reason: "RegistryUnavailable", Since: w.clock.Now()})
	w.sleep(visit.AppOutlives)
	w.reconcile(pod)
	w.expectNoPages("it is out of rotation for as long as other registries keep such an entry")
}

func TestAppEntryIsTakenOutOnceItsAgentIsBack(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpAppDeregister}, registry.OfAgent(errors.New("it restarts")))
	w.removePod(pod)
	w.takeJournal()
	w.reconciles(pod, "another check may have taken it out", appAsked, appLeave+failed)
	w.reconciles(pod, "that may pass", appAsked, appLeave)
	w.reconciles(pod, "", appAsked)
	w.expectApp("", app, registry.OutOfService)
}

func TestAppEntryOfAnEndedPodIsSparedForTheNext(t *testing.T) {
	t.Parallel()
	asUsual, takenOut := func(*corev1.Pod) {}, []string{appAsked, appLeave}
	type row struct {
		reason    string
		namespace string
		heir      func(*corev1.Pod)
		want      []string
	}
	expect.Each(t, map[string]row{
		"the same service and port": {"it is another pod's, and no mark says so", testNamespace, asUsual, nil},
		"another port": {
			"pods of the host's network share an address", testNamespace, annotated(service.AnnotationServices, "web=9090"), takenOut,
		},
		"ended too": {
			"its application has ended", testNamespace, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, takenOut,
		},
		"of a namespace that may not use the name": {"a tenant can write the name on any pod", "staging", asUsual, takenOut},
	}, func(t *testing.T, tc row) {
		w, pod, app := servingApp(t)
		w.removePod(pod)
		app.Deregister()
		w.addresses = 0
		w.pod(w.cloneSet("web-2", inNamespace(tc.namespace)), "web-2", annotated(service.AnnotationServices, "web=8080"), tc.heir)
		w.reconciles(pod, tc.reason, tc.want...)
		w.expectNoPages("")
	})
}

func TestAppThatPutsItselfBackIsTakenOutAgain(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t, draining15s)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.takeJournal()
	w.watches("all is as it was acknowledged")

	w.sleep(10 * time.Second)
	app.PutBack()
	w.watches("it is given to clients", pod)
	w.expectResult("and they have to notice anew", w.reconcile(pod), 15*time.Second)
	w.expectJournal("", appOut, writes)
	w.expectApp("", app, registry.OutOfService)
	w.expectEvents("", `Warning OtherWriter the application's own entry of service "web" at 10.0.0.1:8080 came back`)

	w.sleep(time.Second)
	app.PutBack()
	w.watches("", pod)
	w.reconciles(pod, "", appOut, writes)
	w.expectEvents("once is enough")
}

func TestEntriesChangeHands(t *testing.T) {
	t.Parallel()
	w, pod, app := servingApp(t)
	byRollcall := func(s *choices) { s.RegisteredByApp = nil }

	t.Log("From the application's to Rollcall's own: that joins before the other leaves.")
	w.apply(byRollcall)
	w.registry.FailNext(anyCall(), registry.ForeignEntry(errors.New("another ID has the address")))
	w.reconciles(pod, "both at once is not what anyone wants", registers+failed)
	w.expectApp("clients find it as before", app, registry.InService)
	w.expectEvents("", "Warning AlsoRegistersItself")
	w.reconciles(pod, "", registers, appLeave, writes)
	w.expectInService(pod)
	app.Deregister()

	t.Log("And back.")
	w.apply(func(s *choices) { s.RegisteredByApp = map[string]bool{"default": true} })
	w.takeEvents()
	w.reconciles(pod, "its application has yet to come", appIn+failed)
	w.expectInService(pod)
	w.expectEvents("", "Warning AppNotRegistered")
	app.Register()
	w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, registry.ForeignEntry(errors.New("readers get the address")))
	w.reconciles(pod, "what is left is the application's, as it has to be", appIn, deregisters+failed, writes)
	w.expectApp("", app, registry.InService)
	w.expectEvents("", "Normal Resolved")
}

// TestAnnotationSaysWhoRegisters: its words have rows in service. If the driver can't do what it asks for, the author reads that.
func TestAnnotationSaysWhoRegisters(t *testing.T) {
	t.Parallel()
	by := func(who string) func(*corev1.Pod) { return annotated(service.AnnotationRegistries, "default="+who) }
	type row struct {
		reason       string
		choose       func(*choices)
		who, warning string
	}
	expect.Each(t, map[string]row{
		"Rollcall": {"it wins over the configuration", func(*choices) {}, "rollcall", ""},
		"the application, where it can't be steered": {
			"nothing could take it out later", func(s *choices) { s.Registries = only(s.Registries["default"].Calls); s.RegisteredByApp = nil }, "app",
			`annotation rollcall.dev/registries: the driver of registry "default" can't take an entry out`,
		},
		"Rollcall, where pods are called": {
			"it would have no entry", callingPods, "rollcall",
			`annotation rollcall.dev/registries: registry "default" has no entries but those of applications: set default=app`,
		},
	}, func(t *testing.T, tc row) {
		w := steering(t, tc.choose)
		pod := w.bornPod(w.cloneSet("web"), "web-1", by(tc.who))
		w.reconcile(pod)
		if tc.warning == "" {
			w.expectJournal(tc.reason, registers, writes)
			return
		}
		w.expectHooks(tc.reason, pod, "inPlaceUpdate preDelete")
		w.expectEvents(tc.reason, "Warning InvalidPod hook preNormal waits: "+tc.warning)
	})
}

// runsResync compares the default registry's list, with what others wrote, and looks at the pods that it names.
func (w *world) runsResync() Comparison {
	w.Helper()
	entries, err := w.registry.List(w.Context(), testCluster)
	w.must(err, "listing")
	l := w.listing(Listing{})
	for _, e := range entries {
		if e.State == registry.Foreign {
			l.Foreign = append(l.Foreign, e)
		}
	}
	w.takeJournal()
	return w.compare(l)
}

func TestApplicationThatRegistersItself(t *testing.T) {
	t.Parallel()
	w, pod := serving(t)

	gone := w.registry.Foreign(w.instance(pod, "web", 8080))
	if got := w.runsResync(); len(got.Missing)+got.Different+len(got.Unknown) > 0 {
		t.Fatalf("resync found %+v: what others wrote is neither compared nor reaped", got)
	}
	w.expectDoubtful("the pod has to be told", pod)
	w.expectResult("a list brings the pod back, and time does", w.reconcile(pod), waiting.Longest)
	w.expectJournal("the registry holds what was written")
	w.expectEvents("a person has to turn it off", `Warning AlsoRegistersItself service "web" at 10.0.0.1:8080: clients are given`)

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconciles(pod, "our own entry goes", deregisters, writes)
	w.expectHooks("clients are still sent to it", pod, "inPlaceUpdate preDelete")
	w.runsResync()
	w.reconcile(pod)
	w.expectHooks("our entry is gone, and the other is listed all the same", pod, "inPlaceUpdate preDelete")

	gone()
	w.runsResync()
	w.expectDoubtful("it may go on", pod)
	w.reconciles(pod, "", writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

// TestApplicationThatRegistersItselfIsKnownFromTheFirstList: most drivers tell of such an entry only in their list, and the next one
// comes much later.
func TestApplicationThatRegistersItselfIsKnownFromTheFirstList(t *testing.T) {
	t.Parallel()
	w, pod := born(t)
	w.registry.Foreign(w.instance(pod, "web", 8080))
	w.restart()
	w.runsResync()
	w.reconciles(pod, "no call was made for it before", registers)
	w.expectHooks("it could not be taken out safely", pod, "inPlaceUpdate preDelete")
}

func TestEntryOfAnotherAtAFormerAddress(t *testing.T) {
	t.Parallel()
	expect.Each(t, map[string]bool{"the list has it": false, "the registry refuses to take it out": true}, func(t *testing.T, refused bool) {
		w, pod := serving(t)
		former := w.instance(pod, "web", 8080)
		if refused {
			w.registry.FailNext(fakeregistry.Match{Op: fakeregistry.OpDeregister}, registry.ForeignEntry(errors.New("another has it")))
		}
		w.changePod(pod, func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.9" })
		w.reconcile(pod)
		w.takeEvents()

		w.registry.Foreign(former)
		w.runsResync()
		w.reconcile(pod)
		w.expectEvents("it is the entry of whichever pod has that address now")
		w.reconcileIn(pod, appspub.LifecycleStatePreparingDelete)
		w.expectHooks("no client is sent to it", pod, "inPlaceUpdate")
	})
}
