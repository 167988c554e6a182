package plugin

import (
	"context"
	"strings"
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rollcall-dev/rollcall/internal/clusterstate"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// installed is a cluster with the configuration, and with namespace prod. It applies nothing, and says so of each try.
func installed(t *testing.T, configuration string, objects ...client.Object) (c *cluster, applied *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	expect.NoError(t, clientscheme.AddToScheme(scheme))
	expect.NoError(t, clusterstate.AddToScheme(scheme))
	applied = new(0)
	objects = append(objects,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", Labels: map[string]string{"team": "web"}}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: configMapName}, Data: map[string]string{configKey: configuration},
		})
	reporters := func(object client.Object) []string { return []string{object.(*eventsv1.Event).ReportingController} }
	apply := func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
		*applied++
		return nil
	}
	return &cluster{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithIndex(&eventsv1.Event{}, "reportingController", reporters).
			WithInterceptorFuncs(interceptor.Funcs{Apply: apply}).Build(),
		namespace: "prod", installation: "system",
	}, applied
}

func TestEnroll(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ reason, configuration, want string }{
		"not watched": {
			reason: "no manager of this configuration serves the hooks", configuration: configText + "namespaces: [pay]",
			want: "namespace prod is not in namespaces of the configuration",
		},
		"no policy": {reason: "every name is free", configuration: configText},
		"not allowed": {
			reason: "its pods would wait in PreparingNormal", want: `does not give service "web" to namespace prod`,
			configuration: configText + "service: {allowed: [{namespaceSelector: {matchLabels: {team: shop}}, names: [web]}]}",
		},
		"allowed": {
			reason:        "the namespace's labels count",
			configuration: configText + "service: {allowed: [{namespaceSelector: {matchLabels: {team: web}}, names: [web]}]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := (&options{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(cloneSetText)}}).readObjects("-")
			expect.NoError(t, err)
			set := objects.cloneSets[0]
			set.Spec.Lifecycle = nil
			cluster, applied := installed(t, c.configuration)
			var out strings.Builder
			o := &options{IOStreams: genericiooptions.IOStreams{Out: &out}}
			expect.Error(t, c.reason, o.give(t.Context(), cluster, []kruisev1alpha1.CloneSet{*set}), c.want)
			if enrolled := strings.Contains(out.String(), "enrolled"); enrolled != (c.want == "") || (*applied > 0) != enrolled {
				t.Errorf("%s: it says %q and applies %d times", c.reason, &out, *applied)
			}
		})
	}
}
