package clusterstate

import (
	"testing"

	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestDeletesSpecified(t *testing.T) {
	t.Parallel()
	parallel := func(change func(*kruisev1beta1.StatefulSet)) *kruisev1beta1.StatefulSet {
		set := &kruisev1beta1.StatefulSet{Spec: kruisev1beta1.StatefulSetSpec{
			PodManagementPolicy: "Parallel", UpdateStrategy: kruisev1beta1.StatefulSetUpdateStrategy{
				Type: "RollingUpdate", RollingUpdate: &kruisev1beta1.RollingUpdateStatefulSetStrategy{},
			},
		}}
		change(set)
		return set
	}
	for name, tc := range map[string]struct {
		reason string
		set    client.Object
		want   bool
	}{
		"a CloneSet":    {"the label is its own", &kruisev1alpha1.CloneSet{}, true},
		"a DaemonSet":   {"its pods are not to leave their node", &kruisev1alpha1.DaemonSet{}, false},
		"a StatefulSet": {"it replaces one under the same name", parallel(func(*kruisev1beta1.StatefulSet) {}), true},
		"in order": {
			"one at a hook stops it", parallel(func(set *kruisev1beta1.StatefulSet) { set.Spec.PodManagementPolicy = "OrderedReady" }), false,
		},
		"by people": {
			"they delete pods", parallel(func(set *kruisev1beta1.StatefulSet) { set.Spec.UpdateStrategy.Type = "OnDelete" }), false,
		},
		"paused": {
			"it does nothing", parallel(func(set *kruisev1beta1.StatefulSet) { set.Spec.UpdateStrategy.RollingUpdate.Paused = true }), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := AsWorkload(tc.set).DeletesSpecified(); got != tc.want {
				t.Errorf("got %t, want %t: %s", got, tc.want, tc.reason)
			}
		})
	}
}
