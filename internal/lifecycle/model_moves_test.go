package lifecycle

import (
	"fmt"
	"slices"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
)

// others lets everyone but the manager do something, or nothing.
func (w *world) others() {
	if w.calm {
		return
	}
	for range w.rng.IntN(3) {
		w.anyMove()
	}
}

// anyMove is one random move of anyone.
func (w *world) anyMove() {
	p := w.pick()
	if p.api == nil {
		w.pass(w.aWhile())
		return
	}
	switch n := w.rng.IntN(100); {
	case n < 15:
		w.pass(w.aWhile())
	case n < 55:
		w.kruiseMoves(p)
	case n < 80:
		w.kubeletMoves(p)
	case n < 88:
		w.anotherOwnerMoves(p)
	default:
		w.someoneWants(p)
	}
}

func (w *world) aWhile() time.Duration { return time.Duration(w.rng.Int64N(int64(w.while))) }

// kruiseMoves is one pass of Kruise over one pod.
func (w *world) kruiseMoves(p *modelPod) {
	switch {
	case p.api.DeletionTimestamp != nil:
	case w.workload == nil:
		return // nobody drives the pods of a CloneSet that is gone
	case finished(p.api):
		w.kill(p, "kruise")
	case p.specified:
		w.remove(p)
	case state(p.api) == appspub.LifecycleStatePreparingDelete:
		if w.chance(50) && !w.calm {
			w.cancel(p)
			return
		}
		w.remove(p)
	default:
		before := state(p.api)
		w.refresh(p)
		if state(p.api) == before {
			w.update(p)
		}
	}
	w.scale()
}

// kubeletMoves: containers start, fail, are replaced and end.
func (w *world) kubeletMoves(p *modelPod) {
	pod := p.api.DeepCopy()
	switch {
	case pod.DeletionTimestamp != nil:
		w.finish(p)
		return
	case finished(pod):
		return
	case pod.Status.PodIP == "":
		pod.Status.PodIP = w.address(p)
	case p.running != p.revision:
		p.running, p.up = p.revision, false
		w.logf("kubelet: %s runs revision %d", p.uid, p.running)
	case !p.up && p.healthy:
		p.up = true
		w.logf("kubelet: %s is ready", p.uid)
	case w.calm:
		return
	case w.chance(30):
		p.healthy = !p.healthy
		p.up = p.up && p.healthy
		w.logf("kubelet: %s healthy %t", p.uid, p.healthy)
	case w.chance(10):
		p.up = false
		pod.Status.PodIP = w.address(p)
		w.logf("kubelet: %s has a new sandbox at %s", p.uid, pod.Status.PodIP)
	case w.chance(5):
		pod.Status.Phase, p.up = corev1.PodFailed, false
		w.logf("kubelet: %s was evicted", p.uid)
	default:
		return
	}
	w.commit(p, pod)
}

func (w *world) address(p *modelPod) string {
	return fmt.Sprintf("10.0.0.%d", len(p.versions)) + "-" + string(p.uid)
}

// anotherOwnerMoves: the other owner does its part of each hook, and has a finalizer of its own that comes and goes.
func (w *world) anotherOwnerMoves(p *modelPod) {
	pod := p.api.DeepCopy()
	own := "other.io/busy"
	if i := slices.Index(pod.Finalizers, own); i >= 0 {
		pod.Finalizers = slices.Delete(pod.Finalizers, i, i+1)
	} else if pod.DeletionTimestamp == nil && w.chance(50) && !w.calm {
		pod.Finalizers = slices.Insert(pod.Finalizers, w.rng.IntN(len(pod.Finalizers)+1), own)
	}
	foreign := func(h Hook, set bool) {
		for _, handler := range without(handlersOf(w.hook(h)), ours(w.hook(h))) {
			if set != carries(pod, handler) {
				flip(pod, handler, set)
			}
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		pod.Finalizers = slices.DeleteFunc(pod.Finalizers, func(f string) bool { return !ourFinalizer(f) })
	case state(pod) == appspub.LifecycleStatePreparingDelete:
		foreign(PreDelete, false)
	case state(pod) == appspub.LifecycleStatePreparingUpdate:
		foreign(InPlaceUpdate, false)
	case state(pod) == appspub.LifecycleStatePreparingNormal:
		foreign(PreNormal, true)
	case state(pod) == appspub.LifecycleStateUpdated, state(pod) == appspub.LifecycleStateNormal:
		foreign(InPlaceUpdate, true)
		foreign(PreDelete, true)
	}
	w.commit(p, pod)
}

func flip(pod *corev1.Pod, h Handler, set bool) {
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
func (w *world) someoneWants(p *modelPod) {
	switch n := w.rng.IntN(100); {
	case n < 25:
		w.revision++
		w.logf("someone: wants revision %d", w.revision)
	case n < 45:
		w.revision = p.revision
		w.logf("someone: wants revision %d again", w.revision)
	case n < 55:
		w.paused = !w.paused
	case n < 75:
		if w.workload != nil && p.api.DeletionTimestamp == nil {
			w.logf("someone: scales in %s", p.uid)
			w.remove(p)
		}
	case n < 82:
		w.logf("someone: specifies %s for deletion", p.uid)
		p.specified = true
	case n < 90:
		w.kill(p, "someone")
	case n < 96:
		w.edit(w.shapes[w.rng.IntN(len(w.shapes))])
	default:
		w.edit(&Workload{Selector: selector("app")})
	}
}

// edit gives the CloneSet other hooks.
func (w *world) edit(to *Workload) {
	if w.workload == nil {
		return
	}
	w.edits++
	w.workload = to
	w.logf("someone: edits the hooks: %v", namedBy(to))
	for _, p := range w.pods {
		p.disturbed, p.unwritten, p.taken = true, true, false
	}
}

const settleStep = 3 * time.Second

// settle has everyone do what is to be done, until nothing moves. It reports whether that came about.
func (w *world) settle(m *manager) bool {
	w.calm, w.paused = true, false
	quiet := 0
	for range 200 {
		before := w.changes
		w.pass(settleStep)
		for _, p := range slices.Clone(w.pods) {
			for _, act := range []func(*modelPod){w.kubeletMoves, w.anotherOwnerMoves, w.kruiseMoves} {
				if p.api != nil {
					act(p)
				}
			}
			m.reconcile(p)
		}
		if w.changes != before || w.now.Before(m.downFor) {
			quiet = 0
		} else if quiet++; quiet > int(max(w.drain, modelLateBound)/settleStep)+2 {
			return true
		}
		if w.violation != "" {
			return true
		}
	}
	return false
}
