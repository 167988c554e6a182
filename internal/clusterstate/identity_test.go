package clusterstate

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestIdentity: the API server is asked until it has answered, and no more.
func TestIdentity(t *testing.T) {
	t.Parallel()
	asked, refusal := 0, errors.New("forbidden")
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid-1"}}
	server := fake.NewClientBuilder().WithObjects(system).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
			if asked++; refusal != nil {
				return refusal
			}
			return c.Get(ctx, key, into, opts...)
		},
	}).Build()
	i := NewIdentity(server, logr.Discard())
	for _, want := range []string{"", "", "uid-1", "uid-1"} {
		if got := i.Learn(t.Context()); got != want || i.UID() != want {
			t.Errorf("learned %q, and is %q, want %q", got, i.UID(), want)
		}
		if asked == 2 {
			refusal = nil
		}
	}
	if asked != 3 {
		t.Errorf("asked %d times, want twice in vain and once more", asked)
	}
	expect.Equal(t, "", (*Identity)(nil).Learn(t.Context()), "no Identity has a UID")
}
