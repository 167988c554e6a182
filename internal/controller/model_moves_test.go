package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/registry"
)

// others lets everyone but the manager do something, or nothing.
func (m *model) others() {
	if m.calm {
		return
	}
	for range m.rng.IntN(3) {
		m.anyMove()
	}
}

// anyMove is one random move of anyone.
func (m *model) anyMove() {
	p := m.pick()
	if m.appMoves(p); p.api == nil {
		m.pass(m.aWhile())
		return
	}
	switch n := m.rng.IntN(100); {
	case n < 15:
		m.pass(m.aWhile())
	case n < 55:
		m.kruiseMoves(p)
	case n < 80:
		m.kubeletMoves(p)
	case n < 88:
		m.anotherOwnerMoves(p)
	default:
		m.someoneWants(p)
	}
}

func (m *model) aWhile() time.Duration { return time.Duration(m.rng.Int64N(int64(m.while))) }

// kruiseMoves is one pass of Kruise over one pod.
func (m *model) kruiseMoves(p *modelPod) {
	switch {
	case p.api.DeletionTimestamp != nil, p.detached:
	case m.workload == nil:
		return // Kruise drives no pods of a CloneSet that is gone
	case isFinished(p.api):
		m.kill(p, "kruise")
	case p.specified:
		m.remove(p)
	case stateOf(p.api) == appspub.LifecycleStatePreparingDelete:
		if m.chance(50) && !m.calm {
			m.cancel(p)
			return
		}
		m.remove(p)
	default:
		before := stateOf(p.api)
		m.refresh(p)
		if stateOf(p.api) == before {
			m.update(p)
		}
	}
	m.scale()
}

// kubeletMoves: containers start, fail, are replaced and end.
func (m *model) kubeletMoves(p *modelPod) {
	pod := p.api.DeepCopy()
	switch {
	case pod.DeletionTimestamp != nil:
		m.finish(p)
		return
	case isFinished(pod):
		return
	case pod.Status.PodIP == "":
		m.sandbox(p, pod)
	case p.running != p.revision:
		p.running, p.up = p.revision, false
		m.logf("kubelet: %s runs revision %d", p.uid, p.running)
	case !p.up && p.healthy:
		p.up = true
		m.logf("kubelet: %s is ready", p.uid)
	case m.calm:
		return
	case m.chance(30):
		p.healthy = !p.healthy
		p.up = p.up && p.healthy
		m.logf("kubelet: %s healthy %t", p.uid, p.healthy)
	case m.chance(10):
		p.up = false
		m.sandbox(p, pod)
		m.logf("kubelet: %s has a new sandbox at %s", p.uid, pod.Status.PodIP)
	case m.chance(6):
		p.ending = !p.ending
		m.logf("scheduler: %s is to be preempted %t", p.uid, p.ending)
	case m.chance(5):
		pod.Status.Phase, p.up = corev1.PodFailed, false
		m.logf("kubelet: %s was evicted", p.uid)
	default:
		return
	}
	m.commit(p, pod)
}

// sandbox gives the pod addresses that no other has ever had.
func (m *model) sandbox(p *modelPod, pod *corev1.Pod) {
	pod.Status.PodIP = fmt.Sprintf("10.0.0.%d-%s", len(p.versions), p.uid)
	pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}, {IP: fmt.Sprintf("fd00::%d-%s", len(p.versions), p.uid)}}
	m.connect(p, pod)
}

// anotherOwnerMoves: the other owner does its part of each hook, and has a finalizer of its own that comes and goes.
func (m *model) anotherOwnerMoves(p *modelPod) {
	pod := p.api.DeepCopy()
	own := "other.io/busy"
	if i := slices.Index(pod.Finalizers, own); i >= 0 {
		pod.Finalizers = slices.Delete(pod.Finalizers, i, i+1)
	} else if pod.DeletionTimestamp == nil && m.chance(50) && !m.calm {
		pod.Finalizers = slices.Insert(pod.Finalizers, m.rng.IntN(len(pod.Finalizers)+1), own)
	}
	foreign := func(h lifecycle.Hook, set bool) {
		for _, handler := range without(handlersOf(m.hook(h)), ours(m.hook(h))) {
			if set != carries(pod, handler) {
				flip(pod, handler, set)
			}
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return !ownedFinalizer(f) })
	case stateOf(pod) == appspub.LifecycleStatePreparingDelete:
		foreign(lifecycle.PreDelete, false)
	case stateOf(pod) == appspub.LifecycleStatePreparingUpdate:
		foreign(lifecycle.InPlaceUpdate, false)
	case stateOf(pod) == appspub.LifecycleStatePreparingNormal:
		foreign(lifecycle.PreNormal, true)
	case stateOf(pod) == appspub.LifecycleStateUpdated, stateOf(pod) == appspub.LifecycleStateNormal:
		foreign(lifecycle.InPlaceUpdate, true)
		foreign(lifecycle.PreDelete, true)
	}
	m.commit(p, pod)
}

func flip(pod *corev1.Pod, h lifecycle.Handler, set bool) {
	switch {
	case set:
		setHandler(pod, h)
	case h.Finalizer != "":
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return f == h.Finalizer })
	default:
		delete(pod.Labels, h.Label)
	}
}

// someoneWants is what people and their tools do.
func (m *model) someoneWants(p *modelPod) {
	switch n := m.rng.IntN(100); {
	case n < 25:
		m.revise()
	case n < 45:
		m.revision = p.revision
		m.logf("someone: wants revision %d again", m.revision)
	case n < 55:
		m.paused = !m.paused
	case n < 75:
		if m.workload != nil && p.api.DeletionTimestamp == nil && !p.detached {
			m.logf("someone: scales in %s", p.uid)
			m.remove(p)
		}
	case n < 79:
		m.annotateSkip(p)
	case n < 84 && m.detaches:
		m.detach(p)
	case n < 84:
		m.logf("someone: specifies %s for deletion", p.uid)
		p.specified = true
	case n < 91:
		m.kill(p, "someone")
	case n < 93 && m.manager.wanders && m.choices.placed:
		m.relabel(p)
	case n < 95 && n >= 91 && m.choices.nodesEnd:
		m.announce(p)
	case n < 94 && m.manager.wanders && m.apps.one != "":
		m.rename(p, []string{modelServiceNames, "shop=8080,admin=9090", "web=8081"}[m.rng.IntN(3)])
	case n < 96:
		m.edit(m.shapes[m.rng.IntN(len(m.shapes))])
	default:
		m.edit(&kruisev1alpha1.CloneSetSpec{Selector: m.shapes[0].Selector})
	}
}

// detach is a person who changes a label by which the CloneSet selects the pod, and Kruise, which lets go of the pod and makes another.
func (m *model) detach(p *modelPod) {
	if m.workload == nil || p.detached || p.api.DeletionTimestamp != nil || isFinished(p.api) {
		return
	}
	m.logf("someone: detaches %s", p.uid)
	pod := p.api.DeepCopy()
	delete(pod.Labels, modelTier)
	pod.OwnerReferences = nil
	_, pod.Labels[kruisev1alpha1.CloneSetInstanceID], _ = strings.Cut(pod.Name, "-")
	p.detached = true
	m.commit(p, pod)
}

// isDetached reports whether Rollcall must have the pod out since it was detached. If its CloneSet goes, that is known by its record alone.
func (m *model) isDetached(p *modelPod) bool {
	return p.detached && (m.workload != nil || lifecycle.RecordOf(lifecycle.PodOf(p.api)).Detached)
}

// revise gives the CloneSet's template another image, or other metadata alone. One in three brings handlers of the hooks along.
func (m *model) revise() {
	m.revision = 1 + slices.Max(append(slices.Collect(maps.Keys(m.metadata)), m.revision))
	m.metadata[m.revision] = m.chance(20)
	if m.chance(30) {
		for _, hook := range []lifecycle.Hook{lifecycle.PreNormal, lifecycle.InPlaceUpdate, lifecycle.PreDelete} {
			if m.chance(60) {
				m.brings[m.revision] = append(m.brings[m.revision], ours(m.hook(hook))...)
			}
		}
	}
	m.logf("someone: wants revision %d, which brings %v", m.revision, m.brings[m.revision])
}

// crash has one pod crash that serves, and not start again.
func (m *model) crash() {
	i := slices.IndexFunc(m.pods, func(p *modelPod) bool { return p.up && p.api != nil && counts(p.api) })
	if i >= 0 {
		m.logf("kubelet: %s crashes", m.pods[i].uid)
		m.pods[i].healthy, m.pods[i].up = false, false
		m.commit(m.pods[i], m.pods[i].api.DeepCopy())
	}
}

// edit gives the CloneSet other hooks.
func (m *model) edit(to *kruisev1alpha1.CloneSetSpec) {
	if m.workload == nil {
		return
	}
	m.workload = m.workload.DeepCopy()
	m.workload.Spec = *to
	m.logf("someone: edits the hooks: %v, %v, %v",
		handlersOf(m.hook(lifecycle.PreNormal)), handlersOf(m.hook(lifecycle.InPlaceUpdate)), handlersOf(m.hook(lifecycle.PreDelete)))
	m.edited()
}

// edited notes that what the manager does from now on rests on something else.
func (m *model) edited() {
	m.edits++
	maps.DeleteFunc(m.apps.told, func(e entry, _ registry.State) bool { return m.apps.byList[e] })
	for _, p := range m.pods {
		p.disturbed, p.unwritten, p.taken = true, true, false
	}
}

const settleStep = 3 * time.Second

// settle has everyone do what is to be done, until nothing moves. It reports whether that came about.
func (m *model) settle() bool {
	m.calm, m.paused = true, false
	m.configure(m.manager.all...)
	for _, p := range m.pods {
		m.rename(p, modelServiceNames) // pods panic with those of their service
	}
	quiet := 0
	for range 200 {
		before := m.changes
		m.pass(settleStep)
		m.listAll()
		m.glance()
		for _, p := range slices.Clone(m.pods) {
			for _, act := range []func(*modelPod){m.kubeletMoves, m.anotherOwnerMoves, m.kruiseMoves} {
				if p.api != nil {
					act(p)
				}
			}
			m.appMoves(p)
			m.visit(p)
		}
		if m.changes != before || m.now.Before(m.manager.downFor) {
			quiet = 0
		} else if quiet++; quiet > int(max(m.drain, modelLateBound, m.choices.readerLag, m.warmsFor())/settleStep)+2 {
			return true
		}
		if m.violation != "" {
			return true
		}
	}
	return false
}
