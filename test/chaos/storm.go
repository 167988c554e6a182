package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/checker"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// maxSurplus is how many pods more than at the start a workload has at most.
	maxSurplus = 6
	// attemptFor is how long a change is tried, since the API server may be away.
	attemptFor = 20 * time.Second
	// slowest is longer than a time-out of the managers now and then, and never two.
	quickest, slowest = 100 * time.Millisecond, 2500 * time.Millisecond
)

// storm plays the actions of a round. Those of the last moment come one after the other: a wipe spares what is left behind after it.
func (g *game) storm(ctx context.Context, number int) error {
	actions := g.plan.round(number)
	g.say("storm %d: %d actions in %s", number, len(actions), g.plan.storm)
	within, cancel := context.WithTimeout(ctx, g.plan.storm+overrun)
	defer cancel()
	during := slices.DeleteFunc(slices.Clone(actions), func(a action) bool { return a.at >= g.plan.storm })
	play := func(ctx context.Context, a action) {
		if err := g.act(ctx, a); err != nil && ctx.Err() == nil {
			g.out.printf("could not %s: %v", a.kind, err)
		}
	}
	s := &begun{at: time.Now(), storm: g.plan.storm, play: play, failed: g.report.failed}
	s.begin(within, within, during, 0)
	s.goOn(within, during)
	for _, a := range actions[len(during):] {
		if within.Err() == nil && !g.report.failed() {
			play(within, a)
		}
	}
	if !s.end(within) && ctx.Err() == nil {
		g.report.note(fmt.Sprintf("ENDLESS: %s after storm %d began there is still: %s", g.plan.storm+overrun, number, &g.underway))
	}
	return g.registry.quiet(ctx)
}

// act plays one action, and returns when it is over. It counts once it was done.
func (g *game) act(ctx context.Context, a action) error {
	defer g.underway.begin(string(a.kind))()
	if a.kind.isKill() || a.kind.isFault() {
		g.out.printf("%s", a.kind)
	}
	done, err := g.do(ctx, a)
	if done {
		g.done.add(a.kind)
	}
	return err
}

// do reports whether the action was done: one may come at a moment in which there is nothing that it could happen to.
func (g *game) do(ctx context.Context, a action) (done bool, err error) {
	switch a.kind {
	case turnUnready:
		turned, err := g.turnUnready(ctx, g.workloads[a.workload], a)
		return turned > 0, err
	case killManager, killStandby, killAtAnswer, stopManager, pauseManager:
		return g.hit(ctx, a)
	case restartServer:
		sight := g.journal.Blind(time.Now())
		err := g.cluster.RestartAPIServer(ctx)
		sight(time.Now())
		return err == nil, err
	case markDeleted, deletePods, forceDelete:
		removed, err := g.remove(ctx, g.workloads[a.workload], a)
		return removed > 0, err
	case movePods:
		moved, err := g.move(ctx, g.workloads[a.workload], a)
		return moved > 0, err
	case describePods:
		described, err := g.describe(ctx, g.workloads[a.workload], a)
		return described > 0, err
	case announceEnd:
		announced, err := g.announceEnd(ctx, g.workloads[a.workload], a)
		return announced > 0, err
	case moveAll, update, recreate, rollBack, scaleOut, scaleIn, cancelDelete:
		err := g.work(ctx, a)
		return err == nil, err
	default:
		return g.registry.play(ctx, g, a)
	}
}

func (a action) rng() *rand.Rand { return rand.New(rand.NewPCG(a.dice, 0)) }

// terms are those of a fault of the network.
func (a action) terms() network.Terms {
	return network.Terms{
		Fault: network.Fault(a.kind), Share: faultShare, Upward: a.dice%2 == 0, Least: quickest, Most: slowest, Seed: a.dice,
	}
}

func (g *game) services() []string {
	var all []string
	for _, w := range g.workloads {
		for name := range w.services {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// work changes a workload, as users do.
func (g *game) work(ctx context.Context, a action) error {
	w := g.workloads[a.workload]
	switch a.kind {
	case moveAll:
		return g.moveAll()
	case update:
		return g.change(ctx, w, w.setVersion(a.version()))
	case recreate:
		return g.change(ctx, w, func(spec *kruisev1alpha1.CloneSetSpec) { // what can't be changed in place
			spec.Template.Spec.Containers[0].Env[0].Value = strconv.FormatUint(a.dice, 10)
		})
	case rollBack:
		return g.changeAndBack(ctx, w, a.lasts, w.setVersion(a.version()),
			func(spec *kruisev1alpha1.CloneSetSpec, before kruisev1alpha1.CloneSetSpec) {
				spec.Template = before.Template
			})
	case scaleOut:
		return g.change(ctx, w, scaleBy(int32(a.count), g.replicas))
	case scaleIn:
		return g.change(ctx, w, scaleBy(-int32(a.count), g.replicas))
	case cancelDelete:
		return g.changeAndBack(ctx, w, a.lasts, func(spec *kruisev1alpha1.CloneSetSpec) { *spec.Replicas -= int32(a.count) },
			func(spec *kruisev1alpha1.CloneSetSpec, _ kruisev1alpha1.CloneSetSpec) {
				*spec.Replicas += int32(a.count)
			})
	default:
		return fmt.Errorf("there is no action %s", a.kind)
	}
}

// version is one of the workload's.
func (a action) version() int { return 1 + int(a.dice%1000) }

// scaleBy stays between what there was at the start and a little more.
func scaleBy(n, least int32) func(*kruisev1alpha1.CloneSetSpec) {
	return func(spec *kruisev1alpha1.CloneSetSpec) {
		*spec.Replicas = min(max(*spec.Replicas+n, least), least+maxSurplus)
	}
}

func (g *game) change(ctx context.Context, w *workload, edit func(*kruisev1alpha1.CloneSetSpec)) error {
	set := rollout.CloneSet{K8s: g.k8s, Key: client.ObjectKey{Namespace: w.namespace, Name: w.name}}
	return attempt(ctx, func() error { return set.Change(ctx, edit) })
}

// changeAndBack undoes the change after a while. Other actions may have changed the workload meanwhile, as other users do.
func (g *game) changeAndBack(
	ctx context.Context, w *workload, after time.Duration,
	edit func(*kruisev1alpha1.CloneSetSpec), undo func(spec *kruisev1alpha1.CloneSetSpec, before kruisev1alpha1.CloneSetSpec),
) error {
	var before kruisev1alpha1.CloneSetSpec
	err := g.change(ctx, w, func(spec *kruisev1alpha1.CloneSetSpec) {
		before = *spec.DeepCopy()
		edit(spec)
	})
	if err != nil {
		return err
	}
	wait.Pause(ctx, after)
	return g.change(ctx, w, func(spec *kruisev1alpha1.CloneSetSpec) { undo(spec, before) })
}

// toSome does something to some pods of the workload that are like this, and returns to how many. One that is gone does not count.
func (g *game) toSome(
	ctx context.Context, w *workload, a action, like func(checker.Pod) bool, do func(pod *corev1.Pod) error,
) (done int, err error) {
	for _, chosen := range g.choose(w, a, like) {
		err := attempt(ctx, func() error { return do(kube.Pod(chosen.Name.Namespace, chosen.Name.Name)) })
		if client.IgnoreNotFound(err) != nil {
			return done, fmt.Errorf("pod %s: %w", chosen.Name.Name, err)
		}
		if err == nil {
			done++
		}
	}
	return done, nil
}

// remove deletes some pods of the workload in one way or the other, and returns how many.
func (g *game) remove(ctx context.Context, w *workload, a action) (removed int, err error) {
	isThere := func(p checker.Pod) bool { return !p.Deleting }
	return g.toSome(ctx, w, a, isThere, func(pod *corev1.Pod) error {
		switch a.kind {
		case markDeleted:
			return rollout.MarkDeleted(ctx, g.k8s, pod)
		case forceDelete:
			return g.k8s.Delete(ctx, pod, client.GracePeriodSeconds(0))
		default:
			return g.k8s.Delete(ctx, pod)
		}
	})
}

// move has some pods of the workload belong to other registries, and to services of other names, and returns how many. No hook waits for
// them when they move: what a hook that is flipped at that moment rests on nobody could tell.
func (g *game) move(ctx context.Context, w *workload, a action) (moved int, err error) {
	if slices.Contains(w.registries, appsRegistry) {
		return 0, nil // its applications stay
	}
	for i, chosen := range g.choose(w, a, steady) {
		name := chosen.Name
		services, registries, place := w.places(i + int(a.dice%1000))
		patch := client.RawPatch(types.JSONPatchType, fmt.Appendf(nil, `[{"op":"test","path":"/metadata/labels/%s","value":%q},`+
			`{"op":"add","path":"/metadata/annotations/%s","value":%q},{"op":"add","path":"/metadata/annotations/%s","value":%q},`+
			`{"op":"add","path":"/metadata/labels/%s","value":%q}]`,
			escaped(appspub.LifecycleStateKey), appspub.LifecycleStateNormal, escaped(servicesAnnotation), services,
			escaped(registriesAnnotation), registries, escaped(placeLabel), place))
		switch err := g.k8s.Patch(ctx, kube.Pod(name.Namespace, name.Name), patch); {
		case err == nil:
			moved++
		case !apierrors.IsInvalid(err) && !apierrors.IsNotFound(err): // it has moved on, or is gone
			return moved, fmt.Errorf("pod %s: %w", name.Name, err)
		}
	}
	return moved, nil
}

// describe has some pods of the workload say something else of themselves, and returns how many.
func (g *game) describe(ctx context.Context, w *workload, a action) (described int, err error) {
	says := strings.Trim(fmt.Sprintf("%s,tier=%d", w.says[metadataAnnotation], a.dice%1000), ",") //nolint:mnd // some tier
	patch := kube.Merge(`{"metadata":{"annotations":{%q:%q}}}`, metadataAnnotation, says)
	return g.toSome(ctx, w, a, steady, func(pod *corev1.Pod) error { return g.k8s.Patch(ctx, pod, patch) })
}

// announceEnd announces the end of some pods of the workload, and returns of how many. The calm deletes them once they are out.
func (g *game) announceEnd(ctx context.Context, w *workload, a action) (announced int, err error) {
	return g.toSome(ctx, w, a, steady, func(pod *corev1.Pod) error {
		if err := g.k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			return err //nolint:wrapcheck // toSome does
		}
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "PreemptionByScheduler",
		})
		return g.k8s.Status().Update(ctx, pod)
	})
}

// network gives pods the address on their network, as Multus does, until the context ends.
func (g *game) network(ctx context.Context) {
	for ; ctx.Err() == nil; wait.Pause(ctx, hitPoll) {
		live := g.journal.Known()
		g.moving.Lock()
		missing := maps.Clone(g.networkless)
		g.moving.Unlock()
		for uid, address := range missing {
			_, own, _ := strings.Cut(address, ".")
			status := fmt.Sprintf(`[{"name":%q,"ips":["172.%s"]}]`, storage, own)
			if p, there := live[uid]; there && own != "" {
				patch := kube.Merge(`{"metadata":{"annotations":{%q:%q}}}`, networksAnnotation, status)
				_ = g.k8s.Patch(ctx, kube.Pod(p.Name.Namespace, p.Name.Name), patch) // tried again
			}
		}
	}
}

// moveAll has the configuration of all managers move the pods that choose no registry.
func (g *game) moveAll() error {
	g.moving.Lock()
	defer g.moving.Unlock()
	g.usual = map[string]string{defaultRegistry: secondRegistry, secondRegistry: defaultRegistry}[g.usual]
	for _, one := range g.managers.all {
		if err := one.configure(g.usual); err != nil {
			return err
		}
	}
	for uid, p := range g.journal.Known() {
		if !g.follows[uid] {
			continue
		}
		moved := slices.Clone(p.Keys)
		for i := range moved {
			moved[i].Registry = g.usual
		}
		g.journal.Belongs(uid, moved, time.Now())
	}
	return nil
}

// escaped is a key in the path of a JSON patch.
func escaped(key string) string { return strings.ReplaceAll(key, "/", "~1") }

// turnUnready has some pods of the workload fail their probes for a while, and returns how many. KWOK makes them ready
// again.
func (g *game) turnUnready(ctx context.Context, w *workload, a action) (turned int, err error) {
	var all []*corev1.Pod
	turned, err = g.toSome(ctx, w, a, steady, func(pod *corev1.Pod) error {
		err := g.failProbes(ctx, pod, a.lasts)
		if err == nil {
			all = append(all, pod)
		}
		return err
	})
	if err == nil {
		wait.Pause(ctx, a.lasts)
	}
	quick := kube.Merge(`{"metadata":{"annotations":{%q:null}}}`, cluster.AnnotationReadyDelay) // else their next updates take longer
	for _, pod := range all {
		_ = attempt(ctx, func() error { return g.k8s.Patch(ctx, kube.Pod(pod.Namespace, pod.Name), quick) })
	}
	return turned, err
}

// failProbes makes a pod unready, and has KWOK wait before it makes it ready again.
func (g *game) failProbes(ctx context.Context, pod *corev1.Pod, lasts time.Duration) error {
	err := kube.Change(ctx, g.k8s, pod, func() {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, cluster.AnnotationReadyDelay, lasts.String())
	})
	if err != nil {
		return err
	}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].Ready = false
	}
	for i, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady || c.Type == corev1.ContainersReady {
			pod.Status.Conditions[i].Status, pod.Status.Conditions[i].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
		}
	}
	return g.k8s.Status().Update(ctx, pod)
}

// choose draws pods of the workload that are like this.
func (g *game) choose(w *workload, a action, like func(checker.Pod) bool) []checker.Pod {
	var all []checker.Pod
	for _, p := range g.journal.Known() {
		if p.Workload == w.id() && like(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b checker.Pod) int { return cmp.Compare(a.Name.Name, b.Name.Name) })
	a.rng().Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(a.count, len(all))]
}

// attempt tries again while the API server is away.
func attempt(ctx context.Context, do func() error) error {
	deadline := time.Now().Add(attemptFor)
	for {
		err := do()
		if err == nil || client.IgnoreNotFound(err) == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		wait.Pause(ctx, hitPoll)
	}
}
