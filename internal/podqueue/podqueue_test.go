package podqueue

import (
	"slices"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

func pod(name string, state appspub.LifecycleStateType) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "prod", Name: name, Labels: map[string]string{appspub.LifecycleStateKey: string(state)},
	}}
}

// fill adds the pods, those that are looked at last first.
func fill(q Queue) {
	Add(Behind(q), lifecycle.PodOf(pod("behind", appspub.LifecycleStateNormal)))
	Add(Behind(q), lifecycle.PodOf(pod("behind, and a rollout waits", appspub.LifecycleStatePreparingDelete)))
	Add(q, lifecycle.PodOf(pod("usual", appspub.LifecycleStateNormal)))
	Wake(q, lifecycle.PodIDOf(lifecycle.PodOf(pod("woken", appspub.LifecycleStateNormal))), false)
	Add(q, lifecycle.PodOf(pod("a rollout waits", appspub.LifecycleStatePreparingUpdate)))
	Wake(q, lifecycle.PodIDOf(lifecycle.PodOf(pod("woken, and a rollout waits", appspub.LifecycleStatePreparingUpdate))), true)
}

func drain(q Queue) (names []string) {
	for q.Len() > 0 {
		id, _ := q.Get()
		q.Done(id)
		names = append(names, id.Name)
	}
	return names
}

func TestOrder(t *testing.T) {
	t.Parallel()
	q := priorityqueue.New[lifecycle.PodID](t.Name())
	t.Cleanup(q.ShutDown)
	fill(q)
	want := []string{"woken, and a rollout waits", "a rollout waits", "woken", "usual", "behind", "behind, and a rollout waits"}
	if got := drain(q); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestQueueWithoutPrioritiesTakesAllPods(t *testing.T) {
	t.Parallel()
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[lifecycle.PodID]())
	t.Cleanup(q.ShutDown)
	if fill(q); q.Len() != 6 {
		t.Errorf("got %d pods, want 6", q.Len())
	}
}
