package checker

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// settles is longer than a manager, or our watch, may be behind.
const settles = 30 * time.Second

// found brings a pod to Normal in a real registry, where clients of two servers are given it.
func found(s *story) {
	s.play(born, reads(0, false), sets(traffic), waits(time.Second), reads(0, true), reads(1, true), moves(normal), waits(settles), reads(1, true))
}

// released is a pod whose hook for an update was released.
func released(s *story) {
	s.play(found, moves(preparingUpdate), reads(0, true), waits(drain), clears(updateGate), moves(updating), waits(time.Second))
}

// TestReadings: what clients of a real registry's servers are given, held against what happened to the pod.
func TestReadings(t *testing.T) {
	t.Parallel()
	const given, missing = "I1: a reader of server 0 was given 127.100.0.1:8080 of web", "was not given 127.100.0.1:8080 of web"
	const before, after = " before hook inPlaceUpdate was released, and the drain is 1s", " after hook inPlaceUpdate was released"
	checkAll(t, []happening{
		{"a whole life", "clients are given the pod while it is in, and no longer", steps{
			released, reads(0, false), reads(1, false), waits(settles), moves(updated), reads(0, true), sets(updateGate),
			waits(time.Second), reads(0, true), reads(1, true), moves(normal), waits(settles), reads(0, true), moves(preparingDelete),
			waits(drain), clears(deleteGate), waits(time.Second), reads(0, false), reads(1, false), deleting, seen, gone, seen, reads(0, false),
		}, ""},
		{"given after its release", "the registry has acknowledged, and still sends clients there", steps{released, reads(0, true)}, after},
		{"given again after its release", "a call that was late has put it in", steps{released, reads(0, false), reads(0, true)}, given},
		{"given while it drained", "the hook was released sooner than the drain passed", steps{
			found, moves(preparingUpdate), waits(drain), reads(0, true), waits(drain / 2), clears(updateGate),
		}, before},
		{"given as its drain began", "the server may be behind by a moment", steps{
			found, moves(preparingUpdate), waits(drain), reads(0, true), waits(drain - readersLag/2), clears(updateGate),
		}, ""},
		{"given just before it is deleted by force", "no one waits with a pod that is being deleted", steps{
			found, deleting, seen, moves(preparingDelete), reads(0, true), clears(deleteGate),
		}, ""},
		{"given by a server apart", "clients of a server that is cut off are measured, and no promise is made to them", steps{
			released, readsApart(true),
		}, ""},
		{"given when it is back", "nothing forbids it from then on", steps{released, waits(settles), moves(updated), reads(0, true)}, ""},
		{"given after a gap", "what happened in it is not known", steps{released, gap, at(updating), noGap, waits(settles), reads(0, true)}, ""},
		{"given for another pod", "the address has been given again", steps{
			found, moves(preparingDelete), waits(drain), clears(deleteGate), deleting, seen, gone, seen, waits(time.Second), another, waits(settles), reads(0, true),
		}, ""},
		{"given before the address was given again", "no other pod can have been meant", steps{
			found, moves(preparingDelete), waits(drain), clears(deleteGate), deleting, seen, gone, seen, waits(time.Second), reads(0, true), waits(settles), another,
		}, given},
		{"given after its release, and the pod before is seen again", "it was there all the time", steps{
			born, another, released, func(s *story) {
				s.Belongs("uid-2", []Key{KeyOf(s.registry, s.instance())}, s.tick())
			}, reads(0, true),
		}, given},
		{"given for the pod before", "a pod that was never ready has no clients of its own", steps{
			another, unready, at(preparingUpdate, updateGate), reads(0, true), clears(updateGate),
		}, ""},
		{"given for the pod before, and it serves", "its own clients can have been meant", steps{
			another, at(preparingUpdate, updateGate), reads(0, true), clears(updateGate),
		}, given},
		{"given before it ever was ready", "no other pod can have been meant", steps{
			unready, at(preparingUpdate, updateGate), reads(0, true), clears(updateGate), waits(settles), another,
		}, given},
		{"given for the pod before, after a gap", "it may have been ready in it", steps{
			another, unready, gap, at(preparingUpdate, updateGate), noGap, reads(0, true), clears(updateGate),
		}, given},
		{"asserted and not found", "no client is given the pod, and it counts as available", steps{
			born, sets(traffic), waits(time.Second), reads(0, false), moves(normal),
		}, "I2: a reader of server 0 " + missing},
		{"asserted and not found, and another has the address", "the pod is in all the same", steps{
			born, sets(traffic), waits(time.Second), reads(0, false), another,
		}, "I2: a reader of server 0 " + missing},
		{"asserted before it is seen ready, and not found", "whose entry it is makes no difference to clients", steps{
			another, unready, born, sets(traffic), waits(time.Second), reads(0, false),
		}, "I2: a reader of server 0 " + missing},
		{"asserted and not found at one server", "the clients of each count", steps{
			born, sets(traffic), waits(time.Second), reads(0, true), reads(1, false),
		}, "I2: a reader of server 1 " + missing},
		{
			"asserted and on its way out", "it may be out again",
			steps{born, sets(traffic), moves(normal), waits(settles), moves(preparingUpdate), waits(time.Second), reads(0, false)}, "",
		},
		{"asserted and unready", "it may be out again", steps{born, sets(traffic), waits(settles), unready, seen, reads(0, false)}, ""},
		{"asserted and lost, before it is unready", "it had no reason to be out", steps{
			found, reads(1, false), waits(settles), unready, seen,
		}, "I2: a reader of server 1 " + missing},
		{"asserted and lost, just before it moves", "Kruise's stamp tells since when it may be out", steps{
			found, reads(1, false), waits(2 * time.Second), moves(preparingUpdate),
		}, "I2: a reader of server 1 " + missing},
		{"asserted and gone by force", "it has ended", steps{found, vanishes, waits(settles), reads(0, false), reads(1, false)}, ""},
		{"asserted and lost", "what was acknowledged must last, whatever a server loses", steps{found, reads(1, false)}, "I2: a reader of server 1 " + missing},
		{"lost without a hook", "a pod that was found must stay", steps{
			at(normal), waits(settles), reads(0, true), waits(time.Second), reads(0, false),
		}, "I9: a reader of server 0 " + missing},
		{"lost without a hook, of one that was steady for long", "it is told once", steps{
			at(normal), seen, seen, waits(settles), reads(0, true), waits(time.Second), reads(0, false),
		}, "I9: a reader of server 0 " + missing},
		{"lost without a hook, of one that has come to rest", "a pod that was found must stay", steps{
			at(updating), moves(normal), waits(settles), reads(0, true), waits(time.Second), reads(0, false),
		}, "I9: a reader of server 0 " + missing},
		{"lost without a hook, after a gap", "it was found since", steps{
			at(normal), waits(settles), gap, seen, noGap, waits(settles), reads(0, true), waits(time.Second), reads(0, false),
		}, "I9: a reader of server 0 " + missing},
		{"found by a server apart alone", "no promise is made to its clients", steps{at(normal), waits(settles), readsApart(true), waits(time.Second), reads(0, false)}, ""},
		{"not found yet", "no hook says that it is in", steps{at(normal), waits(settles), reads(0, false), waits(time.Second), reads(0, false)}, ""},
		{"lost by a manager that is behind", "it may not know that the pod is back", steps{
			at(updating), waits(settles), moves(normal), waits(time.Second), reads(0, true), waits(time.Second), reads(0, false),
		}, ""},
	})
}

// TestReadingsOfOthers: what others wrote stays, and no service has what no one wrote (I10).
func TestReadingsOfOthers(t *testing.T) {
	t.Parallel()
	const other = "10.0.0.1:7070"
	checkAll(t, []happening{
		{"an entry of others", "no one has touched it", steps{found, foreign(other, true), waits(time.Second), readsAll(0, other)}, ""},
		{"not acknowledged", "the call that writes it may have failed", steps{found, foreign(other, false), waits(time.Second), readsAll(0)}, ""},
		{"not yet acknowledged", "readers may be given it before", steps{found, foreign(other, false), readsAll(0, other)}, ""},
		{"removed", "others wrote it", steps{found, foreign(other, true), waits(time.Second), readsAll(0, other), readsAll(1)},
			"I10: a reader of server 1 was not given " + other + " of web"},
		{"not acknowledged again", "it was there before", steps{
			found, foreign(other, true), foreign(other, false), waits(time.Second), readsAll(0), readsOf("shop", 0),
		}, "I10: a reader of server 0 was not given " + other + " of web"},
		{"written, and seen late", "the server may be behind by a moment", steps{found, foreign(other, true), readsAll(0)}, ""},
		{"of no pod", "no pod has the address", steps{found, readsAll(0, "10.0.0.9:80"), readsAll(0, "10.0.0.9:80")},
			"I10: a reader of server 0 was given 10.0.0.9:80 of web"},
		{"of a pod that comes later", "it was not there yet", steps{found, readsAll(0, "127.100.0.2:8080"), waits(settles), unready, readdressed, seen},
			"I10: a reader of server 0 was given 127.100.0.2:8080 of web"},
		{"in a service that the pod does not have", "a pod joins only its own", steps{found, readsOf("shop", 0, testAddress+":8080")},
			"I10: a reader of server 0 was given " + testAddress + ":8080 of shop"},
		{"of a pod that was gone before anybody could see it", "our watch was blind", steps{found, goesBlind, readsAll(0, testAddress+":8080", "10.0.0.9:80")}, ""},
	})
}

// foreign is an entry that others write, and whether the registry acknowledges it.
func foreign(endpoint string, acknowledged bool) step {
	return func(s *story) {
		place := Place{Service: "web", Endpoint: endpoint}
		s.Foreign(place, time.Time{})
		if acknowledged {
			s.Foreign(place, s.tick())
		}
	}
}

// readsAll has a client of a server be given the pod, which is in, and these, and readsOf be given these alone of a service.
func readsAll(server int, more ...string) step {
	return readsOf("web", server, append(more, testAddress+":8080")...)
}

func readsOf(service string, server int, given ...string) step {
	return func(s *story) {
		s.CallsUnseen = true
		s.readings = append(s.readings, Reading{Server: server, Service: service, Asked: s.tick(), Answered: s.tick(), Given: given})
	}
}

// another is a pod that was given the address of the first.
func another(s *story) {
	pod := s.pod
	pod.Gone, pod.Deleting, pod.At, pod.Version = false, false, s.tick(), s.version+100
	pod.Keys = []Key{KeyOf(s.registry, s.instance())}
	s.Saw("uid-2", types.NamespacedName{Namespace: "ns", Name: "pod-2"}, s.hooks, pod)
}

// TestStale: how long after its release clients were given a pod, at a server of the majority and at one apart.
func TestStale(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.play(released, reads(0, true), waits(time.Second), readsApart(true), waits(time.Second), reads(0, false), readsApart(false),
		waits(settles), moves(updated), reads(0, true), sets(updateGate), moves(normal), moves(preparingUpdate), waits(drain),
		clears(updateGate), moves(updating))
	s.Judge(s.now)
	majority, apart := s.JudgeReadings(s.readings, settles)
	for _, tc := range []struct {
		reason string
		got    Stale
		want   time.Duration
		server int
	}{
		{"server 0 gave it a second after", majority, time.Second, 0},
		{"server 2 gave it two seconds after", apart, 2 * time.Second, 2},
	} {
		if tc.got.For.Round(time.Second) != tc.want || tc.got.Server != tc.server || tc.got.Place.Service != "web" {
			t.Errorf("%s: got %+v", tc.reason, tc.got)
		}
	}
	if broken := s.Broken(); len(broken) > 0 {
		t.Errorf("a server may be so far behind: %v", broken)
	}
	expect.Equal(t, "for 1s, never", Stale{For: time.Second}.String()+", "+Stale{}.String(), "as text")
}
