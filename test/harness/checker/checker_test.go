package checker

import (
	"slices"
	"testing"
	"time"

	"github.com/rollcall-dev/rollcall/registry"
	"github.com/rollcall-dev/rollcall/test/harness/apiproxy"
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
			moves(normal), moves(updating),
		}, "unasked"},
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
			steps{updateAsked, goesBlind, moves(normal), waits(2 * reasonLasts), calls(FailOver), sees}, "",
		},
		{
			"taken out by a manager that was blind, and had no reason before", "a pod that was steady all along gives no reason",
			steps{steady, waits(reasonLasts), goesBlind, waits(2 * reasonLasts), calls(FailOver), sees}, "I9: call #2",
		},
		{
			"taken out long after a manager was blind", "it has caught up",
			steps{updateAsked, goesBlind, moves(normal), sees, waits(blindAfter), calls(FailOver)}, "I9: call #2",
		},
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
		{"left an address that it has no more", "another pod may have it soon", steps{steady, readdressed, seen, calls(Deregister)}, ""},
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
	const lost = "I2: Kruise took the pod for back from its update"
	checkAll(t, []happening{
		{"never cleared", "the manager led all the time", steps{brings, writes(leads, clearsWithin), moves(normal)}, lost},
		{"cleared in time", "Kruise asks whether it is back", steps{
			brings, clears(updateGate), writes(leads, clearsWithin), moves(updated), calls(Register), sets(updateGate), moves(normal),
		}, ""},
		{"a container that took no time", "no manager can be sooner", steps{brings, writes(leads, clearsWithin/2), moves(normal)}, ""},
		{"no manager leads", "nobody could clear it", steps{brings, waits(clearsWithin), moves(normal)}, ""},
		{"another manager leads", "it has all pods to look at first", steps{
			brings, writes(other, clearsWithin), moves(normal),
		}, ""},
		{"the API server is away", "nobody sees it", steps{brings, goesBlind, writes(leads, clearsWithin), sees, moves(normal)}, ""},
		{"taken away again", "the next template has it no more", steps{brings, at(updating, traffic, deleteGate), moves(updated)}, ""},
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
		want         []string
	}{
		"a label": {
			"set or cleared, it is changed", `[{"op":"remove","path":"/metadata/labels/example.com~1traffic"}]`, []string{traffic},
		},
		"a tested label": {
			"a test changes nothing", `[{"op":"test","path":"/metadata/labels/example.com~1traffic","value":"online"}]`, nil,
		},
		"another finalizer": {"the test says what stands at the index", `[
			{"op":"test","path":"/metadata/finalizers/1","value":"example.io/other"},
			{"op":"remove","path":"/metadata/finalizers/1"}]`, []string{other}},
		"any finalizer": {
			"a manager that tests nothing may remove any", `[{"op":"remove","path":"/metadata/finalizers/1"}]`, []string{gate, other},
		},
		"an added finalizer": {"the test of the whole list names others too", `[
			{"op":"test","path":"/metadata/finalizers","value":["example.io/gate"]},
			{"op":"add","path":"/metadata/finalizers/-","value":"example.io/other"}]`, []string{other}},
		"the record": {"it names the handlers", `[{"op":"add","path":"/metadata/annotations/rollcall.dev~1registration",
			"value":"example.com/traffic example.io/gate"}]`, nil},
	} {
		w := Patch{Write: apiproxy.Write{Body: tc.body}}
		var got []string
		for _, h := range []string{traffic, gate, other} {
			if w.changes(h, true) || w.changes(h, false) {
				got = append(got, h)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %q, want %q: %s", name, got, tc.want, tc.reason)
		}
	}
}
