package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/registries/eureka"
	"github.com/rollcall-dev/rollcall/test/harness/registries/nacos"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

// The doors by which pods reach the other registries.
const nacosPort, eurekaPort = 9503, 9504

// longestRollout is longer than any of them takes on a busy machine.
const longestRollout = time.Hour

//go:embed durations.yaml
var durationsConfig string

// rollouts are those of one registry with one drain.
type rollouts struct {
	registry string
	pods     int32
	drain    string // Rollcall's
	// least is how long a pod drains if nothing must be waited for: the fixed drain, or the least of one until idle.
	least time.Duration
	// sleep is that of a preStop which is as safe: as long as the longest drain.
	sleep time.Duration
	// lag is how late clients notice a new pod.
	lag time.Duration
	// steps are the values of maxUnavailable, each for a rollout of its own.
	steps []int32
}

func rolloutsWith(registry string) []rollouts {
	const (
		fixed, most = 5 * time.Second, 10 * time.Second
		untilIdle   = "{min: 5s, max: 10s, until: {path: /idle, port: 8080}}"
		pushDelay   = 500 * time.Millisecond // after which Nacos notifies its readers, and Rollcall's call returns
		cached      = time.Minute            // Eureka's servers and clients keep their answers
	)
	all := []rollouts{
		{registry: "consul", pods: 30, drain: "5s", least: fixed, sleep: fixed, steps: []int32{1, 3, 10}},
		{registry: "consul", pods: 30, drain: untilIdle, least: fixed, sleep: most, steps: []int32{1, 3, 10}},
		{registry: "nacos", pods: 30, drain: "5s", least: fixed + pushDelay, sleep: fixed, lag: pushDelay, steps: []int32{1, 3, 10}},
		{registry: "nacos", pods: 30, drain: untilIdle, least: fixed + pushDelay, sleep: most, lag: pushDelay, steps: []int32{1, 3, 10}},
		{registry: "eureka", pods: 6, drain: "60s", least: cached, sleep: cached, lag: cached, steps: []int32{1, 3}},
	}
	return slices.DeleteFunc(all, func(r rollouts) bool { return r.registry != registry })
}

// durations measures how long updates in place take: with Rollcall, with the least that clients allow, and with a preStop
// sleep that is as safe. All three run at the same time, so that a busy machine delays each as much.
func durations(registry string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := w.startOtherRegistries(ctx); err != nil {
			return err
		}
		const format = "%-10v %-52v %6v %15v %10v %8v %8v %11v\n"
		fmt.Fprintf(w.out, format, "registry", "drain", "pods", "maxUnavailable", "Rollcall", "least", "preStop", "over least")
		for _, r := range rolloutsWith(registry) {
			took, err := w.time(ctx, r)
			if err != nil {
				return fmt.Errorf("rollouts with a drain of %s: %w", r.drain, err)
			}
			for i, step := range r.steps {
				with, least, slept := took[0][i].Seconds(), took[1][i].Seconds(), took[2][i].Seconds()
				fmt.Fprintf(w.out, format, registry, r.drain, r.pods, step, seconds(with), seconds(least), seconds(slept),
					fmt.Sprintf("%+.1f %%", (with/least-1)*100)) //nolint:mnd // a percentage
			}
		}
		return nil
	}
}

func seconds(n float64) string { return strconv.FormatFloat(n, 'f', 1, 64) }

func getOtherRegistries(ctx context.Context) error {
	_, nacosErr := nacos.Get(ctx, os.Stdout)
	_, eurekaErr := eureka.Get(ctx, os.Stdout)
	return errors.Join(nacosErr, eurekaErr)
}

// startOtherRegistries runs the registries that no other scenario needs, until ctx ends, and has Rollcall keep them.
func (w *world) startOtherRegistries(ctx context.Context) error {
	if w.others {
		return nil
	}
	w.others = true
	n, err := nacos.Start(ctx, nacos.Options{Version: nacos.V3})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, n.Stop)
	e, err := eureka.Start(ctx, eureka.Options{ReadOnlyCache: true})
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, e.Stop)
	for port, endpoint := range map[int]string{nacosPort: n.Endpoint, eurekaPort: e.Endpoint} {
		target := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/eureka")
		if _, err := openDoor(ctx, fmt.Sprintf(":%d", port), target); err != nil {
			return err
		}
	}
	config := strings.ReplaceAll(durationsConfig, registryHost, w.options.registry)
	return w.reconfigure(ctx, 1, func(string) string { return config })
}

// time returns how long the rollouts take with Rollcall, with the least, and with a preStop sleep, step by step.
func (w *world) time(ctx context.Context, r rollouts) (took [3][]time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arms := [3]*arm{w.newArm("with", r.byRollcall), w.newArm("least", r.byLeast), w.newArm("slept", r.bySleep)}
	if err := w.releaseAtOnce(ctx, arms[1], r); err != nil {
		return took, err
	}
	for _, a := range arms {
		if err := a.create(ctx); err != nil {
			return took, err
		}
		defer func() { err = errors.Join(err, a.remove(context.WithoutCancel(ctx))) }()
	}
	for _, a := range arms {
		if err := a.await(ctx, "its pods", a.isComplete); err != nil {
			return took, err
		}
	}
	for _, step := range r.steps {
		w.say("  %s, drain %s, maxUnavailable %d", r.registry, r.drain, step)
		group, groupCtx := errgroup.WithContext(ctx)
		for i, a := range arms {
			group.Go(func() error {
				one, err := a.rollOut(groupCtx, step)
				took[i] = append(took[i], one)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return took, err
		}
	}
	return took, nil
}

// The hooks of the pods that Rollcall leaves alone.
const leastOnline, leastUpdate = "example.org/online", "example.org/update"

func (r rollouts) byLeast(set *appsv1alpha1.CloneSet) {
	set.Spec.Replicas = &r.pods
	set.Spec.Template.Spec.Containers[0].Lifecycle = nil
	set.Spec.Lifecycle = &appspub.Lifecycle{
		PreNormal:     &appspub.LifecycleHook{LabelsHandler: map[string]string{leastOnline: "true"}},
		InPlaceUpdate: &appspub.LifecycleHook{LabelsHandler: map[string]string{leastUpdate: "true"}},
	}
}

// named is the registry's name in durations.yaml: Consul's is that of the only registry of the other scenarios.
func named(registry string) string {
	if registry == "consul" {
		return "default"
	}
	return registry
}

func (r rollouts) byRollcall(set *appsv1alpha1.CloneSet) {
	set.Spec.Replicas = &r.pods
	set.Spec.Template.Spec.Containers[0].Lifecycle = nil
	set.Spec.Template.Annotations = map[string]string{service.AnnotationDrain: r.drain, service.AnnotationRegistries: named(r.registry)}
}

// bySleep has no hooks: a pod serves while it sleeps, and counts as available once clients have noticed it.
func (r rollouts) bySleep(set *appsv1alpha1.CloneSet) {
	set.Spec.Replicas, set.Spec.Lifecycle = &r.pods, nil
	set.Spec.MinReadySeconds = int32(math.Ceil(r.lag.Seconds()))
	template := &set.Spec.Template
	sleep := int64(r.sleep.Seconds())
	template.Spec.TerminationGracePeriodSeconds = new(sleep + graceSeconds)
	template.Spec.Containers[0].Lifecycle.PreStop.Sleep.Seconds = sleep
}

// rollOut gives the pods the other version, in place, and returns how long that takes until all are available.
func (a *arm) rollOut(ctx context.Context, maxUnavailable int32) (time.Duration, error) {
	started := time.Now()
	err := a.Change(ctx, func(spec *appsv1alpha1.CloneSetSpec) {
		spec.UpdateStrategy.MaxUnavailable = new(intstr.FromInt32(maxUnavailable))
		nextVersion(spec)
	})
	if err == nil {
		err = wait.Until(ctx, longestRollout, pollStep, a.isComplete)
	}
	if err != nil {
		return 0, fmt.Errorf("a rollout of arm %s: %w", a.name, err)
	}
	return time.Since(started), nil
}

func (a *arm) isComplete(ctx context.Context) error {
	_, err := a.Settled(ctx, nil)
	return err
}

// remove deletes the arm, and returns once another one can have its name.
func (a *arm) remove(ctx context.Context) error {
	if err := a.delete(ctx); err != nil {
		return err
	}
	return a.await(ctx, "its namespace to go", func(ctx context.Context) error {
		err := a.K8s.Get(ctx, client.ObjectKey{Name: a.Key.Namespace}, &corev1.Namespace{})
		if err == nil {
			return errors.New("it is there")
		}
		return client.IgnoreNotFound(err)
	})
}

// releaseAtOnce releases the hooks of the arm's pods as soon as clients can have noticed, until ctx ends. It asks no registry.
func (w *world) releaseAtOnce(ctx context.Context, a *arm, r rollouts) error {
	k8s, err := cluster.NewClient(w.config)
	if err != nil {
		return err
	}
	last := map[types.UID]release{}
	_, err = history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) {
		pod := v.Object
		due := r.due(pod)
		if v.Gone || due == (release{}) || due == last[pod.UID] {
			return
		}
		last[pod.UID] = due
		time.AfterFunc(due.after, func() {
			patch := client.RawPatch(types.MergePatchType, []byte(due.patch))
			err := k8s.Patch(ctx, kube.Pod(pod.Namespace, pod.Name), patch)
			if client.IgnoreNotFound(err) != nil && ctx.Err() == nil {
				w.say("releasing %s: %v", pod.Name, err)
			}
		})
	}, client.InNamespace(a.Key.Namespace))
	return err
}

// release is what releases the hook at which a pod waits, and after how long.
type release struct {
	patch string
	after time.Duration
}

// due returns the release of the hook at which the pod waits. It is zero if the pod waits at none.
func (r rollouts) due(pod *corev1.Pod) release {
	const labels = `{"metadata":{"labels":{%q:%q}}}`
	ready := lifecycle.IsReady(lifecycle.PodOf(pod))
	switch state := lifecycle.State(lifecycle.PodOf(pod)); {
	case state == appspub.LifecycleStatePreparingNormal && ready:
		return release{fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:"true"}}}`, leastOnline, leastUpdate), r.lag}
	case state == appspub.LifecycleStatePreparingUpdate:
		return release{fmt.Sprintf(labels, leastUpdate, "false"), r.least}
	case state == appspub.LifecycleStateUpdated && ready:
		return release{fmt.Sprintf(labels, leastUpdate, "true"), r.lag}
	}
	return release{}
}
