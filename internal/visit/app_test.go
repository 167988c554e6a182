package visit

import (
	"strings"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/internal/waiting"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/fakeregistry"
)

const first, second = "10.0.0.1", "fd00::1"

// steering is a room with a pod whose application registers itself in the registry "new".
type steering struct{ *room }

func steer(t *testing.T, state appspub.LifecycleStateType, changes ...func(steering)) steering {
	t.Helper()
	s := steering{newRoom(t, state)}
	s.facts.Targets = []tracker.Target{byApp(first)}
	s.facts.Input.Pod.Spec.Containers = []lifecycle.Container{{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 8080}}}}
	for _, change := range changes {
		change(s)
	}
	return s
}

func byApp(address string) tracker.Target {
	of := target("new")
	of.Writer, of.Instance.Address = lifecycle.Application, address
	return of
}

func (s steering) app(service, address string) fakeregistry.App {
	in := byApp(address).Instance
	in.Service = service
	return s.registries["new"].App(in)
}

// The pod's application has registered itself: at its first address, at its second, twice, or as something else.
func registered(s steering)         { s.app("web", first).Register() }
func registeredAtSecond(s steering) { s.app("web", second).Register() }
func registeredTwice(s steering)    { s.app("web", first).RegisterTwice() }
func registeredAsShop(s steering)   { s.app("shop", first).Register() }

// becomes changes the pod, in the API server too.
func (s steering) becomes(change func(*corev1.PodStatus)) {
	s.t.Helper()
	pod := &corev1.Pod{}
	expect.NoError(s.t, s.visitor.Client.Get(s.t.Context(), types.NamespacedName{Namespace: "shop", Name: "web-1"}, pod))
	change(&pod.Status)
	expect.NoError(s.t, s.visitor.Client.Status().Update(s.t.Context(), pod))
	s.facts.Input.Pod.Status = lifecycle.PodOf(pod).Status
}

func twoAddresses(s steering) {
	s.becomes(func(now *corev1.PodStatus) { now.PodIPs = []corev1.PodIP{{IP: first}, {IP: second}} })
}

func neverReady(s steering) { s.becomes(func(now *corev1.PodStatus) { now.Conditions = nil }) }

// notReady: it was ready for a time.
func notReady(s steering) {
	at := s.visitor.Clock.Now()
	s.becomes(func(now *corev1.PodStatus) {
		now.StartTime = &metav1.Time{Time: at.Add(-time.Hour)}
		now.Conditions[0].Status, now.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.NewTime(at.Add(-time.Minute))
	})
}

func crashed(s steering) { s.facts.Input.Pod.Status.NotRunning = []string{"web"} }

func readySince(ago time.Duration) func(steering) {
	return func(s steering) {
		since := metav1.NewTime(s.visitor.Clock.Now().Add(-ago))
		s.becomes(func(now *corev1.PodStatus) { now.Conditions[0].LastTransitionTime = since })
	}
}

// wasFound: earlier visits found the entry in rotation.
func wasFound(s steering) {
	at := s.visitor.Clock.Now().Add(-time.Hour)
	s.facts.Tracked.Begin(byApp(first).Key(), lifecycle.InService, byApp(first).Instance, at)
	s.facts.Tracked.Acknowledged(byApp(first).Key(), at)
}

func fails(s steering) {
	s.registries["new"].FailNext(fakeregistry.Match{}, errDown)
}

func TestVisit_OfAnApplicationsEntry(t *testing.T) {
	t.Parallel()
	const joins, stays, goes = appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateNormal, appspub.LifecycleStatePreparingDelete
	type row struct {
		reason string
		of     steering
		held   reason.Reason
		says   string
		calm   bool
		events string
		// at is what clients are given at the pod's first address.
		at registry.State
	}
	expect.Each(t, map[string]row{
		"joins": {reason: "it is in rotation", of: steer(t, joins, registered), at: registry.InService},
		"joins, and has not registered": {
			reason: "no client is given the pod", of: steer(t, joins), held: reason.AppNotRegistered, at: registry.Absent,
		},
		"joins, and has just started": {
			reason: "an application takes some time", of: steer(t, joins, readySince(time.Second)), held: reason.AppNotRegistered, calm: true,
			at: registry.Absent,
		},
		"joins, by a clock that is a little ahead": {
			reason: "kubelet's clock says when it started", of: steer(t, joins, readySince(-10*time.Second)), held: reason.AppNotRegistered, calm: true,
			at: registry.Absent,
		},
		"joins, by a clock that is far ahead": {
			reason: "a person should look before that time comes", of: steer(t, joins, readySince(-time.Hour)), held: reason.AppNotRegistered,
			at: registry.Absent,
		},
		"joins, and has long started": {
			reason: "a person should look", of: steer(t, joins, readySince(time.Minute)), held: reason.AppNotRegistered, at: registry.Absent,
		},
		"joins under another name": {
			reason: "the pod's annotation can be set to that", of: steer(t, joins, registeredAsShop), held: reason.AppNotRegistered,
			says: "shop", at: registry.Absent,
		},
		"joins at its second address": {
			reason: "it is steered there", of: steer(t, joins, twoAddresses, registeredAtSecond), at: registry.Absent,
		},
		"joins at neither address": {
			reason: "it says where it was looked for", of: steer(t, joins, twoAddresses), held: reason.AppNotRegistered, says: second,
			at: registry.Absent,
		},
		"stays, and has not registered": {
			reason: "its next hook will wait", of: steer(t, stays), held: reason.AppNotRegistered, says: "OpenKruise will wait", at: registry.Absent,
		},
		"joins, and the registry is down": {
			reason: "nothing is known of it", of: steer(t, joins, registered, fails), held: reason.RegistryUnavailable, at: registry.InService,
		},
		"goes": {reason: "clients are given it no more", of: steer(t, goes, registered, wasFound), at: registry.OutOfService},
		"goes, and was never seen": {
			reason: "it may be under way to the registry", of: steer(t, goes), held: reason.AppNotRegistered, at: registry.Absent,
		},
		"goes, and is seen now":        {reason: "it was found, and is out", of: steer(t, goes, registered), at: registry.OutOfService},
		"goes, and its entry has gone": {reason: "it was seen before", of: steer(t, goes, wasFound), at: registry.Absent},
		"goes, and was never ready":    {reason: "no client was given it", of: steer(t, goes, neverReady), at: registry.Absent},
		"goes, and has crashed":        {reason: "it can't register any more", of: steer(t, goes, crashed), at: registry.Absent},
		"turns not ready, and was never seen": {
			reason: "no hook waits, so nothing has to be certain", of: steer(t, stays, notReady), at: registry.Absent,
		},
		"goes, and has two entries": {
			reason: "both are out, and a person should know", of: steer(t, goes, registeredTwice, wasFound), events: "OtherWriter",
			at: registry.OutOfService,
		},
	}, func(t *testing.T, tc row) {
		got, err := tc.of.visitor.Visit(t.Context(), tc.of.facts)
		expect.NoError(t, err)
		held := waiting.First(got.Held...)
		if held.Reason != tc.held || held.Calm != tc.calm || !strings.Contains(held.Message, tc.says) {
			t.Errorf("%s: held for %+v", tc.reason, held)
		}
		if is := tc.of.app("web", first).State(); is != tc.at {
			t.Errorf("%s: clients are given %s, want %s", tc.reason, is, tc.at)
		}
		if events := tc.of.events(); events != tc.events {
			t.Errorf("%s: the Events are %q, want %q", tc.reason, events, tc.events)
		}
	})
}

// events are the reasons of the Events.
func (s steering) events() string {
	var all []string
	for _, line := range s.journal {
		if why, is := strings.CutPrefix(line, "Event "); is {
			all = append(all, why)
		}
	}
	return strings.Join(all, " ")
}

// TestVisit_AnApplicationsEntryOutlivesItsPod: it is kept out until it has gone too, or is another application's.
func TestVisit_AnApplicationsEntryOutlivesItsPod(t *testing.T) {
	t.Parallel()
	s := steer(t, appspub.LifecycleStatePreparingDelete, registered, wasFound)
	s.facts.Uncached = true
	visit := func(why string, want reason.Reason, at registry.State) {
		t.Helper()
		got, err := s.visitor.Visit(t.Context(), s.facts)
		expect.NoError(t, err)
		if held := firstOf(got.Held); held != want {
			t.Errorf("%s: held for %q, want %q", why, held, want)
		}
		if is := s.app("web", first).State(); is != at {
			t.Errorf("%s: clients are given %s, want %s", why, is, at)
		}
	}
	visit("its application may still renew it", reason.AppEntryRemains, registry.OutOfService)
	visit("it does", reason.AppEntryRemains, registry.OutOfService)
	s.app("web", first).Deregister()
	visit("it has gone, and the registry remembers nothing", "", registry.Absent)
	if s.app("web", first).Remembered() {
		t.Error("the next pod at the address would start out of rotation")
	}
}

// TestVisit_AnApplicationsEntryIsKeptOutForATime: by then, a registry has dropped what is not renewed.
func TestVisit_AnApplicationsEntryIsKeptOutForATime(t *testing.T) {
	t.Parallel()
	s := steer(t, appspub.LifecycleStatePreparingDelete, registered, wasFound)
	s.facts.Uncached = true
	clock := clocktesting.NewFakePassiveClock(s.visitor.Clock.Now())
	s.visitor.Clock = clock
	for _, step := range []struct {
		after time.Duration
		held  reason.Reason
	}{{0, reason.AppEntryRemains}, {AppOutlives - time.Second, reason.AppEntryRemains}, {time.Second, ""}} {
		clock.SetTime(clock.Now().Add(step.after))
		got, err := s.visitor.Visit(t.Context(), s.facts)
		expect.NoError(t, err)
		if held := firstOf(got.Held); held != step.held {
			t.Errorf("%s later: held for %q, want %q", step.after, held, step.held)
		}
	}
}

// TestVisit_AnApplicationsEntryThatIsBackIsAnothers: a gone pod's entry that was out is in rotation again, so it is the next pod's.
func TestVisit_AnApplicationsEntryThatIsBackIsAnothers(t *testing.T) {
	t.Parallel()
	s := steer(t, appspub.LifecycleStatePreparingDelete, registered, wasFound)
	s.facts.Uncached = true
	_, err := s.visitor.Visit(t.Context(), s.facts)
	expect.NoError(t, err)
	s.app("web", first).PutBack()
	got, err := s.visitor.Visit(t.Context(), s.facts)
	expect.NoError(t, err)
	if held, is := firstOf(got.Held), s.app("web", first).State(); held != "" || is != registry.InService {
		t.Errorf("held for %q, and clients are given %s", held, is)
	}
}

// TestVisit_AnApplicationsEntryAtTheSecondAddress: where it is found, it is taken out.
func TestVisit_AnApplicationsEntryAtTheSecondAddress(t *testing.T) {
	t.Parallel()
	s := steer(t, appspub.LifecycleStatePreparingDelete, twoAddresses, registeredAtSecond)
	got, err := s.visitor.Visit(t.Context(), s.facts)
	expect.NoError(t, err)
	if held, is := firstOf(got.Held), s.app("web", second).State(); held != "" || is != registry.OutOfService {
		t.Errorf("held for %q, and clients are given %s", held, is)
	}
}
