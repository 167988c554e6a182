package clusterstate

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestNodeOf: what is not known of a node is not bad news.
func TestNodeOf(t *testing.T) {
	t.Parallel()
	type row struct {
		reason string
		err    error
		want   *lifecycle.Node
		lost   bool
	}
	expect.Each(t, map[string]row{
		"in the cache":        {"it is not Ready", nil, &lifecycle.Node{Name: "node-1"}, true},
		"not in the cache":    {"it was deleted", apierrors.NewNotFound(corev1.Resource("nodes"), "node-1"), &lifecycle.Node{Name: "node-1"}, true},
		"no nodes are cached": {"for want of the right", &cache.ErrResourceNotCached{}, &lifecycle.Node{Name: "node-1", Unread: true}, false},
		"another error":       {"it can't be told", errors.New("down"), nil, false},
	}, func(t *testing.T, tc row) {
		from := interceptor.NewClient(nil, interceptor.Funcs{Get: func(
			_ context.Context, _ client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption,
		) error {
			object.SetName(key.Name)
			return tc.err
		}})
		pod := &lifecycle.Pod{}
		pod.Spec.NodeName = "node-1"
		got, err := NodeOf(t.Context(), from, pod)
		expect.Equal(t, tc.want, got, "%s", tc.reason)
		if (err != nil) != (tc.want == nil) || got.Lost() != tc.lost {
			t.Errorf("got %v, lost %t; want lost %t: %s", err, got.Lost(), tc.lost, tc.reason)
		}
		if got != nil && Topology(got).Unread != got.Unread {
			t.Error("placeholders do not know that it was not read")
		}
	})
}
