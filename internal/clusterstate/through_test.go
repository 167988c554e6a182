package clusterstate

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	kruisev1alpha1 "github.com/openkruise/kruise-api/apps/v1alpha1"
	kruisev1beta1 "github.com/openkruise/kruise-api/apps/v1beta1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
	"github.com/rollcall-dev/rollcall/test/harness/expect"
)

// TestCacheKeepsWhatIsReadOfWorkloads: a workload with any value in any field says the same when it comes out of the cache. What
// [Workload] gets and [StripWorkload] forgets fails here.
func TestCacheKeepsWhatIsReadOfWorkloads(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		for _, object := range []client.Object{
			&kruisev1alpha1.CloneSet{Status: kruisev1alpha1.CloneSetStatus{CurrentRevision: "web-a", UpdateRevision: "web-b"}}, anyStatefulSet(rng), anyDaemonSet(rng),
		} {
			fillWorkload(t, rng, object)
			want := AsWorkload(object.DeepCopyObject().(client.Object))
			stripped, err := StripWorkload(object)
			expect.NoError(t, err)
			got := AsWorkload(stripped.(client.Object))
			want.ObjectMeta, got.ManagedFields = metadataThatIsRead(want.ObjectMeta), nil // [enroll.Owned] has a test of its own
			want.Selector = lifecycle.KeptSelector(want.Selector)
			want.Template.Annotations = lifecycle.KeptAnnotations(want.Template.Annotations)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(Workload{}, "Object"), cmp.AllowUnexported(Workload{}),
				cmpopts.IgnoreUnexported(Template{})); diff != "" {
				t.Fatalf("seed %d: the cache gives of a %s (-want +got)\n%s", seed, want.Kind, diff)
			}
			if diff := cmp.Diff(want.Template.Spec(), got.Template.Spec(), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d: the cache gives of a %s's template (-want +got)\n%s", seed, want.Kind, diff)
			}
		}
	}
}

func metadataThatIsRead(of *metav1.ObjectMeta) *metav1.ObjectMeta {
	read := &metav1.ObjectMeta{
		Namespace: of.Namespace, Name: of.Name, UID: of.UID, ResourceVersion: of.ResourceVersion, Generation: of.Generation,
		CreationTimestamp: of.CreationTimestamp, DeletionTimestamp: of.DeletionTimestamp,
	}
	if owner := metav1.GetControllerOf(of); owner != nil {
		read.OwnerReferences = []metav1.OwnerReference{{Kind: owner.Kind, Name: owner.Name, Controller: owner.Controller}}
	}
	return read
}

// fillWorkload fills all but the status, and what the object has already.
func fillWorkload(t *testing.T, rng *rand.Rand, object client.Object) {
	t.Helper()
	v := reflect.ValueOf(object).Elem()
	fill(t, rng, v.FieldByName("ObjectMeta"), "ObjectMeta")
	object.SetSelfLink("")
	spec := v.FieldByName("Spec")
	for _, name := range []string{"Selector", "Lifecycle", "Template"} {
		fill(t, rng, spec.FieldByName(name), name)
	}
}

func anyStatefulSet(rng *rand.Rand) *kruisev1beta1.StatefulSet {
	set := &kruisev1beta1.StatefulSet{}
	set.Spec.PodManagementPolicy = []appsv1.PodManagementPolicyType{"", appsv1.ParallelPodManagement}[rng.IntN(2)]
	set.Spec.UpdateStrategy.Type = []appsv1.StatefulSetUpdateStrategyType{"", appsv1.OnDeleteStatefulSetStrategyType}[rng.IntN(2)]
	if rng.IntN(2) == 0 {
		set.Spec.UpdateStrategy.RollingUpdate = &kruisev1beta1.RollingUpdateStatefulSetStrategy{Paused: rng.IntN(2) == 0}
	}
	return set
}

func anyDaemonSet(rng *rand.Rand) *kruisev1alpha1.DaemonSet {
	set := &kruisev1alpha1.DaemonSet{}
	if rng.IntN(2) == 0 {
		set.Spec.UpdateStrategy.RollingUpdate = &kruisev1alpha1.RollingUpdateDaemonSet{
			Type: []kruisev1alpha1.RollingUpdateType{"", kruisev1alpha1.InplaceRollingUpdateType}[rng.IntN(2)],
		}
	}
	return set
}

// TestCacheThroughGivesWhatIsKept: tests of what reads the cache would otherwise read more than it has.
func TestCacheThroughGivesWhatIsKept(t *testing.T) {
	t.Parallel()
	set := cloneSet(first, "web=80")
	set.Spec.Replicas, set.Spec.Template.Spec.Containers = new(int32(3)), []corev1.Container{{Name: "web", Image: "web:1"}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: map[string]string{corev1.LabelHostname: "node-1"}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: first, Name: "web-1"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "web:1"}}}}
	cache := cacheOf(t, set, node, pod)

	var sets kruisev1alpha1.CloneSetList
	expect.NoError(t, cache.List(t.Context(), &sets))
	var one kruisev1alpha1.CloneSet
	expect.NoError(t, cache.Get(t.Context(), client.ObjectKeyFromObject(set), &one))
	for _, got := range []kruisev1alpha1.CloneSet{sets.Items[0], one} {
		if got.Spec.Replicas != nil || got.Spec.Template.Spec.Containers[0].Image != "" || got.Spec.Lifecycle == nil {
			t.Errorf("got %+v, want what the cache keeps of it", got.Spec)
		}
	}
	expect.NoError(t, cache.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	if len(node.Labels) != 0 {
		t.Errorf("got a node with labels %v, want none that is not read", node.Labels)
	}
	expect.NoError(t, cache.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	if pod.Spec.Containers[0].Image == "" {
		t.Error("a pod is stripped, of which what is kept has a type of its own")
	}
}
