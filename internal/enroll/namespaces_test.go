package enroll

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/service"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// TestNamespacesThatAreNotWatched: their labels are seen, and their CloneSets are not in the cache.
func TestNamespacesThatAreNotWatched(t *testing.T) {
	t.Parallel()
	type row struct {
		reason, namespace string
		watched           []string
		want              int
	}
	expect.Each(t, map[string]row{
		"watched":     {reason: "the label may enroll its CloneSet", namespace: "prod", watched: []string{"prod"}, want: 1},
		"all watched": {reason: "no list means all", namespace: "prod", want: 1},
		"not watched": {reason: "the cache gives an error for it", namespace: "pay", watched: []string{"prod"}},
		"all of them": {reason: "a changed configuration has every CloneSet looked at", watched: []string{"prod"}, want: 1},
	}, func(t *testing.T, c row) {
		logged := 0
		ctx := logr.NewContext(t.Context(), funcr.New(func(string, string) { logged++ }, funcr.Options{}))
		r := New(cacheOf(t, "prod"), nil, nil, clusterstate.NewScope(service.Namespaces{Names: c.watched}, c.watched))
		r.Apply(&config.Config{})
		got := r.inNamespace(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}})
		if len(got) != c.want || logged > 0 {
			t.Errorf("%s: got %v and %d lines in the log, want %d requests and no line", c.reason, got, logged, c.want)
		}
	})
}

// cacheOf has one CloneSet, and knows no namespace but its own, as a cache of some namespaces does.
func cacheOf(t *testing.T, namespace string) client.Client {
	t.Helper()
	list := func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		if of := (&client.ListOptions{}).ApplyOptions(opts).Namespace; of != "" && of != namespace {
			return errors.New("unknown namespace for the cache")
		}
		return c.List(ctx, list, opts...)
	}
	set := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(set).WithInterceptorFuncs(interceptor.Funcs{List: list}).Build()
}
