package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// scenario is something that happens to the pods of every arm, at the same time, while their clients send requests.
type scenario struct {
	name  string
	short bool // also played with E2E=short
	// services: also played where the registry is a Kubernetes Service.
	services bool
	// play is what the arm's users do, if anything. The scenario ends when every arm has settled after it.
	play action
	// beside is what happens to all arms meanwhile.
	beside func(ctx context.Context, w *world) error
	// alone plays instead, with arms of its own, before those of the table are there, and reports itself.
	alone func(ctx context.Context, w *world) error
	// apart: it takes long, and is played only if E2E asks for it by name.
	apart bool
	// get gets servers that no other scenario needs, while this process has the machine's network.
	get func(context.Context) error
	// lossy says why no arm can save every request. Then the scenario does not count.
	lossy string
	// own is set where it takes nodes of this program's own.
	own bool
}

// action is something that the users of an arm do.
type action func(ctx context.Context, a *arm) error

// sequence is one action after the other.
func sequence(all ...action) action {
	return func(ctx context.Context, a *arm) error {
		for _, one := range all {
			if err := one(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}
}

func settled(ctx context.Context, a *arm) error { return a.settle(ctx) }

func scenarios() []scenario {
	return []scenario{
		{name: "streams, by drain", alone: streams, own: true},
		{name: "durations with Consul", alone: durations("consul"), own: true, apart: true, get: getOtherRegistries},
		{name: "durations with Nacos", alone: durations("nacos"), own: true, apart: true, get: getOtherRegistries},
		{name: "durations with Eureka", alone: durations("eureka"), own: true, apart: true, get: getOtherRegistries},
		{name: "unready.after, by what makes pods unready", alone: unreadyAfter, own: true},
		{name: "in-place update", short: true, services: true, play: update},
		{name: "recreate with maxSurge and preNormal", short: true, services: true, play: recreate},
		{name: "scale in and out", short: true, services: true, play: sequence(scaleTo(replicas/2), settled, scaleTo(replicas))},
		{name: "specified-delete", short: true, play: removeTwo(rollout.MarkDeleted)},
		{name: "cancelled scale-in", short: true, play: sequence(scaleTo(replicas/2), leaving, scaleTo(replicas))},
		{name: "both managers killed in an update", short: true, play: update, beside: onceUpdating(killManagers)},
		{name: "node drained", short: true, beside: drain},
		{name: "registry takes no writes in a rollout", short: true, services: true, play: recreate, beside: registryAway},
		{name: "registry slow in a rollout", play: recreate, beside: registrySlow},
		{name: "registry frozen in an update", play: update, beside: registryFrozen},
		{name: "scale in by podsToDelete", play: sequence(scaleInByName, scaleTo(replicas))},
		{
			name: "update in partition steps",
			play: sequence(keep(replicas-2), update, updated(2), keep(replicas-4), updated(4), keep(0), updated(replicas)),
		},
		{name: "update rolled back halfway", play: sequence(update, updated(1), update)},
		{name: "leader deleted in an update", play: update, beside: onceUpdating(deleteLeader)},
		{name: "OpenKruise down in an update", play: update, beside: onceUpdating(kruiseDown)},
		{name: "kubectl delete", play: removeTwo(remove)},
		{name: "eviction", play: removeTwo(evict)},
		{name: "containers restarted by ContainerRecreateRequest", play: restartTwo},
		{name: "Rollcall upgraded in an update", play: sequence(update, settled, update), beside: managersRun(nextImage, `"version":2`)},
		{name: "Rollcall rolled back in an update", play: sequence(update, settled, update), beside: managersRun(rollcallImage, `"version":1`)},
		{name: "scale from 6 to 30 and back", play: sequence(scaleTo(5*replicas), settled, scaleTo(replicas))},
		{name: "application that stops gracefully", play: sequence(graceful, settled, update)},
		{name: "node drained, with the evictions component", beside: drainByHooks},
		{name: "leader deleted in a drain, with the evictions component", beside: drainWithoutLeader},
		{
			name: "application crashes", play: crash,
			lossy: "the process is gone before anything can know",
		},
		{
			name: "pods spread over the nodes", play: recreate, own: true, // from the one that the drains have left them on
		},
		{
			name: "node dies", beside: nodeDies, own: true,
			lossy: "the node is gone before anything can know",
		},
		{name: "node ends: spot, with the evictions component", beside: spotReclaimed, own: true},
		{name: "node ends: shut down", beside: nodeShutsDown, own: true},
	}
}

// update gives the pods the other version, in place.
func update(ctx context.Context, a *arm) error {
	return a.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) {
		spec.UpdateStrategy.Type = appsv1alpha1.InPlaceIfPossibleCloneSetUpdateStrategyType
		spec.UpdateStrategy.MaxSurge, spec.UpdateStrategy.MaxUnavailable = nil, new(intstr.FromInt32(2))
		nextVersion(spec)
	})
}

// recreate gives the pods the other version by new pods, one at a time, each before the old one goes.
func recreate(ctx context.Context, a *arm) error {
	return a.Change(ctx, byNewPods)
}

func byNewPods(spec *appsv1alpha1.CloneSetSpec) {
	spec.UpdateStrategy.Type = appsv1alpha1.RecreateCloneSetUpdateStrategyType
	spec.UpdateStrategy.MaxSurge, spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(1)), new(intstr.FromInt32(0))
	nextVersion(spec)
}

func nextVersion(spec *appsv1alpha1.CloneSetSpec) {
	image := &spec.Template.Spec.Containers[0].Image
	if strings.HasSuffix(*image, "v1") {
		*image = appImage("v2")
	} else {
		*image = appImage("v1")
	}
}

func scaleTo(n int32) action {
	return func(ctx context.Context, a *arm) error {
		return a.Scale(ctx, n)
	}
}

// removeTwo has two pods go in one way or the other.
func removeTwo(remove func(context.Context, client.Client, *corev1.Pod) error) action {
	return func(ctx context.Context, a *arm) error {
		pods, err := a.Pods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods[:2] {
			if err := remove(ctx, a.K8s, &pod); err != nil {
				return fmt.Errorf("removing %s: %w", pod.Name, err)
			}
		}
		return a.await(ctx, "the pods to go", func(ctx context.Context) error { return a.Gone(ctx, pods[:2]...) })
	}
}

// remove deletes a pod behind OpenKruise's back: no hook is asked.
func remove(ctx context.Context, k8s client.Client, pod *corev1.Pod) error {
	return k8s.Delete(ctx, pod)
}

// evict evicts a pod as kubectl drain does: it asks again while a disruption budget refuses.
func evict(ctx context.Context, k8s client.Client, pod *corev1.Pod) error {
	return wait.Until(ctx, patience, evictAgain, func(ctx context.Context) error {
		return client.IgnoreNotFound(k8s.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{}))
	})
}

// restartTwo has OpenKruise restart the containers of two pods. Each pod is unready for longer than clients take to notice
// before its container stops: OpenKruise's daemon runs no preStop sleep, and asks no hook.
func restartTwo(ctx context.Context, a *arm) error {
	pods, err := a.Pods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods[:2] {
		request := &appsv1alpha1.ContainerRecreateRequest{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, GenerateName: "restart-"},
			Spec: appsv1alpha1.ContainerRecreateRequestSpec{
				PodName:    pod.Name,
				Containers: []appsv1alpha1.ContainerRecreateRequestContainer{{Name: pod.Spec.Containers[0].Name}},
				Strategy:   &appsv1alpha1.ContainerRecreateRequestStrategy{UnreadyGracePeriodSeconds: new(int64(graceSeconds))},
			},
		}
		if err := a.K8s.Create(ctx, request); err != nil {
			return fmt.Errorf("asking for a restart of %s: %w", pod.Name, err)
		}
		err := a.await(ctx, "containers to be restarted", func(ctx context.Context) error {
			if err := a.K8s.Get(ctx, client.ObjectKeyFromObject(request), request); err != nil {
				return fmt.Errorf("reading the request for a restart: %w", err)
			}
			if phase := request.Status.Phase; phase != appsv1alpha1.ContainerRecreateRequestCompleted {
				return fmt.Errorf("the request for a restart is %q: %s", phase, request.Status.Message)
			}
			return a.restarted(ctx, &pod)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// restarted returns nil once the container of the pod has been started again since the pod was read.
func (a *arm) restarted(ctx context.Context, was *corev1.Pod) error {
	pod := &corev1.Pod{}
	if err := a.K8s.Get(ctx, client.ObjectKeyFromObject(was), pod); err != nil {
		return fmt.Errorf("reading %s: %w", was.Name, err)
	}
	if pod.Status.ContainerStatuses[0].ContainerID == was.Status.ContainerStatuses[0].ContainerID {
		return errors.New("it has not been started again")
	}
	return nil
}

// leaving waits until the first pods are on their way out.
func leaving(ctx context.Context, a *arm) error {
	return a.awaitPod(ctx, "a pod to be on its way out", func(pod *corev1.Pod) bool {
		return lifecycle.State(lifecycle.PodOf(pod)) == appspub.LifecycleStatePreparingDelete || pod.DeletionTimestamp != nil
	})
}

// awaitPod returns when a pod is like this, or when pods are gone that there were.
func (a *arm) awaitPod(ctx context.Context, what string, like func(*corev1.Pod) bool) error {
	return a.await(ctx, what, func(ctx context.Context) error {
		pods, err := a.Pods(ctx)
		if err != nil || len(pods) < replicas {
			return err
		}
		if !slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return like(&pod) }) {
			return errors.New("there is none")
		}
		return nil
	})
}

// onceUpdating does something when the update is under way.
func onceUpdating(do func(context.Context, *world) error) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := w.updating(ctx); err != nil {
			return err
		}
		return do(ctx, w)
	}
}

// killManagers ends both of Rollcall's managers, with no chance to tidy up.
func killManagers(ctx context.Context, w *world) error { return w.site.KillManagers(ctx) }

// updating returns when a pod of Rollcall's arm has stopped at the hook before its update.
func (w *world) updating(ctx context.Context) error {
	return w.arms[0].awaitPod(ctx, "an update to begin", func(pod *corev1.Pod) bool {
		return lifecycle.State(lifecycle.PodOf(pod)) == appspub.LifecycleStatePreparingUpdate
	})
}

// registryAway has the registry take no writes for a time that is longer than every grace period.
func registryAway(ctx context.Context, w *world) error {
	const away = 20 * time.Second
	return w.directory.takeNoWrites(ctx, away)
}

// registrySlow delays what is written to Consul: taking a pod out, which needs two requests, and the clients' next
// reading are together later than every grace period.
func registrySlow(ctx context.Context, w *world) error {
	const delay, slow = 2200 * time.Millisecond, time.Minute
	w.consul.writers.Set(network.Terms{Fault: network.Slow, Share: 1, Upward: true, Least: delay, Most: delay})
	wait.Pause(ctx, slow)
	return w.consul.writers.Clear(ctx)
}

// registryFrozen stops Consul itself, for readers too: connections are accepted, and nothing is answered.
func registryFrozen(ctx context.Context, w *world) error {
	const frozen = 20 * time.Second
	if err := w.consul.process.Pause(); err != nil {
		return err
	}
	wait.Pause(ctx, frozen)
	return w.consul.process.Resume()
}

// scaleInByName takes two pods out that the CloneSet names.
func scaleInByName(ctx context.Context, a *arm) error {
	pods, err := a.Pods(ctx)
	if err != nil {
		return err
	}
	err = a.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) {
		spec.Replicas = new(int32(replicas - 2))
		spec.ScaleStrategy.PodsToDelete = []string{pods[0].Name, pods[1].Name}
	})
	if err != nil {
		return err
	}
	if err := a.settle(ctx); err != nil {
		return err
	}
	return a.Gone(ctx, pods[:2]...)
}

// keep sets how many pods are not to be updated.
func keep(n int32) action {
	return func(ctx context.Context, a *arm) error {
		return a.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) { spec.UpdateStrategy.Partition = new(intstr.FromInt32(n)) })
	}
}

// updated returns when so many pods have the new version and are ready.
func updated(want int32) action {
	return func(ctx context.Context, a *arm) error {
		return a.await(ctx, "pods of the new version", func(ctx context.Context) error {
			set, err := a.Get(ctx)
			if err != nil {
				return err
			}
			if have := set.Status.UpdatedReadyReplicas; set.Status.ObservedGeneration != set.Generation || have < want {
				return fmt.Errorf("%d of %d are ready", have, want)
			}
			return nil
		})
	}
}

// deleteLeader deletes the manager that holds the lease.
func deleteLeader(ctx context.Context, w *world) error { return w.deleteLeader(ctx) }

func (w *world) deleteLeader(ctx context.Context, options ...client.DeleteOption) error {
	var lease coordinationv1.Lease
	if err := w.k8s.Get(ctx, client.ObjectKey{Namespace: rollcallNamespace, Name: "rollcall"}, &lease); err != nil {
		return fmt.Errorf("reading the lease: %w", err)
	}
	leader, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return w.k8s.Delete(ctx, kube.Pod(rollcallNamespace, leader), options...)
}

// kruiseDown has OpenKruise's manager away for some time.
func kruiseDown(ctx context.Context, w *world) error {
	const down = 15 * time.Second
	if err := w.site.StopKruise(ctx); err != nil {
		return err
	}
	wait.Pause(ctx, down)
	return w.site.StartKruise(ctx)
}

// graceful replaces the pods by such as finish what is under way when they have to stop.
func graceful(ctx context.Context, a *arm) error {
	return a.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) {
		byNewPods(spec)
		for i, variable := range spec.Template.Spec.Containers[0].Env {
			if variable.Name == "STOP" {
				spec.Template.Spec.Containers[0].Env[i].Value = "graceful"
			}
		}
	})
}

// crash has the application of one pod end by itself.
func crash(ctx context.Context, a *arm) error {
	pods, err := a.Pods(ctx)
	if err != nil {
		return err
	}
	application := registries.NewClient("http://" + net.JoinHostPort(pods[0].Status.PodIP, strconv.Itoa(appPort)))
	if answer, err := application.Do(ctx, http.MethodPost, "/crash", nil); err == nil {
		return fmt.Errorf("the application was asked to crash, and answers %s", answer)
	}
	return a.await(ctx, "the crashed container to start again", func(ctx context.Context) error {
		return a.restarted(ctx, &pods[0])
	})
}
