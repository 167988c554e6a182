package clusterstate

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appspub "github.com/openkruise/kruise-api/apps/pub"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

func TestStripPodKeepsWhereItIsReached(t *testing.T) {
	t.Parallel()
	port := corev1.ContainerPort{ContainerPort: 80}
	onNode := corev1.ContainerPort{ContainerPort: 80, HostPort: 8080}
	type row struct {
		port   corev1.ContainerPort
		podIPs []corev1.PodIP
		want   []string
	}
	expect.Each(t, map[string]row{
		"two addresses":      {port, []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}, []string{"10.0.0.1", "fd00::1"}},
		"a port of the node": {onNode, nil, []string{"10.0.0.1", "192.0.2.1", "2001:db8::1"}},
	}, func(t *testing.T, tc row) {
		got, err := NewSharer().StripPod(&corev1.Pod{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{tc.port}}}},
			Status: corev1.PodStatus{
				PodIP: "10.0.0.1", PodIPs: tc.podIPs, HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}, {IP: "2001:db8::1"}},
			},
		})
		expect.NoError(t, err)
		if diff := cmp.Diff(tc.want, lifecycle.AddressesOf(unpacked(got).(*lifecycle.Pod), 8080)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		var buckets []string
		for _, address := range tc.want {
			buckets = append(buckets, bucketOf(address))
		}
		slices.Sort(buckets)
		indexed := got.(*packed).indexed(addressIndex)
		slices.Sort(indexed)
		expect.Equal(t, slices.Compact(buckets), indexed, "it is not found at each address")
	})
}

func TestStripWorkloadKeepsWhatIsRead(t *testing.T) {
	t.Parallel()
	shares := map[string]string{lifecycle.AnnotationTraffic: "stable=80,canary=20"}
	kept := metav1.ObjectMeta{Name: "web", Namespace: "prod", UID: "w", ResourceVersion: "7", Generation: 2, Annotations: shares, Labels: map[string]string{EnrollLabel: "false", KarmadaLabel: "true"}, OwnerReferences: []metav1.OwnerReference{{
		Kind: "UnitedDeployment", Name: strings.Repeat("x", 80), Controller: new(true),
	}}}
	enrolled := kept
	enrolled.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: EnrollOwner, Operation: metav1.ManagedFieldsOperationApply}}
	full := *kept.DeepCopy()
	full.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl"}, {Manager: EnrollOwner, Operation: metav1.ManagedFieldsOperationUpdate}, {
			Manager: EnrollOwner, Operation: metav1.ManagedFieldsOperationApply, APIVersion: "apps.kruise.io/v1alpha1", Time: &metav1.Time{},
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
		}, {Manager: "argocd-controller", Operation: metav1.ManagedFieldsOperationApply},
	}
	full.OwnerReferences = []metav1.OwnerReference{{Kind: "Application", Name: "shop"}, {
		APIVersion: "apps.kruise.io/v1alpha1", Kind: "UnitedDeployment", Name: strings.Repeat("x", 1000), UID: "u", Controller: new(true),
	}}
	full.Labels["app"], full.Annotations[corev1.LastAppliedConfigAnnotation], full.Finalizers = "web", "{…}", []string{"a/b"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	hooks := &appspub.Lifecycle{PreDelete: &appspub.LifecycleHook{FinalizersHandler: []string{"example.com/a"}}}
	keptTemplate := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"rollcall.dev/drain": "5s"}, Finalizers: []string{"example.com/a"},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}}},
	}
	fullTemplate := *keptTemplate.DeepCopy()
	fullTemplate.Annotations["example.com/a"] = "b"
	fullTemplate.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	fullTemplate.Spec.Containers[0].Image = "web:1"
	expectStripped(t, StripWorkload, &kruisev1alpha1.CloneSet{
		ObjectMeta: *full.DeepCopy(), Status: kruisev1alpha1.CloneSetStatus{Replicas: 3, CurrentRevision: "web-a", UpdateRevision: "web-b"},
		Spec: kruisev1alpha1.CloneSetSpec{Replicas: new(int32(3)), Selector: selector, Lifecycle: hooks, Template: *fullTemplate.DeepCopy()},
	}, &kruisev1alpha1.CloneSet{
		ObjectMeta: enrolled, Spec: kruisev1alpha1.CloneSetSpec{Selector: selector, Lifecycle: hooks, Template: keptTemplate},
		Status: kruisev1alpha1.CloneSetStatus{CurrentRevision: "web-a", UpdateRevision: "web-b"},
	})
	expectStripped(t, StripWorkload, &kruisev1beta1.StatefulSet{
		ObjectMeta: *full.DeepCopy(), Status: kruisev1beta1.StatefulSetStatus{Replicas: 3},
		Spec: kruisev1beta1.StatefulSetSpec{
			Replicas: new(int32(3)), Selector: selector, Lifecycle: hooks, Template: *fullTemplate.DeepCopy(), PodManagementPolicy: "Parallel",
		},
	}, &kruisev1beta1.StatefulSet{
		ObjectMeta: kept, Spec: kruisev1beta1.StatefulSetSpec{
			Selector: selector, Lifecycle: hooks, Template: keptTemplate, PodManagementPolicy: "Parallel",
		},
	})
	expectStripped(t, StripWorkload, &kruisev1alpha1.DaemonSet{
		ObjectMeta: *full.DeepCopy(), Status: kruisev1alpha1.DaemonSetStatus{NumberReady: 3},
		Spec: kruisev1alpha1.DaemonSetSpec{MinReadySeconds: 3, Selector: selector, Lifecycle: hooks, Template: *fullTemplate.DeepCopy()},
	}, &kruisev1alpha1.DaemonSet{
		ObjectMeta: kept, Spec: kruisev1alpha1.DaemonSetSpec{Selector: selector, Lifecycle: hooks, Template: keptTemplate},
	})
}

func TestStripNodeKeepsWhatIsRead(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := metav1.NewTime(now)
	kept := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "node-1", UID: "n", ResourceVersion: "7",
			Labels:      map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelTopologyRegion: "eu"},
			Annotations: map[string]string{lifecycle.AnnotationEndsAt: "2026-01-01T00:02:00Z"},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "aws-node-termination-handler/spot-itn", TimeAdded: &seen}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: lifecycle.NodeShutsDown},
		}},
	}
	full := kept.DeepCopy()
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	full.Labels[corev1.LabelHostname] = "node-1"
	full.Annotations["csi.volume.kubernetes.io/nodeid"] = "{…}"
	full.Spec.Taints = []corev1.Taint{
		{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
		{Key: "aws-node-termination-handler/spot-itn", Value: "spot-itn-1", Effect: corev1.TaintEffectNoSchedule},
	}
	full.Status.Conditions[0].Message = "[container runtime is down, node is shutting down]"
	full.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(-time.Minute))
	full.Status.Conditions = append(full.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeMemoryPressure})
	full.Status.Images = []corev1.ContainerImage{{Names: []string{"web:1"}}}
	again, untainted := full.DeepCopy(), full.DeepCopy()
	untainted.Spec.Taints = nil
	strips := NewNodeStripper(func() time.Time { return now })
	expectStripped(t, strips.Strip, full, kept)

	t.Log("The taint dates from when it was first seen, until it goes.")
	now = now.Add(time.Minute)
	expectStripped(t, strips.Strip, again.DeepCopy(), kept)
	_, err := strips.Strip(untainted)
	expect.NoError(t, err)
	later := metav1.NewTime(now)
	kept.Spec.Taints[0].TimeAdded = &later
	expectStripped(t, strips.Strip, again, kept)
}

func TestStripLeavesOtherObjectsAlone(t *testing.T) {
	t.Parallel()
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "prod/web-1"}
	for name, strip := range map[string]toolscache.TransformFunc{
		"StripPod": NewSharer().StripPod, "StripWorkload": StripWorkload, "StripNode": NewNodeStripper(time.Now).Strip,
	} {
		if got, err := strip(tombstone); err != nil || got != any(tombstone) {
			t.Errorf("%s gave %v and error %v, want what it was given", name, got, err)
		}
	}
}

// expectStripped strips twice: an object that was stripped may come again.
func expectStripped(t *testing.T, strip toolscache.TransformFunc, full, want any) {
	t.Helper()
	got := full
	for range 2 {
		var err error
		if got, err = strip(got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

func TestStripNamespaceKeepsLabelsAgeAndDeletion(t *testing.T) {
	t.Parallel()
	namespace, leaves := NamespaceMetadata(), metav1.NewTime(time.Date(2026, 2, 2, 3, 4, 5, 0, time.UTC))
	namespace.ObjectMeta = metav1.ObjectMeta{
		Name: "shop", UID: "1", ResourceVersion: "2", Labels: map[string]string{"team": "a"}, DeletionTimestamp: &leaves,
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), Annotations: map[string]string{"a": "b"}, Finalizers: []string{"a/b"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
	}
	stripped, err := StripNamespace(namespace)
	expect.NoError(t, err)
	want := NamespaceMetadata()
	want.ObjectMeta = metav1.ObjectMeta{
		Name: "shop", UID: "1", ResourceVersion: "2", Labels: map[string]string{"team": "a"}, DeletionTimestamp: &leaves,
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
	}
	if diff := cmp.Diff(want, stripped); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got, err := StripNamespace("else"); got != "else" || err != nil {
		t.Errorf("got %v, %v of what is no namespace", got, err)
	}
}
