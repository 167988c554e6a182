package integration

import (
	"fmt"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const (
	servicesKey = "rollcall.dev/services"
	drainKey    = "rollcall.dev/drain"
	recordKey   = "rollcall.dev/registration"
)

// drains: between the acknowledgement that took the pod out and the release of the hook lies the drain.
func drains(s *scenario) {
	s.drain = 1500 * time.Millisecond
	before := s.Begin(inPlace, replicas(2), annotated(drainKey, s.drain.String()))

	s.UpdateInPlace("nginx:2", before)
	s.ScaleTo(1)
	s.ExpectDrained(3)
}

// withTwoServices has each pod registered under two names, at two ports.
func (s *scenario) withTwoServices() func(*kruisev1alpha1.CloneSet) {
	web, admin := s.ns+"-web", s.ns+"-admin"
	s.services = map[string]int{web: 8080, admin: 9090}
	return annotated(servicesKey, fmt.Sprintf("%s=8080, %s=9090", web, admin))
}

func twoServices(s *scenario) {
	s.Begin(inPlace, replicas(2), s.withTwoServices())
	s.UpdateInPlace("nginx:2", nil)
	s.ScaleTo(1)
}

// noPort: there is nothing to register until someone says what.
func noPort(s *scenario) {
	s.Create(replicas(1), func(set *kruisev1alpha1.CloneSet) { set.Spec.Template.Spec.Containers[0].Ports = nil })
	s.expectBlockedUntilCorrected("InvalidPod", []string{"no port to register", "containerPort", servicesKey},
		servicesKey, s.ns+"=80")
}

// serviceClaimed: the name belongs to the namespace whose pods are registered under it, whichever other namespace wants it.
func serviceClaimed(s *scenario) {
	s.Begin(replicas(1))

	other := newScenario(s.T, s.manager, s.registry, s.style, neighbour(s.ns))
	other.Create(replicas(1), annotated(servicesKey, s.ns+"=80"))
	other.expectBlockedUntilCorrected("ServiceClaimed",
		[]string{fmt.Sprintf("%q", s.ns), "namespace " + s.ns, servicesKey}, servicesKey, other.ns+"=80")
	s.ExpectSteady()
	other.ExpectNothingLeft()
	other.ExpectAlways()
}

// expectBlockedUntilCorrected: the pod's Event says what is wrong, its hook stays blocked, and it goes on once the pod's
// annotation is right.
func (s *scenario) expectBlockedUntilCorrected(reason string, words []string, key, value string) {
	s.Helper()
	pod := s.AwaitPods(1)[0]
	s.ExpectEvent(pod, corev1.EventTypeWarning, reason, words...)
	s.Expect(len(s.registry.Entries(s.T, s.ns)) == 0, "a pod that can't be described was registered")
	if hooked := s.style == preNormal || s.style == mixed; hooked {
		s.ExpectEvent(pod, corev1.EventTypeWarning, reason, "hook preNormal waits")
		s.ExpectNeverSeen(pod, appspub.LifecycleStateNormal)
	}
	s.PatchPod(pod, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, key, value))
	s.ExpectSteady()
	s.ExpectEvent(pod, corev1.EventTypeNormal, "Resolved", reason)
}

// handlerInSelector: flipping it would take the pod from its workload, so it is not touched.
func handlerInSelector(s *scenario) {
	const key = "example.com/unready-blocker-inplace"
	pod := s.Begin(inPlace, replicas(1), func(set *kruisev1alpha1.CloneSet) { set.Spec.Selector.MatchLabels[key] = "true" })[0]
	s.ExpectEvent(pod, corev1.EventTypeWarning, "HandlerRefused", key, "spec.selector", "labelsHandler")

	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStatePreparingUpdate)
	s.ExpectServing()
	s.Expect(s.Now(pod.UID).Labels[key] == "true", "the label in the selector was flipped")
	s.UpdateInPlace("nginx:1", nil)
}

// registryErrors: whatever the registry refuses to do for now, the pod waits and goes on by itself later.
func registryErrors(s *scenario) {
	s.troubled = true
	repair := s.Fail(fakeregistry.OpRegister, "out of order")
	s.Create(inPlace, replicas(1))
	pod := s.AwaitPods(1)[0]
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "out of order")
	repair()
	s.ExpectSteady()

	repair = s.Fail(fakeregistry.OpFailOver, "out of order")
	s.UpdateImage("nginx:2")
	s.AwaitState(pod, appspub.LifecycleStatePreparingUpdate)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook inPlaceUpdate waits")
	repair()
	s.ExpectSteady()

	repair = s.Fail(fakeregistry.OpDeregister, "out of order")
	s.DeleteByLabel(s.Now(pod.UID))
	s.AwaitState(pod, appspub.LifecycleStatePreparingDelete)
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryUnavailable", "hook preDelete waits")
	repair()
	s.AwaitGone(pod)
	s.ExpectSteady()
}

// registryTimeouts: it is unknown whether a call that timed out is still carried out, so more is needed than one answer.
func registryTimeouts(s *scenario) {
	s.troubled = true
	hold := s.HoldCalls(fakeregistry.OpRegister)
	s.Create(inPlace, replicas(1))
	s.AwaitCalls(hold, 1)
	pod := s.AwaitRunning()
	s.ExpectEvent(pod, corev1.EventTypeWarning, "RegistryTimeout", s.ns)
	hold.Release()
	s.ExpectSteady()

	late := s.registry.LandLate(s.match(fakeregistry.OpFailOver), 1)
	s.UpdateImage("nginx:2")
	s.AwaitCalls(late, 1)
	late.Release()
	s.ExpectSteady()
}
