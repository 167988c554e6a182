package evictions

import (
	"slices"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisepolicy "github.com/openkruise/kruise-api/policy/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// Answer is what becomes of an eviction.
type Answer int

// The answers.
const (
	// Pass leaves the eviction to the API server.
	Pass Answer = iota
	// Begin makes OpenKruise delete the pod by its hooks.
	Begin
	// Wait lets the hooked deletion continue.
	Wait
	// TakeOut has the pod taken out of rotation, since OpenKruise has not reached it within the limit: the eviction is let through next.
	TakeOut
	// GiveUp leaves the eviction to the API server although the hooked deletion has not ended: the pod ends, one way or the other.
	GiveUp
	// KeepClaims leaves the eviction to the API server: OpenKruise would delete the pod's PersistentVolumeClaims with the pod.
	KeepClaims
)

// Decide returns what becomes of the eviction of a pod on the node, which may be nil, and before when it is not let through. Unless the
// answer is Wait or GiveUp, the budgets have a say: [Blocking]. The drain is the pod's, within [MostDrain].
func Decide(
	pod *lifecycle.Pod, node *lifecycle.Node, hooks lifecycle.Hooks, now time.Time, limit, drain time.Duration,
) (Answer, time.Time) {
	hooked := slices.ContainsFunc(hooks.PreDelete, func(h lifecycle.Handler) bool { return h.SetOn(pod) })
	if ended(pod) || !hooked {
		return Pass, time.Time{}
	}
	if pod.Spec.OwnClaims {
		return KeepClaims, time.Time{}
	}
	notBefore, began := limitOf(pod, now, limit, drain)
	switch end := lifecycle.EndOf(pod, node, now); {
	case end.Why != "" && !now.Before(end.At):
		return GiveUp, notBefore
	case !began:
		return Begin, now.Add(limit)
	case now.Before(notBefore) || announced(pod, now):
		return Wait, notBefore
	case lifecycle.State(pod) != appspub.LifecycleStatePreparingDelete:
		return TakeOut, notBefore
	}
	if drained := drainedAt(pod, notBefore, drain); now.Before(drained) {
		return Wait, drained
	}
	return GiveUp, notBefore // it waits for a registry, as it would again
}

// MostDrain bounds the drain that an eviction waits for: a tenant writes it on the pod, and must not hold up a node for days. The
// configuration's own is not bounded.
func MostDrain(drain, configured, limit time.Duration) time.Duration {
	return min(drain, max(configured, limit))
}

// clocksDiffer is by how much a time that another manager wrote may be ahead.
const clocksDiffer = time.Minute

// limitOf returns before when the pod's eviction is not let through, if its hooked deletion has begun. It is on the pod, and so outlives
// the manager that wrote it. A time that no manager writes, since it is too far away, is a tenant's, and counts for nothing.
func limitOf(pod *lifecycle.Pod, now time.Time, limit, drain time.Duration) (notBefore time.Time, began bool) {
	notBefore, announced, evicted := lifecycle.Eviction(pod)
	_, specified := pod.Labels[kruisev1alpha1.SpecifiedDeleteKey]
	latest := now.Add(limit)
	if announced {
		latest = lifecycle.EndOnceDrained(now, drain)
	}
	return notBefore, evicted && specified && !notBefore.After(latest.Add(clocksDiffer))
}

// drainedAt returns when a pod in PreparingDelete has drained: from when its record shows it out, or else from when OpenKruise reached it.
// A tenant can write both, and neither counts for more than if OpenKruise had reached the pod at the limit.
func drainedAt(pod *lifecycle.Pod, limit time.Time, drain time.Duration) time.Time {
	out, err := lifecycle.MovedAt(pod)
	if since := lifecycle.RecordOf(pod).OutSince; since != nil {
		out = *since
	} else if err != nil {
		out = limit
	}
	if out.After(limit) {
		out = limit
	}
	return lifecycle.EndOnceDrained(out, drain)
}

// announced reports a pod that TakeOut was answered for before.
func announced(pod *lifecycle.Pod, now time.Time) bool {
	return lifecycle.EndOf(pod, nil, now).Why != ""
}

// isOut reports a pod that is out of rotation, or about to be, because it leaves: OpenKruise has reached it, or it was taken out without.
func isOut(pod *lifecycle.Pod, now time.Time) bool {
	return announced(pod, now) || lifecycle.State(pod) == appspub.LifecycleStatePreparingDelete
}

// ended reports a pod that the API server evicts whatever the budgets say: it runs nothing, or is being deleted.
func ended(pod *lifecycle.Pod) bool {
	phases := []corev1.PodPhase{corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed}
	return pod.DeletionTimestamp != nil || slices.Contains(phases, pod.Status.Phase)
}

// leaves reports a pod that OpenKruise is deleting by its hooks, or was asked to.
func leaves(pod *lifecycle.Pod) bool {
	_, specified := pod.Labels[kruisev1alpha1.SpecifiedDeleteKey]
	return specified || pod.Labels[appspub.LifecycleStateKey] == string(appspub.LifecycleStatePreparingDelete)
}

// BudgetOf returns the budget that selects the pod, or nil without one. Of several the API server itself reports that it
// evicts no such pod: several is true then.
func BudgetOf(pod *lifecycle.Pod, budgets []policyv1.PodDisruptionBudget) (found *policyv1.PodDisruptionBudget, several bool) {
	for i := range budgets {
		if !selects(&budgets[i], pod) {
			continue
		}
		if found != nil {
			return nil, true
		}
		found = &budgets[i]
	}
	return found, false
}

func selects(budget *policyv1.PodDisruptionBudget, pod *lifecycle.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	return err == nil && selector.Matches(labels.Set(pod.Labels))
}

// Blocking reports whether the budget refuses the eviction of the pod now, by the rules of the API server. leaving are pods of the
// namespace that are on their way out by their hooks: the budget's own count does not know them, since they serve until they are
// deleted, so those that it selects are subtracted. That count may also lag: [Short].
func Blocking(budget *policyv1.PodDisruptionBudget, pod *lifecycle.Pod, leaving []*lifecycle.Pod) bool {
	if leaves(pod) {
		return false // whatever asked for that, it is no longer the eviction's to disrupt the application
	}
	if !healthy(pod) && sparesUnready(budget) {
		return false
	}
	if budget.Status.ObservedGeneration < budget.Generation {
		return true
	}
	return budget.Status.DisruptionsAllowed <= count(leaving, func(p *lifecycle.Pod) bool {
		return selects(budget, p) && healthy(p)
	})
}

// Short reports whether the budget would have fewer healthy pods than it wants without this one, if so many others stay. Its status may
// still allow the eviction: it keeps the place of a pod that was deleted by its hooks until the controller of the budgets counts again, for
// as long as that is away.
func Short(budget *policyv1.PodDisruptionBudget, pod *lifecycle.Pod, staying int32) bool {
	return !leaves(pod) && healthy(pod) && staying < budget.Status.DesiredHealthy
}

// counted reports whether the budget has the pod as healthy: the API server lets those go that it has as disrupted.
func counted(budget *policyv1.PodDisruptionBudget, pod *lifecycle.Pod) bool {
	_, evicted := budget.Status.DisruptedPods[pod.Name]
	return !evicted && healthy(pod)
}

// Forbidding reports whether the PodUnavailableBudget, the one of the pod, refuses that the pod goes now, by the rules of OpenKruise's
// webhook. That asks the budget only about the delete, when the pod has left the registry. Its count, too, has pods as available that
// are on their way out by their hooks.
func Forbidding(budget *kruisepolicy.PodUnavailableBudget, pod *lifecycle.Pod, leaving []*lifecycle.Pod) bool {
	if leaves(pod) || !available(pod) || pod.Annotations[kruisepolicy.PodPubNoProtectionAnnotation] == "true" {
		return false
	}
	if budget.Status.DesiredAvailable == 0 || !protects(budget) {
		return false
	}
	return budget.Status.UnavailableAllowed <= count(leaving, func(p *lifecycle.Pod) bool {
		return p.Annotations[lifecycle.AnnotationRelatedPUB] == budget.Name && available(p)
	})
}

// protects reports whether the budget is asked about an eviction, or about the delete that it becomes.
func protects(budget *kruisepolicy.PodUnavailableBudget) bool {
	operations := budget.Annotations[kruisepolicy.PubProtectOperationAnnotation]
	return operations == "" || slices.ContainsFunc(strings.Split(operations, ","), func(o string) bool {
		return o == string(kruisepolicy.PubEvictOperation) || o == string(kruisepolicy.PubDeleteOperation)
	})
}

// available reports a pod that a PodUnavailableBudget counts.
func available(pod *lifecycle.Pod) bool {
	return healthy(pod) && !appspub.HasUnavailableLabel(pod.Labels)
}

// count returns how many of the pods that still run a budget counts.
func count(pods []*lifecycle.Pod, counts func(*lifecycle.Pod) bool) (n int32) {
	for _, pod := range pods {
		if !ended(pod) && counts(pod) {
			n++
		}
	}
	return n
}

// healthy reports a pod that a budget counts: one that is Ready. [lifecycle.IsReady] leaves out a readiness gate.
func healthy(pod *lifecycle.Pod) bool { return lifecycle.IsTrue(pod, corev1.PodReady) }

// sparesUnready reports whether pods that are not ready may be evicted, whatever the budget has left.
func sparesUnready(budget *policyv1.PodDisruptionBudget) bool {
	if policy := budget.Spec.UnhealthyPodEvictionPolicy; policy != nil && *policy == policyv1.AlwaysAllow {
		return true
	}
	return budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0
}
