package integration

import (
	"errors"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

// pairDefinitions are the scenarios of a manager with two registries, old and new. Pods that name none are in old.
func pairDefinitions() []definition {
	return []definition{
		{name: "both", styles: allStyles, run: inBoth},
		{name: "one-refuses", styles: updateHooked, run: oneRegistryFails},
		{name: "one-hangs", styles: []style{preNormal, mixed}, run: oneRegistryHangs},
		{name: "moved-in-place", styles: updateHooked, run: movedInPlace},
		{name: "moved-live", styles: []style{labels, preNormal}, run: movedLive},
		{name: "unknown", styles: []style{labels, mixed}, run: unknownRegistry},
		{name: "unknown-live", styles: []style{finalizer, mixed}, run: unknownRegistryOfALivePod},
	}
}

func TestTwoRegistries(t *testing.T) {
	t.Parallel()
	older, newer := startPair(t)
	var namespaces []string
	for _, d := range pairDefinitions() {
		namespaces = append(namespaces, namespacesOf(d.name, d.styles)...)
	}
	defaults := []string{oldRegistry}
	m := startManager(t, "pair", defaultConfiguration("", namespaces...).withRegistries(defaults, older, newer))
	play(t, pairDefinitions(), func(t *testing.T, style style, namespace string) *scenario {
		t.Helper()
		return newScenario(t, m, older, style, namespace).over(defaults, older, newer)
	})
}

// inBoth: a pod is in two registries at once, and each of its moves waits for both.
func inBoth(s *scenario) {
	before := s.Begin(inPlace, replicas(2), annotated(registriesKey, "old, new"))
	s.UpdateInPlace("nginx:2", before)
	s.ScaleTo(1)
}

// oneRegistryFails: a hook waits for both registries, whichever way it goes, and says which one it is.
func oneRegistryFails(s *scenario) {
	s.Begin(inPlace, replicas(1), annotated(registriesKey, "old,new"))
	s.troubled = true
	pod := s.Pods()[0]

	for _, story := range []struct {
		registry string
		op       fakeregistry.Op
		state    appspub.LifecycleStateType
		begin    func()
	}{
		{newRegistry, fakeregistry.OpFailOver, appspub.LifecycleStatePreparingUpdate, func() { s.UpdateImage("nginx:2") }},
		{oldRegistry, fakeregistry.OpRegister, appspub.LifecycleStateUpdated, func() { s.UpdateImage("nginx:3") }},
		{newRegistry, fakeregistry.OpDeregister, appspub.LifecycleStatePreparingDelete, func() { s.DeleteByLabel(pod) }},
	} {
		failing, match := s.named(story.registry), s.match(story.op)
		repair := failing.Fail(match, errors.New("the disk is full"))
		before := len(failing.Calls(match))
		story.begin()
		s.AwaitState(pod, story.state)
		s.awaitAtLeast(before+2, "calls of the failing registry", func() int { return len(failing.Calls(match)) })
		s.Expect(stateOf(s.Now(pod.UID)) == string(story.state), "the pod went on although registry %s had not acknowledged", story.registry)
		repair()
		s.AwaitLeaves(pod, story.state)
		s.ExpectSteady()
	}
	s.Expect(s.Now(pod.UID) == nil, "pod %s is still there", pod.Name)
	// The next Event of the same reason repeats the first one's note.
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook inPlaceUpdate waits", `in registry "new"`, "the disk is full")
}

// oneRegistryHangs: Kruise does not count a pod as available while one of its registries does not answer.
func oneRegistryHangs(s *scenario) {
	s.troubled = true
	hold := s.named(newRegistry).Hold(s.match(fakeregistry.OpRegister))
	s.Create(inPlace, replicas(1), annotated(registriesKey, "old,new"))
	s.AwaitCalls(hold, 1)
	pod := s.AwaitRunning()
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryTimeout", "hook preNormal waits", `in registry "new"`)
	s.ExpectServingIn(s.named(oldRegistry), pod)
	s.ExpectServingIn(s.named(newRegistry))
	s.Expect(stateOf(s.Now(pod.UID)) == string(appspub.LifecycleStatePreparingNormal), "the pod went on")
	hold.Release()
	s.ExpectSteady()
}

// movedInPlace: the template moves the pods from one registry to the other, by way of both, which Kruise does by in-place
// updates. A client that reads only the old one may go over to the new one any time while the pods are in both.
func movedInPlace(s *scenario) {
	older, newer := s.named(oldRegistry), s.named(newRegistry)
	s.Begin(inPlace, replicas(3), annotated(registriesKey, oldRegistry))
	before, began := s.Pods(), time.Now()

	s.Edit(annotated(registriesKey, "old,new"))
	s.ExpectSteady()
	both := time.Now()
	s.ExpectServed(2, began, both, older)

	s.Edit(annotated(registriesKey, newRegistry))
	s.ExpectSteady()
	s.ExpectServed(2, both, time.Now(), newer)
	s.ExpectServed(2, began, time.Now(), older, newer)
	s.ExpectMoved(older, newer, before)
	s.ExpectImage("nginx:1", before)
	for _, pod := range before {
		s.ExpectSeen(pod, appspub.LifecycleStatePreparingUpdate)
	}
}

// movedLive: the annotation of a pod in service is changed, which neither updates nor replaces it, and at no moment do
// clients of both registries find it nowhere.
func movedLive(s *scenario) {
	older, newer := s.named(oldRegistry), s.named(newRegistry)
	s.Begin(replicas(1))
	pods, began := s.Pods(), time.Now()
	s.troubled = true // no move of Kruise's is behind the writes

	s.ExpectServingIn(older, pods...)
	s.PatchPod(pods[0], `{"metadata":{"annotations":{"`+registriesKey+`":"new"}}}`)
	s.ExpectSteady()
	s.ExpectServingIn(newer, pods...)
	s.ExpectServed(1, began, time.Now(), older, newer)
	s.ExpectMoved(older, newer, pods)
	s.ExpectNeverSeen(pods[0], appspub.LifecycleStatePreparingUpdate)
}

// unknownRegistry: a typo blocks the pod until a person corrects it.
func unknownRegistry(s *scenario) {
	s.Create(replicas(1), annotated(registriesKey, "old,nwe"))
	s.expectBlockedUntilCorrected("InvalidPod", []string{registriesKey, `"nwe"`, "new, old"}, registriesKey, "old,new")
}

// unknownRegistryOfALivePod: a typo keeps a pod in service where it is, and is never in the way of taking it out.
func unknownRegistryOfALivePod(s *scenario) {
	older, newer := s.named(oldRegistry), s.named(newRegistry)
	pod := s.Begin(replicas(1), annotated(registriesKey, "old,new"))[0]

	s.PatchPod(pod, `{"metadata":{"annotations":{"`+registriesKey+`":"nwe"}}}`)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "InvalidPod", registriesKey, `"nwe"`)
	s.ExpectServingIn(older, pod)
	s.ExpectServingIn(newer, pod)
	s.Replace(pod)
	s.ExpectAskedBeforeDelete(pod)
	for _, r := range s.registries {
		out := r.Calls(fakeregistry.Match{Op: fakeregistry.OpDeregister, UID: string(pod.UID)})
		s.Expect(len(out) == 1, "the pod was taken out of %s %d times, not once", r.name, len(out))
	}
}

// TestRegistryLeavesConfiguration: pods that are still in a registry which the configuration no longer has say so, and wait
// where they would have to be taken out of it; all goes on when it is back.
func TestRegistryLeavesConfiguration(t *testing.T) {
	t.Parallel()
	styles := []style{labels, mixed}
	older, newer := startPair(t)
	both := []string{oldRegistry, newRegistry}
	config := defaultConfiguration("", namespacesOf("leaves", styles)...).withRegistries(both, older, newer)
	m := startManager(t, "leaves", config)
	all := newScenarios(t, m, older, "leaves", styles)
	all.each(func(s *scenario) { s.over(both, older, newer).Create(replicas(2)) })
	all.each((*scenario).ExpectSteady)

	expect.NoError(t, m.Configure(config.withRegistries([]string{newRegistry}, newer)))
	waiting := map[*scenario]*corev1.Pod{}
	for _, s := range all {
		s.defaultsTo(newRegistry)
		for _, pod := range s.Pods() {
			s.ExpectEvent(pod, corev1.EventTypeWarning, "UnknownRegistry", `in registry "old"`, "put it back")
		}
		s.ExpectServingIn(older, s.Pods()...)
		s.ExpectServingIn(newer, s.Pods()...)
		waiting[s] = s.Pods()[0]
		s.DeleteByLabel(waiting[s])
	}
	for _, s := range all {
		s.AwaitState(waiting[s], appspub.LifecycleStatePreparingDelete)
		s.until("the pod to be out of the registry that is left", func() bool { return !newer.gives(s.T, s.ns, waiting[s]) })
		s.Expect(s.Now(waiting[s].UID) != nil && older.gives(s.T, s.ns, waiting[s]),
			"the pod went on although one of its registries could not be told")
	}

	expect.NoError(t, m.Configure(config.withRegistries([]string{newRegistry}, older, newer)))
	for _, s := range all {
		s.AwaitGone(waiting[s])
		s.ExpectSteady()
	}
	all.finish()
}
