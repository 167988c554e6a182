package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// withRegistry adds a registry beside the default one. Its calls are in the journal under its name.
func (w *world) withRegistry(name string) *fakeregistry.Registry {
	w.Helper()
	other := fakeregistry.New(newBackend(w.T))
	other.OnAnswer(fakeregistry.Match{}, func(c fakeregistry.Call) {
		line := fmt.Sprintf("%s: %s %s@%s", name, c.Op, c.Instance.Service, c.Instance.Endpoint())
		if c.Err != nil {
			line += " failed"
		}
		w.note(line)
	})
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{
			"default": s.Registries["default"],
			name:      {Calls: other, Timeout: testTimeout},
		}
	})
	return other
}

func inRegistries(names string) func(*kruisev1alpha1.CloneSet) {
	return func(web *kruisev1alpha1.CloneSet) {
		web.Spec.Template.Annotations = map[string]string{service.AnnotationRegistries: names}
	}
}

func TestAHookWaitsForAllRegistries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.withRegistry("new")
	pod := w.bornPod(w.cloneSet("web", inRegistries("default,new")), "web-1")

	other.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("one that is down keeps the pod out of no other", registers, "new: "+registers+failed)
	w.expectHooks("the hook waits for both", pod, "inPlaceUpdate preDelete")
	w.expectEvents("the message says which", `Warning RegistryUnavailable hook preNormal waits: service "web" at 10.0.0.1:8080 in registry "new": down`)
	w.reconcile(pod)
	w.expectJournal("what was acknowledged is not asked for again", "new: "+registers, writes)

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("", deregisters+failed, "new: "+deregisters, writes)
	w.expectHooks("the hook waits for both", pod, "inPlaceUpdate preDelete")
	w.reconcile(pod)
	w.expectJournal("", deregisters, writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestMovingToAnotherRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	other := w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web"), "web-1")

	w.apply(func(s *choices) { s.DefaultRegistries = []string{"default", "new"} })
	w.reconcile(pod)
	w.expectJournal("it is in both", "new: "+registers, writes)

	w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
	w.reconcile(pod)
	w.expectJournal("it leaves the old one", deregisters, writes)

	t.Log("And back, at one go.")
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"default"} })
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.expectJournal("it must be in the one before it leaves the other", registers+failed)
	w.reconcile(pod)
	w.expectJournal("", registers, "new: "+deregisters, writes)
	if entries, err := other.Truth(t.Context(), testCluster); err != nil || len(entries) > 0 {
		t.Errorf("the registry that it left has %v, %v", entries, err)
	}
}

func TestARestartKnowsFromTheRecordWhichRegistryThePodHasToLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.restart()
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"new"} })
	w.reconcile(pod)
	w.expectJournal("", "new: "+registers, deregisters, writes)
}

func TestARecordSpeaksForTheRegistriesThatItNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.takeJournal()
	w.restart()
	w.apply(func(s *choices) { s.DefaultRegistries = []string{"default", "new"} })
	w.reconcile(pod)
	w.expectJournal("both are asked, and the record names both", deregisters, "new: "+deregisters, writes)
}

func TestARecordThatNamesNoRegistry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.restart()
	record := w.record(pod)
	record.Instances[0].Registry = ""
	text, err := json.Marshal(record)
	w.must(err, "encoding the record")
	w.changePod(pod, annotated(lifecycle.AnnotationRecord, string(text)))
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectJournal("garbage is no record, and there is no registry to be put back", deregisters, writes)
	w.expectEvents("")
}

func TestARegistryThatTheConfigurationDropsWhileAPodIsInIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.bornPod(w.cloneSet("web", inRegistries("new")), "web-1")
	w.reconcile(pod)
	w.expectJournal("", "new: "+registers, writes)
	both := w.settings.Registries

	w.apply(func(s *choices) { s.Registries = map[string]Registry{"default": both["default"]} })
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.expectResult("no event tells when it is back but the configuration's own", w.reconcile(pod), backoffCap)
	w.expectJournal("there is nobody to tell")
	w.expectHooks("clients may still be given the pod", pod, "preNormal inPlaceUpdate preDelete")
	w.expectEvents("", `Warning UnknownRegistry hook preDelete waits: service "web" at 10.0.0.1:8080 in registry "new": the configuration`)

	w.apply(func(s *choices) { s.Registries = both })
	w.reconcile(pod)
	w.expectJournal("", "new: "+deregisters, writes)
	w.expectHooks("", pod, "inPlaceUpdate")
}

func TestAnUnknownRegistryBlocks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web", inRegistries("default,other")), "web-1")
	w.reconcile(pod)
	w.expectJournal("who wants the pod in two does not want it in one")
	w.expectHooks("", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", "Warning InvalidPod hook preNormal waits: annotation rollcall.dev/registries")
}

func TestOneRegistryOfSeveralIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.withRegistry("new")
	pod := w.servingPod(w.cloneSet("web", inRegistries("default,new")), "web-1")
	w.apply(func(s *choices) {
		s.Registries = map[string]Registry{"default": {Calls: fakeregistry.New(w.backend), Timeout: testTimeout}, "new": s.Registries["new"]}
	})
	w.reconcile(pod)
	w.expectJournal("what is known of the other one stays known")
	if calls := w.settings.Registries["default"].Calls.(*fakeregistry.Registry).Calls(anyCall()); len(calls) != 1 {
		t.Errorf("got calls %v, want one: nothing is known of a registry that was made anew", calls)
	}
}

func TestWhatAnInstanceCarries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.api.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "node-1", Labels: map[string]string{corev1.LabelTopologyZone: "eu-1a", corev1.LabelTopologyRegion: "eu-1"},
	}}), "creating the node")
	where, err := service.ParseMetadataTemplate("{region}/{node}")
	w.must(err, "parsing the metadata")
	w.apply(func(s *choices) { s.Services.Metadata = map[string]service.MetadataTemplate{"where": where} })
	onNode := func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" }
	pod := w.servingPod(w.cloneSet("web"), "web-1", onNode, annotated(service.AnnotationWeight, "10"))

	want := w.instance(pod, "web", 8080)
	want.Weight, want.Zone, want.Metadata = 10, "eu-1a", map[string]string{"where": "eu-1/node-1"}
	w.expectLastInstance("", want)

	w.changePod(pod, annotated(service.AnnotationWeight, "20"), annotated(service.AnnotationMetadata, "version=2"))
	w.reconcile(pod)
	w.expectJournal("clients are told; nothing has to be written down", registers)
	want.Weight, want.Metadata = 20, map[string]string{"where": "eu-1/node-1", "version": "2"}
	w.expectLastInstance("", want)
	w.reconcile(pod)
	w.expectJournal("once is enough")

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.takeJournal()
	w.changePod(pod, annotated(service.AnnotationWeight, "30"))
	w.reconcile(pod)
	w.expectJournal("who is not given the instance need not know its weight")

	w.changePod(pod, annotated(service.AnnotationWeight, "heavy"))
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.reconcile(pod)
	w.expectJournal("it can't be told what the pod wants")
	w.expectEvents("", "Warning InvalidPod hook inPlaceUpdate waits: annotation rollcall.dev/weight")
}

func (w *world) expectLastInstance(why string, want registry.Instance) {
	w.Helper()
	calls := w.registry.Calls(fakeregistry.Match{Op: fakeregistry.OpRegister})
	if got := calls[len(calls)-1].Instance; !got.Equal(want) {
		w.Fatalf("registered %+v, want %+v\nwhy: %s", got, want, why)
	}
}

// A registry that checks an instance before it gives it to clients.

// inspecting says that an instance is not given to clients for as long as why is set.
type inspecting struct {
	why   error
	asked int
}

func (i *inspecting) Probe(context.Context, registry.Instance) error {
	i.asked++
	return i.why
}

func TestAHookWaitsUntilClientsAreGivenThePod(t *testing.T) {
	t.Parallel()
	inspector := &inspecting{why: errors.New("the check has not passed")}
	w := newWorld(t, func(s *choices) {
		one := s.Registries["default"]
		one.Prober = inspector
		s.Registries = map[string]Registry{"default": one}
	})
	pod := w.bornPod(w.cloneSet("web"), "web-1")

	w.expectResult("with a back-off", w.reconcile(pod), backoffBase)
	w.expectResult("with a back-off", w.reconcile(pod), 2*backoffBase)
	w.expectJournal("it is registered once", registers)
	w.expectHooks("Kruise must not count on it yet", pod, "inPlaceUpdate preDelete")
	w.expectEvents("", `Warning NotServing hook preNormal waits: service "web" at 10.0.0.1:8080 is registered and not given to clients yet: the check`)

	inspector.why = registry.Terminal(errors.New("the check is misconfigured"))
	w.expectResult("at once is of no use", w.reconcile(pod), backoffCap)
	inspector.why = registry.RetryAfter(errors.New("later"), 7*time.Second)
	w.expectResult("the registry knows when", w.reconcile(pod), 7*time.Second)

	inspector.why = nil
	w.reconcile(pod)
	w.expectJournal("", writes)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")

	inspector.asked = 0
	w.kruiseMoves(pod, appspub.LifecycleStateNormal)
	w.reconcile(pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	if inspector.asked > 0 {
		t.Errorf("asked %d times where no hook hangs on it", inspector.asked)
	}
	inspector.why = errors.New("the check has not passed")
	w.kruiseMoves(pod, appspub.LifecycleStateUpdated)
	w.reconcile(pod)
	w.expectHooks("an update is not over before clients are given the pod", pod, "preDelete")
	inspector.why = nil
	w.reconcile(pod)
	w.expectHooks("", pod, "preNormal inPlaceUpdate preDelete")
}

// hanging answers only when it has to.
type hanging struct{}

func (hanging) Probe(ctx context.Context, _ registry.Instance) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAProbeHasATimeOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(s *choices) {
			one := s.Registries["default"]
			one.Prober = hanging{}
			s.Registries = map[string]Registry{"default": one}
		})
		began := time.Now()
		w.reconcile(w.bornPod(w.cloneSet("web"), "web-1"))
		if took := time.Since(began); took != testTimeout {
			t.Errorf("waited %s for it, want %s", took, testTimeout)
		}
		w.expectEvents("", "Warning NotServing ")
	})
}

func TestWhenToLookAgainAtSeveral(t *testing.T) {
	t.Parallel()
	soon, late, event := blocker{reason: "Soon", after: time.Second}, blocker{reason: "Late", after: time.Minute}, blocker{reason: "Event"}
	for name, tc := range map[string]struct {
		reason     string
		one, other blocker
		want       blocker
	}{
		"nothing":             {"nothing is missing", blocker{}, blocker{}, blocker{}},
		"the first":           {"the other has come", soon, blocker{}, soon},
		"the second":          {"the first has come", blocker{}, late, late},
		"the sooner is first": {"one look is for both", soon, late, soon},
		"the later is first":  {"the first is shown, and neither waits for the other", late, soon, blocker{reason: "Late", after: time.Second}},
		"an event, then time": {"the event may not be about the other", event, late, blocker{reason: "Event", after: time.Minute}},
		"time, then an event": {"no event takes the time away", late, event, late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.one.and(tc.other); got != tc.want {
				t.Errorf("got %+v, want %+v\nreason: %s", got, tc.want, tc.reason)
			}
		})
	}
}

// Entries that expire.

func TestWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.bornPod(w.cloneSet("web"), "web-1")
	w.expectHeld("nothing was registered")
	w.registry.FailNext(anyCall(), errors.New("down"))
	w.reconcile(pod)
	w.expectHeld("nothing was acknowledged")
	w.reconcile(pod)
	w.expectHeld("", pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.expectHeld("an entry out of service expires too", pod)

	w.restart()
	w.expectHeld("a new process holds what it has come to")
	w.reconcile(pod)
	w.expectHeld("by the record's word", pod)

	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	hold := w.registry.Hold(anyCall())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.reconcile(pod)
	}()
	w.must(hold.AwaitReached(t.Context(), 1), "waiting for the call")
	w.expectHeld("a heartbeat must not keep alive what is being taken away")
	hold.Release()
	<-done
	w.expectHeld("")
}

func TestWhatIsAbsentIsNotHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, draining15s)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.takeJournal()
	w.restart()
	w.reconcile(pod)
	w.expectHeld("the record says that there is nothing to keep alive")
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

func TestWhatTheRegistryLostIsPutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.cloneSet("web")
	pod, calm := w.servingPod(web, "web-1"), w.servingPod(web, "web-2")
	w.sleep(time.Second)
	w.must(w.backend.Deregister(t.Context(), w.instance(pod, "web", 8080)), "losing the entry")
	w.lose(pod)
	w.expectLosers("the pod is looked at", pod)
	w.expectLosers("and that is told once")
	w.reconcile(pod)
	w.expectJournal("", registers)
	w.expectInService(pod)
	w.expectHeld("", pod, calm)
	w.reconcile(pod)
	w.expectJournal("once is enough")
}

func TestWhatWasAcknowledgedSinceIsNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.lost("default", w.instance(pod, "web", 8080), w.clock.Now().Add(-time.Hour))
	w.expectLosers("the heartbeat was overtaken by the Register")
}

func TestAnEntryOutOfServiceNeedNotBePutBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	w.reconcile(pod)
	w.takeJournal()
	w.sleep(time.Second)
	w.lose(pod)
	w.expectLosers("what is absent is not in service")
	w.expectHeld("and needs no heartbeat")
}

func TestALossThatComesLateUndoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.sleep(time.Second)
	w.lose(pod)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingDelete)
	w.reconcile(pod)
	w.expectJournal("one call, then one write", deregisters, writes)
	w.reconcile(pod)
	w.expectJournal("nothing is left to say")
	if got := w.record(pod).Want; got != lifecycle.Absent {
		t.Errorf("the record says %q, want %q", got, lifecycle.Absent)
	}
	stranger := w.instance(pod, "web", 8080)
	stranger.UID = "nobody"
	w.lost("default", stranger, w.clock.Now())
}

func TestALossDuringACallUndoesNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	pod := w.servingPod(w.cloneSet("web"), "web-1")
	w.sleep(time.Second)
	w.kruiseMoves(pod, appspub.LifecycleStatePreparingUpdate)
	hold := w.registry.Hold(anyCall())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.reconcile(pod)
	}()
	w.must(hold.AwaitReached(t.Context(), 1), "waiting for the call")
	w.lose(pod)
	hold.Release()
	<-done
	w.reconcile(pod)
	w.expectJournal("what is out stays out", failsOver, writes)
}

// lose has a heartbeat find no entry of the pod.
func (w *world) lose(pod *corev1.Pod) {
	w.lost("default", w.instance(pod, "web", 8080), w.clock.Now())
}

func (w *world) expectLosers(why string, want ...*corev1.Pod) {
	w.Helper()
	got, _ := w.r.Tracker.TakeDoubted()
	wanted := make([]lifecycle.PodID, 0, len(want))
	for _, pod := range want {
		wanted = append(wanted, lifecycle.PodIDOf(pod))
	}
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		w.Fatalf("to be looked at are %v, want %v\nwhy: %s", got, wanted, why)
	}
}
