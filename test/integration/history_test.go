package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/test/harness/history"
)

// watched is every version of every pod of the cluster, and the last one of every CloneSet.
type watched struct {
	mu   sync.Mutex
	pods map[types.UID][]sighting
	sets map[types.NamespacedName]*kruisev1alpha1.CloneSet
	// gap: versions of pods may be missing.
	gap bool
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

// watchPods follows the pods of a cluster, which need not have CloneSets yet, until the context ends.
func watchPods(ctx context.Context, k8s client.WithWatch) (*watched, error) {
	h := &watched{
		pods: map[types.UID][]sighting{},
		sets: map[types.NamespacedName]*kruisev1alpha1.CloneSet{},
	}
	_, err := history.Follow(ctx, k8s, &corev1.PodList{}, func(v history.Version[*corev1.Pod]) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.gap = h.gap || v.Gap
		h.pods[v.Object.UID] = append(h.pods[v.Object.UID], sighting{pod: v.Object, arrived: time.Now(), deleted: v.Gone})
	})
	return h, err
}

func (h *watched) followSets(ctx context.Context, k8s client.WithWatch) error {
	_, err := history.Follow(ctx, k8s, &kruisev1alpha1.CloneSetList{}, func(v history.Version[*kruisev1alpha1.CloneSet]) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if v.Gone {
			delete(h.sets, client.ObjectKeyFromObject(v.Object))
			return
		}
		h.sets[client.ObjectKeyFromObject(v.Object)] = v.Object
	})
	return err
}

// Err says that versions of pods may be missing.
func (h *watched) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gap {
		return errors.New("the watch of the pods has a gap")
	}
	return nil
}

func (h *watched) Of(uid types.UID) []sighting {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.pods[uid])
}

// All returns the last version of every pod that there ever was.
func (h *watched) All() []*corev1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	var pods []*corev1.Pod
	for _, seen := range h.pods {
		pods = append(pods, seen[len(seen)-1].pod)
	}
	return pods
}

// Pods returns the last versions of the pods that are there, the oldest first.
func (h *watched) Pods(namespace string) []*corev1.Pod {
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

func (h *watched) Set(key types.NamespacedName) *kruisev1alpha1.CloneSet {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sets[key]
}
