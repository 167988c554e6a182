package controller

import (
	"slices"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/registry"
)

// check is I1, at every step: a pod that Rollcall let Kruise update or delete is not in rotation.
func (m *model) check() {
	m.resync()
	for _, p := range m.pods {
		if p.releasedHook && m.putInRotation(p) {
			m.violatef("I1: %s was released and is in rotation", p.uid)
		}
	}
	m.checkNames()
	m.noteNames()
}

// resync stands for the comparison of the whole registry with the whole cluster. It removes what only that can find: a
// former address that no record names, registered by a manager that died.
func (m *model) resync() {
	for _, e := range m.registry.sorted(func(e entry) bool { return !e.isByApp() }) {
		p := m.pods[slices.IndexFunc(m.pods, func(p *modelPod) bool { return p.uid == e.uid })]
		last := p.last()
		known := slices.Contains(m.instancesOf(last), e.in) || slices.Contains(lifecycle.RecordOf(lifecycle.PodOf(last)).Instances, e.in)
		if _, called := m.manager.called[e]; !known && !called {
			m.logf("resync: removes %s of %s", e.in.Address, e.uid)
			m.registry.carryOut(effect{e, registry.Absent, m.now})
		}
	}
}

// checkPatch looks at what a patch changed. It was decided on the pod as seen, and on hooks that may be others by now.
func (m *model) checkPatch(p *modelPod, seen, before, after *corev1.Pod, edited bool) {
	foreign := func(pod *corev1.Pod) []string {
		return slices.DeleteFunc(slices.Clone(pod.Finalizers), ownedFinalizer)
	}
	if !slices.Equal(foreign(before), foreign(after)) {
		m.violatef("%s: other owners' finalizers were %v and are %v", p.uid, foreign(before), foreign(after))
	}
	switch {
	case after.DeletionTimestamp != nil:
		if holds(before) && !holds(after) || guarded(before) && !guarded(after) {
			m.checkExcuse(p, lifecycle.PreDelete, before, after)
		}
	case stateOf(after) == appspub.LifecycleStatePreparingDelete:
		m.checkRelease(p, lifecycle.PreDelete, before, after)
	case stateOf(after) == appspub.LifecycleStatePreparingUpdate:
		m.checkRelease(p, lifecycle.InPlaceUpdate, before, after)
	case stateOf(after) == appspub.LifecycleStatePreparingNormal:
		m.checkAssert(p, lifecycle.PreNormal, seen, before, after, edited)
	case stateOf(after) == appspub.LifecycleStateUpdated:
		m.checkAssert(p, lifecycle.InPlaceUpdate, seen, before, after, edited)
	}
	switch {
	case !takesSkip(before, after):
	case isFinished(after): // whose hooks are released together, in any state
		p.freed, p.excused, m.manager.mayTell = true, true, plan.Skipped
	case m.manager.mayTell != plan.Skipped && !edited:
		m.violatef("the skip of %s was taken off, and released nothing", p.uid)
	}
	m.check()
}

func (m *model) checkRelease(p *modelPod, h lifecycle.Hook, before, after *corev1.Pod) {
	set := func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(ours(m.hook(h)), func(h lifecycle.Handler) bool { return carries(pod, h) })
	}
	if !set(before) || set(after) {
		return
	}
	m.logf("rollcall: releases %s of %s", h, p.uid)
	p.taken = p.taken || h == lifecycle.InPlaceUpdate
	m.checkExcuse(p, h, before, after)
	if !isFinished(after) && h == lifecycle.PreDelete && m.hook(lifecycle.PreNormal) != nil && len(ours(m.hook(lifecycle.PreNormal))) > 0 && isAllHooked(m.hook(lifecycle.PreNormal), after) {
		m.violatef("preDelete of %s was released and preNormal left set", p.uid)
	}
}

// checkAssert is I2.
func (m *model) checkAssert(p *modelPod, h lifecycle.Hook, seen, before, after *corev1.Pod, edited bool) {
	all := func(pod *corev1.Pod) bool {
		return !slices.ContainsFunc(ours(m.hook(h)), func(h lifecycle.Handler) bool { return !carries(pod, h) })
	}
	if all(before) && !all(after) {
		p.unarmed = ours(m.hook(h)) // the assertion is taken back, also where another hook shares the handler
	}
	if edited || len(ours(m.hook(h))) == 0 || all(before) || !all(after) {
		return
	}
	m.logf("rollcall: asserts %s of %s", h, p.uid)
	instances := m.instancesOf(seen)
	m.checkReaders(p, instances)
	m.checkDoubts(func(e entry) bool { return e.uid == p.uid && slices.Contains(instances, e.in) })
	p.disturbed = !isReady(after) || p.ending || p.mayEnd || seen.Status.PodIP != after.Status.PodIP
	p.wasOut, p.taken, p.unarmed = false, false, nil
	if m.countsAtEnd {
		m.checkWarm(p, seen, "was asserted")
	}
	for _, in := range instances {
		if e := (entry{p.uid, in}); !m.gives(p, seen, in) {
			m.violatef("I2: %s of %s was asserted and the registry says %q of %s", h, p.uid, m.registry.says(e), in.Address)
		} else if m.beside(e) && !m.untold(e.byApp()) {
			m.violatef("%s of %s was asserted, and the application registers itself at %s", h, p.uid, in.Address)
		}
	}
}

// checkDoubts: a registry that can be asked was asked what became of the calls that failed.
func (m *model) checkDoubts(of func(entry) bool) {
	for e := range m.manager.doubted {
		if (m.manager.asks || m.apps.by != nil) && of(e) && m.reaches(e) {
			m.violatef("a hook of %s was flipped, and %s was not asked what became of a call", e.uid, e.in.Registry)
		}
	}
}

// checkInService: a pod has passed a hook with a handler that Rollcall owns, without a mishap since the assertion and
// without a call that rests on a stale view.
func (m *model) checkInService(p *modelPod, what string, hook *appspub.LifecycleHook) {
	if len(ours(hook)) > 0 && !p.disturbed && !p.unwritten && !m.registry.inService(p.uid) {
		m.violatef("I2: %s with %s, which is not in rotation", what, p.uid)
	}
}

// checkUnasked: Kruise takes a pod that is in rotation without asking, although it was put there under these hooks. A
// handler that says "go on" in this very state can't be armed before.
func (m *model) checkUnasked(p *modelPod, does string, hook *appspub.LifecycleHook) {
	if len(without(ours(hook), p.unarmed)) == 0 {
		p.unasked = true
	}
	if !p.unasked && !p.excused && p.registeredIn == m.edits && len(m.inRotation(p)) > 0 {
		m.violatef("Kruise %s %s unasked, which is in rotation", does, p.uid)
	}
}

// checkSettled: no faults any more and nothing moves.
func (m *model) checkSettled() {
	m.checkShown(false)
	for _, p := range m.pods {
		switch {
		case p.api == nil:
			if kept := m.kept(p); kept > 0 {
				m.violatef("%s is gone, and %d of its entries are kept alive", p.uid, kept)
			}
			if m.apps.out != nil && !p.orphaned {
				m.checkForgotten(p)
			}
			// One that was let go without the registry's word is gone with what a manager knew that has died since.
			if m.registry.count(func(e entry) bool { return e.uid == p.uid && !e.isByApp() }) > 0 && (p.hadFinalizer && !p.excused || !p.orphaned) {
				m.violatef("leak: %s is gone, and the registry still knows it", p.uid)
			}
		case p.api.DeletionTimestamp != nil:
			m.violatef("stuck: %s is dead and held by %v", p.uid, p.api.Finalizers)
		default:
			m.checkSettledPod(p)
		}
	}
}

// panics reports whether more than half of a namespace's pods that should serve are not ready. A pod counts once clients were given it.
func (m *model) panics(namespace string) bool {
	all, unready := 0, 0
	for _, p := range m.pods {
		ends, _ := m.endsWithNode(p)
		if p.namespace != namespace || !m.managed(p) || p.ending || ends || m.isDetached(p) || !counts(p.api) || !m.registry.given[p.uid] {
			continue
		}
		if all++; !isReady(p.api) {
			unready++
		}
	}
	return unready*100 > modelPanic*all
}

// kept is how many of the pod's entries the manager keeps alive.
func (m *model) kept(p *modelPod) (kept int) {
	for _, name := range m.manager.all {
		for _, in := range m.manager.Tracker.Kept(name) {
			if in.UID == string(p.uid) {
				kept++
			}
		}
	}
	return kept
}

// checkShown is I12. While a pod is kept, a manager that has asked nothing for it only knows what a list shows.
func (m *model) checkShown(listed bool) {
	called := map[types.UID]bool{}
	for e := range m.manager.called {
		called[e.uid] = true
	}
	for _, p := range m.pods {
		if !m.managed(p) || isFinished(p.api) || m.registry.exactly(p.uid, m.instancesOf(p.api)) {
			continue
		}
		shown := slices.ContainsFunc(m.manager.Waits(), func(w Wait) bool { return w.UID == string(p.uid) })
		kept := stateOf(p.api) == appspub.LifecycleStateNormal && !isReady(p.api)
		knows := called[p.uid] || listed && m.apps.by == nil // a list does not tell which applications' entries are out
		if !shown && (knows || !kept) {
			m.violatef("I12: %s is %s and out of rotation, and shows no reason", p.uid, stateOf(p.api))
		}
	}
}

func (m *model) checkSettledPod(p *modelPod) {
	if !m.managed(p) || m.refused(p) {
		return
	}
	ends, certain := m.endsWithNode(p)
	if !certain {
		return
	}
	ends = ends || p.ending || m.isDetached(p)
	s, ready := stateOf(p.api), isReady(p.api) && !ends
	if !ready {
		kept := s == appspub.LifecycleStateNormal && !ends && (m.panicThreshold == 0 || m.panics(p.namespace))
		if !kept && m.registry.inService(p.uid) && (m.apps.by == nil || m.registry.given[p.uid]) {
			m.violatef("%s is %s and not ready, and in rotation", p.uid, s)
		}
		return
	}
	if m.workload == nil || p.detached { // Kruise moves it no more
		serves := slices.Contains([]appspub.LifecycleStateType{appspub.LifecycleStateNormal,
			appspub.LifecycleStatePreparingNormal, appspub.LifecycleStateUpdated}, s)
		if serves != m.registry.inService(p.uid) {
			m.violatef("orphan %s is %s and ready, and the registry says %v", p.uid, s, m.registry.entries)
		}
		return
	}
	if s != appspub.LifecycleStateNormal || p.revision != m.revision {
		m.violatef("stuck: %s is %s at revision %d of %d", p.uid, s, p.revision, m.revision)
	}
	m.checkWarm(p, p.api, "is Normal and ready")
	if !m.registry.exactly(p.uid, m.instancesOf(p.api)) {
		m.violatef("%s is Normal and ready, and the registry says %v", p.uid, m.registry.entries)
	}
	own := slices.DeleteFunc(m.instancesOf(p.api), func(in lifecycle.Key) bool { return entry{p.uid, in}.isByApp() })
	if kept := m.kept(p); kept != len(own) {
		m.violatef("%s is in service, and %d of its entries are kept alive", p.uid, kept)
	}
	for _, h := range slices.Concat(ours(m.hook(lifecycle.InPlaceUpdate)), ours(m.hook(lifecycle.PreDelete))) {
		if !carries(p.api, h) {
			m.violatef("%s is in rotation, and %s is not armed", p.uid, h)
		}
	}
}
