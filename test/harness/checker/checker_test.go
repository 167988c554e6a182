package checker

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestRelease is about hooks that a manager releases.
func TestRelease(t *testing.T) {
	t.Parallel()
	const gate, drained = "example.io/gate", "the drain is 1s"
	deleteByFinalizer := func(s *story) { s.hooks[PreDelete] = []string{gate} }
	updateByFinalizer := func(s *story) { s.hooks[InPlaceUpdate] = []string{gate} }
	checkAll(t, []happening{
		{"a whole life", "every hook is flipped after its acknowledgement", steps{
			updateAsked, takesOut(FailOver), clears(traffic, updateGate), moves(updating),
			moves(updated), calls(Register), sets(traffic, updateGate), moves(normal),
			moves(preparingDelete), takesOut(Deregister), clears(traffic, deleteGate),
		}, ""},
		{
			"released without an acknowledgement", "a call whose answer was lost acknowledges nothing, though it was done",
			steps{updateAsked, losesAnswer(FailOver), waits(drain), clears(updateGate)}, "I1: hook inPlaceUpdate was released",
		},
		{
			"released after a list", "what a list shows is acknowledged too",
			steps{updateAsked, losesAnswer(FailOver), lists(registry.OutOfService), waits(drain), clears(updateGate)}, "",
		},
		{"released after an old acknowledgement", "the pod was put in again since", steps{
			updateAsked, calls(FailOver), moves(normal), losesAnswer(Register),
			moves(preparingUpdate), waits(drain), clears(updateGate),
		}, "since call #3 put it in"},
		{
			"released while it drains", "the drain counts from when the pod was taken out",
			steps{updateAsked, calls(FailOver), waits(drain / 2), clears(updateGate)}, drained,
		},
		{
			"deleted and not taken out", "out of service is not enough for a pod that goes",
			steps{deletionAsked, takesOut(FailOver), clears(deleteGate)}, "I1: hook preDelete was released",
		},
		{
			"never in service", "a registry that never had the pod need not release it",
			steps{born, moves(preparingDelete), clears(deleteGate)}, "",
		},
		{
			"wiped, and released at once", "the drain counts from when chaos took the pod out, where no manager did",
			steps{updateAsked, wiped, lists(registry.Absent), clears(updateGate)}, drained,
		},
		{
			"deleted in a gap", "kubelet may have begun in the gap, and then Kruise does not wait",
			steps{deletionAsked, calls(Deregister), patches(200, updateGate), gap, deleting, shows(updateGate)}, "",
		},
		{
			"released in a gap while it drains", "a pod that is not being deleted after the gap was not before it either",
			steps{updateAsked, calls(FailOver), patches(200, traffic, deleteGate), gap, at(updating, traffic, deleteGate)}, drained,
		},
		{"released in a gap for another hook", "the deletion may have been cancelled in the gap, and an update asked for", steps{
			deleteByFinalizer, updateByFinalizer, at(preparingNormal, gate), calls(Register),
			moves(preparingDelete), takesOut(FailOver), patches(200), gap, at(updating),
		}, ""},
		{"the last finalizer", "the patch that frees a dying pod shows only in its end", steps{
			deleteByFinalizer, at(preparingNormal, updateGate, gate), calls(Register), deleting, seen,
			patches(200, updateGate), gone, shows(updateGate),
		}, "I1: hook preDelete was released"},
		{"done, and answered with an error", "an error acknowledges nothing", steps{
			updateAsked, answeredWith(FailOver, true, 500), waits(drain), clears(updateGate),
		}, "had not acknowledged"},
		{"released after a list that shows it in", "that is no acknowledgement", steps{
			updateAsked, lists(registry.InService), waits(drain), clears(updateGate),
		}, "had not acknowledged"},
		{"released after a list of before", "the pod was put in since", steps{
			born, lists(registry.Absent), calls(Register), sets(traffic), moves(normal), moves(preparingUpdate), waits(drain), clears(updateGate),
		}, "had not acknowledged"},
		{"released after a list of another registry", "it does not tell of this one", steps{
			updateAsked, losesAnswer(FailOver), elsewhere("second", lists(registry.Absent)), waits(drain), clears(updateGate),
		}, "had not acknowledged"},
		{"released after a list that has no answer", "the manager has not seen it", steps{
			updateAsked, losesAnswer(FailOver), asks(registry.OutOfService, registry.Instance{}), waits(drain), clears(updateGate),
		}, "had not acknowledged"},
		{"released before the list is answered", "the manager has not seen it yet", steps{
			updateAsked, losesAnswer(FailOver), asks(registry.OutOfService, registry.Instance{}), waits(drain), clears(updateGate), hears,
		}, "had not acknowledged"},
		{"released after it was asked for", "the answer tells of it", steps{
			updateAsked, losesAnswer(FailOver), func(s *story) { s.play(asks(registry.OutOfService, s.instance()), hears) }, waits(drain), clears(updateGate),
		}, ""},
		{"released after another was asked for", "the answer tells of that one", steps{
			updateAsked, losesAnswer(FailOver), asks(registry.Absent, registry.Instance{Service: "other"}), hears, waits(drain), clears(updateGate),
		}, "had not acknowledged"},
		{"never put in, and no answer", "a registry that was never told of the pod need not release it", steps{
			born, moves(preparingDelete), losesAnswer(Deregister), clears(deleteGate),
		}, ""},
		{"gone by force", "nothing tells what held it last", steps{inService, gone, shows()}, ""},
		{"gone in a gap", "nothing tells what held it last", steps{inService, deleting, seen, gap, gone, shows()}, ""},
	})
}

// TestAssertion is about hooks that a manager asserts, or must have armed.
func TestAssertion(t *testing.T) {
	t.Parallel()
	checkAll(t, []happening{
		{
			"asserted without an acknowledgement", "an error acknowledges nothing",
			steps{born, refuses(Register), sets(traffic)}, "I2: " + traffic,
		},
		{
			"asserted and taken out", "the last call counts",
			steps{at(updated, traffic, deleteGate), calls(Register), losesAnswer(FailOver), sets(updateGate)}, "I2: " + updateGate,
		},
		{
			"asserted after a wipe", "what the registry loses by itself is not the manager's fault",
			steps{at(updated, traffic, deleteGate), calls(Register), lists(registry.Absent), sets(updateGate)}, "",
		},
		{
			"armed", "a hook may be set on a pod that is in rotation, or about to be",
			steps{at(preparingNormal), sets(updateGate, deleteGate)}, "",
		},
		{"updated unasked after a cancelled deletion", "in Updated no manager can arm the pod before it is in service", steps{
			at(updated, deleteGate), losesAnswer(Register), moves(preparingDelete), moves(preparingNormal), moves(updating),
		}, ""},
		{"updated unasked from Normal after a cancelled deletion", "preNormal was not cleared for the update", steps{
			at(updated, traffic, deleteGate), losesAnswer(Register), moves(preparingDelete), moves(preparingNormal),
			moves(normal), moves(updating), seen,
		}, "unasked"},
		{"updated unasked from Normal, and nothing holds a pod before that", "in no state could it be armed before", steps{
			func(s *story) { s.hooks[PreNormal] = nil },
			at(updated, deleteGate), losesAnswer(Register), moves(preparingDelete), moves(preparingNormal), moves(normal), moves(updating),
		}, ""},
		{"updated unasked, never armed", "it was put in without a handler", steps{at(preparingNormal), calls(Register), seen, moves(updating)}, "unasked"},
		{"updated unasked in a gap", "the handler may have been set and released in it", steps{
			at(preparingNormal), calls(Register), seen, gap, moves(updating),
		}, ""},
		{"updated unasked, not armed again", "the update before was cancelled", steps{
			func(s *story) { s.hooks[PreNormal] = nil }, at(updated, deleteGate), calls(Register), sets(updateGate), moves(normal), moves(preparingUpdate), takesOut(FailOver),
			clears(updateGate), moves(normal), calls(Register), seen, moves(updating),
		}, "unasked"},
		{"updated unasked when it was out", "there is nothing to ask", steps{at(preparingNormal), calls(Register), calls(FailOver), seen, moves(updating)}, ""},
		{"updated after the registry lost it", "Kruise has asked", steps{
			updateAsked, wiped, lists(registry.Absent), waits(drain), clears(updateGate), moves(updating),
		}, ""},
		{"updated without the hook", "Kruise never asks", steps{
			func(s *story) { s.hooks[InPlaceUpdate] = nil }, at(preparingNormal, deleteGate), calls(Register), sets(traffic), seen, moves(updating),
		}, ""},
		{"asserted in a gap", "no state allows that without a call", steps{
			at(preparingNormal, updateGate, deleteGate), refuses(Register), patches(200, traffic, updateGate, deleteGate), gap,
			at(normal, traffic, updateGate, deleteGate),
		}, "I2: " + traffic},
		{"asserted with a move that no gap hides", "one patch did both", steps{
			at(updated, traffic, deleteGate), refuses(Register), patches(200, traffic, updateGate, deleteGate),
			at(normal, traffic, updateGate, deleteGate),
		}, "I2: " + updateGate},
		{"asserted in a gap, in the same state", "that state does not allow it", steps{
			at(updated, traffic, deleteGate), refuses(Register), patches(200, traffic, updateGate, deleteGate), gap,
			shows(traffic, updateGate, deleteGate),
		}, "I2: " + updateGate},
		{"asserted at an address that it has no more", "clients are not given the new one", steps{
			at(updated, traffic, deleteGate), calls(Register), readdressed, sets(updateGate),
		}, "I2: " + updateGate},
		{
			"preNormal set in Updated without an acknowledgement", "a cancelled deletion would make the pod count as available",
			steps{at(updated, deleteGate), refuses(Register), sets(traffic)}, "I2: " + traffic,
		},
		{"updated before it was in service", "Kruise need not ask", steps{at(preparingNormal), moves(updating)}, ""},
		{"armed in a gap", "a deletion that was cancelled in the gap leads to where a hook may be set without a call", steps{
			at(updated, traffic, deleteGate), patches(200, traffic, updateGate, deleteGate), gap,
			at(preparingNormal, traffic, updateGate, deleteGate),
		}, ""},
	})
}

// TestFlip is about which write flips a handler, and in which state.
func TestFlip(t *testing.T) {
	t.Parallel()
	const ofRecord = `[{"op":"add","path":"/metadata/annotations/rollcall.dev~1registration","value":"{}"}]`
	checkAll(t, []happening{
		{
			"cleared by another's write", "a manager's patch of the record explains nothing",
			steps{updateAsked, takesOut(FailOver), patchesWith(ofRecord, 200), shows(traffic, deleteGate)}, "no manager's patch did it",
		},
		{"two patches without an answer", "the one that may have done it counts, and not the one after it, which was right", steps{
			updateAsked, patches(0, traffic, deleteGate), takesOut(FailOver), patchesWith(`[]`, 0), shows(traffic, deleteGate),
		}, "I1: hook inPlaceUpdate was released"},
		{
			"cleared in another state", "the pod was rolled back meanwhile: Kruise would not ask before the next update",
			steps{inService, takesOut(FailOver), clears(updateGate)}, "I3: handler " + updateGate + " was cleared",
		},
		{
			"set in another state", "the next update came meanwhile",
			steps{at(updating, traffic, deleteGate), sets(updateGate)}, "I3: handler " + updateGate + " was set",
		},
		{
			"Kruise sets it", "Kruise itself sets the handlers when another update comes",
			steps{at(updated, traffic, deleteGate), at(preparingUpdate, traffic, updateGate, deleteGate)}, "",
		},
		{
			"Kruise brings it", "the new template has the handler, and the old one lacks it",
			steps{updateAsked, takesOut(FailOver), patches(200, traffic, deleteGate), shows(traffic, deleteGate), at(updating, traffic, updateGate, deleteGate)}, "",
		},
		{
			"Kruise takes it away", "it saw the pod before the handler was set again after the last update, and the new template lacks it",
			steps{inService, at(updating, traffic, deleteGate)}, "",
		},
		{"an unknown answer of long ago", "the watch shows what a later patch did before the answer to that comes", steps{
			updateAsked, patches(0, traffic, deleteGate), takesOut(FailOver), begins(traffic, deleteGate),
			shows(traffic, deleteGate), judges, answered,
		}, ""},
		{"an unknown answer to the opposite", "a patch that sets a handler does not clear it", steps{
			at(updated, traffic, deleteGate), calls(Register), patches(0, traffic, updateGate, deleteGate), sets(updateGate),
			moves(preparingUpdate), shows(traffic, deleteGate),
		}, "no manager's patch did it"},
		{"after a gap", "what state the patch met was not seen, and is held against no manager", steps{
			inService, takesOut(FailOver), patches(200, traffic, deleteGate), gap, at(updating, traffic, deleteGate),
		}, ""},
		{
			"cleared in a gap by no patch", "patches are seen while the watch is away",
			steps{inService, gap, at(updating, traffic, deleteGate)}, "was cleared, and no manager's patch did it",
		},
		{
			"preNormal cleared before it is out", "Kruise waits for it again, should it cancel the deletion",
			steps{deletionAsked, refuses(Deregister), clears(traffic), takesOut(Deregister), clears(deleteGate)}, "",
		},
		{
			"preNormal cleared in Normal", "the pod is to stay",
			steps{inService, clears(traffic)}, "I3: handler " + traffic + ` was cleared in state "Normal"`,
		},
		{"cleared by a refused patch", "the API server did not carry it out", steps{
			updateAsked, takesOut(FailOver), patches(409, traffic, deleteGate), shows(traffic, deleteGate),
		}, "no manager's patch did it"},
		{"cleared by a patch of the update before", "that one shows already", steps{
			allowed, moves(updating), moves(updated), calls(Register), sets(updateGate), moves(normal), moves(preparingUpdate),
			takesOut(FailOver), shows(traffic, deleteGate),
		}, "no manager's patch did it"},
		{"cleared, and by a patch after it without an answer", "what came later can't have done it", steps{
			updateAsked, takesOut(FailOver), shows(traffic, deleteGate),
			patchesWith(`[{"op":"remove","path":"/metadata/labels/example.com~1update-gate"}]`, 0),
		}, "no manager's patch did it"},
		{"cleared by no one as Kruise moves on", "Kruise waits until it is cleared", steps{
			updateAsked, takesOut(FailOver), at(updating, traffic, deleteGate),
		}, "no manager's patch did it"},
		{"Kruise takes preNormal away", "the new template lacks it", steps{allowed, at(updating, deleteGate)}, ""},
		{"taken away by no one", "no template is written with this move", steps{inService, at(preparingUpdate, updateGate, deleteGate)},
			"no manager's patch did it"},
		{"set by no one", "no template is written", steps{at(preparingNormal, deleteGate), shows(updateGate, deleteGate)}, "no manager's patch did it"},
		{"set by no one as the update is over", "Kruise sets it for another update only", steps{
			at(updated, traffic, deleteGate), at(normal, traffic, updateGate, deleteGate),
		}, "no manager's patch did it"},
		{"set by no one before the update", "Kruise sets it only if another update came before", steps{
			at(normal, traffic, deleteGate), at(preparingUpdate, traffic, updateGate, deleteGate),
		}, "no manager's patch did it"},
		{"preNormal set by no one", "Kruise sets those of inPlaceUpdate alone", steps{
			at(updated, deleteGate), at(preparingUpdate, traffic, deleteGate),
		}, "no manager's patch did it"},
		{"set on a pod that is being deleted", "the API server lets nothing be added that holds it", steps{
			at(updated, traffic, deleteGate), calls(Register), deleting, seen, sets(updateGate),
		}, "I3: handler " + updateGate + ` was set in state "Updated", being deleted: true`},
		{"set in a gap", "what state the patch met was not seen", steps{
			at(updating, traffic, deleteGate), patches(200, traffic, updateGate, deleteGate), gap, at(updated, traffic, updateGate, deleteGate),
		}, ""},
	})
}

// TestFlipWaitsForTheAnswer: the watch may bring a version before the proxy has the answer to the patch.
func TestFlipWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.play(born, begins(traffic, updateGate, deleteGate), shows(traffic, updateGate, deleteGate), judges)
	if got := s.Broken(); len(got) > 0 {
		t.Fatalf("judged before the answer: %v", got)
	}
	s.play(answered, judges)
	if got := s.Broken(); len(got) != 1 {
		t.Fatalf("after the answer: %v, want one violation", got)
	}
}

// TestCallWaitsForNoOtherPod: what another pod's flip was is of no matter to a call.
func TestCallWaitsForNoOtherPod(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.play(inService, waits(reasonLasts), calls(FailOver), waits(explainWithin/2), another, func(s *story) {
		s.PatchReceived("m1", apiproxy.Write{Namespace: testPod.Namespace, Name: "pod-2", Body: s.body(), Received: s.tick()})
		s.version, s.pod.Set = s.version+1, nil
	}, another, waits(explainWithin/2), judges)
	expect.Equal(t, 3, len(s.pending), "flips of the other pod that wait")
	if got := s.Broken(); len(got) != 1 {
		t.Fatalf("got %v, want one violation", got)
	}
}

// TestCallWaitsForNoAnswer: what Kruise does is known without one, however often it does it.
func TestCallWaitsForNoAnswer(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.play(inService, waits(reasonLasts), calls(FailOver), calls(Register), waits(explainWithin), at(updating, traffic, deleteGate), judges)
	if got := s.Broken(); len(got) != 1 {
		t.Fatalf("got %v, want one violation", got)
	}
}

// TestEachOnce: a soak judges each entry once, by the lists since it was put in.
func TestEachOnce(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.play(born, calls(Register), calls(Register))
	keys := s.pods[testUID].registered()
	expect.Equal(t, []Key{KeyOf(defaultRegistry, s.instance())}, keys, "the entries")
	s.play(lists(registry.InService))
	s.listings = append([]*Call{nil}, s.listings...) // panics if it is read
	expect.Equal(t, false, s.told(keys[0], s.now, s.now, func(registry.State) bool { return true }), "told since")
}

// TestLateCall is about what comes after a flip and undoes what it rests on.
func TestLateCall(t *testing.T) {
	t.Parallel()
	const onItsWay, afterwards = "on its way, put the pod in service after it", "sent afterwards, put the pod in service after it"
	lateRegister := func(s *story) { s.play(inService, holds(Register), moves(preparingUpdate)) }
	lateFailOver := func(s *story) { s.play(at(updating, traffic, deleteGate), holds(FailOver)) }
	back := func(s *story) { s.play(moves(updated), calls(Register), sets(updateGate)) }
	checkAll(t, []happening{
		{"put in after the release, before the watch shows that", "the call was done before any manager could know of that", steps{
			lateRegister, takesOut(FailOver), patches(200, traffic, deleteGate), lands, judges, shows(traffic, deleteGate),
		}, onItsWay},
		{"put in after the release, before its answer comes", "what the flip was is known late, and the call waits for that", steps{
			lateRegister, takesOut(FailOver), begins(traffic, deleteGate), lands, waits(explainWithin - time.Second),
			shows(traffic, deleteGate), waits(2 * time.Second), judges, answered,
		}, onItsWay},
		{
			"put in later than the design assumes", "no manager can wait for what may land at any time",
			steps{lateRegister, waits(landsWithin), takesOut(FailOver), clears(updateGate), lands}, "",
		},
		{
			"registered after the release, before the pod is back", "where the pod comes later is no excuse",
			steps{allowed, moves(updating), calls(Register), waits(2 * time.Second), moves(updated)}, afterwards,
		},
		{"registered before the watch shows the pod back", "Kruise's stamp tells since when the pod may have been there", steps{
			allowed, moves(updating), waits(2 * time.Second), stamped(updated), calls(Register), waits(2 * time.Second), seen,
		}, ""},
		{
			"registered when it is gone", "its last finalizer was removed because it was out",
			steps{inService, deleting, seen, calls(Deregister), clears(deleteGate), gone, seen, calls(Register)}, afterwards,
		},
		{
			"registered after a gap", "the watch has not shown where the pod was meanwhile",
			steps{allowed, gap, at(preparingUpdate, traffic, updateGate, deleteGate), noGap, calls(Register)}, "",
		},
		{
			"taken out after the assertion", "a call that was on its way undoes what the assertion rests on",
			steps{lateFailOver, back, lands, calls(Register)}, "I2: hook inPlaceUpdate was asserted, and call #1, on its way, took web",
		},
		{
			"taken out after the assertion, when it should be", "the next update has begun meanwhile",
			steps{lateFailOver, back, moves(preparingUpdate), lands}, "",
		},
		{"taken out after the assertion, since it is not ready", "a pod that can't serve should be out in every state", steps{
			at(updated, traffic, deleteGate), calls(Register), holds(FailOver), sets(updateGate), unready, seen, lands,
		}, ""},
		{
			"taken out after chaos took it out", "the late call finds nothing that it could take out",
			steps{lateFailOver, back, wiped, lands}, "",
		},
		{"another instance taken out after the assertion", "an address that the pod has no more is of no use to clients", steps{
			at(updated, traffic, deleteGate), calls(Register), holds(Deregister), readdressed, seen, calls(Register),
			sets(updateGate), lands,
		}, ""},
		{"taken out after the assertion, and lost before, later and elsewhere", "it was in, and the call took it out", steps{
			lateFailOver, wiped, back, elsewhere("second", wiped), lands, calls(Register), wiped,
		}, "I2: hook inPlaceUpdate was asserted, and call #1, on its way, took web"},
		{"taken out twice after the assertion", "the late call finds nothing that it could take out", steps{lateFailOver, back, calls(FailOver), lands}, ""},
		{"put in before any hook was released", "nothing rests on it yet", steps{at(preparingUpdate, updateGate, deleteGate), calls(Register)}, ""},
		{"put in after preNormal was cleared", "Kruise has not been told that the pod is out", steps{
			inService, holds(Register), moves(preparingDelete), clears(traffic), lands, takesOut(Deregister), clears(deleteGate),
		}, ""},
		{"registered after the second release", "that the first one was by an unknown patch is found out last", steps{
			updateAsked, takesOut(FailOver), patches(0, traffic, deleteGate), shows(traffic, deleteGate), moves(updating), moves(updated),
			calls(Register), sets(updateGate), moves(normal), moves(preparingUpdate), takesOut(FailOver), clears(updateGate), calls(Register),
		}, afterwards},
		{"of a pod that is not seen yet", "what the harness does to it is not known either", steps{wiped, comesBack, configured(defaultRegistry), calls(Register)}, ""},
	})
}

// TestUnprovoked is about pods that are taken out for no reason.
func TestUnprovoked(t *testing.T) {
	t.Parallel()
	steady := func(s *story) { s.play(inService, waits(reasonLasts)) }
	checkAll(t, []happening{
		{
			"taken out for no reason", "a pod that is Normal, ready and has not moved stays in service",
			steps{steady, calls(FailOver), calls(Register)},
			"I9: call #2 took web at " + testAddress + ":8080 in registry default out",
		},
		{
			"taken out for a reason of before", "the manager's cache may lag, and the call was on its way",
			steps{updateAsked, moves(normal), waits(reasonLasts - time.Second), calls(FailOver)}, "",
		},
		{
			"taken out for a reason that is seen later", "the watch may lag behind the manager's, and Kruise stamps its move",
			steps{steady, stamped(preparingUpdate), calls(FailOver), waits(watchLags + time.Second), seen}, "",
		},
		{
			"taken out, not ready", "that is what readiness is for",
			steps{steady, calls(FailOver), waits(watchLags / 2), unready, seen}, "",
		},
		{
			"taken out, not ready much later", "no manager can have known",
			steps{steady, calls(FailOver), waits(2 * watchLags), unready, seen}, "I9: call #2",
		},
		{"taken out at an address that it has not", "what is wrong goes", steps{steady, readdressed, calls(Deregister)}, ""},
		{
			"taken out by a manager that was blind", "the API server was away since the pod came back",
			steps{updateAsked, goesBlind, moves(normal), waits(2 * reasonLasts), goesBlind, calls(FailOver), sees}, "",
		},
		{
			"taken out by a manager that was blind, and had no reason before", "a pod that was steady all along gives no reason",
			steps{steady, waits(reasonLasts), goesBlind, waits(2 * reasonLasts), calls(FailOver), sees}, "I9: call #2",
		},
		{
			"taken out long after a manager was blind", "it has caught up",
			steps{updateAsked, goesBlind, moves(normal), sees, waits(blindAfter), calls(FailOver)}, "I9: call #2",
		},
		{"taken out by others", "they may do as they like", steps{func(s *story) { s.OnlyManagers = false }, steady, calls(FailOver)}, ""},
		{"taken out after a gap", "it may have moved in it", steps{steady, gap, seen, noGap, calls(FailOver)}, ""},
		{"taken out long after a gap", "no manager knows only what was before", steps{
			steady, gap, seen, noGap, waits(2 * reasonLasts), calls(FailOver),
		}, "I9: call #2"},
		{"taken out after a new list", "it shows what is known", steps{steady, again, calls(FailOver), calls(Register)}, "I9: call #2"},
		{"taken out, being deleted", "it ends", steps{steady, deleting, seen, waits(2 * reasonLasts), calls(Deregister)}, ""},
		{"taken out, gone", "it has ended", steps{steady, vanishes, waits(2 * reasonLasts), calls(Deregister)}, ""},
	})
}

func TestMoves(t *testing.T) {
	t.Parallel()
	const second = "second"
	leaves, joins := callsIn(defaultRegistry, Deregister), calls(Register)
	steady := func(s *story) { s.play(inService, waits(2*reasonLasts)) }
	checkAll(t, []happening{
		{"moved", "clients find it in the new one by then", steps{steady, belongsTo(second), joins, leaves}, ""},
		{"left before it joined", "clients find it nowhere", steps{steady, belongsTo(second), leaves, joins},
			"from where the pod departs, and the registry was never told of web at " + testAddress + ":8080 in registry second"},
		{"left after the new one refused it", "an error acknowledges nothing", steps{steady, belongsTo(second), refuses(Register), leaves},
			"from where the pod departs"},
		{"left long after it moved", "the same", steps{steady, belongsTo(second), waits(3 * reasonLasts), leaves}, "from where the pod departs"},
		{"moved by the configuration", "clients find it in the new one by then", steps{steady, configured(second), joins, leaves}, ""},
		{"left by the configuration before it joined", "clients find it nowhere", steps{steady, configured(second), leaves, joins},
			"from where the pod departs"},
		{"asserted where it belonged a moment ago", "the manager has not read the configuration yet", steps{
			at(updated, traffic, deleteGate), calls(Register), configured(second), sets(updateGate),
		}, ""},
		{"asserted where it belonged long ago", "the manager has", steps{
			at(updated, traffic, deleteGate), calls(Register), configured(second), waits(2 * reasonLasts), sets(updateGate),
		}, "I2: " + updateGate},
		{"left while it is out", "no client is sent to it", steps{
			steady, belongsTo(second), moves(preparingUpdate), leaves, waits(drain), clears(updateGate),
		}, ""},
		{"left when it was out there", "there is nothing to lose", steps{
			updateAsked, calls(FailOver), moves(normal), waits(2 * reasonLasts), belongsTo(second), leaves, joins,
		}, ""},
		{"moved there and back", "the manager has seen the first move", steps{
			steady, belongsTo(second), joins, belongsTo(defaultRegistry), callsIn(defaultRegistry, Deregister), calls(Register),
		}, ""},
		{"left an address that it has no more", "another pod may have it soon", steps{
			steady, readdressed, seen, waits(2 * reasonLasts), func(s *story) {
				former := s.instance()
				former.Address = testAddress
				c := s.receivedFor(Deregister, former)
				s.CallApplied(c, s.tick())
			},
		}, ""},
		{"moved twice", "the manager has seen the first move", steps{steady, belongsTo(second), joins, belongsTo("third"), leaves}, ""},
		{"moved twice, and joined the last", "the manager has seen the second move", steps{steady, belongsTo("third"), belongsTo(second), joins, leaves}, ""},
		{"left before it joined both", "clients of one find it nowhere", steps{steady, configured(second, "third"), joins, leaves},
			"and the registry was never told of web at " + testAddress + ":8080 in registry third"},
	})
}

func TestBrought(t *testing.T) {
	t.Parallel()
	const leads, other = "m1", "m2"
	// The manager's patch and Kruise's write come after each other, as if a template that has the handler followed one that has not.
	brings := func(s *story) {
		s.play(inService, waits(time.Second), writes(leads, wroteWithin), moves(preparingUpdate), takesOut(FailOver), clears(updateGate),
			at(updating, traffic, updateGate, deleteGate))
	}
	late := func(s *story) {
		s.play(inService, waits(2*wroteWithin), moves(preparingUpdate), takesOut(FailOver), clears(updateGate),
			at(updating, traffic, updateGate, deleteGate))
	}
	const lost = "I2: Kruise took the pod for back from its update"
	checkAll(t, []happening{
		{"never cleared", "the manager led all the time", steps{brings, writes(leads, clearsWithin), moves(normal)}, lost},
		{"cleared in time", "Kruise asks whether it is back", steps{
			brings, clears(updateGate), writes(leads, clearsWithin), moves(updated), calls(Register), sets(updateGate), moves(normal),
		}, ""},
		{"a container that took no time", "no manager can be sooner", steps{brings, writes(leads, clearsWithin/2), moves(normal)}, ""},
		{"back in the registry", "clients find it", steps{brings, writes(leads, clearsWithin), stamped(normal), calls(Register), seen}, ""},
		{"not back yet", "Kruise has not moved it", steps{
			brings, writes(leads, clearsWithin), seen, clears(updateGate), moves(updated), calls(Register), sets(updateGate), moves(normal),
		}, ""},
		{"the update is cancelled", "nothing was brought", steps{
			inService, waits(time.Second), writes(leads, wroteWithin), moves(preparingUpdate), calls(FailOver), moves(normal),
			writes(leads, clearsWithin), seen,
		}, ""},
		{"brought in a gap", "what Kruise wrote was not seen", steps{
			inService, waits(time.Second), writes(leads, wroteWithin), moves(preparingUpdate), takesOut(FailOver), clears(updateGate),
			gap, at(updating, traffic, updateGate, deleteGate), noGap, writes(leads, clearsWithin), moves(normal),
		}, ""},
		{"back after a gap", "it may have been Updated in it", steps{brings, writes(leads, clearsWithin), gap, moves(normal)}, ""},
		{"no manager leads", "nobody could clear it", steps{brings, waits(clearsWithin), moves(normal)}, ""},
		{"another manager leads", "it has all pods to look at first", steps{
			brings, writes(other, clearsWithin), moves(normal),
		}, ""},
		{"another manager led before", "the one that leads has looked at all pods since", steps{
			writes(other, time.Second), waits(wroteWithin), brings, writes(leads, clearsWithin), moves(normal),
		}, lost},
		{"a manager leads since a moment ago", "it has all pods to look at first", steps{late, writes(leads, clearsWithin), moves(normal)}, ""},
		{"a manager whose writes fail", "it may see no pods", steps{brings, fails(leads, clearsWithin), moves(normal)}, ""},
		{"the API server is away", "nobody sees it", steps{brings, goesBlind, writes(leads, clearsWithin), sees, moves(normal)}, ""},
		{"taken away again", "the next template has it no more", steps{
			brings, at(updating, traffic, deleteGate), writes(leads, clearsWithin), moves(normal),
		}, ""},
	})
}

// TestApplications: what an application does by itself counts where a manager can have seen it.
func TestApplications(t *testing.T) {
	t.Parallel()
	checkAll(t, []happening{
		{"came back, and nobody looked", "a manager asks for it again and again", steps{
			updateAsked, takesOut(FailOver), comesBack, waits(appSeenWithin), clears(updateGate),
		}, "had not acknowledged that web at " + testAddress + ":8080 in registry default is out since its application put it in"},
		{"came back, and was taken out again", "the drain begins anew", steps{
			updateAsked, takesOut(FailOver), comesBack, waits(appSeenWithin), takesOut(FailOver), clears(updateGate),
		}, ""},
		{"came back at the last moment", "no manager can have seen it", steps{
			updateAsked, takesOut(FailOver), comesBack, waits(time.Second), clears(updateGate),
		}, ""},
		{"came back elsewhere", "no manager has put it in there", steps{
			updateAsked, takesOut(FailOver), elsewhere("second", comesBack), waits(appSeenWithin), clears(updateGate),
		}, ""},
		{"wrote its entry again while it was in", "it was taken out since", steps{
			inService, comesBack, moves(preparingUpdate), takesOut(FailOver), clears(updateGate),
		}, ""},
	})
}

func TestPatchChanges(t *testing.T) {
	t.Parallel()
	const gate, other = "example.io/gate", "example.io/other"
	for name, tc := range map[string]struct {
		reason, body string
		// want are the handlers that it sets and clears.
		want []string
	}{
		"a label": {"it is cleared", `[{"op":"remove","path":"/metadata/labels/example.com~1traffic"}]`, []string{"-" + traffic}},
		"a label's value": {
			"it is set", `[{"op":"add","path":"/metadata/labels/example.com~1traffic","value":"online"}]`, []string{"+" + traffic},
		},
		"a tested label": {
			"a test changes nothing", `[{"op":"test","path":"/metadata/labels/example.com~1traffic","value":"online"}]`, nil,
		},
		"another finalizer": {"the test says what stands at the index", `[
			{"op":"test","path":"/metadata/finalizers/1","value":"example.io/other"},
			{"op":"remove","path":"/metadata/finalizers/1"}]`, []string{"-" + other}},
		"any finalizer": {
			"a manager that tests nothing may remove any", `[{"op":"remove","path":"/metadata/finalizers/1"}]`, []string{"-" + gate, "-" + other},
		},
		"an added finalizer": {"the test of the whole list names others too", `[
			{"op":"test","path":"/metadata/finalizers","value":["example.io/gate"]},
			{"op":"add","path":"/metadata/finalizers/-","value":"example.io/other"}]`, []string{"+" + other}},
		"the record": {"it names the handlers", `[{"op":"add","path":"/metadata/annotations/rollcall.dev~1registration",
			"value":"example.com/traffic example.io/gate"}]`, nil},
	} {
		w := Patch{Write: apiproxy.Write{Body: tc.body}}
		var got []string
		for _, h := range []string{traffic, gate, other} {
			if w.changes(h, true) {
				got = append(got, "+"+h)
			}
			if w.changes(h, false) {
				got = append(got, "-"+h)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}

// TestCounts: how much a storm has met is counted from its beginning; what a new list brings again does not count.
func TestCounts(t *testing.T) {
	t.Parallel()
	j, version := New(Options{}), uint64(0)
	saw := func(uid string, state appspub.LifecycleStateType, address string) {
		version++
		s := Sighting{Version: version, State: string(state), Address: address}
		name := types.NamespacedName{Namespace: "ns", Name: uid}
		j.Saw(uid, name, Hooks{}, s)
		j.Saw(uid, name, Hooks{}, s)
	}
	saw("a", normal, "127.0.0.1")
	saw("a", preparingUpdate, "127.0.0.1")
	j.Begin()
	saw("a", updating, "127.0.0.1")
	saw("a", updating, "127.0.0.1")
	saw("b", normal, "127.0.0.2")
	saw("b", normal, "127.0.0.1")
	saw("c", preparingNormal, "")
	saw("c", normal, "127.0.0.3")
	saw("c", normal, "")
	saw("c", normal, "127.0.0.3")
	saw("d", normal, "")
	saw("d", normal, "")
	j.Saw("d", types.NamespacedName{}, Hooks{}, Sighting{Version: 1, State: string(updating)})
	if got := j.Counts(); got.Transitions != 2 || got.Reused != 1 {
		t.Errorf("got %d transitions and %d addresses given again, want 2 and 1", got.Transitions, got.Reused)
	}
}

// TestCountsOfAPod are what has become of one, which is known until it is gone.
func TestCountsOfAPod(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.hooks[InPlaceUpdate] = []string{updateGate, "example.io/update"}
	expectKnown := func(calls, known int) {
		t.Helper()
		if got := s.Calls(testUID); len(got) != calls || len(s.Known()) != known {
			t.Errorf("got %d calls of %d known pods, want %d of %d", len(got), len(s.Known()), calls, known)
		}
	}
	s.play(callsIn("second", Deregister))
	expectKnown(1, 0)
	s.play(at(preparingNormal, updateGate, "example.io/update", deleteGate), calls(Register), sets(traffic), moves(preparingUpdate), takesOut(FailOver),
		clears(updateGate, "example.io/update"))
	expectKnown(3, 1)
	s.play(asks(registry.InService, s.instance()), vanishes, judges)
	expectKnown(3, 0)
	if got := s.Counts(); got.Released != 1 || got.Flips != 3 {
		t.Errorf("%d hooks were released by %d flips, want one by both of its handlers, and one asserted: %v", got.Released, got.Flips, s.Broken())
	}
}

// TestPatchesOf are those of pods, with the version that each makes; a write of the lease renews it.
func TestPatchesOf(t *testing.T) {
	t.Parallel()
	j := New(Options{})
	j.Saw(testUID, testPod, Hooks{}, Sighting{Version: 1})
	observe := j.PatchesOf("m1")
	pod := apiproxy.Write{Resource: "pods", Method: http.MethodPatch, Namespace: testPod.Namespace, Name: testPod.Name}
	for _, tc := range []struct {
		write  apiproxy.Write
		status int
		pod    *corev1.Pod
	}{
		{apiproxy.Write{Resource: "leases"}, 409, nil},
		{apiproxy.Write{Resource: "leases"}, 200, nil},
		{pod, 500, nil},
		{pod, 200, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}}},
	} {
		answered := observe(tc.write)
		tc.write.Status, tc.write.Pod = tc.status, tc.pod
		answered(tc.write)
	}
	if observe(apiproxy.Write{Resource: "events"}) != nil {
		t.Error("an Event is written down")
	}
	var got []string
	for _, w := range j.pods[testUID].patches {
		got = append(got, fmt.Sprintf("%d makes %d", w.Status, w.version))
	}
	expect.Equal(t, []string{"500 makes 0", "200 makes 7"}, got, "the patches")
	expect.Equal(t, 1, len(j.renewed["m1"]), "renewals")
}

// TestHistory tells all that happened to a pod.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := newStory()
	clock := func(at time.Time) string { return at.UTC().Format("05.000") }
	expect.Equal(t, "no such pod was ever seen", s.History(testUID, clock), "before")
	s.pod.Image, s.pod.Record = "web:1", "{}"
	s.play(born, calls(Register), losesAnswer(FailOver), func(s *story) {
		s.CallReceived(Call{Manager: "m2", Registry: "default", Op: Register, Fault: "cut", Instance: s.instance(), Received: s.tick()})
	}, comesBack, wiped, sets(traffic), patches(0, traffic), begins(),
		func(s *story) { s.pod.Record = "{2}" }, unready, deleting, gap, seen, gone, seen)
	want := `pod ns/pod-1, UID uid-1
  00.001  pod    version 11  ready  PreparingNormal  1970-01-01T00:00:00Z  127.100.0.1  web:1  handlers example.com/delete-gate=shut example.com/update-gate=shut  record {}
  00.002  call   #1 of m1: register web at 127.100.0.1:8080 in registry default, done 00.003, answered 204 at 00.004
  00.005  call   #2 of m1: fail-over web at 127.100.0.1:8080 in registry default, done 00.006, never answered
  00.008  call   #3 of m2: register web at 127.100.0.1:8080 in registry default, done never, never answered (cut)
  00.009  app    put web at 127.100.0.1:8080 in registry default in service itself
  00.010  WIPED  web at 127.100.0.1:8080 in registry default, by the harness itself, or expired
  00.011  patch  of m1: add /metadata/labels/example.com~1traffic -> 200, version 12 at 00.012
  00.013  pod    version 12  ready  PreparingNormal  1970-01-01T00:00:00Z  127.100.0.1  web:1  handlers example.com/delete-gate=shut example.com/traffic=online example.com/update-gate=shut
  00.014  patch  of m1: remove /metadata/labels/example.com~1delete-gate, remove /metadata/labels/example.com~1update-gate -> no answer at 00.015
  00.016  patch  of m1: remove /metadata/labels/example.com~1delete-gate, remove /metadata/labels/example.com~1traffic, remove /metadata/labels/example.com~1update-gate -> under way at 00.000
  00.017  pod    version 13  (after a gap)  being deleted  not ready  PreparingNormal  1970-01-01T00:00:00Z  127.100.0.1  web:1  handlers example.com/delete-gate=shut example.com/traffic=online example.com/update-gate=shut  record {2}
  00.018  pod    version 14  GONE  (after a gap)  being deleted  not ready  PreparingNormal  1970-01-01T00:00:00Z  127.100.0.1  web:1  handlers example.com/delete-gate=shut example.com/traffic=online example.com/update-gate=shut
`
	expect.Equal(t, want, s.History(testUID, clock), "the history")
}

// TestPatchesOfOneName: scenarios are judged at their end, patches first, and the pods of a StatefulSet have one name after the other.
func TestPatchesOfOneName(t *testing.T) {
	t.Parallel()
	j, uids := New(Options{}), []types.UID{"first", "second"}
	for _, uid := range uids {
		of := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		j.PatchReceived("m1", apiproxy.Write{Namespace: testPod.Namespace, Name: testPod.Name, Pod: of})
	}
	for i, uid := range uids {
		j.Saw(string(uid), testPod, Hooks{}, Sighting{Version: uint64(i + 1)})
		if of := j.pods[string(uid)].patches; len(of) != 1 || of[0].Pod.UID != uid {
			t.Errorf("the %s pod has patches %+v, want its own", uid, of)
		}
	}
}
