package plan

import (
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/tracker"
	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// also is the second address of a pod that is at here; it was at before.
const also = "10.0.0.3"

// steered is a pod whose application registers itself as web, what is known of it, and what can differ.
type steered struct {
	f       Facts
	tr      *tracker.Tracker
	tracked *tracker.Pod
	now     time.Time
}

type with func(*steered)

func steer(changes ...with) *steered {
	s := &steered{now: time.Unix(1_000_000, 0), tr: tracker.New(), f: Facts{
		Pod: &lifecycle.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: "1"},
			Status:     lifecycle.PodStatus{PodIP: here, Conditions: []lifecycle.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
		},
		Targets: []tracker.Target{target(apps("web", here))}, Configuration: all{},
	}}
	s.tracked = s.tr.Open(lifecycle.PodID{})
	for _, change := range changes {
		change(s)
	}
	s.f.Known = s.tracked.Known()
	return s
}

func apps(service lifecycle.Service, address string) lifecycle.Key {
	return lifecycle.Key{Registry: "default", Writer: lifecycle.Application, Service: service, Address: address, Port: 80}
}

// called is an entry in a registry that calls the pod.
func called(address string) lifecycle.Key {
	in := apps("web", address)
	in.Registry = "pods"
	return in
}

func twoAddresses(s *steered) { s.f.Pod.Status.PodIPs = []corev1.PodIP{{IP: here}, {IP: also}} }

func onItsNode(s *steered) {
	s.f.Pod.Spec.Containers = []lifecycle.Container{{Name: "web", Ports: []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}}}
	s.f.Pod.Status.HostIP = before
}

func gone(s *steered) { s.f.Gone = true }

func noAddress(s *steered) { s.f.Pod.Status.PodIP = "" }

func neverReady(s *steered) { s.f.Pod.Status.Conditions = nil }

func leaving(s *steered) {
	s.f.Pod.Labels = map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStatePreparingDelete)}
}

func belongsIn(targets ...lifecycle.Key) with {
	return func(s *steered) {
		s.f.Targets = nil
		for _, in := range targets {
			s.f.Targets = append(s.f.Targets, target(in))
		}
	}
}

// recordedAs: the record has the entries, of which these were not found.
func recordedAs(entries, unfound []lifecycle.Key) with {
	return func(s *steered) { s.f.Record = lifecycle.Record{Version: 1, Instances: entries, Unfound: unfound} }
}

// saw: the registry had the entry so long ago.
func saw(in lifecycle.Key, ago time.Duration) with {
	return func(s *steered) { s.tracked.Saw(in, s.now.Add(-ago)) }
}

func isAcknowledged(in lifecycle.Key, want lifecycle.Want) with {
	return func(s *steered) {
		s.tracked.Begin(in, want, target(in).Instance, s.now)
		s.tracked.Acknowledged(in, s.now)
	}
}

// missed: the entry was seen so long ago and taken out, and is not there any more.
func missed(in lifecycle.Key, ago time.Duration) with {
	return func(s *steered) {
		saw(in, ago)(s)
		isAcknowledged(in, lifecycle.OutOfService)(s)
		s.tr.Answered(target(in), registry.Absent, s.now.Add(time.Second))
	}
}

// answer is what holds of an entry, if the pod must become that.
type answer struct {
	reason string
	of     *steered
	in     lifecycle.Key
	want   lifecycle.Want
	is     bool
}

func expectEach(t *testing.T, is func(entry, lifecycle.Want) bool, rows map[string]answer) {
	t.Helper()
	expect.Each(t, rows, func(t *testing.T, tc answer) {
		if got := is(tc.of.f.entry(tc.in), tc.want); got != tc.is {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	})
}

func one(in lifecycle.Key) []lifecycle.Key { return []lifecycle.Key{in} }

func TestFacts_AddressesOf(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		of     *steered
		in     lifecycle.Key
		want   []string
	}
	expect.Each(t, map[string]row{
		"one":        {"the plain case", steer(), apps("web", here), []string{here}},
		"two":        {"the application may have chosen either", steer(twoAddresses), apps("web", here), []string{here, also}},
		"the node's": {"a host port is there too", steer(onItsNode), apps("web", here), []string{here, before}},
		"another's, on its node": {
			"any other may have the port there", steer(func(s *steered) { s.f.Pod.Status.HostIP = before }), apps("web", here), []string{here},
		},
		"called":             {"what answers at the node is not the pod's", steer(onItsNode), called(here), []string{here}},
		"called at one":      {"the same", steer(), called(here), []string{here}},
		"without an address": {"it is nowhere", steer(noAddress), called(here), nil},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, tc.of.f.AddressesOf(tc.in), "%s", tc.reason)
	})
}

func TestEntry_passedOn(t *testing.T) {
	t.Parallel()
	ended := func(s *steered) {
		s.f.Pod.Spec.Containers, s.f.Pod.Status.NotRunning = []lifecycle.Container{{Name: "web"}}, []string{"web"}
	}
	others := func(in lifecycle.Key) with {
		return func(s *steered) { s.f.PassedOn = map[lifecycle.Key]bool{in: true} }
	}
	wasPassedOn := func(s *steered) { s.tracked.PassedOn(called(here), s.now) }
	own := called(here)
	own.Writer = ""
	expectEach(t, entry.passedOn, map[string]answer{
		"in a list":           {"the registry has an answer about it", steer(), apps("web", here), lifecycle.Absent, false},
		"another pod's":       {"its application has the endpoint", steer(others(apps("web", here))), apps("web", here), lifecycle.Absent, true},
		"called":              {"it answers for itself", steer(), called(here), lifecycle.Absent, false},
		"gone":                {"nothing answers for it", steer(gone), called(here), lifecycle.Absent, true},
		"at a former address": {"what answers there is another pod", steer(), called(before), lifecycle.OutOfService, true},
		"ended":               {"nothing is left to call", steer(ended), called(here), lifecycle.OutOfService, true},
		"ended, to go in":     {"only its answer can put it into service", steer(ended), called(here), lifecycle.InService, false},
		"gone, Rollcall's":    {"the registry had another driver once, and answers about this entry", steer(gone), own, lifecycle.Absent, false},
		"ended after its word": {"what it has acknowledged counts, in case a container starts again",
			steer(ended, isAcknowledged(called(here), lifecycle.OutOfService)), called(here), lifecycle.OutOfService, false},
		"ended, and noted so": {"nothing was acknowledged", steer(ended, wasPassedOn), called(here), lifecycle.Absent, true},
	})
}

func TestFacts_LastFound(t *testing.T) {
	t.Parallel()
	at, other := apps("web", here), apps("web", also)
	own := lifecycle.Key{Registry: "default", Service: "web", Address: here, Port: 80}
	type row struct {
		reason string
		of     *steered
		in     lifecycle.Key
		want   lifecycle.Key
	}
	expect.Each(t, map[string]row{
		"Rollcall's own":                  {"it is where Rollcall put it", steer(twoAddresses, saw(other, time.Minute)), own, own},
		"Rollcall's own, found elsewhere": {"the same", steer(twoAddresses, saw(mine("web", also), time.Minute)), own, own},
		"never":                           {"it is looked for at the first", steer(twoAddresses), at, at},
		"at the second":                   {"there it is", steer(twoAddresses, saw(other, time.Minute)), at, other},
		"first, then second":              {"it has moved", steer(twoAddresses, saw(at, time.Hour), saw(other, time.Minute)), at, other},
		"second, then first":              {"it has moved back", steer(twoAddresses, saw(at, time.Minute), saw(other, time.Hour)), at, at},
		"at both":                         {"one list had two: the last is as good as the first", steer(twoAddresses, saw(at, time.Minute), saw(other, time.Minute)), at, other},
		"at both, one is gone":            {"the other may be given", steer(twoAddresses, saw(at, time.Minute), missed(other, time.Minute)), at, at},
		"by the record":                   {"its writer found it", steer(twoAddresses, recordedAs(one(other), nil)), at, other},
		"by the record at both":           {"the first will do", steer(twoAddresses, recordedAs([]lifecycle.Key{at, other}, nil)), at, at},
		"recorded, not found":             {"its writer looked in vain", steer(twoAddresses, recordedAs([]lifecycle.Key{at, other}, one(at))), at, other},
		"seen, and recorded":              {"this process knows better", steer(twoAddresses, saw(at, time.Minute), recordedAs(one(other), nil)), at, at},
		"recorded, and seen":              {"the same", steer(twoAddresses, saw(other, time.Minute), recordedAs(one(at), nil)), at, other},
	}, func(t *testing.T, tc row) {
		expect.Equal(t, tc.want, tc.of.f.LastFound(tc.in), "%s", tc.reason)
	})
}

func TestFacts_Unseen(t *testing.T) {
	t.Parallel()
	in, renamed := apps("web", here), apps("shop", here)
	own := lifecycle.Key{Registry: "default", Service: "web", Address: here, Port: 80}
	type row struct {
		reason string
		of     *steered
		in     lifecycle.Key
		unseen bool
	}
	expect.Each(t, map[string]row{
		"never seen":            {"it may be under way", steer(), in, true},
		"seen":                  {"by this process", steer(saw(in, time.Hour)), in, false},
		"recorded":              {"by the manager before", steer(recordedAs(one(in), nil)), in, false},
		"recorded as not found": {"that one saw none either", steer(recordedAs(one(in), one(in))), in, true},
		"another not found":     {"this one was", steer(recordedAs([]lifecycle.Key{in, renamed}, one(renamed))), in, false},
		"Rollcall's own":        {"Rollcall knows what it wrote", steer(), own, false},
		"seen under the former name": {
			"the application registers itself once, and that is its entry", steer(saw(renamed, time.Hour), recordedAs(one(renamed), nil)), in, false,
		},
		"not seen under the former name": {"it has none yet", steer(recordedAs(one(renamed), one(renamed))), in, true},
	}, func(t *testing.T, tc row) {
		if got := tc.of.f.Unseen(tc.in); got != tc.unseen {
			t.Errorf("%s: got %t", tc.reason, got)
		}
	})
}

func TestEntry_leftToApp(t *testing.T) {
	t.Parallel()
	at := func(address string) lifecycle.Key {
		return lifecycle.Key{Registry: "default", Service: "web", Address: address, Port: 80}
	}
	rollcalls := belongsIn(at(here))
	expectEach(t, entry.leftToApp, map[string]answer{
		"its own, out":               {"the application's entry takes over", steer(), at(here), lifecycle.OutOfService, true},
		"its own, absent":            {"the same", steer(), at(here), lifecycle.Absent, true},
		"its own, in":                {"both at once would count the pod twice", steer(), at(here), lifecycle.InService, false},
		"of a pod without":           {"what has its address is not its application's", steer(rollcalls), at(here), lifecycle.Absent, false},
		"at a former address":        {"it is another pod's by now", steer(rollcalls), at(before), lifecycle.Absent, true},
		"at a former address, out":   {"only what goes is left", steer(rollcalls), at(before), lifecycle.OutOfService, false},
		"of a pod that is gone":      {"another pod may have the address", steer(rollcalls, gone), at(here), lifecycle.Absent, true},
		"gone, and had no address":   {"the same", steer(rollcalls, gone, noAddress), at(here), lifecycle.Absent, true},
		"without an address for now": {"the pod may get it again", steer(rollcalls, noAddress), at(here), lifecycle.Absent, false},
	})
}

func TestEntry_mustBeSeen(t *testing.T) {
	t.Parallel()
	in, other := apps("web", here), apps("web", also)
	own := lifecycle.Key{Registry: "default", Service: "web", Address: here, Port: 80}
	expectEach(t, entry.mustBeSeen, map[string]answer{
		"never seen":             {"it may be under way", steer(), in, lifecycle.OutOfService, true},
		"to go in":               {"an answer shows it", steer(), in, lifecycle.InService, false},
		"Rollcall's own":         {"Rollcall knows what it wrote", steer(belongsIn(own)), own, lifecycle.OutOfService, false},
		"Rollcall's own, of two": {"the same", steer(twoAddresses, belongsIn(own)), own, lifecycle.OutOfService, false},
		"not where it belongs":   {"an application has one name at a time", steer(), apps("shop", here), lifecycle.OutOfService, false},
		"seen":                   {"what has gone since is out", steer(saw(in, time.Hour)), in, lifecycle.OutOfService, false},
		"never ready":            {"it is left to its application", steer(neverReady), in, lifecycle.OutOfService, false},
		"never ready, goes":      {"it may have registered itself", steer(neverReady, leaving), in, lifecycle.Absent, true},
		"two, seen at one":       {"it may be at this one as well", steer(twoAddresses, belongsIn(in, other), saw(other, time.Hour)), in, lifecycle.OutOfService, true},
		"two, seen at both": {"what has gone since is out", steer(twoAddresses, belongsIn(in, other), saw(in, time.Hour), saw(other, time.Hour)),
			in, lifecycle.OutOfService, false},
		"two, and missing": {"it may have moved to the other", steer(twoAddresses, missed(in, time.Hour)), in, lifecycle.OutOfService, true},
		"two, missing, never ready": {
			"it was there, so it is not left", steer(twoAddresses, neverReady, missed(in, time.Hour)), in, lifecycle.OutOfService, true,
		},
		"one, and missing": {"there is no other place for it", steer(missed(in, time.Hour)), in, lifecycle.OutOfService, false},
		"two, recorded": {"another manager saw it, and this one may find it elsewhere",
			steer(twoAddresses, recordedAs(one(in), nil)), in, lifecycle.OutOfService, true},
		"one, recorded": {"another manager saw it", steer(recordedAs(one(in), nil)), in, lifecycle.OutOfService, false},
	})
}
