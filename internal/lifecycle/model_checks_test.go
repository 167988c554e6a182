package lifecycle

import (
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// check is I1, at every step: a pod that we let Kruise update or delete is not in rotation.
func (w *world) check() {
	w.resync()
	for _, p := range w.pods {
		if p.releasedHook && w.registry.inService(p.uid) {
			w.violatef("I1: %s was released and is in rotation", p.uid)
		}
	}
}

// resync stands for the comparison of the whole registry with the whole cluster. It removes what only that can find: a
// former address that no record names, told to the registry by a manager that died.
func (w *world) resync() {
	for e := range w.registry.entries {
		p := w.pods[slices.IndexFunc(w.pods, func(p *modelPod) bool { return p.uid == e.uid })]
		last := p.last()
		known := slices.Contains(modelInstances(last), e.in) || slices.Contains(RecordOf(last).Instances, e.in)
		if !known && !w.remembers(e) {
			w.logf("resync: removes %s of %s", e.in.Address, e.uid)
			w.registry.carryOut(effect{e, Absent, w.now})
		}
	}
}

// checkPatch looks at what a patch of the manager's changed. It was decided on the pod as seen, and on hooks that may be
// others by now.
func (w *world) checkPatch(p *modelPod, seen, before, after *corev1.Pod, edited bool) {
	foreign := func(pod *corev1.Pod) []string {
		return slices.DeleteFunc(slices.Clone(pod.Finalizers), ourFinalizer)
	}
	if !slices.Equal(foreign(before), foreign(after)) {
		w.violatef("%s: other owners' finalizers were %v and are %v", p.uid, foreign(before), foreign(after))
	}
	switch {
	case after.DeletionTimestamp != nil:
		held := func(pod *corev1.Pod) bool { return slices.ContainsFunc(pod.Finalizers, ourFinalizer) }
		p.releasedHook = p.releasedHook || held(before) && !held(after)
	case state(after) == appspub.LifecycleStatePreparingDelete:
		w.checkRelease(p, PreDelete, before, after)
	case state(after) == appspub.LifecycleStatePreparingUpdate:
		w.checkRelease(p, InPlaceUpdate, before, after)
	case state(after) == appspub.LifecycleStatePreparingNormal:
		w.checkAssert(p, PreNormal, seen, before, after, edited)
	case state(after) == appspub.LifecycleStateUpdated:
		w.checkAssert(p, InPlaceUpdate, seen, before, after, edited)
	}
	w.check()
}

func (w *world) checkRelease(p *modelPod, h Hook, before, after *corev1.Pod) {
	set := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(ours(w.hook(h)), func(h Handler) bool { return carries(pod, h) })
	}
	if !set(before) || set(after) {
		return
	}
	w.logf("rollcall: releases %s of %s", h, p.uid)
	p.releasedHook = true
	p.taken = p.taken || h == InPlaceUpdate
	if finished(after) {
		return // nothing drains in a pod whose containers ended
	}
	if out, was := w.registry.outSince[p.uid]; was && w.now.Before(out.Add(w.drain)) {
		w.violatef("I1: %s was released %s after it went out of rotation, and drains for %s", p.uid, w.now.Sub(out), w.drain)
	}
	if h == PreDelete && w.hook(PreNormal) != nil && len(ours(w.hook(PreNormal))) > 0 && isAllHooked(w.hook(PreNormal), after) {
		w.violatef("trap 2: preDelete of %s was released and preNormal left set", p.uid)
	}
}

// checkAssert is I2.
func (w *world) checkAssert(p *modelPod, h Hook, seen, before, after *corev1.Pod, edited bool) {
	all := func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(ours(w.hook(h)), func(h Handler) bool { return !carries(pod, h) })
	}
	if edited || len(ours(w.hook(h))) == 0 || all(before) || !all(after) {
		return
	}
	w.logf("rollcall: asserts %s of %s", h, p.uid)
	p.disturbed = !IsReady(after) || seen.Status.PodIP != after.Status.PodIP
	p.wasOut, p.taken, p.unarmed = false, false, nil
	for _, in := range modelInstances(seen) {
		if says := w.registry.entries[entry{p.uid, in}]; says != InService {
			w.violatef("I2: %s of %s was asserted and the registry says %q of %s", h, p.uid, says, in.Address)
		}
	}
}

// checkInService: a pod has passed a hook with a handler that Rollcall owns, without a mishap since the assertion and
// without a call that rests on a stale view.
func (w *world) checkInService(p *modelPod, what string, hook *appspub.LifecycleHook) {
	if len(ours(hook)) > 0 && !p.disturbed && !p.unwritten && !w.registry.inService(p.uid) {
		w.violatef("I2: %s with %s, which is not in rotation", what, p.uid)
	}
}

// checkUnasked: Kruise takes a pod that is in rotation without asking, although it was put there under these hooks. A
// handler that says "go on" in this very state can't be armed before.
func (w *world) checkUnasked(p *modelPod, does string, hook *appspub.LifecycleHook) {
	if len(without(ours(hook), p.unarmed)) == 0 {
		p.unasked = true
	}
	if !p.unasked && p.registeredIn == w.edits && w.registry.inService(p.uid) {
		w.violatef("trap 11: Kruise %s %s unasked, which is in rotation", does, p.uid)
	}
}

// checkSettled: no faults any more and nothing moves.
func (w *world) checkSettled() {
	for _, p := range w.pods {
		switch {
		case p.api == nil:
			if w.registry.knows(p.uid) && (p.hadFinalizer || !p.orphaned) {
				w.violatef("leak: %s is gone, and the registry still knows it", p.uid)
			}
		case p.api.DeletionTimestamp != nil:
			w.violatef("stuck: %s is dead and held by %v", p.uid, p.api.Finalizers)
		default:
			w.checkSettledPod(p)
		}
	}
}

// panics reports whether more than half of the pods that should serve are not ready.
func (w *world) panics() bool {
	var peers Peers
	for _, p := range w.pods {
		if p.api == nil || !Counts(p.api) {
			continue
		}
		if peers.All++; !IsReady(p.api) {
			peers.Unready++
		}
	}
	return peers.Panic(modelPanic)
}

func (w *world) checkSettledPod(p *modelPod) {
	hooks := HooksOf(w.workload, testOwnership())
	if !(Input{Pod: p.api, Hooks: hooks, Record: RecordOf(p.api), Ownership: testOwnership()}).Managed() {
		return
	}
	s, ready := state(p.api), IsReady(p.api)
	if !ready {
		kept := s == appspub.LifecycleStateNormal && (w.unready == UnreadyKeep || w.panics())
		if !kept && w.registry.inService(p.uid) {
			w.violatef("%s is %s and not ready, and in rotation", p.uid, s)
		}
		return
	}
	if w.workload == nil { // nobody moves it any more
		serves := slices.Contains([]appspub.LifecycleStateType{appspub.LifecycleStateNormal,
			appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateUpdated}, s)
		if serves != w.registry.inService(p.uid) {
			w.violatef("orphan %s is %s and ready, and the registry says %v", p.uid, s, w.registry.entries)
		}
		return
	}
	if s != appspub.LifecycleStateNormal || p.revision != w.revision {
		w.violatef("stuck: %s is %s at revision %d of %d", p.uid, s, p.revision, w.revision)
	}
	if !w.registry.exactly(p.uid, modelInstances(p.api)) {
		w.violatef("%s is Normal and ready, and the registry says %v", p.uid, w.registry.entries)
	}
	for _, h := range slices.Concat(hooks.InPlaceUpdate, hooks.PreDelete) {
		if !carries(p.api, h) {
			w.violatef("trap 4: %s is in rotation, and %s is not armed", p.uid, h)
		}
	}
}
