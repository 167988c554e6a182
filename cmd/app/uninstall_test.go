package app

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/config"
	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/internal/uninstall"
	"github.com/rollcall-dev/rollcall/test/harness/bubble"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
	"github.com/rollcall-dev/rollcall/test/harness/kube"
)

// TestUninstallHook: the exit status is what Helm goes by.
func TestUninstallHook(t *testing.T) {
	t.Parallel()
	hooked := &kruisev1alpha1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}}
	hooked.Spec.Lifecycle = lifecycle.Enrolled()
	held := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-1", UID: "1", Finalizers: []string{lifecycle.GuardFinalizer},
		Labels: map[string]string{appspub.LifecycleStateKey: string(appspub.LifecycleStateNormal)},
	}}
	type row struct {
		reason    string
		objects   []client.Object
		clean     bool
		refused   bool
		err, want string
	}
	bubble.Each(t, map[string]row{
		"nothing waits": {reason: "Helm continues", want: "nothing depends on Rollcall"},
		"nothing can be read": {
			reason: "a Role is gone with its namespace", refused: true,
			err: "pods is forbidden: no Role; helm uninstall --no-hooks skips this check",
		},
		"hooks": {
			reason: "new pods would wait forever", objects: []client.Object{hooked}, err: "objects that depend on Rollcall: 1.",
			want: "CloneSet shop/web: preNormal waits for label rollcall.dev/pre-normal=true",
		},
		"hooks, and clean": {
			reason: "the user's values ask for it", objects: []client.Object{hooked}, clean: true, want: "removed from CloneSet shop/web",
		},
		"clean, and a pod that stays held": {
			reason: "no manager runs", objects: []client.Object{hooked, held}, clean: true, err: "objects that depend on Rollcall: 1.",
			want: "Pod shop/web-1: finalizer rollcall.dev/guard",
		},
	}, func(t *testing.T, c row) {
		parsed, err := config.Parse([]byte("cluster: test\nregistry: {driver: memory}\n"), config.Limits{})
		expect.NoError(t, err)
		cluster := &uninstall.Cluster{Config: parsed, KeepWebhook: true}
		builder := clientfake.NewClientBuilder().WithScheme(kube.Scheme())
		for _, object := range c.objects {
			copied, _ := object.DeepCopyObject().(client.Object)
			builder = builder.WithObjects(copied)
		}
		cluster.Client = builder.WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if c.refused {
					return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no Role"))
				}
				return to.List(ctx, list, opts...)
			},
		}).Build()
		var out bytes.Buffer
		expect.Error(t, c.reason, (&options{output: &out}).uninstallFrom(t.Context(), cluster, c.clean), c.err)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s: it prints %q, want %q in it", c.reason, out.String(), c.want)
		}
	})
}
