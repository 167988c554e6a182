package history

import (
	"context"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// cuttable is an API server whose watches can be ended, and refused as too old until the next list.
type cuttable struct {
	client.WithWatch

	mu      sync.Mutex
	open    watch.Interface
	expired bool
}

func newCuttable(objects ...client.Object) *cuttable {
	c := &cuttable{}
	c.WithWatch = interceptor.NewClient(fake.NewClientBuilder().WithObjects(objects...).Build(), interceptor.Funcs{
		Watch: func(
			ctx context.Context, next client.WithWatch, list client.ObjectList, options ...client.ListOption,
		) (watch.Interface, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.expired {
				c.expired = false
				return nil, apierrors.NewResourceExpired("too old resource version")
			}
			var err error
			c.open, err = next.Watch(ctx, list, options...)
			return c.open, err
		},
	})
	return c
}

func (c *cuttable) watched() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open != nil
}

func (c *cuttable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open.Stop()
	c.open, c.expired = nil, true
}

func TestFollow(t *testing.T) {
	t.Parallel()
	pod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	}
	k8s := newCuttable(pod("first"), pod("second"))
	var mu sync.Mutex
	var seen []string
	ctx, cancel := context.WithCancel(t.Context())
	done, err := Follow(ctx, k8s, &corev1.PodList{}, func(v Version[*corev1.Pod]) {
		mu.Lock()
		defer mu.Unlock()
		text := v.Object.Name
		if v.Gone {
			text += " gone"
		}
		if v.Gap {
			text += " after a gap"
		}
		seen = append(seen, text)
	})
	expect.NoError(t, err)
	saw := func(want ...string) {
		t.Helper()
		expect.Becomes(t, "the versions to be seen", func() bool {
			mu.Lock()
			defer mu.Unlock()
			if len(seen) < len(want) {
				return false
			}
			slices.Sort(seen)
			if !slices.Equal(seen, want) {
				t.Errorf("got %q, want %q", seen, want)
			}
			seen = nil
			return true
		})
	}
	saw("first", "second")
	expect.Becomes(t, "the watch to begin", k8s.watched)
	expect.NoError(t, k8s.Create(ctx, pod("third")))
	expect.NoError(t, k8s.Delete(ctx, pod("first")))
	saw("first gone", "third")

	k8s.cut()
	expect.NoError(t, k8s.Delete(ctx, pod("second")))
	expect.NoError(t, k8s.Create(ctx, pod("fourth")))
	saw("fourth after a gap", "second gone after a gap")

	cancel()
	<-done
}
