package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// history is every version of every pod of the cluster, and the last one of every CloneSet.
type history struct {
	mu   sync.Mutex
	pods map[types.UID][]sighting
	sets map[types.NamespacedName]*kruisev1alpha1.CloneSet
	err  error
}

// sighting is one watch event of a pod.
type sighting struct {
	pod     *corev1.Pod
	arrived time.Time
	deleted bool
}

func (s sighting) state() string { return stateOf(s.pod) }

func stateOf(pod *corev1.Pod) string { return pod.Labels[appspub.LifecycleStateKey] }

// version orders the versions of one object: those of an API server on etcd are numbers.
func version(object client.Object) uint64 {
	v, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("resource version %q is not a number", object.GetResourceVersion()))
	}
	return v
}

// watchHistory follows the cluster until the context ends.
func watchHistory(ctx context.Context, k8s client.WithWatch) *history {
	h := watchPods(ctx, k8s)
	h.followSets(ctx, k8s)
	return h
}

// watchPods is watchHistory for a cluster that has no CloneSets yet.
func watchPods(ctx context.Context, k8s client.WithWatch) *history {
	h := &history{
		pods: map[types.UID][]sighting{},
		sets: map[types.NamespacedName]*kruisev1alpha1.CloneSet{},
	}
	go h.follow(ctx, k8s, &corev1.PodList{})
	return h
}

func (h *history) followSets(ctx context.Context, k8s client.WithWatch) {
	go h.follow(ctx, k8s, &kruisev1alpha1.CloneSetList{})
}

// follow takes what there is, and watches from there without a gap: a watch that ends goes on where it stood.
func (h *history) follow(ctx context.Context, k8s client.WithWatch, list client.ObjectList) {
	if err := k8s.List(ctx, list); err != nil {
		h.fail(err)
		return
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		h.fail(err)
		return
	}
	for _, object := range objects {
		h.add(watch.Added, object.(client.Object))
	}
	last := list.GetResourceVersion()
	for ctx.Err() == nil {
		watcher, err := k8s.Watch(ctx, list, &client.ListOptions{
			Raw: &metav1.ListOptions{ResourceVersion: last, AllowWatchBookmarks: true},
		})
		if err != nil {
			h.fail(err)
			return
		}
		for event := range watcher.ResultChan() {
			object, ok := event.Object.(client.Object)
			if !ok || event.Type == watch.Error {
				h.fail(fmt.Errorf("watching %T: %+v", list, event.Object))
				return
			}
			last = object.GetResourceVersion()
			h.add(event.Type, object)
		}
	}
}

func (h *history) add(kind watch.EventType, object client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if kind == watch.Bookmark {
		return
	}
	switch o := object.(type) {
	case *corev1.Pod:
		h.pods[o.UID] = append(h.pods[o.UID], sighting{pod: o, arrived: time.Now(), deleted: kind == watch.Deleted})
	case *kruisev1alpha1.CloneSet:
		if kind == watch.Deleted {
			delete(h.sets, client.ObjectKeyFromObject(o))
			return
		}
		h.sets[client.ObjectKeyFromObject(o)] = o
	}
}

func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// Err says why the history has a gap, if it has one.
func (h *history) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// Of returns the versions of one pod, oldest first.
func (h *history) Of(uid types.UID) []sighting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pods[uid])
}

// All returns the last version of every pod that there ever was.
func (h *history) All() []*corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pods []*corev1.Pod
	for _, seen := range h.pods {
		pods = append(pods, seen[len(seen)-1].pod)
	}
	return pods
}

// UIDs returns the pods that a namespace ever had.
func (h *history) UIDs(namespace string) []types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var uids []types.UID
	for uid, seen := range h.pods {
		if seen[0].pod.Namespace == namespace {
			uids = append(uids, uid)
		}
	}
	return uids
}

// Pods returns the last versions of the pods that are there, the oldest first.
func (h *history) Pods(namespace string) []*corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pods []*corev1.Pod
	for _, seen := range h.pods {
		if last := seen[len(seen)-1]; last.pod.Namespace == namespace && !last.deleted {
			pods = append(pods, last.pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return pods
}

// Set returns the last version of a CloneSet, or nil.
func (h *history) Set(key types.NamespacedName) *kruisev1alpha1.CloneSet {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sets[key]
}
