package main

import (
	"context"
	"sync"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/cluster"
	"github.com/rollcall-dev/rollcall/test/harness/history"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

const (
	floorWorkers = 32
	floorQueue   = 1 << 16
)

// floor patches the label of each pod that waits, and does nothing else: the most that the API server can do.
func floor(ctx context.Context, config *rest.Config) error {
	k8s, err := cluster.NewClient(config)
	if err != nil {
		return err
	}
	queue := make(chan *corev1.Pod, floorQueue)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	for range floorWorkers {
		workers.Go(func() {
			for pod := range queue {
				if err := flipLabel(ctx, k8s, pod); err != nil {
					cancel(err)
				}
			}
		})
	}
	ended, err := history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) {
		if !v.Gone && !flipped(v.Object) {
			queue <- v.Object
		}
	}, client.HasLabels{appspub.LifecycleStateKey})
	if err != nil {
		cancel(err)
	} else {
		ready()
		<-ended
	}
	close(queue)
	workers.Wait()
	return context.Cause(ctx)
}

func flipLabel(ctx context.Context, k8s client.Client, pod *corev1.Pod) error {
	key, value := inPlaceLabel, notSet
	switch lifecycle.State(lifecycle.PodOf(pod)) {
	case appspub.LifecycleStateUpdated:
		value = set
	case appspub.LifecycleStatePreparingDelete:
		key = deleteLabel
	default:
	}
	patch := kube.Merge(`{"metadata":{"labels":{%q:%q}}}`, key, value)
	return client.IgnoreNotFound(k8s.Patch(ctx, kube.Pod(pod.Namespace, pod.Name), patch))
}
