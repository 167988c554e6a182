package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	appsv1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/kube"
	"github.com/rollcall-dev/rollcall/test/harness/network"
	"github.com/rollcall-dev/rollcall/test/harness/registries/read"
	"github.com/rollcall-dev/rollcall/test/harness/rollout"
	"github.com/rollcall-dev/rollcall/test/harness/wait"
)

const (
	// stepTimeout is generous: a step takes some seconds, and on a busy machine many.
	stepTimeout = 3 * time.Minute
	stepPoll    = 200 * time.Millisecond
	// enoughRequests is how many each way gets at least, so that the results compare. On an idle machine, none takes more by itself.
	enoughRequests = 4000

	imageAfter, imageLast = "web:v2", "web:v3"

	// sleepSeconds is what docs/evictions.md says a preStop sleep should be: until the last client has noticed and its request
	// is done, and a second for the registry. OpenKruise waits as long between unready and the new image.
	sleepSeconds = int64((rollout.RefreshEvery+rollout.RequestTimeout)/time.Second) + 1
	// away is longer than the sleep and OpenKruise's wait together.
	away = 10 * time.Second
)

//go:embed cloneset.yaml
var clonesetYAML []byte

// life is one life of the CloneSet, with traffic on its pods all the while.
type life struct {
	rollout.CloneSet

	k8s     client.WithWatch
	out     *screen
	set     *appsv1alpha1.CloneSet // as it is at first
	read    read.Reader
	door    *network.Network // to the registry, for those who write; nil where there is none
	traffic *rollout.Client
}

// step changes something and waits until what was wanted is so.
type step struct {
	title string
	do    func(context.Context) error
	until func(context.Context) error // says what is missing
}

// clonesetFor returns the demo's CloneSet in an arm, whose pods answer at the port.
func clonesetFor(a arm, port int) (*appsv1alpha1.CloneSet, error) {
	set, err := rollout.Decode(clonesetYAML)
	if err != nil {
		return nil, err
	}
	set.Namespace = a.namespace
	container := &set.Spec.Template.Spec.Containers[0]
	container.Ports[0].ContainerPort = int32(port)
	if a.sleeps {
		set.Spec.UpdateStrategy.InPlaceUpdateStrategy = &appspub.InPlaceUpdateStrategy{GracePeriodSeconds: int32(sleepSeconds)}
		container.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: sleepSeconds}}}
	}
	if !a.hooks {
		set.Spec.Lifecycle = nil
	}
	return set, nil
}

func (l *life) steps() []step {
	var victim *corev1.Pod
	steps := []step{{
		title: "Create a CloneSet with three replicas",
		do: func(ctx context.Context) error {
			namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: l.Key.Namespace}}
			return kube.Create(ctx, l.k8s, namespace, l.set.DeepCopy())
		},
		until: l.settled,
	}, {
		title: "Update it in place: the container of each pod is replaced by one of image " + imageAfter,
		do:    func(ctx context.Context) error { return l.SetImage(ctx, imageAfter) },
		until: l.settled,
	}, {
		title: "Scale out to five",
		do:    func(ctx context.Context) error { return l.Scale(ctx, 5) },
		until: l.settled,
	}, {
		title: "Scale in to three",
		do:    func(ctx context.Context) error { return l.Scale(ctx, 3) },
		until: l.settled,
	}, {
		title: "Delete one pod by label " + appsv1alpha1.SpecifiedDeleteKey + "; OpenKruise replaces it",
		do: func(ctx context.Context) (err error) {
			victim, err = l.markForDelete(ctx)
			return err
		},
		until: func(ctx context.Context) error {
			return cmp.Or(l.settled(ctx), l.Gone(ctx, *victim))
		},
	}}
	if l.door == nil {
		return steps
	}
	return append(steps, step{
		title: fmt.Sprintf("Update it to %s, while the registry takes no writes for %s", imageLast, away),
		do:    l.updateWhileAway,
		until: l.settled,
	})
}

// updateWhileAway begins an update while the registry takes no writes; it still answers readers.
func (l *life) updateWhileAway(ctx context.Context) error {
	l.door.Set(network.Terms{Fault: network.Refuse})
	if err := l.SetImage(ctx, imageLast); err != nil {
		return err
	}
	wait.Pause(ctx, away)
	l.out.at(time.Now(), "", "the registry takes writes again")
	return l.door.Clear(ctx)
}

func (l *life) play(ctx context.Context) error {
	return l.during(ctx, func() error {
		for _, s := range l.steps() {
			if err := l.take(ctx, s); err != nil {
				return fmt.Errorf("%s: %w", s.title, err)
			}
		}
		if l.traffic.Tally().Requests >= enoughRequests {
			return nil
		}
		return l.take(ctx, step{
			title: fmt.Sprintf("Continue until there were %d requests", enoughRequests),
			do:    func(context.Context) error { return nil },
			until: func(context.Context) error {
				if n := l.traffic.Tally().Requests; n < enoughRequests {
					return fmt.Errorf("there were %d requests and not %d", n, enoughRequests)
				}
				return nil
			},
		})
	})
}

// during has the watcher and the client at work while do runs. When it returns, both have stopped.
func (l *life) during(ctx context.Context, do func() error) error {
	stopWatching, err := startWatcher(ctx, l.k8s, l.Key.Namespace, l.read, l.out)
	if err != nil {
		return err
	}
	defer stopWatching()
	stopTraffic := l.traffic.Start(ctx)
	defer stopTraffic()
	return do()
}

// take takes one step. An error says what it waited for.
func (l *life) take(ctx context.Context, s step) error {
	before := l.traffic.Tally()
	l.traffic.NewStep()
	l.out.heading("%s", s.title)
	l.out.line("%s", columns())
	if err := s.do(ctx); err != nil {
		return err
	}
	if err := wait.Until(ctx, stepTimeout, stepPoll, s.until); err != nil {
		return err
	}
	l.out.line("    done: %s in this step", l.traffic.Tally().Since(before))
	return nil
}

// markForDelete asks OpenKruise to delete one pod, and returns that pod.
func (l *life) markForDelete(ctx context.Context) (*corev1.Pod, error) {
	pods, err := l.Pods(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, errors.New("there is no pod to delete")
	}
	return &pods[0], rollout.MarkDeleted(ctx, l.k8s, &pods[0])
}

// settled holds when the pods are as the CloneSet wants them, the registry has exactly them in service, and the client knows.
func (l *life) settled(ctx context.Context) error {
	pods, err := l.Settled(ctx, []read.Reader{l.read}, l.traffic)
	for i := range pods {
		err = cmp.Or(err, runs(&pods[i]))
	}
	return err
}

// runs says that the pod does not run its image yet: it may run one before it.
func runs(pod *corev1.Pod) error {
	image := pod.Spec.Containers[0].Image
	if statuses := pod.Status.ContainerStatuses; len(statuses) != 1 || statuses[0].Image != image {
		return fmt.Errorf("pod %s does not run image %s", pod.Name, image)
	}
	return nil
}
