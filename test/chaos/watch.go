package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// watchRetry is how long a watch that can't be had is waited with.
const watchRetry = 100 * time.Millisecond

// podWatch writes every version of every pod of the workloads into the journal. Where the API server was away, versions
// may be missing; what comes after such a gap is marked.
type podWatch struct {
	k8s       client.WithWatch
	journal   *journal
	workloads []*workload
}

// run follows the pods until the context ends.
func (p *podWatch) run(ctx context.Context) {
	version, gap := "", false
	for ctx.Err() == nil {
		if version == "" {
			var err error
			if version, err = p.list(ctx, gap); err != nil {
				pause(ctx, watchRetry)
				continue
			}
			gap = true
		}
		version = p.follow(ctx, version)
	}
}

// list takes what there is, and what is there no longer.
func (p *podWatch) list(ctx context.Context, gap bool) (version string, err error) {
	var pods corev1.PodList
	if err := p.k8s.List(ctx, &pods); err != nil {
		return "", fmt.Errorf("listing the pods: %w", err)
	}
	there := map[string]bool{}
	for i := range pods.Items {
		there[string(pods.Items[i].UID)] = true
		p.saw(&pods.Items[i], false, gap)
	}
	for uid, live := range p.journal.known() {
		if !there[uid] {
			gone := live.sighting
			gone.at, gone.gone, gone.gap = time.Now(), true, true
			p.journal.saw(uid, live.name, live.workload, gone)
		}
	}
	return pods.ResourceVersion, nil
}

// follow watches from a version on, and returns from where to go on, or "" where only a new list helps.
func (p *podWatch) follow(ctx context.Context, version string) string {
	watcher, err := p.k8s.Watch(ctx, &corev1.PodList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true},
	})
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return ""
	}
	if err != nil {
		pause(ctx, watchRetry)
		return version
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		pod, ok := event.Object.(*corev1.Pod)
		if !ok || event.Type == watch.Error {
			return ""
		}
		version = pod.ResourceVersion
		if event.Type != watch.Bookmark {
			p.saw(pod, event.Type == watch.Deleted, false)
		}
	}
	pause(ctx, watchRetry)
	return version
}

func (p *podWatch) saw(pod *corev1.Pod, gone, gap bool) {
	w := workloadOf(p.workloads, pod)
	version, err := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	if w == nil || err != nil {
		return
	}
	p.journal.saw(string(pod.UID), podName{pod.Namespace, pod.Name}, w, sighting{
		at: time.Now(), version: version, gone: gone, gap: gap,
		state: pod.Labels[appspub.LifecycleStateKey], stamp: pod.Annotations[appspub.LifecycleTimestampKey],
		ready: podReady(pod), deleting: pod.DeletionTimestamp != nil, held: len(pod.Finalizers) > 0, set: w.setOn(pod),
		address: pod.Status.PodIP, image: pod.Spec.Containers[0].Image, record: pod.Annotations[recordAnnotation],
	})
}

// workloadOf returns the one that a pod belongs to, or nil.
func workloadOf(all []*workload, pod client.Object) *workload {
	for _, w := range all {
		if w.namespace == pod.GetNamespace() && w.name == pod.GetLabels()[appLabel] {
			return w
		}
	}
	return nil
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// pause waits, or less where the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
