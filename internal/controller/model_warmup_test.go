package controller

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/registry"
)

// modelWarmUp is over within a rest.
const modelWarmUp = 10 * settleStep

// warmUp has the pods of some walks warm up, and OpenKruise wait for that in some of these.
func (m *model) warmUp(of *service.Rules) {
	if !m.warms {
		return
	}
	of.WarmUp, of.CountsAtEnd = modelWarmUp, m.countsAtEnd
}

// warmsFor is how long a pod warms up. Some weights grow in few steps.
func (m *model) warmsFor() time.Duration {
	if !m.warms {
		return 0
	}
	return modelWarmUp
}

// checkCold: a pod that comes into rotation begins with the least weight.
func (m *model) checkCold(e entry, in registry.Instance) {
	if seen := m.manager.seen; m.warms && !e.isByApp() && lifecycle.RecordOf(lifecycle.PodOf(seen)).Want != lifecycle.InService && in.Weight != 1 {
		m.violatef("%s comes into rotation with the weight %d", e.uid, in.Weight)
	}
}

// checkWarm: clients were given the pod with all of its weight where it belongs. What it has yet to leave may have kept the first one.
func (m *model) checkWarm(p *modelPod, pod *corev1.Pod, when string) {
	belongs := m.instancesOf(pod)
	for e, in := range m.registry.instances {
		warm := in.Weight == m.choices.weight || !slices.Contains(belongs, e.in)
		if e.uid == p.uid && !e.isByApp() && m.registry.says(e) == registry.InService && !warm {
			m.violatef("%s %s, and has the weight %d", p.uid, when, in.Weight)
		}
	}
}
