package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestNamespacesThatAreWatched(t *testing.T) {
	t.Parallel()
	type names []string
	type row struct {
		reason                    string
		listed, exist, may, wants names
		leaves                    string
		unanswered                bool
	}
	expect.Each(t, map[string]row{
		"all there":   {reason: "whatever the rights, which are missed by name", listed: names{"a", "b"}, exist: names{"a", "b"}, wants: names{"a", "b"}},
		"one is gone": {reason: "its Role went with it", listed: names{"a", "b"}, exist: names{"a"}, may: names{"a"}, wants: names{"a"}},
		"one hangs in its deletion": {
			reason: "its Role went before it does", listed: names{"a", "b"}, exist: names{"a", "b"}, may: names{"a"}, leaves: "b", wants: names{"a"},
		},
		"rights everywhere": {reason: "it can be watched before it is made", listed: names{"a", "b"}, exist: names{"a"}, may: names{"a", "b"}, wants: names{"a", "b"}},
		"one is made again": {
			reason: "its Role may come later, and the others go on until then", listed: names{"a", "b"}, exist: names{"a", "b"}, may: names{"a"},
			wants: names{"a"},
		},
		"none is left":        {reason: "an empty list means the whole cluster", listed: names{"a", "b"}, wants: names{"a", "b"}},
		"the whole cluster":   {reason: "there is nothing to choose from", exist: names{"a"}},
		"no answer about one": {reason: "nothing is left out on a guess", listed: names{"a", "b"}, exist: names{"a"}, unanswered: true},
	}, func(t *testing.T, tc row) {
		existing := clientfake.NewClientBuilder().WithScheme(newScheme())
		for _, namespace := range tc.exist {
			object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			if namespace == tc.leaves {
				object.DeletionTimestamp, object.Finalizers = new(metav1.Now()), []string{"example.com/stays"}
			}
			existing.WithObjects(object)
		}
		server := interceptor.NewClient(existing.Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				if tc.unanswered {
					return errors.New("no answer")
				}
				review := object.(*authorizationv1.SelfSubjectAccessReview)
				review.Status.Allowed = slices.Contains(tc.may, review.Spec.ResourceAttributes.Namespace)
				return nil
			},
		})
		n := &namespaces{server: server, listed: tc.listed, watched: tc.wants, reach: reach{true, true}, logger: quiet()}
		if err := n.check(t.Context()); err != nil {
			t.Errorf("got %v where %v are watched: %s", err, tc.wants, tc.reason)
		}
		n.watched = names{"another"}
		if err := n.check(t.Context()); !tc.unanswered && (err == nil || !strings.Contains(err.Error(), strings.Join(tc.wants, ", "))) {
			t.Errorf("got %v where another is watched, want %v: %s", err, tc.wants, tc.reason)
		}
	})
}
