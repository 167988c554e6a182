package clusterstate

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rollcall-dev/rollcall/internal/lifecycle"
)

// TestCacheKeepsEveryField: a pod with any value in any field comes out of the cache as it went in. A field that [lifecycle.Pod] gets and
// the cache forgets fails here.
func TestCacheKeepsEveryField(t *testing.T) {
	t.Parallel()
	used := &lifecycle.Pod{}
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		want := &lifecycle.Pod{}
		fill(t, rng, reflect.ValueOf(want).Elem(), "Pod")
		want.ManagedFields, want.SelfLink = nil, "" //nolint:staticcheck // random values have filled it
		if rng.IntN(2) == 0 {
			want.Spec.Hostname = want.Name
		}
		before := want.DeepCopy()
		packed := NewSharer().packed(want)
		packed.unpackInto(used)
		for how, got := range map[string]*lifecycle.Pod{"gives": packed.unpack(), "gives in the place of another pod": used} {
			if diff := cmp.Diff(before, got, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("seed %d: the cache %s (-want +got)\n%s", seed, how, diff)
			}
		}
		if diff := cmp.Diff(before, want); diff != "" {
			t.Fatalf("seed %d: what was packed has changed (-want +got)\n%s", seed, diff)
		}
	}
}

// fill gives each field a value of its own, and half of the optional ones none.
func fill(t *testing.T, rng *rand.Rand, v reflect.Value, path string) {
	t.Helper()
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		*at = metav1.Unix(rng.Int64N(1<<31)+1, 0)
		return
	case *metav1.FieldsV1, *resource.Quantity:
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(string([]byte{byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26)), byte('a' + rng.IntN(26))}))
	case reflect.Bool:
		v.SetBool(rng.IntN(2) == 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(rng.Int64N(1<<16) + 1)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, rng, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		if rng.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, rng, v.Elem(), path)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rng.IntN(4), 4))
		for i := range v.Len() {
			fill(t, rng, v.Index(i), path)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rng.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(t, rng, key, path)
			fill(t, rng, value, path)
			v.SetMapIndex(key, value)
		}
	default:
		t.Fatalf("%s is a %s: fill it here", path, v.Kind())
	}
}

// TestCacheKeepsNothingElse: what is large is dropped, and the texts of kubelet and OpenKruise are read once.
func TestCacheKeepsNothingElse(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	got := strip(t, NewSharer(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-1", Namespace: "prod", Annotations: map[string]string{"rollcall.dev/drain": "5s", corev1.LastAppliedConfigAnnotation: "{…}"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		},
		Spec: corev1.PodSpec{
			NodeName: "node-1", HostNetwork: true, Volumes: []corev1.Volume{{Name: "data"}},
			Containers: []corev1.Container{
				{Name: "main", Image: "web:1", Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "PASSWORD", Value: "x"}}},
				{Name: "agent", Env: []corev1.EnvVar{{Name: "IS_INJECTED", Value: "true"}}},
			},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
			HostIP: "192.0.2.1", HostIPs: []corev1.HostIP{{IP: "192.0.2.1"}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}},
				{Name: "agent", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
			Conditions: []corev1.PodCondition{
				{Type: "KruisePodReady", Status: corev1.ConditionFalse, LastTransitionTime: now, Message: `[{"userAgent":"Lifecycle"}]`},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: now, Reason: "ContainersNotReady"},
			},
		},
	})
	want := &lifecycle.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "prod", Annotations: map[string]string{"rollcall.dev/drain": "5s"}},
		Spec: lifecycle.PodSpec{NodeName: "node-1", HostNetwork: true, Containers: []lifecycle.Container{
			{Name: "main", Ports: []corev1.ContainerPort{{ContainerPort: 80}}}, {Name: "agent", Injected: true},
		}},
		Status: lifecycle.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", HostIP: "192.0.2.1", NotRunning: []string{"main"}, ShutByHook: true,
			NotReady: "container main: ErrImagePull",
			Conditions: []lifecycle.PodCondition{
				{Type: "KruisePodReady", Status: corev1.ConditionFalse, LastTransitionTime: now},
				{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: now},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
