package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/plan"
	"github.com/rollcall-dev/rollcall/internal/reason"
	"github.com/rollcall-dev/rollcall/registry"
)

// loseLeaders makes a walk one in which leader and registries are lost together in the middle of drains, under a policy whose deadline is over
// before the next one leads.
func (m *model) loseLeaders() {
	m.losing, m.drain, m.while, m.takes, m.failures, m.lifespan = true, 20*time.Second, 3*time.Second, 100*time.Millisecond, 10, 600
	m.policy = lifecycle.FailurePolicy{PreDelete: 2 * time.Second, InPlaceUpdate: 2 * time.Second}
	m.workload.Spec = *m.shapes[m.rng.IntN(4)] // each has all three hooks
}

// recorded is called when a manager has written a record of a pod that it took out.
func (m *model) recorded(p *modelPod) {
	p.recordedOut = m.registry.outSince[p.uid]
	waits := stateOf(p.api) == appspub.LifecycleStatePreparingDelete || stateOf(p.api) == appspub.LifecycleStatePreparingUpdate
	if m.losing && m.mayDie() && (waits || m.chance(20)) {
		m.manager.dead = true
		m.outage(m.manager.all...)
	}
}

// annotateSkip is a person who does not wait for one of the pod's hooks, whether it waits or not.
func (m *model) annotateSkip(p *modelPod) {
	hooks := []string{"preDelete", "inPlaceUpdate", "preDelete,inPlaceUpdate"}[m.rng.IntN(3)]
	m.logf("someone: skips %s of %s", hooks, p.uid)
	pod := p.api.DeepCopy()
	pod.Annotations[lifecycle.AnnotationSkip] = hooks
	m.commit(p, pod)
}

func (m *model) isDown(e entry) bool { return m.now.Before(m.registry.downUntil[e.in.Registry]) }

// outage has registries fail for a while.
func (m *model) outage(names ...string) {
	until := m.now.Add(time.Duration(5+m.rng.IntN(40)) * time.Second)
	m.logf("registry: %q are down until %s", names, until.Format("05"))
	for _, name := range names {
		m.registry.downUntil[name] = until
	}
}

// checkExcuse is I1 for one release: what is not acknowledged, or has not drained, is released by a policy or for a person.
func (m *model) checkExcuse(p *modelPod, h lifecycle.Hook, before, after *corev1.Pod) {
	missing := m.missing(p, after)
	// More may be missing than the registry tells: another registry, the list that shows what a pod without a record has, or the answer to
	// another key of the same entry.
	doubted := m.apps.one != "" || len(m.manager.there) < len(m.manager.all) || !lifecycle.RecordOf(lifecycle.PodOf(before)).Exists() || m.now.Before(p.unsettled) || m.suspects(p)
	policy := m.unexcused(p, h, before, after)
	for e := range m.manager.doubted {
		doubted = doubted || e.uid == p.uid
	}
	switch {
	case takesSkip(before, after) && (isFinished(after) || strings.Contains(before.Annotations[lifecycle.AnnotationSkip], string(h))):
		p.freed, p.excused, m.manager.mayTell = true, true, plan.Skipped
	case policy == "" && (missing != "" || doubted):
		p.freed, p.excused, m.manager.mayTell = true, true, plan.Proceeded
	case missing != "":
		m.violatef("I1: %s of %s was released, and %s; the policy: %s", h, p.uid, missing, policy)
	default:
		p.releasedHook = true
	}
	// Where nothing is missing, only the manager knows what came first, the acknowledgement or the excuse.
	m.manager.mustTell = missing != ""
	for _, h := range slices.Concat(ours(m.hook(lifecycle.PreNormal)), ours(m.hook(lifecycle.InPlaceUpdate)), ours(m.hook(lifecycle.PreDelete))) {
		if carries(after, h) && !carries(before, h) {
			m.violatef("%s was released, and %s asserted by the same patch", p.uid, h)
		}
	}
}

// missing is what an acknowledged release would have waited for.
func (m *model) missing(p *modelPod, after *corev1.Pod) string {
	for e := range m.manager.doubted {
		if (m.manager.asks || m.apps.by != nil) && e.uid == p.uid && m.reaches(e) {
			return "the registry was not asked what became of a call"
		}
	}
	out, was := m.registry.outSince[p.uid]
	switch {
	case len(m.inRotation(p)) > 0:
		return fmt.Sprintf("it is in rotation: %v", m.inRotation(p))
	case drains(after) && m.unfound(p, after).Service != "":
		return fmt.Sprintf("nobody has ever found %v", m.unfound(p, after))
	case drains(after) && was && m.now.Before(out.Add(m.drain)):
		return fmt.Sprintf("it has been out for %s of %s", m.now.Sub(out), m.drain)
	}
	return ""
}

// unexcused is why the failure policy releases no hook of the pod; empty where it does. A drain that any manager began counts if it
// had the acknowledgement itself, or wrote it down.
func (m *model) unexcused(p *modelPod, h lifecycle.Hook, before, pod *corev1.Pod) string {
	since, err := time.Parse(time.RFC3339, pod.Annotations[appspub.LifecycleTimestampKey])
	if pod.DeletionTimestamp != nil {
		since, err = pod.DeletionTimestamp.Time, nil
	}
	out, after := m.registry.outSince[p.uid], m.policy.PreDelete
	if h == lifecycle.InPlaceUpdate {
		after = m.policy.InPlaceUpdate
	}
	switch {
	case err != nil, after == 0:
		return "it says no such thing"
	case guarded(before) && !guarded(pod):
		return "the guard stays on"
	case m.now.Before(since.Add(after)):
		return "its deadline is to come"
	case drains(pod) && len(m.inRotation(p)) == 0 && (m.manager.took(p.uid) && !m.apps.leftAt[p.uid].Equal(out) || p.recordedOut.Equal(out)) && m.now.Before(out.Add(m.drain)):
		return fmt.Sprintf("a manager took it out %s ago", m.now.Sub(out))
	}
	for _, e := range m.inRotation(p) {
		if m.reaches(e) && !m.askedOut(e) {
			return e.in.Registry + " was not asked"
		}
	}
	return ""
}

// askedOut reports whether the manager asked to take an entry out; for an application's, at whichever address of the pod, or as Rollcall's.
func (m *model) askedOut(e entry) bool {
	for other, want := range m.manager.called {
		alike := other.uid == e.uid && e.isByApp() && samePlaceButAddress(e.in, other.in.By(e.in.Writer))
		if want != registry.InService && (other == e || alike) {
			return true
		}
	}
	return false
}

// took reports whether the manager took the pod out, and knows that.
func (m *modelManager) took(uid types.UID) (took bool) {
	for e, want := range m.called {
		if e.uid == uid {
			if took = want != registry.InService && m.acked[e]; !took {
				return false
			}
		}
	}
	return took
}

// drains reports whether a drain counts. Nothing drains in a pod whose containers ended, or are about to.
func drains(pod *corev1.Pod) bool { return pod.DeletionTimestamp == nil && !isFinished(pod) }

// holds reports whether a finalizer of a hook's is on the pod, and guarded whether the guard is.
func holds(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Finalizers, func(f string) bool { return ownedFinalizer(f) && f != lifecycle.GuardFinalizer })
}

func guarded(pod *corev1.Pod) bool { return slices.Contains(pod.Finalizers, lifecycle.GuardFinalizer) }

// takesSkip reports whether what a person asked for is done with.
func takesSkip(before, after *corev1.Pod) bool {
	_, asked := before.Annotations[lifecycle.AnnotationSkip]
	_, left := after.Annotations[lifecycle.AnnotationSkip]
	return asked && !left
}

// modelRecorder holds what the manager tells of a release.
type modelRecorder struct{ m *model }

// Eventf implements events.EventRecorder.
func (r modelRecorder) Eventf(_, _ runtime.Object, _, why, _, note string, args ...any) {
	// A remedy is a sentence of the docs, and none of it belongs to a walk.
	text := reason.WithoutRemedy(fmt.Sprintf(note, args...))
	r.m.logf("rollcall: says %s: %s", why, text)
	if why != string(reason.ReleasedUnacknowledged) {
		return
	}
	r.m.manager.told = plan.Proceeded
	if strings.Contains(text, "was released by annotation") {
		r.m.manager.told = plan.Skipped
	}
}
